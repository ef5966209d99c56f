import DevTools
import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation
@testable import StoreEvents
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What is asked again and again costs the same, however much there is on record.
struct FlatCostTests {
    /// A list's page.
    private static let page = 10
    /// Levels that indexes gain with ten times the rows, and the page or two that a free space map differs by.
    private static let levels = 24.0

    @Test func `Ten times the history makes no request, list, event or job cost more`() async throws {
        let few = try await Self.costs(ofHistory: 3000)
        let many = try await Self.costs(ofHistory: 30_000)
        #expect(few.keys == many.keys)
        for (name, blocks) in few.sorted(by: { $0.key < $1.key }) {
            let more = try #require(many[name])
            #expect(Double(more) <= 1.3 * Double(blocks) + Self.levels, "\(name): \(blocks) blocks, then \(more)")
        }
    }

    /// How many blocks of tables and indexes each statement touches.
    private static func costs(ofHistory jobs: Int) async throws -> [String: Int64] {
        let costs = Costs()
        try await World.with(isFresh: true) { world in
            // On few days, so that a day's index has its root and leaves with the small history as well.
            try await SampleHistory.load(jobs, over: 8, into: world.pool)
            try await world.pool.query(
                """
                WITH person AS (
                    INSERT INTO entitlement_sync.operator (name, role) VALUES ('ann', 'senior'), ('aud', 'auditor') RETURNING id, name
                )
                INSERT INTO entitlement_sync.operator_session (digest, operator_id, kind)
                SELECT sha256(convert_to(p.name, 'UTF8')), p.id, 'console' FROM person AS p
                """
            )
            let configuration = PostgresConfiguration(
                connectionString: world.database.url,
                maxConnections: 1,
                sessionSettings: SessionSettings.ordinary
            )
            try await withPool(configuration) { pool in
                try await api(costs, pool)
                try await console(costs, pool)
                try await work(costs, pool)
            }
        }
        return await costs.blocks
    }

    private static func api(_ costs: Costs, _ pool: PostgresPool) async throws {
        let app = AppRequests(pool: pool)
        let requests = Requests(pool: pool)
        let done = try await pool.query(
            "SELECT h.id FROM entitlement_sync.job_history AS h WHERE h.kind = 0 ORDER BY h.id LIMIT 1"
        ).map { try $0.decode(UUID.self) }
        let waiting = try await pool.query(
            "SELECT q.reconcile_id FROM entitlement_sync.queue AS q ORDER BY q.user_key LIMIT 1"
        ).map { try $0.decode(UUID.self) }
        try await costs.note("app_restores", pool) {
            _ = try await app.restores([RestoreWish(userID: "past-\(400 + $0)")])
        }
        try await costs.note("app_restore", pool) {
            _ = try await app.restore(RestoreWish(userID: "past-\(410 + $0)", clientError: "receipt_already_in_use"))
        }
        try await costs.note("restore_answers", pool) { _ in _ = try await app.answers(done) }
        // With a case and without one.
        for user in ["past-251", "past-252"] {
            try await costs.note("entitlement_answer \(user)", pool) { _ in _ = try await app.entitlement(of: user) }
            try await costs.note("ticket_answers \(user)", pool) { _ in
                _ = try await app.cases(of: user)
            }
        }
        try await costs.note("job_status of one done", pool) { _ in _ = try await requests.status(done) }
        try await costs.note("job_status of one waiting", pool) { _ in _ = try await requests.status(waiting) }
    }

    private static func console(_ costs: Costs, _ pool: PostgresPool) async throws {
        let session = Array("ann".utf8)
        let desk = DeskConsole(pool: pool, session: session)
        let tickets = DeskTickets(pool: pool, session: session)
        let users = DeskUsers(pool: pool, session: session)
        try await costs.note("desk_counts", pool) { _ in _ = try await desk.counts() }
        for lane in [nil, "desk", "closed"] {
            for kind in [nil, "owner_mismatch", "paid_no_access"] {
                try await costs.note("desk_queue \(lane ?? "open") \(kind ?? "every")", pool) { _ in
                    _ = try await desk.queue(lane: lane, kind: kind, after: nil, limit: page)
                }
            }
        }
        for states in [nil, ["refused"], ["transferred"]] {
            try await costs.note("list_tickets \(states?.first ?? "open")", pool) { _ in
                _ = try await tickets.list(states: states, limit: page)
            }
        }
        try await costs.note("desk_search", pool) { _ in _ = try await desk.search("past-251") }
        try await costs.note("desk_user", pool) { _ in _ = try await users.show(2_000_000_251) }
        try await costs.note("desk_dead", pool) { _ in _ = try await users.dead() }
        try await costs.note("desk_causes", pool) { _ in _ = try await users.causes(days: 7) }
        try await costs.note("desk_figures", pool) { _ in _ = try await users.figures() }
        try await costs.note("desk_log", pool) { _ in
            _ = try await DeskUsers(pool: pool, session: Array("aud".utf8)).log(before: nil)
        }
    }

    private static func work(_ costs: Costs, _ pool: PostgresPool) async throws {
        let inbox = Inbox(pool: pool)
        try await costs.note("accept_events", pool) { _ = try await inbox.accept([event($0)], from: .revenueCat) }
        try await costs.note(
            "drain_inbox",
            pool,
            before: { _ = try await inbox.accept([event(10 + $0)], from: .revenueCat) }
        ) {
            _ in
            let drained = try await inbox.drain()
            #expect(drained.examined > 0)
        }

        // Nothing but what is asked for now is due.
        try await pool.query("DELETE FROM entitlement_sync.queue")
        let requests = Requests(pool: pool)
        let queue = JobQueue(pool: pool)
        let epoch = try await Leases(pool: pool, duration: .seconds(60)).register(
            .init(host: "h", pid: 1, version: "v")
        )
        let limits = [
            JobQueue.LaneLimit(lane: .restore, limit: 10), .init(lane: .event, limit: 10),
            .init(lane: .sweep, limit: 10),
        ]
        let apply = Apply(
            pool: pool,
            settings: ApplySettings(
                decision: DecisionSettings(),
                brake: DemotionBrake(percent: 0.5, minimum: 100),
                retry: RetryPolicy(
                    maxAttempts: 3,
                    backoffBase: .zero,
                    backoffCap: .seconds(1),
                    maxAge: .seconds(86_400)
                )
            ),
            logger: .quiet
        )
        let claimed = Claimed()
        try await costs.note(
            "claim",
            pool,
            before: { _ = try await requests.restore("past-\(100 + $0)", proofs: "[]", clientError: nil) }
        ) { _ in await claimed.add(try await queue.claim(limits, upTo: 10, for: epoch)) }
        let jobs = await claimed.jobs
        try #require(jobs.count == Costs.times)
        try await costs.note("apply", pool) { number in
            let job = jobs[number]
            let report = try await apply([ReadJob(job: job, reading: reading(job))], epoch: epoch)
            #expect(report.ended.map(\.outcome) == [.restored] || report.ended.map(\.outcome) == [.alreadySubscriber])
        }
    }

    /// An event about two users, one by id and one by a purchase on record.
    private static func event(_ number: Int) -> Inbox.Event {
        Inbox.Event(
            id: "new-\(number)",
            kind: "RENEWAL",
            occurredAt: nil,
            announcesAccess: true,
            users: ["past-\(420 + number)"],
            about: #"{"purchases":[{"store":"app_store","value":"past-\#(200 + number)"}]}"#,
            body: []
        )
    }

    /// What a store says of the purchase that is on record, renewed.
    private static func reading(_ job: ClaimedJob) -> Reading {
        let now = job.claimedAt
        let known = PurchaseIdentifier(
            value: job.userID ?? "",
            store: "app_store",
            environment: "production",
            kind: "store_id"
        )
        var item = Observation(
            kind: .subscription,
            store: "app_store",
            environment: "production",
            identifiers: [known],
            entitlements: ["premium"],
            status: StoreStatus("active"),
            givesAccess: true
        )
        item.productID = "premium"
        item.renewal = "will_renew"
        item.periodStartsAt = now
        item.periodEndsAt = now + .seconds(2_000_000)
        return Reading(coverage: .full, askedAt: now, observations: [item])
    }
}

/// The jobs that were claimed.
private actor Claimed {
    private(set) var jobs: [ClaimedJob] = []

    func add(_ more: [ClaimedJob]) { jobs += more }
}

/// How many blocks each statement touched, by its name.
private actor Costs {
    /// How often each is asked; the first time plans are made.
    static let times = 4

    private(set) var blocks: [String: Int64] = [:]

    /// Notes the least of several times: vacuum may be at work beside it.
    ///
    /// `pool`: of one connection, by which all is sent. `before`: what each time needs, uncounted.
    func note(
        _ name: String,
        _ pool: PostgresPool,
        before: @Sendable (Int) async throws -> Void = { _ in },
        _ body: @Sendable (Int) async throws -> Void
    ) async throws {
        for time in 0..<Self.times {
            try await before(time)
            let start = try await Self.touched(pool)
            try await body(time)
            let cost = try await Self.touched(pool) - start
            if time > 0 { blocks[name] = min(blocks[name] ?? .max, cost) }
        }
    }

    /// Blocks of tables and indexes that were touched so far.
    private static func touched(_ pool: PostgresPool) async throws -> Int64 {
        // Kept back until the transaction is over.
        try await pool.query("SELECT pg_stat_force_next_flush()")
        return try #require(
            try await pool.query(
                """
                SELECT sum(coalesce(s.heap_blks_hit + s.heap_blks_read, 0) + coalesce(s.idx_blks_hit + s.idx_blks_read, 0)
                           + coalesce(s.toast_blks_hit + s.toast_blks_read, 0)
                           + coalesce(s.tidx_blks_hit + s.tidx_blks_read, 0))::bigint
                  FROM pg_catalog.pg_statio_user_tables AS s
                """
            ).first
        ).decode(Int64.self)
    }
}
