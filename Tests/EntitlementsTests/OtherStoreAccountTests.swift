@testable import Entitlements
import Foundation
import Testing

/// The store account of the device, and what it adds to an answer that would say nothing.
@Suite struct OtherStoreAccountTests {
    private static let (first, second) = (UUID(), UUID())

    private static func claims(_ hash: UUID?, environment: String = "production") -> ClaimFindings {
        var account = SubmittedAccount(id: "704", environment: environment, app: "com.example.app")
        account.hash = hash
        var claims = ClaimFindings()
        claims.accounts = [account]
        return claims
    }

    private static func item(_ status: String, access: Bool?, in account: UUID, key: String = "premium") -> Observation
    {
        var item = stored(.account, status, access: access, entitlements: [key])
        item.storeAccount = StoreAccount(answer: "1", id: "x")
        item.storeAccount?.hash = account
        return item
    }

    private static func key(_ claims: ClaimFindings, _ items: [Observation] = [], sandbox: SandboxState = .none)
        -> MessageKey?
    {
        var input = Scene(.restore, .free).input
        input.reading.observations = items
        input.attributions = items.map { _ in .new }
        input.rows = items.map { _ in nil }
        input.reading.claims = claims
        input.sandbox = sandbox
        guard case .verdict(let verdict) = decide(input) else { return nil }
        return verdict.messageKey
    }

    @Test func `an account without a purchase of the user's refines nothing, and only nothing`() {
        let device = Self.claims(Self.first)
        #expect(Self.key(device) == .nothingOtherStoreAccount)
        #expect(Self.key(Self.claims(nil)) == .nothing, "an account without a hash is none")
        #expect(Self.key(ClaimFindings()) == .nothing)
        #expect(Self.key(device, [Self.item("owned", access: true, in: Self.first, key: "badge")]) == .nothing)
        let elsewhere = Self.item("owned", access: true, in: Self.second, key: "badge")
        #expect(Self.key(device, [elsewhere]) == .nothingOtherStoreAccount)
        let words: [(String, MessageKey)] = [
            ("expired", .nothingExpired), ("in_billing_retry", .nothingBillingRetry), ("paused", .nothingPaused),
            ("refunded", .nothingRefunded),
        ]
        for (word, key) in words {
            for account in [Self.first, Self.second] {
                #expect(Self.key(device, [Self.item(word, access: false, in: account)]) == key, "\(word)")
            }
        }
        #expect(Self.key(device, [Self.item("active", access: true, in: Self.second)]) == .restored)
    }

    @Test func `purchases of a sandbox say more, and an account of one counts for testers alone`() {
        var trial = Self.item("active", access: true, in: Self.second)
        trial.environment = "sandbox"
        #expect(Self.key(Self.claims(Self.first), [trial]) == .nothingSandbox)
        let tester = Self.claims(Self.first, environment: "sandbox")
        #expect(Self.key(tester) == .nothing)
        #expect(Self.key(tester, sandbox: .past) == .nothing)
        #expect(Self.key(tester, sandbox: .allowed) == .nothingOtherStoreAccount)
    }

    @Test func `a purchase on record under the account is enough, listed or not`() {
        var input = Scene(.restore, .free).input
        input.reading.claims = Self.claims(Self.first)
        var row = Purchase(
            id: 1,
            ownerKey: input.userKey,
            status: StoreStatus("owned"),
            givesAccess: nil,
            entitlements: ["badge"],
            observedAt: noon - day,
            firstSeenAt: noon - day,
            ownerSince: noon - day
        )
        for (account, isOther) in [(Self.first, false), (Self.second, true)] as [(UUID, Bool)] {
            row.storeAccount = account
            input.ledger = [row]
            #expect(input.usesOtherStoreAccount == isOther)
        }
        // What is not known may be this one.
        row.storeAccount = nil
        input.ledger = [row]
        #expect(!input.usesOtherStoreAccount)
        row.store = "google_play"
        input.ledger = [row]
        #expect(input.usesOtherStoreAccount, "it has no account of the App Store")
        row.store = "app_store"
        row.ownerKey = input.userKey + 1
        input.ledger = [row]
        #expect(input.usesOtherStoreAccount, "it is another user's by now")
        // The store has just said it.
        row.ownerKey = input.userKey
        input.ledger = [row]
        input.reading.observations = [Self.item("owned", access: true, in: Self.second, key: "badge")]
        input.attributions = [.new]
        input.rows = [row]
        #expect(input.usesOtherStoreAccount)
        input.reading.observations[0].storeAccount = nil
        #expect(!input.usesOtherStoreAccount)
        input.attributions = [.anonymous]
        #expect(!input.usesOtherStoreAccount, "the row stays")
        input.ledger = []
        #expect(input.usesOtherStoreAccount, "it counts for nothing")
    }
}
