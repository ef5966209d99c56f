import Entitlements
import Foundation
import Logging
import Postgres
import TestSupport

/// A session at the database in which somebody's transaction may be open while others act.
struct CaseSession: Sendable {
    let connection: PostgresConnection
    /// What was done in the open transaction, and its answer; it counts with the commit.
    var done: (deed: Deed, answer: String?)?
    /// What met a lock, and is tried again.
    var waiting: Deed?

    var isOpen: Bool { done != nil }
}

/// A database on which one made-up case after the other takes place: three sessions side by side, and a worker's pool.
struct CaseFloor: Sendable {
    let lane: Lane
    let connections: [PostgresConnection]
    /// For what a worker does in statements of their own; gives up soon on a lock.
    let pool: PostgresPool

    /// Opens a database of its own and closes it at the end.
    static func with(_ body: @Sendable (CaseFloor) async throws -> Void) async throws {
        try await Lane.with(.cases) { lane in
            let settings = ["lock_timeout": "8ms", "hist.host": "on"]
            let configuration = PostgresConfiguration(
                connectionString: lane.database.url,
                maxConnections: 2,
                sessionSettings: settings
            )
            let pool = PostgresPool(configuration: configuration, logger: .quiet)
            var connections: [PostgresConnection] = []
            for _ in 0..<3 { connections.append(PostgresConnection(configuration: configuration)) }
            try await run {
                for connection in connections { try await connection.open() }
                try await body(CaseFloor(lane: lane, connections: connections, pool: pool))
            } finally: {
                for connection in connections { await connection.close() }
                await pool.close()
            }
        }
    }

    /// Forgets the case before.
    func reset() async throws {
        try await lane.host.withConnection { connection in
            try await connection.execute(
                script: "BEGIN; SET LOCAL session_replication_role = replica; SELECT hist.reset_cases(); COMMIT"
            )
        }
    }
}

extension DatabaseTemplate {
    /// The database of histories, with witnesses at the desk.
    static let cases = DatabaseTemplate(name: "cases") { url in try await Lane.fill(url, CaseWitness.schema) }
}

/// Who works at the desk of a made-up case.
enum Agent: String, CaseIterable, Sendable {
    case ann, bea, cid, dan, eve, root

    /// What they are.
    static let roles: [Agent: String] = [
        .ann: "agent", .bea: "approver", .cid: "senior", .dan: "approver", .eve: "senior", .root: "admin",
    ]

    /// Those who may approve.
    static let approvers: [Agent] = [.bea, .cid, .dan]

    var session: PostgresBytes { PostgresBytes(Array(rawValue.utf8)) }
}

/// Something that is done in one transaction.
struct Deed: Sendable, CustomStringConvertible {
    /// What follows when it is committed.
    enum After: Sendable {
        case nothing
        case act(Agent, CaseAct, ofClaimant: Int?)
        case erased(Int)
        case banned(Int)
        case allowed(hand: Int, moves: [String])
        case settledCall(hand: Int, afterCall: Bool)
        case settled(hand: Int)
        case resolved(transfer: Int64, moved: Bool)
        case said(String)
    }

    var name: String
    var query: PostgresQuery
    var after = After.nothing

    var description: String { name }
}

/// What operators do.
enum CaseAct: String, Sendable {
    case claim, release, refuse, lend, approve, withdraw, waive, transfer, resolve, note
}
