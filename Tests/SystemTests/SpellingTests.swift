import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation
import TestSupport
import Testing
import UserRequests

/// Hosts that compare ids by other rules than bytes: what comes back is spelled otherwise than what was asked for.
@Suite struct SpellingTests {
    /// A host's column, how its adapter compares ids, and two spellings of one id.
    struct Host: Sendable, CustomTestStringConvertible {
        var name: String
        var column: String
        /// Makes the column's type of the text of an id.
        var cast: String
        var ids: [String]
        var others: [String]
        var testDescription: String { name }
    }

    static let hosts = [
        Host(
            name: "uuid",
            column: "uuid",
            cast: "CASE WHEN $1 ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN $1::uuid END",
            ids: (1...4).map { "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a0\($0)" },
            others: (1...4).map { "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A0\($0)" }
        ),
        Host(
            name: "char(n)",
            column: "char(12)",
            cast: "$1::char(12)",
            ids: (1...4).map { "user-\($0)" },
            others: (1...4).map { "user-\($0)   " }
        ),
        Host(
            name: "lower()",
            column: "text",
            cast: "lower($1)",
            ids: (1...4).map { "user-\($0)" },
            others: (1...4).map { "USER-\($0)" }
        ),
        Host(
            name: "citext",
            column: "citext",
            cast: "$1::citext",
            ids: (1...4).map { "user-\($0)" },
            others: (1...4).map { "User-\($0)" }
        ),
    ]

    /// Puts the host's ids and its adapter in place.
    private func install(_ host: Host, in world: World) async throws {
        let cast = { (text: String) in host.cast.replacingOccurrences(of: "$1", with: text) }
        try await world.pool.withConnection { connection in
            try await connection.execute(
                script: """
                    CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;
                    ALTER TABLE assets DROP CONSTRAINT assets_user_id_fkey;
                    ALTER TABLE users ALTER COLUMN id TYPE \(host.column) USING id::\(host.column);
                    ALTER TABLE assets ALTER COLUMN user_id TYPE \(host.column) USING user_id::\(host.column);
                    CREATE FUNCTION public.spelled(text) RETURNS \(host.column) LANGUAGE sql IMMUTABLE
                        AS $f$ SELECT \(cast("$1")) $f$;
                    """
            )
        }
        // The sample adapter with the comparison of such a host.
        let package = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let sample = try String(contentsOfFile: package.path + "/sql/host/adapter.sql", encoding: .utf8)
        var adapter =
            sample
            .replacingOccurrences(of: "x.id = wanted.id", with: "x.id = public.spelled(wanted.id)")
            .replacingOccurrences(
                of: "u.id = ANY (ids)",
                with: "u.id = ANY (ARRAY(SELECT public.spelled(i.id) FROM unnest(ids) AS i(id)))"
            )
            .replacingOccurrences(
                of: "a.user_id = ANY (ids)",
                with: "a.user_id = ANY (ARRAY(SELECT public.spelled(i.id) FROM unnest(ids) AS i(id)))"
            )
            .replacingOccurrences(
                of: "x.user_id = wanted.user_id",
                with: "x.user_id = public.spelled(wanted.user_id)"
            )
            // The operators of a type that an extension brings are found by it alone; without them, texts are compared.
            .replacingOccurrences(
                of: "search_path = pg_catalog, pg_temp",
                with: "search_path = pg_catalog, public, pg_temp"
            )
            .replacingOccurrences(of: "x.user_id = owner", with: "x.user_id = public.spelled(owner)")
            .replacingOccurrences(
                of: "u.id >= coalesce(after, '') AND u.id IS DISTINCT FROM after\n     ORDER BY u.id",
                with: "u.id::text COLLATE \"C\" > coalesce(after, '')\n     ORDER BY u.id::text COLLATE \"C\""
            )
        for column in ["u.id,", "RETURNING u.id;", "SELECT x.id, x.user_id\n", "a.user_id, a.id\n"] {
            adapter = adapter.replacingOccurrences(
                of: column,
                with: column.replacingOccurrences(of: "u.id", with: "u.id::text")
                    .replacingOccurrences(of: ".user_id", with: ".user_id::text")
            )
        }
        adapter = adapter.replacingOccurrences(of: "SELECT a.user_id,\n", with: "SELECT a.user_id::text,\n")
        try await world.pool.withConnection { [adapter] connection in try await connection.execute(script: adapter) }
    }

    @Test(arguments: hosts)
    func `A restore under another spelling of an id is the user's, and everybody is answered`(_ host: Host)
        async throws
    {
        let customers = host.ids.map { "{id: \"\($0)\", state: active}" }
        try await World.with(customers: customers) { world in
            try await install(host, in: world)
            for id in host.ids {
                try await world.pool.query("INSERT INTO users (id) VALUES (public.spelled(\(id)))")
                try await world.pool.query(
                    """
                    INSERT INTO assets (user_id, frozen_reasons, frozen_at)
                    VALUES (public.spelled(\(id)), '{subscription_lapsed}', now())
                    """
                )
            }
            // Two under the other spelling, and two as the host has it.
            var jobs: [UUID] = []
            for place in 0..<4 {
                jobs.append(try await world.restore(place < 2 ? host.others[place] : host.ids[place]))
            }
            #expect(try await world.restore(host.ids[0]) == jobs[0], "one user has one queued restore")
            try await world.work()
            for job in jobs { #expect(try await world.status(job).outcome == "restored") }
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 4)
            #expect(try await world.number("SELECT count(*) FROM assets WHERE frozen_reasons <> '{}'") == 0)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.user_sync") == 4)
            for job in jobs {
                let user = try await world.status(job).userID ?? ""
                #expect(host.ids.contains { $0.utf8.elementsEqual(user.utf8) }, "kept as the host spells it")
            }
        }
    }

    @Test(arguments: hosts)
    func `Records under another spelling take the host's over, and nobody else waits for them`(_ host: Host)
        async throws
    {
        let customers = host.ids.map { "{id: \"\($0)\", state: active}" }
        try await World.with(customers: customers) { world in
            try await install(host, in: world)
            for id in host.ids { try await world.pool.query("INSERT INTO users (id) VALUES (public.spelled(\(id)))") }
            var jobs: [UUID] = []
            for id in host.ids { jobs.append(try await world.restore(id)) }
            // As they were kept before, or as the host had them before it changed them.
            for place in 0..<2 {
                try await world.pool.query(
                    """
                    UPDATE entitlement_sync.user_sync SET user_id = \(host.others[place])
                     WHERE user_id = \(host.ids[place])
                    """
                )
            }
            try await world.work()
            for job in jobs { #expect(try await world.status(job).outcome == "restored") }
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 4)
            for id in host.ids {
                #expect(
                    try await world.number(
                        "SELECT count(*) FROM entitlement_sync.user_sync WHERE user_id = \(id)"
                    ) == 1
                )
            }
        }
    }

    @Test(arguments: hosts)
    func `An event that names another spelling is about the user`(_ host: Host) async throws {
        try await World.with { world in
            try await install(host, in: world)
            try await world.pool.query("INSERT INTO users (id) VALUES (public.spelled(\(host.ids[0])))")
            try await world.deliver(
                #"{"id":"e1","type":"EXPIRATION","app_user_id":"\#(host.others[0])","aliases":["\#(host.others[0])","x"]}"#
            )
            try await world.work()
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.decision_log WHERE user_id = \(host.ids[0])"
                ) == 1
            )
            try await world.controls.allowSandbox(
                host.others[0],
                until: PostgresTimestamp(Date.now.addingTimeInterval(3600))
            )
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.sandbox_user WHERE user_id = \(host.ids[0])"
                ) == 1
            )
            _ = try await world.controls.grant(
                host.others[0],
                until: PostgresTimestamp(Date.now.addingTimeInterval(3600)),
                reason: "test"
            )
            try await world.work()
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 1)
        }
    }

    @Test func `An id that several users may be, and that is none of theirs, is nobody's`() async throws {
        try await World.with { world in
            try await install(Self.hosts[2], in: world)
            try await world.pool.query("DROP FUNCTION entitlement_sync_host.read_users(text[])")
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE FUNCTION entitlement_sync_host.read_users(ids text[])
                        RETURNS TABLE (id text, type text, status text, created_at timestamptz)
                        LANGUAGE sql STABLE AS $$
                            SELECT u.id, u.type, u.status, u.created_at FROM public.users AS u
                             WHERE lower(u.id) = ANY (SELECT lower(i) FROM unnest(ids) AS i) $$
                        """
                )
            }
            for id in ["ann", "Ann"] { try await world.add(id) }
            let error = await #expect(throws: PostgresError.self) { try await world.restore("ANN") }
            #expect(error?.sqlState == "ES001")
            let own = [try await world.restore("ann"), try await world.restore("Ann")]
            #expect(try await world.status(own[0]).userID == "ann")
            #expect(try await world.status(own[1]).userID == "Ann")
        }
    }

    @Test func `An adapter that locks nobody it reads keeps no other user waiting`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"]) { world in
            for id in ["ann", "bob"] { try await world.add(id) }
            try await world.pool.withConnection { connection in
                try await connection.execute(
                    script: """
                        CREATE OR REPLACE FUNCTION entitlement_sync_host.lock_users(ids text[])
                        RETURNS TABLE (id text, type text, status text)
                        LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
                        #variable_conflict use_column
                        BEGIN
                            RETURN QUERY SELECT upper(u.id), u.type, u.status FROM public.users AS u
                                          WHERE u.id = ANY (ids) AND u.id = 'ann'
                            UNION ALL SELECT u.id, u.type, u.status FROM public.users AS u
                                       WHERE u.id = ANY (ids) AND u.id <> 'ann';
                        END $$
                        """
                )
            }
            let odd = try await world.restore("ann")
            let other = try await world.restore("bob")
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_history WHERE id = \(other) AND state = 'done'"
                )
                #expect(try await world.status(odd).outcome == nil)
            }
        }
    }
}
