import Entitlements
import Foundation
import HTTPTypes
import StoreSimulator
import Synchronization
import Testing

@testable import StoreClients

/// Single questions, and the one thing that is written.
struct AppStoreLookupTests {
    private static let transactions = [
        #"original: "2000000100000001", transaction: "2000000100000009", product: monthly, order_id: MABCDEF123"#,
        #"original: "2000000100000002", product: shared, ownership: FAMILY_SHARED"#,
        #"original: "2000000100000003", product: coins, type: consumable, state: refunded, order_id: MABCDEF123"#,
    ]

    private func failure<Value>(
        _ body: () async throws(ReadFailure) -> Value
    ) async -> ReadFailure? {
        do throws(ReadFailure) {
            _ = try await body()
            return nil
        } catch {
            return error
        }
    }

    // MARK: Transactions

    @Test func `a transaction is found by its own id and by the original one, of any kind`() async throws {
        let client = try SimulatedAppStore(transactions: Self.transactions).client()
        for id in ["2000000100000001", "2000000100000009"] {
            let found = try await client.transaction(id, in: nil, lane: .restore)
            #expect(found?.transactionID == "2000000100000009" && found?.productID == "monthly")
        }
        let coins = try await client.transaction("2000000100000003", in: .production, lane: .restore)
        #expect(coins?.type == "Consumable")
        #expect(try await client.transaction("2000000100000003", in: .sandbox, lane: .restore) == nil)
        #expect(try await client.transaction("2000000999999999", in: nil, lane: .restore) == nil)
    }

    @Test func `97: a transaction of the sandbox is found there, after production`() async throws {
        let store = try SimulatedAppStore(environment: "Sandbox", transactions: Self.transactions)
        let found = try await store.client().transaction("2000000100000009", in: nil, lane: .restore)
        #expect(found?.environment == "Sandbox")
        #expect(store.budgets == ["production transaction", "sandbox transaction"])
    }

    @Test func `an id that the store takes for none is nobody's, and trouble is trouble`() async throws {
        let store = try SimulatedAppStore(
            extra: #"app_transaction: "704000000000000001""#,
            transactions: Self.transactions
        )
        let client = try store.client()
        #expect(try await client.transaction("704000000000000001", in: nil, lane: .restore) == nil)
        try store.control("POST", "/faults", #"{"status":404,"error_type":"4040006"}"#)
        let passing = await failure { () throws(ReadFailure) in
            try await client.transaction("2000000100000001", in: nil, lane: .restore)
        }
        #expect(passing == ReadFailure(.unavailable, store: .appStore))
    }

    @Test func `a transaction that does not verify is a failure, not an absence`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.transactions[0] + ", flaw: bad_signature"])
        let client = try store.client()
        let bad = await failure { () throws(ReadFailure) in
            try await client.transaction("2000000100000001", in: nil, lane: .restore)
        }
        #expect(bad == ReadFailure(.malformed, store: .appStore))
    }

    // MARK: Orders

    @Test func `an order leads to its transactions, and a number that is not valid to none`() async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        let client = try store.client()
        let found = try await client.order("MABCDEF123", lane: .support)
        #expect(found.map(\.productID) == ["monthly", "coins"])
        // The store says 200 with a status of 1.
        #expect(try await client.order("MNOTHING", lane: .support).isEmpty)
        #expect(store.budgets == ["production lookup", "production lookup"])
    }

    @Test(arguments: ["", "M/../x", "M A", "M%41", "MÄ", "M-1", String(repeating: "M", count: 33)])
    func `what is no order number is not sent`(id: String) async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        #expect(try await store.client().order(id, lane: .support).isEmpty)
        #expect(store.requests.isEmpty)
    }

    // MARK: Refunds

    @Test func `all refunds are read, page by page, or none`() async throws {
        let many = (0..<45).map {
            #"original: "\#(2_000_000_200_000_000 + $0)", product: "p\#($0)", type: consumable, state: refunded"#
        }
        let store = try SimulatedAppStore(transactions: many + [Self.transactions[0]])
        let refunds = try await store.client().refunds(of: "2000000100000001", in: nil, lane: .support)
        #expect(refunds.count == 45 && refunds.allSatisfy { $0.revokedAt != nil })
        #expect(store.requests.count == 3)
        #expect(try await store.client().refunds(of: "2000000999999999", in: nil, lane: .support).isEmpty)
        try store.control("POST", "/faults", #"{"endpoint":"app_store.refunds","status":500,"skip":1}"#)
        let client = try store.client()
        let failed = await failure { () throws(ReadFailure) in
            try await client.refunds(of: "2000000100000001", in: nil, lane: .support)
        }
        #expect(failed == ReadFailure(.unavailable, store: .appStore))
    }

    // MARK: Account tokens

    @Test func `an account token is written and read again`() async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        let client = try store.client()
        let token = UUID()
        let answer = try await client.setAppAccountToken(
            token,
            on: "2000000100000001",
            in: .production,
            lane: .event
        )
        #expect(answer == .set)
        #expect(store.bodies == [#"{"appAccountToken":"\#(token.uuidString.lowercased())"}"#])
        #expect(store.requests.map(\.method) == [.put])
        #expect(store.requests.map { $0.headerFields[.contentType] } == ["application/json"])
        #expect(try await store.read("2000000100000001").observations.first?.accountID == token.uuidString.lowercased())
    }

    @Test(arguments: [
        ("2000000100000002", AppStoreTokenAnswer.familyShared), ("2000000100000009", .notOriginal),
        ("2000000999999999", .unknown), ("704000000000000001", .rejected),
    ])
    func `why a token is not taken is told`(id: String, expected: AppStoreTokenAnswer) async throws {
        let store = try SimulatedAppStore(
            extra: #"app_transaction: "704000000000000001""#,
            transactions: Self.transactions
        )
        let client = try store.client()
        let answer = try await client.setAppAccountToken(UUID(), on: id, in: .production, lane: .event)
        #expect(answer == expected)
        #expect(store.reports.map(\.failure) == [nil])
    }

    @Test(arguments: [
        (4_000_000, AppStoreTokenAnswer.rejected), (4_000_006, .rejected), (4_000_008, .rejected),
        (4_000_047, .rejected), (4_000_048, .rejected), (4_000_183, .rejected), (4_000_185, .familyShared),
        (4_000_187, .notOriginal), (4_040_001, .unknown), (4_040_005, .unknown), (4_040_010, .unknown),
    ])
    func `each refusal of a token is told apart from a failure`(code: Int, expected: AppStoreTokenAnswer) async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control(
            "POST",
            "/faults",
            #"{"endpoint":"app_store.token","status":\#(code / 10_000),"error_type":"\#(code)"}"#
        )
        let answer = try await store.client().setAppAccountToken(
            UUID(),
            on: "2000000100000001",
            in: .production,
            lane: .support
        )
        #expect(answer == expected)
        #expect(store.reports.map(\.failure) == [nil], "the store is well")
    }

    @Test(arguments: [
        (4_000_002, ReadFailure.Code.unauthorized), (4_040_002, .unavailable), (4_040_003, .unauthorized),
        (4_040_004, .unavailable), (4_040_006, .unavailable), (4_290_000, .throttled), (5_000_000, .unavailable),
        (5_000_001, .unavailable),
    ])
    func `what the App Store calls passing is no refusal of a token`(code: Int, expected: ReadFailure.Code) async throws
    {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        try store.control(
            "POST",
            "/faults",
            #"{"endpoint":"app_store.token","status":\#(code / 10_000),"error_type":"\#(code)"}"#
        )
        let client = try store.client()
        let failed = await failure { () throws(ReadFailure) in
            try await client.setAppAccountToken(UUID(), on: "2000000100000001", in: .production, lane: .support)
        }
        #expect(failed?.code == expected)
    }

    @Test func `a store in trouble has not answered`() async throws {
        let store = try SimulatedAppStore(transactions: Self.transactions)
        let client = try store.client()
        for (status, code) in [(500, ReadFailure.Code.unavailable), (429, .throttled), (401, .unauthorized)] {
            try store.control("DELETE", "/faults")
            try store.control("POST", "/faults", #"{"endpoint":"app_store.token","status":\#(status)}"#)
            let failed = await failure { () throws(ReadFailure) in
                try await client.setAppAccountToken(UUID(), on: "2000000100000001", in: .production, lane: .event)
            }
            #expect(failed?.code == code)
        }
        try store.control("DELETE", "/faults")
        try store.control("POST", "/faults", #"{"endpoint":"app_store.token","body":"html"}"#)
        let page = await failure { () throws(ReadFailure) in
            try await client.setAppAccountToken(UUID(), on: "2000000100000001", in: .production, lane: .event)
        }
        #expect(page?.code == .malformed, "a web page is no consent")
    }

    // MARK: Notifications

    private func notifying(_ count: Int) throws -> SimulatedAppStore {
        let sent = (0..<count).map {
            #"    - {uuid: "n\#($0)", type: DID_RENEW, transaction: "2000000100000001", at: -2h, delivered: \#($0 % 2 == 0)}"#
        }.joined(separator: "\n")
        return try SimulatedAppStore(
            """
            app_store:
              customers: [{id: a, transactions: [{original: "2000000100000001", product: monthly}]}]
              notifications:
            \(sent)
            """
        )
    }

    private func payloads(
        _ store: SimulatedAppStore,
        onlyFailures: Bool = false
    ) async throws -> [String] {
        let now = Int64(Date().timeIntervalSince1970) * 1_000_000
        let found = Mutex<[String]>([])
        try await store.client().notifications(
            from: Instant(microseconds: now - 86_400_000_000),
            until: Instant(microseconds: now),
            onlyFailures: onlyFailures,
            in: .production,
            lane: .sweep
        ) { page in found.withLock { $0 += page } }
        return found.withLock { $0 }
    }

    @Test func `notifications are listed page by page`() async throws {
        let store = try notifying(45)
        let found = try await payloads(store)
        #expect(found.count == 45 && Set(found).count == 45 && store.requests.count == 3)
        #expect(Set(store.bodies).count == 1, "every page is asked for with the same filters")
        #expect(store.requests.map(\.method) == [.post, .post, .post])
        let failed = try notifying(45)
        #expect(try await payloads(failed, onlyFailures: true).count == 22)
        #expect(failed.bodies.allSatisfy { $0.contains(#""onlyFailures":true"#) })
    }

    @Test func `a place that has expired starts the list anew, once`() async throws {
        let store = try notifying(45)
        let rule = #"{"endpoint":"app_store.notifications","status":400,"error_type":"4000017","skip":1"#
        try store.control("POST", "/faults", rule + #","times":1}"#)
        let found = try await payloads(store)
        #expect(found.count == 65 && store.requests.count == 5)
        try store.control("DELETE", "/faults")
        try store.control("POST", "/faults", rule + #","every":2}"#)
        await #expect(throws: ReadFailure(.unavailable, store: .appStore)) { try await payloads(store) }
    }

    @Test func `whoever takes the pages may stop`() async throws {
        struct Enough: Error {}
        let store = try notifying(45)
        let client = try store.client()
        let now = Int64(Date().timeIntervalSince1970) * 1_000_000
        await #expect(throws: Enough.self) {
            try await client.notifications(
                from: Instant(microseconds: now - 86_400_000_000),
                until: Instant(microseconds: now),
                onlyFailures: false,
                in: .production,
                lane: .sweep
            ) { _ in throw Enough() }
        }
        #expect(store.requests.count == 1)
    }
}
