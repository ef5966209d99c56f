import Entitlements
import Foundation
import HTTPTypes
import Logging
import Migrations
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import Transport
import UserRequests

/// A host application's database, a simulated RevenueCat and the people who tap: all that a worker meets.
struct World: HostDatabase {
    let database: TestDatabase
    let pool: PostgresPool
    /// Serves one worker after the other: connections and their plans cost more than what most tests do with them.
    let workerPool: PostgresPool
    let transport: HTTPTransport
    let simulatorPort: Int
    let simulator: StoreSimulator

    var storeURL: String { "http://127.0.0.1:\(simulatorPort)/v2" }
    var requests: Requests { Requests(pool: pool) }
    var controls: Controls { Controls(pool: pool) }
    var commands: JobCommands { JobCommands(pool: pool) }

    /// Databases for worlds that need nothing of their server.
    private static let shelf = DatabaseShelf(.selling, worker: { .worker(at: $0) })

    /// Builds a world, lets the test act in it, and takes it down.
    ///
    /// `customers`: RevenueCat's customers, each one line of YAML such as `{id: user-1, state: active}`.
    /// `scenario`: further lines of the scenario. `own`: a database server of one's own, for what all others would see.
    /// `isFresh`: the database is new, for what counts or measures what the server did with it.
    static func with(
        customers: [String] = [],
        scenario: String = "",
        on own: PrivatePostgres? = nil,
        isFresh: Bool = false,
        _ body: @Sendable (World) async throws -> Void
    ) async throws {
        let list = customers.map { "  - \($0)\n" }.joined()
        let text = "rate_limit_per_minute: 0\n" + (list.isEmpty ? "" : "customers:\n\(list)") + scenario + "\n"
        // A few worlds at a time: each has a worker with connections of its own.
        try await Places.shared.withPlace {
            guard own != nil || isFresh else {
                return try await shelf.withPlace { place in
                    try await with(place.database, place.pool, place.workerPool, scenario: text, body)
                }
            }
            let shared = try await PrivatePostgres.shared
            let server = own ?? shared
            let database = try await server.database(.selling)
            try await run {
                try await withPool(.test(at: database.url)) { pool in
                    try await withPool(.worker(at: database.url)) { workerPool in
                        try await with(database, pool, workerPool, scenario: text, body)
                    }
                }
            } finally: {
                try await server.drop(database)
            }
        }
    }

    private static func with(
        _ database: TestDatabase,
        _ pool: PostgresPool,
        _ workerPool: PostgresPool,
        scenario: String,
        _ body: @Sendable (World) async throws -> Void
    ) async throws {
        let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: .quiet)
        try await run {
            let simulator = try StoreSimulator(scenario: try Scenario(yaml: scenario), logger: .quiet)
            let (ports, announce) = AsyncStream.makeStream(of: Int.self)
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await simulator.run { announce.yield($0) } }
                let port = try #require(await ports.first { _ in true })
                try await body(
                    World(
                        database: database,
                        pool: pool,
                        workerPool: workerPool,
                        transport: transport,
                        simulatorPort: port,
                        simulator: simulator
                    )
                )
                group.cancelAll()
            }
        } finally: {
            await transport.shutdown()
        }
    }

    // MARK: The person who taps

    /// Asks for a restore, as an application does.
    func restore(
        _ user: String,
        proofs: String = "[]",
        clientError: String? = nil,
        productIDs: [String]? = nil,
        key: String? = nil
    ) async throws -> UUID {
        let rows = try await pool.query(
            """
            SELECT entitlement_sync.request_restore(
                \(user), \(PostgresJSON(proofs)), \(clientError), \(productIDs), \(key))
            """
        )
        return try #require(rows.first).decode(UUID.self)
    }

    /// Asks for a reconcile.
    func reconcile(_ user: String) async throws -> UUID {
        try await requests.reconcile(user, reason: "manual")
    }

    /// Where a job stands.
    func status(_ job: UUID) async throws -> JobStatus { try #require(try await requests.status([job]).first) }

    /// Asks for a restore, works until idle, and reads the answer.
    func restored(_ user: String, clientError: String? = nil, setup: WorkerSetup = WorkerSetup()) async throws
        -> JobStatus
    {
        let job = try await restore(user, clientError: clientError)
        try await work(setup)
        return try await status(job)
    }

    /// Asks for a reconcile, works until idle, and reads the answer.
    func reconciled(_ user: String, setup: WorkerSetup = WorkerSetup()) async throws -> JobStatus {
        let job = try await reconcile(user)
        try await work(setup)
        return try await status(job)
    }

    // MARK: The records

    /// The decisions about a user, oldest first.
    func decisions(about user: String) async throws -> [DecisionRow] {
        let rows = try await pool.query(
            """
            SELECT d.rule, d.outcome, d.type_before, d.type_after, d.assets_changed, d.explanation
              FROM entitlement_sync.decision_log AS d WHERE d.user_id = \(user) ORDER BY d.id
            """
        )
        return try rows.map { row in
            let (rule, outcome, before, after, assets, explanation) = try row.decode(
                String.self,
                String.self,
                String?.self,
                String?.self,
                Int32.self,
                String.self
            )
            return DecisionRow(
                rule: rule,
                outcome: outcome,
                before: before,
                after: after,
                assetsChanged: Int(assets),
                explanation: explanation
            )
        }
    }

    /// The tickets of a claimant: kind, owner and touches, oldest first.
    func tickets(of user: String) async throws -> [TicketRow] {
        let rows = try await pool.query(
            """
            SELECT t.kind, t.purchase_owner_id, t.state, t.touches
              FROM entitlement_sync.ticket_status AS t WHERE t.user_id = \(user) ORDER BY t.id
            """
        )
        return try rows.map { row in
            let (kind, owner, state, touches) = try row.decode(String.self, String?.self, String.self, Int32.self)
            return TicketRow(kind: kind, owner: owner, state: state, touches: Int(touches))
        }
    }

    /// The alarms that stand, by name.
    func alarms() async throws -> [String] {
        try await pool.query("SELECT a.name FROM entitlement_sync.alarm AS a ORDER BY a.name").map {
            try $0.decode(String.self)
        }
    }

    // MARK: The store

    /// Changes a customer at the store; the body is JSON as in a scenario.
    func change(_ customer: String, _ json: String) async throws {
        _ = try await control("PUT", "/control/customers/\(customer)", json)
    }

    /// Lets every paid period on record be over: what runs is never absent.
    func endPeriods() async throws {
        try await pool.query(
            "UPDATE entitlement_sync.purchase SET period_ends_at = now() - interval '1 minute' WHERE period_ends_at > now()"
        )
    }

    /// Makes requests run into a fault; the body is JSON as in a scenario.
    func inject(_ json: String) async throws { _ = try await control("POST", "/control/faults", json) }

    /// Ends every fault.
    func heal() async throws { _ = try await control("DELETE", "/control/faults") }

    /// How many requests the store was sent for a customer.
    func storeRequests(for customer: String) async throws -> Int {
        struct Report: Decodable { var customer: [String: Int] }
        let body = try await control("GET", "/control/requests?customer=\(customer)")
        return try JSONDecoder().decode(Report.self, from: Data(body)).customer[customer] ?? 0
    }

    /// The types of the events that RevenueCat would have sent.
    func events() async throws -> [String] {
        struct Report: Decodable {
            struct Event: Decodable { var type: String }
            struct Item: Decodable { var event: Event }
            var events: [Item]
        }
        let body = try await control("GET", "/control/events")
        return try JSONDecoder().decode(Report.self, from: Data(body)).events.map(\.event.type)
    }

    /// Sends a request with a key of the store's own.
    func post(_ path: String, _ body: String, key: String) async throws -> Int {
        let request = HTTPRequest(
            method: .post,
            scheme: "http",
            authority: "127.0.0.1:\(simulatorPort)",
            path: path,
            headerFields: [.authorization: "Bearer \(key)", .contentType: "application/json"]
        )
        let answer = try await transport.send(
            request,
            body: Array(body.utf8),
            timeout: .seconds(5),
            maxResponseBytes: 1 << 20
        )
        return answer.response.status.code
    }

    private func control(_ method: String, _ path: String, _ body: String? = nil) async throws -> [UInt8] {
        let request = HTTPRequest(
            method: try #require(HTTPRequest.Method(method)),
            scheme: "http",
            authority: "127.0.0.1:\(simulatorPort)",
            path: path
        )
        let answer = try await transport.send(
            request,
            body: body.map { Array($0.utf8) },
            timeout: .seconds(5),
            maxResponseBytes: 1 << 20
        )
        try #require(answer.response.status.code == 200, "\(String(decoding: answer.body, as: UTF8.self))")
        return answer.body
    }
}

/// One row of `decision_log`.
struct DecisionRow: Hashable, Sendable {
    var rule: String
    var outcome: String
    var before: String?
    var after: String?
    var assetsChanged: Int
    var explanation: String
}

/// One row of `ticket_status`.
struct TicketRow: Hashable, Sendable {
    var kind: String
    var owner: String?
    var state: String
    var touches: Int
}

/// A few places; who finds none free waits for one.
private actor Places {
    static let shared = Places()

    private var free = 6
    private var waiting: [CheckedContinuation<Void, Never>] = []

    func withPlace(_ body: @Sendable () async throws -> Void) async throws {
        if free > 0 {
            free -= 1
        } else {
            await withCheckedContinuation { waiting.append($0) }
        }
        defer {
            if waiting.isEmpty { free += 1 } else { waiting.removeFirst().resume() }
        }
        try await body()
    }
}
