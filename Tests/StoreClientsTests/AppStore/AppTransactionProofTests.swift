import Entitlements
import Foundation
import Logging
@testable import SignedTokens
@testable import StoreClients
import StoreSimulator
import Testing

/// Signed app transactions: verified as transactions are, and never taken for one.
struct AppTransactionProofTests {
    private static let authority = Result { try AppStoreAuthority() }
    private static let now = Int64(Date().timeIntervalSince1970 * 1000)

    private static func payload(_ changes: [String: Any] = [:]) throws -> String {
        var members: [String: Any] = [
            "receiptType": "Production", "appAppleId": 1_234_567_890, "bundleId": "com.example.app",
            "applicationVersion": "7", "versionExternalIdentifier": 877_000_000, "receiptCreationDate": now,
            "originalPurchaseDate": now - 86_400_000, "originalApplicationVersion": "1", "originalPlatform": "iOS",
            "deviceVerification": "c2ln", "deviceVerificationNonce": "48c8b92d-ce0d-4229-bedf-e61b4f9cfc92",
            "appTransactionId": "704289572311513293",
        ]
        for (name, value) in changes { members[name] = value is NSNull ? nil : value }
        return String(decoding: try JSONSerialization.data(withJSONObject: members), as: UTF8.self)
    }

    private static func proofs(_ authority: AppStoreAuthority) -> AppStoreProofs {
        AppStoreProofs(
            roots: [authority.certificates.root],
            expected: AppStoreProofs.Expectation(bundleID: "com.example.app")
        )
    }

    @Test func `an app transaction that the store signed verifies and names the store account`() async throws {
        let authority = try Self.authority.get()
        let text = try authority.sign(Self.payload())
        let transaction = try await Self.proofs(authority).appTransaction(text)
        #expect(transaction.appTransactionID == "704289572311513293" && transaction.environment == "Production")
        #expect(transaction.bundleID == "com.example.app" && transaction.signedAt == Instant(milliseconds: Self.now))
        #expect(AppStoreProofs.unverifiedApp(text) == transaction)
        for odd in [NSNull(), "", 704, String(repeating: "7", count: 65)] as [Any] {
            let text = try authority.sign(Self.payload(["appTransactionId": odd]))
            #expect(try await Self.proofs(authority).appTransaction(text).appTransactionID == nil, "\(odd)")
        }
    }

    static let refusals: [(name: String, changes: [String: any Sendable], code: ProofRefusal.Code)] = [
        ("another app", ["bundleId": "com.example.other"], .wrongBundle),
        ("another environment", ["receiptType": "Xcode"], .wrongEnvironment),
        ("no environment", ["receiptType": NSNull()], .malformed), ("no app", ["bundleId": NSNull()], .malformed),
        ("no date", ["receiptCreationDate": NSNull()], .malformed),
        ("from before its certificates", ["receiptCreationDate": 1_000_000_000_000], .notYetValid),
        ("from after its certificates", ["receiptCreationDate": 4_070_908_800_000], .expired),
    ]

    @Test(arguments: refusals.map(\.name))
    func `what is about something else is refused`(name: String) async throws {
        let each = try #require(Self.refusals.first { $0.name == name })
        let authority = try Self.authority.get()
        let text = try authority.sign(Self.payload(each.changes))
        await #expect(throws: ProofRefusal.self) { _ = try await Self.proofs(authority).appTransaction(text) }
        do throws(ProofRefusal) { _ = try await Self.proofs(authority).appTransaction(text) } catch {
            #expect(error.code == each.code)
        }
    }

    @Test func `neither is taken for the other, and another authority signs nothing`() async throws {
        let authority = try Self.authority.get()
        let proofs = Self.proofs(authority)
        let device = try authority.sign(Self.payload())
        await #expect(throws: ProofRefusal.self) { _ = try await proofs.transaction(device) }
        let simulator = try StoreSimulator(
            scenario: Scenario(
                yaml: """
                    app_store:
                      customers:
                        - id: ann
                          transactions: [{original: "2000000100000001", product: premium_monthly}]
                    """
            ),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        )
        let simulated = AppStoreProofs(
            roots: [try StoreSimulator.appStoreRoot],
            expected: AppStoreProofs.Expectation(bundleID: "com.example.app")
        )
        let bought = try #require(try simulator.appStoreProof(ofTransaction: "2000000100000001"))
        let own = try #require(try simulator.appTransaction(ofAccount: "ann"))
        // Both name the account by the same id.
        #expect(
            try await simulated.transaction(bought).appTransactionID
                == (try await simulated.appTransaction(own).appTransactionID)
        )
        await #expect(throws: ProofRefusal.self) { _ = try await simulated.appTransaction(bought) }
        await #expect(throws: ProofRefusal.self) { _ = try await simulated.appTransaction(device) }
        #expect(try simulator.appTransaction(ofAccount: "bob") == nil)
    }
}
