import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing

@Suite struct FirstProofRaceTests {
    /// Races; each between two users.
    static let races = 1000

    @Test func `80: of two users who race for what nobody owns exactly one wins, and the other gets a ticket`()
        async throws
    {
        let purchases = (1...Self.races).map { "    - {token: tok-\($0), state: active}\n" }.joined()
        try await World.with(scenario: "google_play:\n  purchases:\n" + purchases) { world in
            try await world.addProducts()
            // Nobody has decided before the other of the pair has begun to read.
            try await world.steer(
                "/faults",
                #"{"endpoint":"google_play.subscription","latency":"200ms"}"#,
                method: .post
            )
            try await world.pool.query(
                """
                INSERT INTO users (id) SELECT format('%s-%s', side, n)
                  FROM generate_series(1, \(Int32(Self.races))) AS n, unnest('{left,right}'::text[]) AS side
                """
            )
            try await world.pool.query(
                """
                SELECT entitlement_sync.request_restore(
                           format('%s-%s', side, n),
                           jsonb_build_array(jsonb_build_object(
                               'store', 'google_play', 'kind', 'purchase_token', 'value', 'tok-' || n)))
                  FROM generate_series(1, \(Int32(Self.races))) AS n, unnest('{left,right}'::text[]) AS side
                 ORDER BY (n - 1) / 32, side, n
                """
            )
            // What one worker takes at once is 32 pairs; of two workers each has some of both halves.
            let setup = world.asking(world.googlePlay)
            async let one: Void = world.work(setup, within: .seconds(180))
            async let two: Void = world.work(setup, within: .seconds(180))
            _ = try await (one, two)
            // More than all that comes before the other halves: pairs were read while neither of the two was decided.
            #expect(world.simulator.requestReport().peakInFlight > 32)
            let rows = try await world.pool.query(
                """
                SELECT count(*) FILTER (WHERE w.winners = 1 AND w.losers = 1 AND w.tickets = 1), count(*)
                  FROM (SELECT split_part(s.user_id, '-', 2) AS n,
                               count(*) FILTER (WHERE s.outcome = 'restored') AS winners,
                               count(*) FILTER (WHERE s.outcome = 'store_account_mismatch') AS losers,
                               count(*) FILTER (WHERE s.ticket_id IS NOT NULL) AS tickets
                          FROM entitlement_sync.job_status AS s GROUP BY 1) AS w
                """
            )
            let (right, all) = try #require(rows.first).decode(Int64.self, Int64.self)
            #expect(right == Self.races && all == Self.races)
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == Int64(Self.races))
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.ticket_status") == Int64(Self.races))
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.purchase WHERE merged_into IS NULL AND owner_key IS NOT NULL"
                ) == Int64(Self.races)
            )
        }
    }
}
