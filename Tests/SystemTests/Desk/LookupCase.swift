import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing

/// A world in which support looks ids up.
struct LookupCase: Sendable {
    var scene: DeskCase
    var setup: WorkerSetup

    static let order = "MABCDEFGH1"
    static let play = "GPA.1234-5678-9012-34567"

    private static let scenario = """
        api_keys: [sk_move, {key: sk_test, write: false}]
        app_store:
          customers:
            - id: owner
              transactions:
                - {original: "2000000100000001", product: premium_monthly, expires: +20d, order_id: \(order)}
        google_play:
          purchases:
            - {token: tok-owner, order_id: \(play), state: active}
        """

    /// Builds a world with an owner who has shown both purchases, a user who writes to support, and operators.
    static func with(_ body: @Sendable (LookupCase) async throws -> Void) async throws {
        try await World.with(scenario: scenario) { world in
            for user in ["owner", "writer"] { try await world.add(user) }
            try await world.addProducts()
            var setup = try world.asking(world.revenueCat, world.appStore, world.googlePlay)
            for proof in [try world.transactionProof("2000000100000001"), world.tokenProof("tok-owner")] {
                _ = try await world.restored("owner", proofs: proof, setup: setup)
            }
            for id in ["2000000100000001", "tok-owner"] { #expect(try await world.owner(of: id) == "owner") }
            setup.servesDesk = true
            setup.variables = DeskCase.variables.merging(["TRANSFER_APPROVALS": "1"]) { $1 }
            try await body(LookupCase(scene: try await DeskCase(in: world), setup: setup))
        }
    }

    var world: World { scene.world }

    /// The same stores for a worker that does nothing for the desk.
    var asking: WorkerSetup {
        var asking = setup
        asking.servesDesk = false
        return asking
    }

    func open(_ order: String?, by claimant: String = "writer") async throws -> Int64 {
        try #require(
            try await scene.tickets(scene.ann).open(claimant: claimant, orderID: order, reason: "wrote a mail")
        )
    }

    /// Has an agent give another order's number for a ticket.
    func note(_ order: String, for ticket: Int64) async throws {
        try await world.pool.query(
            "SELECT entitlement_sync.note_order(\(PostgresBytes(scene.ann.token.digest)), \(ticket), \(order))"
        )
    }

    /// Has another order looked up for a ticket, as when somebody writes again.
    func name(_ order: String, for ticket: Int64) async throws {
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.ticket_reported_id (ticket_id, kind, value, by_claimant)
            VALUES (\(ticket), 'order_id', \(order), true)
            """
        )
    }

    struct Evidence: Sendable {
        var facts: Set<String>
        var approvals: Int
        var suggested: String?
        var document: String
        var hash: [UInt8]
        var lookups: [CaseLookup]
    }

    /// What the desk shows.
    func evidence(_ ticket: Int64) async throws -> Evidence {
        struct Document: Decodable { var lookups: [CaseLookup] }
        let rows = try await world.pool.query(
            """
            SELECT array_to_string(e.facts, ' '), e.approvals, e.suggested, e.document::text, e.hash
              FROM entitlement_sync.ticket AS t
              JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id WHERE t.id = \(ticket)
            """
        )
        let (facts, approvals, suggested, document, hash) = try #require(rows.first).decode(
            String.self,
            Int16.self,
            String?.self,
            String.self,
            PostgresBytes.self
        )
        return Evidence(
            facts: Set(facts.split(separator: " ").map(String.init)),
            approvals: Int(approvals),
            suggested: suggested,
            document: document,
            hash: hash.bytes,
            lookups: try JSONDecoder().decode(Document.self, from: Data(document.utf8)).lookups
        )
    }
}
