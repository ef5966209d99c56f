import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

/// Restores as users' apps ask for them, and what they are answered.
@Suite struct AppRequestTests {
    private static let claim = #"[{"store":"google_play","kind":"purchase_token","value":"token-of-ann"}]"#

    // MARK: Repeats

    @Test func `78: a double tap on two devices is one job, and both get its id`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let wish = RestoreWish(userID: "ann")
            async let phone = world.ask(wish)
            async let tablet = world.ask(wish)
            let jobs = try await [phone, tablet]
            #expect(jobs[0] == jobs[1])
            #expect(try await world.ask(wish) == jobs[0])
            try await world.work()
            #expect(try await world.answer(jobs[0]).outcome == "restored")
            #expect(try await world.decisions(about: "ann").count == 1)
            let next = try await world.ask(wish)
            #expect(next != jobs[0])
        }
    }

    @Test func `78, 191: the app is told whether its tap made the job`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let wish = RestoreWish(userID: "ann", idempotencyKey: "k")
            let first = try await world.app.restore(wish)
            #expect(first.isNew)
            // Ids tell their time by the millisecond.
            try await world.pool.query("SELECT pg_sleep(0.005)")
            for again in [wish, RestoreWish(userID: "ann")] {
                let joined = try await world.app.restore(again)
                #expect(joined.id == first.id && !joined.isNew)
            }
            try await world.work()
            let remembered = try await world.app.restore(wish)
            #expect(remembered.id == first.id && !remembered.isNew)
            let good = Ended(state: "done", outcome: "already_subscriber")
            try await Self.addHistory(Array(repeating: good, count: 9), of: "ann", in: world)
            let last = try await world.app.restore(RestoreWish(userID: "ann"))
            #expect(!last.isNew && last.id != first.id)
            let fresh = try await world.app.restore(RestoreWish(userID: "ann", proofs: Self.claim))
            #expect(fresh.isNew)
        }
    }

    @Test func `191: the eleventh restore of a day that shows nothing new is answered from the last; a new proof runs`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            var jobs: [UUID] = []
            for _ in 1...10 {
                jobs.append(try await world.ask(RestoreWish(userID: "ann")))
                try await world.work()
            }
            #expect(Set(jobs).count == 10)
            for _ in 1...3 { #expect(try await world.ask(RestoreWish(userID: "ann")) == jobs[9]) }
            #expect(try await world.queued() == 0)
            // What anybody can type shows nothing.
            let typed = #"[{"store":"app_store","kind":"transaction_id","value":"200000070000001"}]"#
            #expect(try await world.ask(RestoreWish(userID: "ann", proofs: typed)) == jobs[9])
            // A new proof is looked at, and is new no more.
            let shown = RestoreWish(userID: "ann", proofs: Self.claim)
            let fresh = try await world.ask(shown)
            #expect(!jobs.contains(fresh))
            #expect(try await world.answer(fresh).state == "queued")
            try await world.work()
            #expect(try await world.answer(fresh).outcome == "already_subscriber")
            #expect(try await world.ask(shown) == fresh)
            #expect(try await world.ask(RestoreWish(userID: "ann")) == fresh)
            #expect(try await world.queued() == 0)
            #expect(try await world.decisions(about: "ann").count == 11)
        }
    }

    @Test(arguments: [Ended(state: "dead"), Ended(state: "done")])
    func `191: after a store that could not be reached the eleventh restore runs`(_ last: Ended) async throws {
        try await World.with { world in
            try await world.add("ann")
            let good = Ended(state: "done", outcome: "nothing_to_restore")
            try await Self.addHistory(Array(repeating: good, count: 10) + [last], of: "ann", in: world)
            let job = try await world.ask(RestoreWish(userID: "ann"))
            #expect(try await world.answer(job).state == "queued")
            #expect(try await world.queued() == 1)
        }
    }

    @Test func `191: nine restores, those of others, and those of yesterday hold nobody back`() async throws {
        try await World.with { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let good = Ended(state: "done", outcome: "nothing_to_restore")
            try await Self.addHistory(Array(repeating: good, count: 9), of: "ann", in: world)
            try await Self.addHistory(Array(repeating: good, count: 20), of: "ann", hoursAgo: 25, in: world)
            try await Self.addHistory(Array(repeating: good, count: 20), of: "bob", in: world)
            let job = try await world.ask(RestoreWish(userID: "ann"))
            #expect(try await world.answer(job).state == "queued")
            let others = try await world.ask(RestoreWish(userID: "bob"))
            #expect(try await world.answer(others).outcome == "nothing_to_restore")
            #expect(try await world.queued() == 1)
        }
    }

    @Test func `191: reconciles count for nothing`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let look = Ended(state: "done", outcome: "unchanged", kind: 1)
            try await Self.addHistory(Array(repeating: look, count: 20), of: "ann", in: world)
            let job = try await world.ask(RestoreWish(userID: "ann"))
            #expect(try await world.answer(job).state == "queued")
        }
    }

    @Test func `191: a job that waits or runs is joined, however often somebody taps`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let good = Ended(state: "done", outcome: "nothing_to_restore")
            try await Self.addHistory(Array(repeating: good, count: 10), of: "ann", in: world)
            let queued = try await world.ask(RestoreWish(userID: "ann", proofs: Self.claim))
            #expect(try await world.ask(RestoreWish(userID: "ann")) == queued)
            try await world.inject(#"{"latency":"500ms"}"#)
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(queued) AND state = 'running'"
                )
                let next = try await world.ask(RestoreWish(userID: "ann"))
                #expect(next != queued, "what runs has begun without this tap")
                let again = try await world.ask(RestoreWish(userID: "ann"))
                #expect(again == next)
            }
        }
    }

    @Test func `191: a proof that was shown a day ago is new again`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let wish = RestoreWish(userID: "ann", proofs: Self.claim)
            let first = try await world.ask(wish)
            #expect(try await world.commands.cancel(first) == .canceled)
            let good = Ended(state: "done", outcome: "nothing_to_restore")
            try await Self.addHistory(Array(repeating: good, count: 10), of: "ann", in: world)
            let known = try await world.ask(wish)
            #expect(try await world.answer(known).outcome == "nothing_to_restore")
            #expect(try await world.queued() == 0)
            try await world.pool.query(
                "UPDATE entitlement_sync.shown_proof SET shown_at = now() - interval '25 hours'"
            )
            let fresh = try await world.ask(wish)
            #expect(try await world.answer(fresh).state == "queued")
        }
    }

    @Test func `An idempotency key answers with its own job, also beyond the day's restores, and for no other content`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let wish = RestoreWish(userID: "ann", idempotencyKey: "k")
            let job = try await world.ask(wish)
            #expect(try await world.ask(wish) == job)
            try await world.work()
            #expect(try await world.ask(wish) == job)
            let good = Ended(state: "done", outcome: "already_subscriber")
            try await Self.addHistory(Array(repeating: good, count: 10), of: "ann", in: world)
            #expect(try await world.ask(wish) == job)
            for other in [
                RestoreWish(userID: "ann", clientError: "7", idempotencyKey: "k"),
                RestoreWish(userID: "ann", proofs: Self.claim, idempotencyKey: "k"),
                RestoreWish(userID: "ann", productIDs: ["monthly"], idempotencyKey: "k"),
            ] {
                let refusal = await #expect(throws: PostgresError.self) { _ = try await world.ask(other) }
                #expect(refusal?.sqlState == "ES004")
            }
            #expect(try await world.queued() == 0)
            // Keys are each user's own.
            let theirs = try await world.ask(RestoreWish(userID: "bob", clientError: "7", idempotencyKey: "k"))
            #expect(theirs != job)
        }
    }

    @Test func `Wishes that are wrong are refused as everywhere, and nothing of them is remembered`() async throws {
        let long = String(repeating: "e", count: 501)
        try await World.with { world in
            try await world.add("ann")
            for (wish, code) in [
                (RestoreWish(userID: "nobody"), "ES001"),
                (RestoreWish(userID: "ann", proofs: #"[{"store":"app_store","kind":"x","value":"1"}]"#), "ES002"),
                (RestoreWish(userID: "ann", idempotencyKey: String(repeating: "k", count: 256)), "ES003"),
                (RestoreWish(userID: "ann", proofs: Self.claim, clientError: long), "ES005"),
            ] {
                let refusal = await #expect(throws: PostgresError.self) { _ = try await world.ask(wish) }
                #expect(refusal?.sqlState == code)
            }
            #expect(try await world.queued() == 0)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.shown_proof") == 0)
        }
    }

    // MARK: Answers

    @Test func `Answers say how it ended, and leave out reconciles and ids that are nobody's`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: none}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let reconcile = try await world.reconcile("ann")
            let restore = try await world.ask(RestoreWish(userID: "ann"))
            let before = try await world.answer(restore)
            #expect(before.state == "queued" && before.outcome == nil && before.products.isEmpty && !before.hasEnded)
            let mismatch = try await world.ask(RestoreWish(userID: "bob", clientError: "7"))
            try await world.work()
            let answers = try await world.app.answers([reconcile, UUID(), restore])
            #expect(answers.map(\.id) == [restore])
            let answer = try #require(answers.first)
            #expect(answer.state == "done" && answer.outcome == "restored" && answer.messageKey == "restored")
            #expect(answer.userID == "ann" && answer.hasEnded)
            let status = try await world.status(restore)
            #expect(answer.reference == status.reference)
            #expect(answer.age >= before.age && answer.age < 60)
            let other = try await world.answer(mismatch)
            #expect(other.outcome == "store_account_mismatch" && other.products.isEmpty)
            #expect(try await world.app.answers([]).isEmpty)
        }
    }

    @Test func `184: product_ids limits what is listed for redelivery; ends are told where known`() async throws {
        let ann =
            "{id: ann, subscriptions: [{state: active, product_id: prodA, ends: 1924992000000},"
            + " {state: active, product_id: prodB, store: play_store}, {state: expired, product_id: prodC}]}"
        let bob = "{id: bob, subscriptions: [{state: active, product_id: prodOfBob}]}"
        let cid = "{id: cid, purchases: [{state: lifetime, product_id: prodL}]}"
        try await World.with(customers: [ann, bob, cid]) { world in
            for user in ["ann", "bob", "cid"] { try await world.add(user) }
            let all = try await world.ask(RestoreWish(userID: "ann"))
            _ = try await world.ask(RestoreWish(userID: "bob"))
            let endless = try await world.ask(RestoreWish(userID: "cid"))
            try await world.work()
            // The caller's own purchases that give access, and nobody else's.
            let products = try await world.answer(all).products
            #expect(products.compactMap(\.productID).sorted() == ["prodA", "prodB"])
            let first = try #require(products.first { $0.productID == "prodA" })
            #expect(first.store == "app_store" && first.entitlements == ["premium"])
            #expect(first.endsAt == "2031-01-01T00:00:00Z")
            let second = try #require(products.first { $0.productID == "prodB" })
            #expect(second.store == "google_play" && second.endsAt != nil)
            let owned = try await world.answer(endless).products
            #expect(owned.compactMap(\.productID) == ["prodL"])
            #expect(owned.compactMap(\.endsAt).isEmpty)
            let wishes: [(wanted: [String], listed: [String])] = [
                (["prodB", "prodOfBob"], ["prodB"]), (["prodC"], []), (["prodL"], []),
            ]
            for (wanted, listed) in wishes {
                let job = try await world.ask(RestoreWish(userID: "ann", productIDs: wanted))
                try await world.work()
                let answer = try await world.answer(job)
                #expect(answer.outcome == "already_subscriber")
                #expect(answer.products.compactMap(\.productID) == listed, "\(wanted)")
            }
        }
    }

    @Test func `190: a sandbox purchase is listed for whoever is allow-listed, and only as long`() async throws {
        try await World.with(customers: ["{id: ann, state: sandbox}", "{id: bob, state: sandbox}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.pool.query(
                "INSERT INTO entitlement_sync.sandbox_user (user_id, until) VALUES ('ann', now() + interval '1 day')"
            )
            // Somebody else's sandbox is no business of a user with a grant.
            _ = try await world.controls.grant("bob", until: Self.century, reason: "goodwill")
            let allowed = try await world.ask(RestoreWish(userID: "ann"))
            let other = try await world.ask(RestoreWish(userID: "bob"))
            try await world.work()
            #expect(try await world.answer(allowed).outcome == "restored")
            #expect(try await world.answer(allowed).products.count == 1)
            #expect(try await world.answer(other).outcome == "restored")
            #expect(try await world.answer(other).products.isEmpty)
            try await world.pool.query("UPDATE entitlement_sync.sandbox_user SET until = now() - interval '1 second'")
            #expect(try await world.answer(allowed).products.isEmpty)
        }
    }

    @Test func `What was asked for by somebody who is erased is answered without a name and without products`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let job = try await world.ask(RestoreWish(userID: "ann"))
            try await world.work()
            #expect(try await world.answer(job).products.count == 1)
            try await world.pool.query("SELECT * FROM entitlement_sync.erase_user('ann')")
            let answer = try await world.answer(job)
            #expect(answer.userID == nil && answer.outcome == "restored")
            #expect(answer.products.isEmpty)
        }
    }

    // MARK: Parts

    /// The first of January 2100.
    static let century = PostgresTimestamp(microsecondsSinceUnixEpoch: 4_102_444_800_000_000)

    /// How a job of before ended.
    struct Ended: Sendable, CustomTestStringConvertible {
        var state: String
        var outcome = "store_unavailable"
        /// 0: a restore; 1: a reconcile.
        var kind: Int16 = 0
        var testDescription: String { "\(state): \(outcome)" }
    }

    /// Writes jobs of a user into the history, a minute apart, the last one now or so many hours ago.
    static func addHistory(
        _ ends: [Ended],
        of user: String,
        hoursAgo: Int32 = 0,
        in world: World
    ) async throws {
        try await world.meet(user)
        try await world.pool.query(
            """
            INSERT INTO entitlement_sync.job_history (id, user_key, finished_at, kind, attempt, state, outcome)
            SELECT overlay(entitlement_sync.new_id()::text PLACING left(t.first::text, 13) FROM 1 FOR 13)::uuid,
                   u.user_key, t.at, e.kind, 0, e.state, e.outcome
              FROM unnest(\(ends.map(\.state)), \(ends.map(\.outcome)), \(ends.map(\.kind))) WITH ORDINALITY
                   AS e(state, outcome, kind, n)
             CROSS JOIN LATERAL (SELECT make_interval(hours => \(hoursAgo),
                                                      mins => (\(Int32(ends.count)) - e.n)::integer) AS ago) AS a
             CROSS JOIN LATERAL (SELECT now() - a.ago AS at,
                                        entitlement_sync.first_id_at(now() - a.ago) AS first) AS t
              JOIN entitlement_sync.user_sync AS u ON u.user_id = \(user)
            """
        )
    }
}
