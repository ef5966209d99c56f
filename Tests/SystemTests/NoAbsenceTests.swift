import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Stores that suddenly do not know their customers, and what is kept for it.
struct NoAbsenceTests {
    private static let users = (1...12).map { "user-\($0)" }

    /// A world of subscribers whom RevenueCat has told us of, with twenty days left.
    private static func subscribers(_ body: @Sendable (World, WorkerSetup) async throws -> Void) async throws {
        let customers = users.map { "{id: \($0), subscriptions: [{state: active, ends: +20d}]}" }
        try await World.with(customers: customers) { world in
            for user in users {
                try await world.add(user)
                _ = try await world.reconcile(user)
            }
            var setup = WorkerSetup()
            setup.retry.maxAttempts = 2
            try await world.work(setup)
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 12)
            setup.decision.absenceMargin = .zero
            // The credentials in use are on record.
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.store_credential WHERE digest IS NOT NULL"
                )
            }
            try await body(world, setup)
        }
    }

    private static func reconcile(_ users: some Sequence<String>, _ world: World, _ setup: WorkerSetup) async throws {
        for user in users { _ = try await world.reconcile(user) }
        try await world.work(setup)
    }

    @Test func `A project that knows none of our customers demotes nobody, and demotions pause by themselves`()
        async throws
    {
        try await Self.subscribers { world, setup in
            for user in Self.users { try await world.change(user, #"{"state":"none"}"#) }
            for _ in 1...2 { try await Self.reconcile(Self.users, world, setup) }
            #expect(try await world.number("SELECT count(*) FROM users WHERE type = 'subscriber'") == 12)
            let job = try await world.restored("user-1", setup: setup)
            #expect(job.state == "dead" && job.outcome == "store_unavailable")
            #expect(job.lastError == "unknown_to_store")
            #expect(try await world.alarms() == ["absences", "unknown_to_store.revenuecat"])
            #expect(try await world.controls.paused() == ["demotions"])
            let found = await Doctor(pool: world.pool).checks().filter { !$0.ok }.map(\.name)
            #expect(found.contains("paused.demotions") && found.contains("alarm.unknown_to_store.revenuecat"))
            let detail = try await world.texts(
                "SELECT a.detail FROM entitlement_sync.alarm AS a WHERE a.name = 'unknown_to_store.revenuecat'"
            ).joined()
            #expect(detail.contains("REVENUECAT_PROJECT_ID") && detail.contains("12 users"), "\(detail)")
            // What was counted before a person resumed is settled.
            try await world.controls.set("demotions", paused: false)
            try await Self.reconcile(Self.users, world, setup)
            #expect(try await world.controls.paused().isEmpty)
        }
    }

    @Test func `A few absences among many answers pause nothing`() async throws {
        try await Self.subscribers { world, setup in
            for user in Self.users.prefix(4) { try await world.change(user, #"{"state":"none"}"#) }
            try await Self.reconcile(Self.users, world, setup)
            #expect(try await world.controls.paused().isEmpty)
            #expect(try await world.alarms() == ["unknown_to_store.revenuecat"])
            // Known again: the absence is forgotten, and may be counted anew.
            for user in Self.users.prefix(4) { try await world.change(user, #"{"state":"active"}"#) }
            try await Self.reconcile(Self.users, world, setup)
            try await world.pool.query("SELECT entitlement_sync.forget_absences()")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.store_absence") == 0)
        }
    }

    @Test(arguments: [(4, 0, false), (5, 0, true), (5, 44, true), (5, 45, false), (50, 450, false), (51, 450, true)])
    func `Five absences, and more than a tenth of what was read, are too many`(
        absent: Int,
        known: Int,
        pauses: Bool
    ) async throws {
        try await World.with { world in
            let users = (0..<absent).map { Int64($0 + 1) }
            let names = users.map { _ in "revenuecat" }
            if known > 0 {
                try await world.pool.query(
                    "SELECT entitlement_sync.note_known(ARRAY['revenuecat'], ARRAY[\(Int64(known))])"
                )
            }
            let raised = try await world.pool.query(
                """
                SELECT n FROM entitlement_sync.note_absences(\(names), \(users), \(users.map { _ in false }), \(names)) AS n
                """
            ).map { try $0.decode(String.self) }
            #expect(raised == (pauses ? ["absences"] : []))
            #expect(try await world.controls.paused() == (pauses ? ["demotions"] : []))
        }
    }

    @Test func `Other credentials that know no customer pause demotions until one is known`() async throws {
        try await Self.subscribers { world, setup in
            var other = setup
            other.variables["REVENUECAT_API_KEY"] = "sk_other"
            for user in Self.users { try await world.change(user, #"{"state":"none"}"#) }
            let asked = try await world.storeRequests(for: "user-1")
            try await world.working(other) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.alarm WHERE name = 'credentials_unknown.revenuecat'"
                )
            }
            #expect(try await world.storeRequests(for: "user-1") - asked <= 2)
            #expect(try await world.controls.paused() == ["demotions"])
            let found = await Doctor(pool: world.pool).checks().filter { !$0.ok }.map(\.name)
            #expect(found.contains("credentials.revenuecat") && found.contains("paused.demotions"))
            let digests = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.store_credential
                 WHERE octet_length(digest) = 32 AND octet_length(salt) = 16
                """
            )
            #expect(digests == 1)
            // The store knows one of them again, by the same credentials.
            for user in Self.users { try await world.change(user, #"{"state":"active"}"#) }
            try await world.working(other) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.control WHERE name = 'demotions' AND NOT paused"
                )
            }
            #expect(try await world.alarms().isEmpty)
        }
    }

    @Test func `Other credentials that know a customer change nothing`() async throws {
        try await Self.subscribers { world, setup in
            var other = setup
            other.variables["REVENUECAT_API_KEY"] = "sk_other"
            let before = try await world.texts("SELECT encode(digest, 'hex') FROM entitlement_sync.store_credential")
            try await world.working(other) {
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.store_credential
                     WHERE state = 'confirmed' AND encode(digest, 'hex') <> \(before.joined())
                    """
                )
            }
            #expect(try await world.controls.paused().isEmpty)
            #expect(try await world.alarms().isEmpty)
        }
    }

    @Test(arguments: [true, false])
    func `A person who resumes has seen to doubted credentials; a person's own pause stays`(isOurs: Bool) async throws {
        try await World.with { world in
            if !isOurs { try await world.controls.set("demotions", paused: true) }
            let digest = PostgresBytes([1])
            try await world.pool.query("INSERT INTO entitlement_sync.store_credential (store) VALUES ('revenuecat')")
            try await world.pool.query("SELECT entitlement_sync.note_credentials('revenuecat', \(PostgresBytes([0])))")
            try await world.pool.query("SELECT entitlement_sync.note_credentials('revenuecat', \(digest))")
            let judge: @Sendable (Bool) async throws -> Void = { knows in
                try await world.pool.query(
                    "SELECT entitlement_sync.judge_credentials('revenuecat', \(digest), \(knows), 'detail')"
                )
            }
            try await judge(false)
            #expect(try await world.controls.paused() == ["demotions"])
            let state: PostgresQuery = "SELECT count(*) FROM entitlement_sync.store_credential WHERE state = 'doubted'"
            #expect(try await world.number(state) == 1)
            if isOurs {
                try await world.controls.set("demotions", paused: false)
                #expect(try await world.number(state) == 0)
            } else {
                try await judge(true)
                #expect(try await world.controls.paused() == ["demotions"])
            }
        }
    }

    @Test func `An entitlement detached from its product is an alarm, and demotes nobody`() async throws {
        let item: @Sendable (String) -> String = { keys in
            #"{"subscriptions":[{"state":"active","id":"sub_a","ends":"+20d","entitlements":[\#(keys)]}]}"#
        }
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.change("ann", item(#""premium""#))
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", item(""))
            var setup = WorkerSetup()
            setup.decision.absenceMargin = .zero
            for _ in 1...3 { #expect(try await world.reconciled("ann", setup: setup).outcome == "deferred") }
            #expect(try await world.decisions(about: "ann").last?.rule == "entitlement_detached")
            #expect(try await world.alarms() == ["entitlement_detached"])
            try await world.change("ann", item(#""premium""#))
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            try await world.change("ann", #"{"subscriptions":[{"state":"expired","id":"sub_a"}]}"#)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
        }
    }

    @Test func `A purchase that RevenueCat moves leaves its former owner at once, and bouncing is one ticket`()
        async throws
    {
        let item =
            #"{"subscriptions":[{"state":"active","id":"sub_m","store_subscription_identifier":"200000070000001"}]}"#
        try await World.with(customers: ["{id: one, state: none}", "{id: two, state: none}"]) { world in
            for user in ["one", "two"] { try await world.add(user) }
            try await world.change("one", item)
            #expect(try await world.restored("one").outcome == "restored")
            var (holder, other) = ("one", "two")
            for turn in 1...4 {
                try await world.change(holder, #"{"state":"none"}"#)
                try await world.change(other, item)
                #expect(try await world.restored(other).outcome == "restored", "turn \(turn)")
                (holder, other) = (other, holder)
                #expect(try await world.type(of: holder) == "subscriber", "turn \(turn)")
                #expect(try await world.type(of: other) == "free", "turn \(turn)")
                #expect(try await world.decisions(about: other).last?.rule == "moved_away")
                #expect(try await world.alarms().contains("owner_bounces") == (turn > 1))
            }
            let tickets = try await world.tickets(of: "one") + world.tickets(of: "two")
            #expect(tickets.map(\.kind) == ["external_transfer"])
            #expect(tickets.first?.touches == 3)
            let broken = await Doctor(pool: world.pool).checks().filter { !$0.ok }.map(\.name)
            #expect(broken.contains("restore_behavior") && !broken.contains("law.demoted_by_word"))
        }
    }

    @Test func `The brake holds back a former owner as anybody else`() async throws {
        let item =
            #"{"subscriptions":[{"state":"active","id":"sub_m","store_subscription_identifier":"200000070000001"}]}"#
        try await World.with(customers: ["{id: one, state: none}", "{id: two, state: none}"]) { world in
            var setup = WorkerSetup()
            setup.brake.minimum = 0
            for user in ["one", "two"] { try await world.add(user) }
            try await world.change("one", item)
            #expect(try await world.restored("one", setup: setup).outcome == "restored")
            try await world.change("one", #"{"state":"none"}"#)
            try await world.change("two", item)
            #expect(try await world.restored("two", setup: setup).outcome == "restored")
            #expect(try await world.decisions(about: "one").last?.rule == "brake")
            #expect(try await world.type(of: "one") == "subscriber")
        }
    }

    @Test func `A user whom support made a subscriber after our decision is never demoted by itself`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.reconciled("ann").outcome == "promoted")
            try await world.change("ann", #"{"state":"expired"}"#)
            #expect(try await world.reconciled("ann").outcome == "demoted")
            try await world.pool.query("UPDATE users SET type = 'subscriber' WHERE id = 'ann'")
            for _ in 1...2 {
                #expect(try await world.reconciled("ann").outcome == "deferred")
                #expect(try await world.restored("ann").outcome == "already_subscriber")
            }
            #expect(try await world.decisions(about: "ann").last?.rule == "unexplained")
            // Who pays again is explained again.
            try await world.change("ann", #"{"state":"active"}"#)
            #expect(try await world.reconciled("ann").outcome == "unchanged")
            try await world.change("ann", #"{"state":"expired"}"#)
            #expect(try await world.reconciled("ann").outcome == "demoted")
        }
    }

    @Test func `Half of the brake's limit is an alarm`() async throws {
        let users = ["ann", "bob", "cid", "dan"]
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            var setup = WorkerSetup()
            setup.brake.minimum = 5
            for user in users { try await world.add(user) }
            try await Self.reconcile(users, world, setup)
            for (count, user) in users.prefix(3).enumerated() {
                try await world.change(user, #"{"state":"expired"}"#)
                #expect(try await world.reconciled(user, setup: setup).outcome == "demoted")
                #expect(try await world.alarms() == (count < 2 ? [] : ["demotion_brake_half"]))
            }
        }
    }

    @Test func `What gives no access is no access at an app's launch, and a tester's ends with the permission`()
        async throws
    {
        try await World.with { world in
            for user in ["ann", "bob", "tess"] { try await world.add(user) }
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
                VALUES ('revenuecat', 'stickers', 'stickers', false)
                """
            )
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.purchase (id, owner_key, observed_at, period_ends_at, gives_access, source, store,
                                                       environment, kind, status, ownership, owner_rule, entitlements)
                SELECT n.id, entitlement_sync.user_key_of(n.who), now(), n.ends, n.kind = 'subscription' OR NULL, 'revenuecat',
                       'app_store', n.environment, n.kind, n.status, 'purchased', 'named_by_revenuecat', ARRAY[n.key]
                  FROM (VALUES (1, 'ann', timestamptz '2099-01-01', 'production', 'subscription', 'active', 'premium'),
                               (2, 'ann', NULL, 'production', 'one_time', 'owned', 'stickers'),
                               (3, 'bob', NULL, 'production', 'one_time', 'owned', 'stickers'),
                               (4, 'tess', NULL, 'sandbox', 'one_time', 'owned', 'premium'))
                       AS n(id, who, ends, environment, kind, status, key)
                """
            )
            try await world.pool.query("UPDATE users SET type = 'subscriber' WHERE id = 'ann'")
            try await world.pool.query("UPDATE entitlement_sync.user_sync SET full_read_at = now()")
            func answer(_ user: String) async throws -> String {
                try await world.texts(
                    """
                    SELECT coalesce(e.until, '-') || ' ' || e.restore_suggested
                      FROM entitlement_sync.entitlement_answer(\(user)) AS e
                    """
                ).joined()
            }
            #expect(try await answer("ann") == "2099-01-01T00:00:00Z false")
            #expect(try await answer("bob") == "- false")
            #expect(try await answer("tess") == "- false")
            try await world.pool.query(
                "INSERT INTO entitlement_sync.sandbox_user (user_id, until) VALUES ('tess', '2098-01-01T00:00:00Z')"
            )
            #expect(try await answer("tess") == "2098-01-01T00:00:00Z true")
            try await world.pool.query("UPDATE entitlement_sync.sandbox_user SET until = now() - interval '1 second'")
            #expect(try await answer("tess") == "- false")
        }
    }

    @Test func `The alarm of a pause that no person made stays raised until it ends`() async throws {
        try await World.with { world in
            try await world.pool.query(
                "INSERT INTO entitlement_sync.alarm (name, detail) VALUES ('absences', ''), ('credentials_unknown.onside', '')"
            )
            func raised(by cause: String, isPaused: Bool) async throws -> [String] {
                try await world.pool.query("UPDATE entitlement_sync.alarm SET last_at = now() - interval '2 hours'")
                try await world.pool.query(
                    """
                    UPDATE entitlement_sync.control SET paused = \(isPaused), by = 'entitlement-sync', cause = \(cause)
                     WHERE name = 'demotions'
                    """
                )
                try await world.pool.query("SELECT entitlement_sync.forget_absences()")
                return try await world.texts(
                    "SELECT a.name FROM entitlement_sync.alarm AS a WHERE a.last_at > now() - interval '1 minute'"
                )
            }
            #expect(try await raised(by: "absences", isPaused: true) == ["absences"])
            #expect(try await raised(by: "credentials", isPaused: true) == ["credentials_unknown.onside"])
            #expect(try await raised(by: "absences", isPaused: false).isEmpty)
        }
    }
}
