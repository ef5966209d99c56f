import Entitlements
import Foundation
@testable import StoreClients
import StoreSimulator
import Synchronization
import Testing
import Transport

/// Which requests a reading takes, and how much it may say afterwards.
struct AppStoreReadTests {
    private static let line = #"original: "2000000100000001", product: monthly"#
    private static let lifetime = #"original: "2000000100000050", product: lifetime, type: non_consumable"#

    /// Purchases for ever, with ids that count up.
    private static func purchases(_ count: Int) -> [String] {
        (0..<count).map { #"original: "\#(2_000_000_200_000_000 + $0)", product: "p\#($0)", type: non_consumable"# }
    }

    @Test func `statuses come first, then all other purchases`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line, Self.lifetime])
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full && reading.failure == nil && reading.requests == 2)
        #expect(reading.observations.map(\.productID) == ["monthly", "lifetime"])
        #expect(
            store.targets == [
                "/app-store/inApps/v1/subscriptions/2000000100000001",
                "/app-store/inApps/v2/history/2000000100000001?productType=NON_CONSUMABLE&productType=NON_RENEWABLE"
                    + "&sort=ASCENDING",
            ]
        )
        #expect(store.budgets == ["production statuses", "production history"])
    }

    @Test func `a line that gives access spares the rest, which is partial then`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line, Self.lifetime])
        let reading = try await store.read("2000000100000001") { $0 == ["app_store:monthly"] }
        #expect(reading.coverage == .partial && reading.failure == nil && reading.requests == 1)
        #expect(reading.observations.map(\.givesAccess) == [true])
        let other = try await store.read("2000000100000001") { $0 == ["app_store:yearly"] }
        #expect(other.coverage == .full && other.requests == 2)
        let expired = try SimulatedAppStore(transactions: [Self.line + ", state: expired"])
        let reread = try await expired.read("2000000100000001") { _ in true }
        #expect(reread.coverage == .full && reread.requests == 2, "what gives no access spares nothing")
    }

    @Test func `97: what production does not know is asked of the sandbox, and counts as the sandbox's`() async throws {
        let store = try SimulatedAppStore(environment: "Sandbox", transactions: [Self.line, Self.lifetime])
        let reading = try await store.read("2000000100000001", environment: nil)
        #expect(reading.coverage == .full && reading.requests == 3)
        #expect(reading.observations.map(\.environment) == ["sandbox", "sandbox"])
        #expect(reading.observations.allSatisfy { $0.isSandbox })
        #expect(reading.observations.flatMap(\.identifiers).allSatisfy { $0.environment == "sandbox" })
        #expect(store.budgets == ["production statuses", "sandbox statuses", "sandbox history"])
        // Where the environment is known, that one alone is asked.
        let known = try await store.read("2000000100000001", environment: .production)
        #expect(known.coverage == .full && known.observations.isEmpty && known.requests == 1)
        let sandbox = try await store.read("2000000100000001", environment: .sandbox)
        #expect(sandbox.observations.count == 2 && sandbox.requests == 2)
    }

    @Test func `an id that nobody knows is a full and empty reading`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        let reading = try await store.read("2000000999999999", environment: nil)
        #expect(reading.coverage == .full && reading.observations.isEmpty && reading.requests == 2)
        #expect(reading.failure == nil)
    }

    @Test func `a purchase that certainly exists and is not found is not visible yet`() async throws {
        let store = try SimulatedAppStore(extra: "visible_after: 5s", transactions: [Self.line, Self.lifetime])
        let id = "2000000100000001"
        try store.control("POST", "/clock", #"{"frozen":true}"#)
        let early = try await store.read(id, environment: nil, isFromClient: true, isProven: true)
        #expect(early.coverage == .none && early.failure == ReadFailure(.unavailable, store: .appStore))
        #expect(early.failure?.treatment == .retry)
        #expect(store.reports.allSatisfy { !$0.countsForBreaker }, "the store is well")
        let unproven = try await store.read(id, environment: nil, isFromClient: true)
        #expect(unproven.coverage == .full && unproven.failure == nil)
        try store.control("POST", "/clock", #"{"shift":"+5s"}"#)
        let late = try await store.read(id, environment: nil, isFromClient: true, isProven: true)
        #expect(late.coverage == .full && late.observations.count == 2)
    }

    @Test(arguments: [(404, "4040001"), (404, "4040005"), (404, "4040010"), (400, "4000006"), (400, "")])
    func `what certainly exists is no absence, however it is denied`(status: Int, code: String) async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        let type = code.isEmpty ? "" : #","error_type":"\#(code)""#
        try store.control("POST", "/faults", #"{"endpoint":"app_store.statuses","status":\#(status)\#(type)}"#)
        let id = "2000000100000001"
        let proven = try await store.read(id, environment: nil, isFromClient: true, isProven: true)
        #expect(proven.coverage == .none && proven.failure == ReadFailure(.unavailable, store: .appStore))
        #expect(store.reports.allSatisfy { !$0.countsForBreaker })
        #expect(try await store.read(id, environment: nil, isFromClient: true).coverage == .full)
    }

    @Test(arguments: [
        "", "abc", "1e5", "2000000100000001/../x", "%32", "-1", "１２３", String(repeating: "1", count: 33), "1 2", "1\n",
    ])
    func `what is no id is not sent and is nobody's`(id: String) async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        let reading = try await store.read(id, environment: nil, isFromClient: true, isProven: true)
        #expect(reading.coverage == .full && reading.observations.isEmpty && reading.requests == 0)
        #expect(try await store.client().transaction(id, in: nil, lane: .restore) == nil)
        #expect(try await store.client().refunds(of: id, in: nil, lane: .support).isEmpty)
        #expect(
            try await store.client().setAppAccountToken(UUID(), on: id, in: .production, lane: .event) == .unknown
        )
        #expect(store.requests.isEmpty)
    }

    @Test func `45 purchases are three pages, and one that changes meanwhile counts as it is in the end`() async throws
    {
        let store = try SimulatedAppStore(transactions: Self.purchases(45))
        let changed = "2000000200000003"
        // Between the first page and the second the fourth purchase is refunded, and comes again at the end.
        store.alter { target, _ in
            guard target.contains("/history/"), !target.contains("revision=") else { return }
            let customer = Self.purchases(45).enumerated()
                .map { Self.json($0.element + ($0.offset == 3 ? ", state: refunded" : "")) }.joined(separator: ",")
            _ = try? store.control("PUT", "/app-store/customers/alice", #"{"transactions":[\#(customer)]}"#)
        }
        let reading = try await store.read(changed)
        #expect(reading.requests == 4 && reading.coverage == .full)
        #expect(reading.observations.count == 45)
        let refunded = reading.observations.filter { $0.status.known == .refunded }
        #expect(refunded.map(\.lookupID) == [changed])
        #expect(Set(reading.observations.compactMap(\.lookupID)).count == 45)
        let revisions = store.targets.compactMap { $0.split(separator: "revision=").dropFirst().first }
        #expect(revisions.count == 2 && revisions[0] != revisions[1])
    }

    /// YAML of one transaction as JSON.
    private static func json(_ yaml: String) -> String {
        let pairs = yaml.split(separator: ", ").map { pair in
            let parts = pair.split(separator: ": ")
            let value = parts[1].hasPrefix("\"") ? String(parts[1]) : "\"\(parts[1])\""
            return "\"\(parts[0])\":\(value)"
        }
        return "{\(pairs.joined(separator: ","))}"
    }

    @Test func `the second of three pages fails: what was read stays, and nothing is taken for absent`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line] + Self.purchases(45))
        try store.control("POST", "/faults", #"{"endpoint":"app_store.history","status":500,"skip":1,"times":1}"#)
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .partial && reading.failure == ReadFailure(.unavailable, store: .appStore))
        #expect(reading.observations.count == 21 && reading.requests == 3)
    }

    @Test func `a place that does not move ends the reading as a failure`() async throws {
        let store = try SimulatedAppStore(transactions: Self.purchases(45))
        let first = Mutex<HTTPClientResponse?>(nil)
        store.alter { target, response in
            guard target.contains("/history/") else { return }
            response = first.withLock { known in
                known = known ?? response
                return known ?? response
            }
        }
        let reading = try await store.read("2000000200000000")
        #expect(reading.coverage == .partial && reading.observations.count == 20)
        #expect(reading.failure == ReadFailure(.malformed, store: .appStore) && reading.requests == 3)
    }

    @Test func `more than fifty pages are never a full reading`() async throws {
        let store = try SimulatedAppStore(transactions: Self.purchases(1001))
        let reading = try await store.read("2000000200000000")
        #expect(reading.coverage == .partial && reading.requests == 51 && reading.observations.count == 1000)
        let whole = try SimulatedAppStore(transactions: Self.purchases(1000))
        #expect(try await whole.read("2000000200000000").coverage == .full)
    }

    @Test func `an answer about another app or environment is no answer`() async throws {
        let answers = [
            (#""bundleId":"com.example.app""#, #""bundleId":"com.example.other""#),
            (#""environment":"Production""#, #""environment":"Sandbox""#),
        ]
        for (text, other) in answers {
            for (part, coverage) in [("/subscriptions/", Coverage.none), ("/history/", .partial)] {
                let store = try SimulatedAppStore(transactions: [Self.line, Self.lifetime])
                store.replace(text, with: other, where: part)
                let reading = try await store.read("2000000100000001")
                #expect(reading.coverage == coverage && reading.failure?.code == .malformed, "\(part) \(other)")
            }
        }
    }

    @Test(arguments: ["bad_signature", "foreign_root", "foreign_bundle", "foreign_environment", "foreign_renewal"])
    func `a signed text that does not count can't be read, and the other lines stand`(
        flaw: String
    ) async throws {
        let store = try SimulatedAppStore(transactions: [
            Self.line + ", flaw: \(flaw)", #"original: "2000000100000002", product: yearly"#, Self.lifetime,
        ])
        let reading = try await store.read("2000000100000002")
        #expect(reading.coverage == .full && reading.hasUnreadable && reading.failure == nil)
        #expect(reading.observations.map(\.productID) == ["yearly", "lifetime"])
        #expect(store.reports.allSatisfy { $0.failure == nil }, "one odd item is no word on the store's health")
    }

    @Test func `a line whose transaction is another's does not count`() async throws {
        let store = try SimulatedAppStore(transactions: [Self.line])
        store.replace(
            #""originalTransactionId":"2000000100000001""#,
            with: #""originalTransactionId":"2000000100000002""#,
            where: "/subscriptions/"
        )
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full && reading.hasUnreadable && reading.observations.isEmpty)
    }

    @Test(arguments: [#""status":"1""#, #""status":null"#, #""status":{}"#])
    func `a line whose status can't be read takes nothing from the rest`(status: String) async throws {
        let store = try SimulatedAppStore(transactions: [Self.line, Self.lifetime])
        store.replace(#""status":1"#, with: status, where: "/subscriptions/")
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full && reading.hasUnreadable && reading.failure == nil)
        #expect(reading.observations.map(\.productID) == ["lifetime"])
    }
}
