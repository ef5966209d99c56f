import Crypto
import TextFormats
package import Transport

/// Where the App Store is, and with which key we ask it.
package struct AppStoreConfiguration: Sendable {
    package let issuerID: String
    package let keyID: String
    package let bundleID: String
    /// The key that signs our requests, which is never described.
    let key: P256.Signing.PrivateKey
    private let production: BaseURL
    private let sandbox: BaseURL

    /// Checks and keeps the settings; throws every fault at once.
    ///
    /// The issuer's id is the UUID on the account's page of keys, the key's that of an In-App Purchase key such as
    /// `2X9R4HXF34`, and the private key its file (`.p8`): PEM with PKCS#8. Plain http is taken for loopback hosts
    /// only.
    package init(
        issuerID: String,
        keyID: String,
        privateKey: String,
        bundleID: String,
        baseURL: String = "https://api.storekit.apple.com",
        sandboxBaseURL: String = "https://api.storekit-sandbox.apple.com"
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        // They stand in JSON and in a URL as they are.
        if !Self.isWord(issuerID, upTo: 64) { faults.append(.issuerID) }
        if !Self.isWord(keyID, upTo: 64) { faults.append(.keyID) }
        if !Self.isWord(bundleID, upTo: 255) { faults.append(.bundleID) }
        let key = try? P256.Signing.PrivateKey(pemRepresentation: privateKey)
        if key == nil { faults.append(.privateKey) }
        let production = BaseURL.read(baseURL, malformed: .baseURL, insecure: .insecureBaseURL, &faults)
        let sandbox = BaseURL.read(
            sandboxBaseURL,
            malformed: .sandboxBaseURL,
            insecure: .insecureSandboxBaseURL,
            &faults
        )
        guard let key, let production, let sandbox, faults.isEmpty else { throw SettingFaults(faults: faults) }
        self.issuerID = issuerID
        self.keyID = keyID
        self.bundleID = bundleID
        self.key = key
        self.production = production
        self.sandbox = sandbox
    }

    func base(_ environment: AppStoreEnvironment) -> BaseURL { environment == .production ? production : sandbox }

    /// Whether a text is made of letters, digits, `-`, `.` and `_`, as all ids of Apple's are.
    private static func isWord(_ text: String, upTo limit: Int) -> Bool {
        (1...limit).contains(text.utf8.count) && PercentCoding.encode(text) == text && !text.contains("~")
    }
}

extension AppStoreConfiguration: RedactedSettings {
    /// The settings without the key.
    package var description: String {
        "AppStoreConfiguration(\(bundleID), \(production.text), \(sandbox.text), key redacted)"
    }
}

extension AppStoreConfiguration {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable {
        case issuerID = "the issuer id is not the UUID on the account's page of keys"
        case keyID = "the key id is empty or holds characters other than letters and digits"
        case bundleID = "the bundle id is empty or holds characters that no bundle id has"
        case privateKey = "the private key is not a .p8 file: PEM with a key of the curve P-256"
        case baseURL = "the base URL is not of the form https://host[:port][/path]"
        case insecureBaseURL = "the base URL is plain http to a host other than loopback"
        case sandboxBaseURL = "the sandbox's base URL is not of the form https://host[:port][/path]"
        case insecureSandboxBaseURL = "the sandbox's base URL is plain http to a host other than loopback"
    }
}
