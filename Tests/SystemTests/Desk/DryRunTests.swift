import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation
import Runs
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What a reconcile would do, asked without doing it.
@Suite struct DryRunTests {
    private static let setup = WorkerSetup(servesDesk: true)
    private static let customers = [
        "{id: payer, subscriptions: [{state: active}]}", "{id: ended, subscriptions: [{state: active}]}",
        "{id: nothing, state: none}",
    ]

    /// All that a reconcile may write, by table.
    private static func content(_ world: World) async throws -> [String: String] {
        var content: [String: String] = [:]
        for table in [
            "public.users", "public.assets", "purchase", "purchase_identifier", "observation", "decision", "ticket",
            "ticket_event", "queue", "job_history", "outbox", "user_sync", "alarm", "asset_run", "job_request",
        ] {
            let name = table.hasPrefix("public") ? table : "entitlement_sync." + table
            let text = try await world.texts(
                PostgresQuery(
                    rawSQL: "SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM \(name) AS t"
                )
            )
            content[table] = text.first
        }
        return content
    }

    /// A world with somebody to promote, somebody to demote and somebody to leave alone.
    private static func with(_ body: @Sendable (World) async throws -> Void) async throws {
        try await World.with(customers: customers) { world in
            for user in ["payer", "ended", "nothing"] { try await world.add(user) }
            try await world.addAssets(3, of: "payer", frozenFor: ["subscription_lapsed"])
            try await world.addAssets(2, of: "ended", frozenFor: [])
            #expect(try await world.reconciled("ended").outcome == "promoted")
            try await world.change("ended", #"{"state":"expired"}"#)
            try await body(world)
        }
    }

    private static func ask(_ users: [String], _ world: World, _ setup: WorkerSetup = setup) async throws
        -> [DryRunResult]
    {
        let dryRuns = DryRuns(pool: world.pool)
        let ids = try await dryRuns.ask(users)
        try await world.working(setup) {
            try await world.waitUntil(
                "SELECT (count(*) = 0)::int FROM entitlement_sync.dry_run AS r WHERE r.ended_at IS NULL",
                comment: "no worker answered"
            )
        }
        let answers = try await dryRuns.answers(ids)
        return try ids.map { try #require(answers[$0]) }
    }

    @Test func `It says what a reconcile does then, and leaves everything as it was`() async throws {
        try await Self.with { world in
            let users = ["payer", "ended", "nothing"]
            // Whoever is asked about is known from then on.
            for user in users { _ = try await world.number("SELECT entitlement_sync.user_key_of(\(user))") }
            // Their slow looks are planned by a round that may be yet to come.
            try await world.pool.query(
                "UPDATE entitlement_sync.check_round SET after_key = 0, began_at = clock_timestamp()"
            )
            let before = try await Self.content(world)
            let predicted = try await Self.ask(users, world)
            let after = try await Self.content(world)
            for (table, rows) in before { #expect(after[table] == rows, "\(table)") }
            #expect(predicted.map(\.outcome) == ["promoted", "demoted", "unchanged"])
            #expect(predicted.map(\.typeBefore) == ["free", "subscriber", "free"])
            #expect(predicted.map(\.typeAfter) == ["subscriber", "free", "free"])
            #expect(predicted.map(\.assets) == [3, 2, 0])
            for (user, answer) in zip(users, predicted) {
                #expect(try await world.reconciled(user).outcome == answer.outcome)
                let decision = try #require(try await world.decisions(about: user).last)
                #expect(decision.rule == answer.rule, "\(user)")
                #expect(try await world.type(of: user) == answer.typeAfter)
            }
            #expect(try await world.assets(of: "payer", frozenFor: []) == 3)
        }
    }

    @Test func `What planning itself writes is undone: nobody whose purchase would move is read again`() async throws {
        try await DeskCase.with { scene, _ in
            let world = scene.world
            let moved = #"{"subscriptions":[{"state":"active","store_subscription_identifier":"200000070000001"}]}"#
            try await world.change("owner", #"{"state":"none"}"#)
            try await world.change("claimant", moved)
            let before = try await Self.content(world)
            let answer = try #require(try await Self.ask(["claimant"], world).first)
            #expect(answer.outcome == "promoted" && answer.assets == 3, "\(answer)")
            let after = try await Self.content(world)
            for (table, rows) in before { #expect(after[table] == rows, "\(table)") }
        }
    }

    @Test func `A job that waits or runs is neither joined nor taken away`() async throws {
        try await Self.with { world in
            let job = try await world.reconcile("payer")
            // Not due before the question is answered.
            try await world.pool.query("UPDATE entitlement_sync.queue SET due = now() + interval '1 hour'")
            #expect(try await Self.ask(["payer"], world).map(\.outcome) == ["promoted"])
            #expect(try await world.status(job).state == "queued")
            let again = try await DryRuns(pool: world.pool).ask(["payer", "payer"])
            #expect(Set(again).count == 1, "an open question is joined")
            #expect(try await world.reconcile("payer") == job)
        }
    }

    @Test func `Where a store does not answer, that is said; nobody is demoted in thought`() async throws {
        try await Self.with { world in
            try await world.inject(#"{"status":503}"#)
            let before = try await Self.content(world)
            let answer = try #require(try await Self.ask(["ended"], world).first)
            #expect(answer.outcome == "store_unavailable" && answer.rule == nil && answer.error != nil)
            #expect(try await Self.content(world) == before)
        }
    }

    @Test func `A pause is told of, and the worker's mode decides as it would`() async throws {
        try await Self.with { world in
            try await Controls(pool: world.pool).set("all", paused: true)
            let paused = try #require(try await Self.ask(["payer"], world).first)
            #expect(paused.isPaused && paused.outcome == "promoted")
            try await Controls(pool: world.pool).set("all", paused: false)
            var careful = Self.setup
            careful.decision.mode = .promoteOnly
            let kept = try #require(try await Self.ask(["ended"], world, careful).first)
            #expect(kept.rule == "promote_only" && kept.outcome == "deferred" && kept.typeAfter == "subscriber")
        }
    }

    @Test func `In observe mode it is answered as well`() async throws {
        try await Self.with { world in
            var watching = Self.setup
            watching.decision.mode = .observe
            watching.variables["MODE"] = "observe"
            let answers = try await Self.ask(["payer", "ended"], world, watching)
            #expect(answers.map(\.outcome) == ["promoted", "demoted"])
            #expect(try await world.type(of: "payer") == "free")
        }
    }

    @Test func `What can't be planned is said after some tries, and is not tried for ever`() async throws {
        try await Self.with { world in
            try await world.pool.query(
                """
                CREATE OR REPLACE FUNCTION entitlement_sync_host.count_assets(ids text[])
                RETURNS TABLE (user_id text, lapsed bigint, others bigint) LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'out of order'; END $$
                """
            )
            let answer = try #require(try await Self.ask(["payer"], world).first)
            #expect(answer.outcome == "store_unavailable" && answer.error == "P0001", "\(answer)")
            #expect(try await world.number("SELECT max(r.tries) FROM entitlement_sync.dry_run AS r") == 4)
        }
    }

    @Test func `Nobody comes back from an erasure by being asked about`() async throws {
        try await Self.with { world in
            let dryRuns = DryRuns(pool: world.pool)
            _ = try await dryRuns.ask(["payer"])
            _ = try await Erasure(pool: world.pool).erase("payer")
            let question = try #require(try await dryRuns.take(upTo: 1).first)
            #expect(question.job.userID == nil)
            try await dryRuns.keep(nil, for: question)
            let answer = try #require(try await dryRuns.answers([question.id])[question.id])
            #expect(answer.outcome == "not_eligible" && answer.error == nil)
            #expect(
                try await world.number("SELECT count(*) FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'payer'")
                    == 0
            )
        }
    }

    @Test func `Whose turn is over answers nothing`() async throws {
        try await Self.with { world in
            let dryRuns = DryRuns(pool: world.pool)
            _ = try await dryRuns.ask(["payer", "nothing"])
            let late = try await dryRuns.take(upTo: 2)
            try await world.pool.query("UPDATE entitlement_sync.dry_run SET due = now()")
            let taken = try await dryRuns.take(upTo: 2)
            #expect(late.count == 2 && taken.count == 2)
            for question in late {
                try await dryRuns.keep(DryRunResult(outcome: "promoted"), for: question)
                try await dryRuns.release(question)
            }
            #expect(try await dryRuns.answers(late.map(\.id)).isEmpty)
            #expect(try await dryRuns.take(upTo: 2).isEmpty)
            for question in taken { try await dryRuns.keep(DryRunResult(outcome: "unchanged"), for: question) }
            #expect(try await dryRuns.answers(late.map(\.id)).values.allSatisfy { $0.outcome == "unchanged" })
        }
    }

    @Test func `A restore that an agent asks for takes nothing away: what has ended is left to the reconcile after it`()
        async throws
    {
        try await Self.with { world in
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let ann = try await desk.enter("ann", .agent, by: admin)
            let users = DeskUsers(pool: world.pool, session: ann.token.digest)
            for (user, expected) in [
                ("ended", ["0 nothing_to_restore", "1 demoted"]), ("payer", ["0 restored"]),
                ("nothing", ["0 nothing_to_restore"]),
            ] {
                let key = try await world.number("SELECT entitlement_sync.user_key_of(\(user))")
                let before = try await world.number("SELECT count(*) FROM entitlement_sync.job_history")
                #expect(try await users.restore(key) == nil)
                try await world.working(Self.setup) {
                    try await world.waitUntil("SELECT (count(*) = 0)::int FROM entitlement_sync.queue")
                }
                let jobs = try await world.texts(
                    """
                    SELECT j.kind || ' ' || j.outcome::text FROM entitlement_sync.job_history AS j
                     WHERE j.user_key = \(key) ORDER BY j.finished_at DESC, j.kind DESC
                     LIMIT (SELECT count(*) - \(before) FROM entitlement_sync.job_history)
                    """
                )
                #expect(jobs.reversed() == expected, "\(user)")
            }
        }
    }

    @Test func `Who may restore may ask on the console, and is on record; nobody about their own account`() async throws
    {
        try await DeskCase.with { scene, _ in
            let world = scene.world
            let key = try await world.number(
                "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'claimant'"
            )
            func desk(_ person: DeskPeople.Person) -> DeskUsers {
                DeskUsers(pool: world.pool, session: person.token.digest)
            }
            let viewer = try await scene.desk.enter("vic", .viewer, by: scene.admin)
            await expectRefusal { _ = try await desk(viewer).dryRun(key) }
            #expect(try await desk(scene.ann).dryRun(999) == "gone")
            #expect(try await desk(scene.ann).dryRun(key) == nil)
            func shown() async throws -> DeskUser.DryRun? {
                let json = try #require(try await desk(scene.ann).show(key))
                return try DeskUser(json: json).dryRun
            }
            let waiting = try #require(try await shown())
            #expect(waiting.endedAt == nil)
            try await world.working(Self.setup) {
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.dry_run WHERE ended_at IS NOT NULL")
            }
            let answered = try #require(try await shown())
            #expect(answered.outcome == "unchanged" && answered.rule == "no_access")
            #expect(DryRunWords.sentence(answered) == "A reconcile would change nothing: the user stays free.")
            #expect(
                try await world.number("SELECT count(*) FROM entitlement_sync.operator_event WHERE kind = 'dry_run'")
                    == 1
            )
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.operator_account (operator_id, user_key)
                SELECT o.id, \(key) FROM entitlement_sync.operator AS o WHERE o.name = 'ann'
                """
            )
            #expect(try await desk(scene.ann).dryRun(key) == "own_case")
        }
    }
}
