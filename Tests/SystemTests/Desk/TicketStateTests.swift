import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// The table of a ticket's ways, and those who go by it.
@Suite struct TicketStateTests {
    private static let open = [
        "new", "claimed", "waiting_claimant", "waiting_owner", "needs_second", "approved", "executing",
    ]
    private static let closed = ["transferred", "refused", "expired", "auto_resolved", "duplicate"]

    @Test func `Every state can be left, but for those that are an end; every state can be reached`() async throws {
        try await World.with { world in
            let from = Set(try await world.texts("SELECT DISTINCT m.state FROM entitlement_sync.ticket_move AS m"))
            let to = Set(try await world.texts("SELECT DISTINCT m.next FROM entitlement_sync.ticket_move AS m"))
            #expect(from == Set(Self.open + ["refused", "expired"]))
            #expect(to == Set(Self.open + Self.closed))
            #expect(to == Set(TicketState.allCases.map(\.rawValue)))
            // What has begun is closed by nothing but its own end.
            let ends = try await world.texts(
                "SELECT m.event FROM entitlement_sync.ticket_move AS m WHERE m.state = 'executing' ORDER BY 1"
            )
            #expect(ends == ["executed", "stopped"])
            let transfers = try await world.texts(
                "SELECT m.state FROM entitlement_sync.ticket_move AS m WHERE m.next = 'transferred'"
            )
            #expect(transfers == ["executing"])
        }
    }

    @Test func `A ticket is open for all who ask, or for none`() async throws {
        try await World.with { world in
            for state in Self.open + Self.closed {
                try await world.add(state)
                let key = try await world.meet(state)
                let isOpen = Self.open.contains(state)
                try await world.pool.withTransaction { connection in
                    // Tickets begin elsewhere.
                    try await connection.query("SET LOCAL session_replication_role = replica")
                    try await connection.query(
                        """
                        INSERT INTO entitlement_sync.ticket (claimant_key, kind, state, visible, closed_at)
                        VALUES (\(key), 'paid_no_access', \(state), true, CASE WHEN \(!isOpen) THEN now() END)
                        """
                    )
                }
                #expect(
                    try await world.number("SELECT entitlement_sync.is_open(\(state))::int::bigint") == (isOpen ? 1 : 0)
                )
                // The index that lets one open ticket be.
                let twice = try? await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.ticket (claimant_key, kind, visible)
                    VALUES (\(key), 'paid_no_access', true) RETURNING id
                    """
                ).one.decode(Int64.self)
                #expect((twice == nil) == isOpen, "\(state)")
                // What the app is told.
                if let twice {
                    try await world.pool.query("DELETE FROM entitlement_sync.ticket WHERE id = \(twice)")
                }
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state, outcome)
                    VALUES (entitlement_sync.new_id(), \(key), now(), 0, 0, 'done', 'store_account_mismatch')
                    """
                )
                let told = try await world.app.entitlement(of: state)?.tickets.map(\.state)
                #expect(told == [isOpen ? "open" : "closed"], "\(state)")
            }
        }
    }

    @Test func `Nobody writes a state that nothing leads to, and no ticket begins elsewhere`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let key = try await world.meet("ann")
            await expectRefusal("23514") {
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.ticket (claimant_key, kind, state, visible)
                    VALUES (\(key), 'paid_no_access', 'approved', true)
                    """
                )
            }
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.ticket (claimant_key, kind, visible) VALUES (\(key), 'paid_no_access', true)
                """
            )
            for state in ["approved", "executing", "transferred", "refused", "nonsense"] {
                await expectRefusal("23514") {
                    try await world.pool.query("UPDATE entitlement_sync.ticket SET state = \(state)")
                }
            }
        }
    }
}
