import Testing

@testable import Configuring

@Suite struct SecrecyTests {
    private static let hush = "hush-4f1c"

    @Test func `No way of printing a configuration shows a secret`() throws {
        let config = try Config.load(environment: [
            "DATABASE_URL": "postgres://user:\(Self.hush)@host/app",
            "DATABASE_DIRECT_URL": "host=db password=\(Self.hush)",
            "REVENUECAT_API_KEY": Self.hush, "REVENUECAT_PROJECT_ID": "proj1",
        ])
        #expect(config.revenueCat.first?.apiKey.reveal() == Self.hush)
        #expect(printings(of: config).allSatisfy { !$0.contains(Self.hush) })
        #expect("\(config)".contains("<redacted>"))
        #expect("\(config)".contains("proj1"))
    }

    @Test func `No way of printing a secret shows it, also within other values`() {
        let secret = Secret(Self.hush)
        #expect(printings(of: secret).allSatisfy { !$0.contains(Self.hush) })
        #expect(printings(of: [secret]).allSatisfy { !$0.contains(Self.hush) })
        #expect(printings(of: ["key": Optional(secret)]).allSatisfy { !$0.contains(Self.hush) })
        #expect(Mirror(reflecting: secret).children.isEmpty)
        #expect("\(secret)" == "<redacted>")
    }

    @Test(arguments: [
        "DATABASE_URL", "DATABASE_DIRECT_URL", "REVENUECAT_API_KEY", "DATABASE_URL_FILE", "REVENUECAT_API_KEY_FILE",
        "REVENUECAT_BASE_URL", "SUPPORT_CONTACT_URL", "REVENUECAT_PROJECT_ID",
    ])
    func `A fault never quotes what may be a secret`(name: String) throws {
        // Wrong for every one of these: a space, a user in the address, a path that does not exist.
        let faults = try faults(of: [name: "https://u:\(Self.hush)@host/ x"])
        #expect(faults.map(\.variable) == [name])
        let error = ConfigurationFaults(faults: faults)
        #expect(printings(of: error).allSatisfy { !$0.contains(Self.hush) })
    }

    private func printings(of value: Any) -> [String] {
        var dumped = ""
        dump(value, to: &dumped)
        return ["\(value)", String(reflecting: value), dumped]
    }
}
