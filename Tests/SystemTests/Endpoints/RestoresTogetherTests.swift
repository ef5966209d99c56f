import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Restores that are asked for at once; each ends where it would have ended alone.
@Suite struct RestoresTogetherTests {
    /// How a user stands before they ask, and how they ask.
    private struct Standing: Sendable {
        var name: String
        var isUser = true
        /// Statements with `$U` for the user's id.
        var before: [String] = []
        var key: String?
        var times = 1
    }

    private static let known = "SELECT entitlement_sync.user_key_of('$U')"
    private static let queued = "SELECT entitlement_sync.request_restore('$U')"
    private static let claimed = """
        UPDATE entitlement_sync.queue AS q SET owner = 1, active = 0
         WHERE q.user_key = entitlement_sync.user_key_of('$U')
        """
    private static let used = "SELECT entitlement_sync.request_restore('$U', idempotency_key => 'k')"
    private static let tired = """
        INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state, outcome)
        SELECT entitlement_sync.new_id(), entitlement_sync.user_key_of('$U'), now(), 0, 0, 'done', 'nothing_found'
          FROM generate_series(1, 10)
        """
    private static let read = "UPDATE entitlement_sync.user_sync AS u SET read_at = now() WHERE u.user_id = '$U'"

    private static let standings = [
        Standing(name: "nobody", isUser: false), Standing(name: "unheard"), Standing(name: "known", before: [known]),
        Standing(name: "keyed", before: [known], key: "k"), Standing(name: "waiting", before: [queued]),
        Standing(name: "waiting-keyed", before: [queued], key: "k"),
        Standing(
            name: "particular",
            before: ["SELECT entitlement_sync.request_restore('$U', product_ids => ARRAY['premium'])"]
        ),
        Standing(name: "running", before: [queued, claimed]),
        Standing(name: "running-keyed", before: [queued, claimed], key: "k"),
        Standing(name: "running-next", before: [queued, claimed, queued], key: "k"),
        Standing(
            name: "canceled",
            before: [
                queued,
                """
                UPDATE entitlement_sync.queue AS q SET cancel = true, active = 0
                 WHERE q.user_key = entitlement_sync.user_key_of('$U')
                """,
            ]
        ),
        Standing(name: "swept", before: ["SELECT entitlement_sync.request_reconcile('$U', 'manual')"]),
        Standing(name: "repeated", before: [used], key: "k"),
        Standing(
            name: "forgotten",
            before: [
                used,
                """
                UPDATE entitlement_sync.idempotency AS i SET created_at = now() - interval '8 days'
                 WHERE i.user_key = entitlement_sync.user_key_of('$U')
                """,
            ],
            key: "k"
        ),
        Standing(
            name: "otherwise",
            before: ["SELECT entitlement_sync.request_restore('$U', client_error => '1', idempotency_key => 'k')"],
            key: "k"
        ),
        Standing(name: "tired", before: [known, tired, read]),
        Standing(name: "tired-keyed", before: [known, tired, read], key: "k"),
        Standing(name: "tired-waiting", before: [known, tired, read, queued]),
        Standing(
            name: "tired-unread",
            before: [known, tired.replacingOccurrences(of: "nothing_found", with: "store_unavailable")]
        ),
        Standing(name: "twice", before: [known], times: 2),
        Standing(name: "twice-keyed", before: [known], key: "k", times: 2),
        Standing(name: "wordy", before: [known], key: String(repeating: "k", count: 256)),
    ]

    @Test func `Many at once stand where each would stand who was asked for alone`() async throws {
        try await World.with { world in
            for standing in Self.standings {
                for side in ["many", "each"] { try await Self.prepare(standing, side, in: world) }
            }
            let many = try await world.app.restores(Self.wishes("many"))
            var each: [Result<AppRequests.Accepted, PostgresError>] = []
            for wish in Self.wishes("each") {
                do throws(PostgresError) {
                    each.append(.success(try await world.app.restore(wish)))
                } catch {
                    each.append(.failure(error))
                }
            }
            var seen: [String] = []
            for (index, wish) in Self.wishes("many").enumerated() {
                let other = Self.wishes("each")[index]
                let mine = try await Self.stand(wish.userID, many[index], in: world)
                #expect(try await Self.stand(other.userID, each[index], in: world) == mine, "\(wish.userID)")
                seen += mine
            }
            // The standings are what they are called, or nothing was compared.
            #expect(seen.filter { $0.hasPrefix("ES") }.count == 3)
            #expect(seen.contains { $0.hasPrefix("new") } && seen.contains { $0.hasPrefix("joined next") })
            #expect(seen.contains { $0.hasPrefix("joined history") })
            // Whoever asks for all is not answered with the few products of an earlier tap.
            #expect(!seen.contains { $0.contains("premium") })
        }
    }

    @Test(.timeLimit(.minutes(10)))
    func `The notification of restores that were asked for together names whoever asked`() async throws {
        try await World.with { world in
            for user in ["ann", "ben"] {
                try await world.add(user)
                try await world.pool.query("SELECT entitlement_sync.user_key_of(\(user))")
            }
            let (connected, announce) = AsyncStream.makeStream(of: Void.self)
            let (heard, tell) = AsyncStream.makeStream(of: String.self)
            let listener = PostgresListener(configuration: PostgresConfiguration(connectionString: world.database.url))
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    try await listener.run(
                        channels: ["entitlement_sync_wake"],
                        onNotification: { tell.yield($0.payload) },
                        onConnected: { announce.yield() }
                    )
                }
                for await _ in connected { break }
                for (user, asker) in [("ann", "me"), ("ben", "")] {
                    let requests = AppRequests(pool: world.pool, asker: asker)
                    for answer in try await requests.restores([RestoreWish(userID: user)]) { _ = try answer.get() }
                }
                var payloads: [String] = []
                for await payload in heard {
                    payloads.append(payload)
                    if payloads.count == 2 { break }
                }
                #expect(payloads == ["me", ""])
                group.cancelAll()
            }
        }
    }

    @Test func `A restore of somebody who waits for a sweep is found by the next claim`() async throws {
        try await World.with { world in
            try await world.add("ann")
            _ = try await world.reconcile("ann")
            try await world.pool.query("UPDATE entitlement_sync.queue AS q SET due = now() - interval '10 minutes'")
            _ = try await world.restore("ann")
            #expect(
                try await world.number(
                    "SELECT (q.lane = 0 AND q.due > now() - interval '1 minute')::integer::bigint FROM entitlement_sync.queue AS q"
                ) == 1
            )
        }
    }

    @Test func `An id that the host's tables can't hold is refused alone`() async throws {
        try await World.with { world in
            for user in ["ann", "cy"] {
                try await world.add(user)
                _ = try await world.meet(user)
            }
            // A host whose ids are of another type refuses what is none of them.
            try await world.pool.withConnection {
                try await $0.execute(
                    script: """
                        ALTER FUNCTION entitlement_sync_host.read_users(text[]) RENAME TO read_all_users;
                        CREATE FUNCTION entitlement_sync_host.read_users(ids text[])
                        RETURNS TABLE (id text, type text, status text, created_at timestamptz) LANGUAGE plpgsql AS $$
                        BEGIN
                            IF 'odd' = ANY (ids) THEN
                                RAISE EXCEPTION USING ERRCODE = '22P02', MESSAGE = 'invalid input syntax';
                            END IF;
                            RETURN QUERY SELECT * FROM entitlement_sync_host.read_all_users(ids);
                        END $$;
                        """
                )
            }
            let answers = try await world.app.restores(["ann", "odd", "cy"].map { RestoreWish(userID: $0) })
            let refused = answers.map { answer -> String? in
                if case .failure(let error) = answer { error.sqlState } else { nil }
            }
            #expect(refused == [nil, "22P02", nil])
        }
    }

    @Test func `Those whom nobody holds are asked for beside one who is held, and he is told to come again`()
        async throws
    {
        try await World.with { world in
            for user in ["ann", "bob", "cy"] {
                try await world.add(user)
                _ = try await world.meet(user)
            }
            let answers = try await world.pool.withTransaction { host in
                try await host.query("SELECT entitlement_sync.request_restore('bob')")
                return try await world.app.restores(["ann", "bob", "cy"].map { RestoreWish(userID: $0) })
            }
            let refused = answers.map { answer -> String? in
                if case .failure(let error) = answer { error.sqlState } else { nil }
            }
            #expect(refused == [nil, SQLState.lockNotAvailable, nil])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 3)
        }
    }

    private static func prepare(_ standing: Standing, _ side: String, in world: World) async throws {
        let user = "\(side)-\(standing.name)"
        if standing.isUser { try await world.add(user) }
        for statement in standing.before {
            try await world.pool.withConnection {
                try await $0.execute(script: statement.replacingOccurrences(of: "$U", with: user))
            }
        }
    }

    private static func wishes(_ side: String) -> [RestoreWish] {
        standings.flatMap { standing in
            (1...standing.times).map { _ in
                RestoreWish(userID: "\(side)-\(standing.name)", idempotencyKey: standing.key)
            }
        }
    }

    /// What was answered and where the user stands now, in words without ids.
    private static func stand(
        _ user: String,
        _ answer: Result<AppRequests.Accepted, PostgresError>,
        in world: World
    ) async throws -> [String] {
        let answered: (word: String, id: UUID?) =
            switch answer {
            case .success(let accepted): (accepted.isNew ? "new" : "joined", accepted.id)
            case .failure(let error): ("\(error.sqlState ?? "")", nil)
            }
        let rows = try await world.texts(
            """
            SELECT concat_ws(' ', \(answered.word), CASE
                       WHEN q.restore_next = \(answered.id) THEN 'next' WHEN q.restore_id = \(answered.id) THEN 'queued'
                       WHEN EXISTS (SELECT 1 FROM entitlement_sync.job_history AS h WHERE h.id = \(answered.id))
                       THEN 'history' END,
                   q.lane, q.active, q.has_request, q.cancel, q.restore_due IS NOT NULL, q.restore_next IS NOT NULL,
                   q.reconcile_id IS NOT NULL,
                   (SELECT string_agg(concat_ws('/', r.id = q.restore_id, r.product_ids::text, r.client_error), ' ')
                      FROM entitlement_sync.job_request AS r WHERE r.id IN (q.restore_id, q.restore_next)
                       AND (r.product_ids IS NOT NULL OR r.client_error IS NOT NULL OR r.origin IS NOT NULL
                            OR r.proofs <> '[]')),
                   (SELECT concat_ws('/', left(i.key, 1), i.job_id = \(answered.id), i.created_at > now() - interval '1 day',
                                     encode(i.request, 'hex'))
                      FROM entitlement_sync.idempotency AS i WHERE i.user_key = u.user_key))
              FROM (SELECT 1) AS one
              LEFT JOIN entitlement_sync.user_sync AS u ON u.user_id = \(user)
              LEFT JOIN entitlement_sync.queue AS q ON q.user_key = u.user_key
            """
        )
        return rows
    }
}
