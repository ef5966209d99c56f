import Crypto
import Foundation
import HTTPTypes
@testable import StoreClients
import StoreSimulator
import Testing
import Transport

/// The token of a request, and what is known of the secret behind it.
@Suite struct OnsideTokenTests {
    @Test func `a token is written as Onside's example`() {
        let token = MerchantToken(
            keyID: "key-2026-01",
            merchantID: "merchant-0001",
            notBefore: 1_790_000_000,
            expires: 1_790_000_030,
            id: "0b7a2f6e-6c1d-4f0b-9d55-2f1a9f2f7a10"
        )
        let key = SymmetricKey(data: Data("example-merchant-secret-not-real".utf8))
        #expect(
            token.signed(with: key)
                == "eyJhbGciOiJIUzI1NiIsImtpZCI6ImtleS0yMDI2LTAxIiwidHlwIjoiSldUIn0.eyJhdWQiOiJvbnNpZGUiLCJpc3MiOiJvbnNp"
                + "ZGUiLCJzdWIiOiJtZXJjaGFudC0wMDAxIiwibmJmIjoxNzkwMDAwMDAwLCJleHAiOjE3OTAwMDAwMzAsImp0aSI6IjBiN2EyZjZlLT"
                + "ZjMWQtNGYwYi05ZDU1LTJmMWE5ZjJmN2ExMCJ9.tzt0epLbQBmyktR3XKuJrF8j7ZN2HgKsvyA8C15RhFo"
        )
    }

    private func configuration(
        _ secret: String = "s3cret-of-ours",
        isBase64: Bool = false
    ) throws(SettingFaults<OnsideConfiguration.Fault>) -> OnsideConfiguration {
        try OnsideConfiguration(
            merchantID: "m",
            merchantSecret: secret,
            secretKeyID: "k",
            bundleID: "b",
            secretIsBase64: isBase64
        )
    }

    @Test func `a new token lives for less than thirty seconds and is never the same`() throws {
        let configuration = try configuration()
        let tokens = (0..<100).map { _ in MerchantToken(for: configuration, now: 1_000) }
        #expect(tokens.allSatisfy { $0.notBefore == 995 && $0.expires == 1_020 })
        #expect(Set(tokens.map(\.id)).count == 100)
    }

    @Test func `the secret is taken as it is written, or as base64`() throws {
        #expect(try configuration("c2VjcmV0").key == SymmetricKey(data: Data("c2VjcmV0".utf8)))
        #expect(try configuration("c2VjcmV0", isBase64: true).key == SymmetricKey(data: Data("secret".utf8)))
        #expect(throws: SettingFaults<OnsideConfiguration.Fault>(faults: [.encodedSecret])) {
            try configuration("no base64", isBase64: true)
        }
    }

    @Test func `every fault is told at once, and no setting's value`() {
        let error = #expect(throws: SettingFaults<OnsideConfiguration.Fault>.self) {
            try OnsideConfiguration(
                merchantID: "a\"b",
                merchantSecret: "",
                secretKeyID: "ke y",
                bundleID: "",
                baseURL: "http://onside.io"
            )
        }
        #expect(error?.faults == [.merchantID, .merchantSecret, .secretKeyID, .bundleID, .insecureBaseURL])
        #expect(error?.description.contains("ke y") == false)
    }

    @Test func `the secret shows in no description`() throws {
        let configuration = try configuration()
        var dumped = ""
        dump([configuration], to: &dumped)
        for text in ["\(configuration)", String(reflecting: configuration), "\([configuration])", dumped] {
            #expect(!text.contains("s3cret"))
        }
    }

    @Test func `neither log lines nor the client's own description tell secrets, tokens and ids`() async throws {
        let bench = try OnsideBench()
        bench.skewClock(by: 3_600)
        _ = try await bench.read()
        bench.skewClock(by: 0)
        bench.simulator.signOnside(.init(with: .otherKey))
        _ = try await bench.read()
        #expect(bench.lines.contains { $0.contains("unauthorized") })
        #expect(bench.lines.contains { $0.contains("bad_signature") })
        let tokens = bench.requests.compactMap { $0.headerFields[.authorization]?.split(separator: " ").last }
        #expect(tokens.count == 3)
        var dumped = ""
        dump(try bench.client(), to: &dumped)
        for text in bench.lines + [dumped] {
            for secret in [OnsideBench.secret, OnsideBench.order, OnsideBench.account] + tokens.map(String.init) {
                #expect(!text.contains(secret))
            }
        }
    }
}
