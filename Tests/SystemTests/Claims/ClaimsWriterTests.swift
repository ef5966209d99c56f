import Diagnostics
import Entitlements
import Foundation
import HTTPTypes
import Logging
import Postgres
import Queue
import StoreClients
import StoreSimulator
import Synchronization
import TestSupport
import Testing

@testable import Outbox
@testable import Transport

/// Custom claims at Firebase, kept by a worker.
@Suite struct ClaimsWriterTests {
    private static let setup = {
        var setup = WorkerSetup()
        setup.keepsClaims = true
        return setup
    }()

    @Test func `Claims follow a purchase from its beginning to its end, and others' members stay`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            world.simulator.setCustomClaims(#"{"admin":true}"#, of: "ann")
            try await world.working(Self.setup) {
                for (days, names) in [(Int64(12), #"["premium"]"#), (42, #"["premium"]"#)] {
                    let end = try await world.buy("ann", days: days)
                    _ = try await world.reconcile("ann")
                    try await world.untilClaims(#"{"admin":true,"entitlements":\#(names),"until":\#(end)}"#)
                }
                _ = try await world.buy("ann", days: -1, state: "expired")
                _ = try await world.reconcile("ann")
                try await world.untilClaims(#"{"admin":true,"entitlements":[],"until":0}"#)
                try await world.untilNoClaimsWait()
            }
            #expect(world.simulator.claimWrites.count == 3)
        }
    }

    @Test func `A grant without an end and without a name gives access until the end of the year 9999`() async throws {
        try await World.with(customers: ["{id: ann, state: expired}"]) { world in
            try await world.add("ann")
            try await world.pool.query("SELECT entitlement_sync.put_access('ann', 'stripe', 'sub_1', 'infinity')")
            try await world.working(Self.setup) {
                try await world.untilClaims(#"{"entitlements":[],"until":253402300799}"#)
            }
        }
    }

    @Test func `A check repairs what others changed, and writes nothing that stands there`() async throws {
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: expired}"]) { world in
            try await world.add("ann")
            try await world.add("bob")
            let end = try await world.buy("ann", days: 12)
            let right = #"{"entitlements":["premium"],"until":\#(end)}"#
            try await world.working(Self.setup) {
                _ = try await world.reconcile("ann")
                try await world.untilClaims(right)
                world.simulator.setCustomClaims(#"{"entitlements":["premium","all"],"until":1}"#, of: "ann")
                _ = try await world.reconcile("ann")
                try await world.untilClaims(right)
                try await world.untilNoClaimsWait()
                let writes = world.simulator.claimWrites.count
                // Who never had anything needs no claims; the checks are over once none waits.
                _ = try await world.reconcile("ann")
                _ = try await world.reconcile("bob")
                try await world.waitUntil("SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue")
                try await world.untilNoClaimsWait()
                #expect(world.simulator.claimWrites.count == writes)
                #expect(world.simulator.customClaims(of: "bob") == "")
                world.simulator.setCustomClaims(#"{"entitlements":["premium"],"until":9999999999}"#, of: "bob")
                _ = try await world.reconcile("bob")
                try await world.untilClaims(#"{"entitlements":[],"until":0}"#, of: "bob")
            }
        }
    }

    @Test func `A grace period moves the claims' end to a day after the next check`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let end = try await world.buy("ann", days: -1, state: "grace")
            try await world.working(Self.setup) {
                _ = try await world.reconcile("ann")
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'ann' AND u.entitlements IS NOT NULL
                    """
                )
                try await world.untilNoClaimsWait()
            }
            let check = try await world.number(
                "SELECT extract(epoch FROM u.next_check_at)::bigint FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'ann'"
            )
            let text = try #require(world.simulator.customClaims(of: "ann"))
            struct Claims: Decodable { var until: Int64 }
            let until = try JSONDecoder().decode(Claims.self, from: Data(text.utf8)).until
            #expect(until > end && abs(until - check - 86_400) <= 1, "\(text) \(check)")
        }
    }

    @Test func `What would be too long is not written, and raises an alarm until it is shorter`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let end = try await world.buy("ann", days: 12)
            // With our members it has 1,001 characters, and one less has 1,000.
            let ours = #","entitlements":["premium"],"until":\#(end)}"#
            let own: @Sendable (Int) -> String = { #"{"own":"\#(String(repeating: "x", count: $0))""# }
            let fits = 1_000 - own(0).count - ours.count
            world.simulator.setCustomClaims(own(fits + 1) + "}", of: "ann")
            try await world.working(Self.setup) {
                _ = try await world.reconcile("ann")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.firebase_claims AS c WHERE c.last_error = 'too_long'"
                )
                #expect(try await world.alarms().contains("claims_too_long"))
                let check = await Doctor(pool: world.pool).checks().first { $0.name == "firebase_claims" }
                #expect(
                    check?.ok == false && check?.detail.contains("1 were given up") == true,
                    "\(String(describing: check))"
                )
                #expect(world.simulator.claimWrites.isEmpty)
                #expect(world.simulator.customClaims(of: "ann") == own(fits + 1) + "}")
                world.simulator.setCustomClaims(own(fits) + "}", of: "ann")
                _ = try await world.reconcile("ann")
                try await world.untilClaims(own(fits) + ours)
            }
        }
    }

    @Test func `At most ten are written in a second`() async throws {
        let users = (1...25).map { "u\($0)" }
        try await World.with(customers: users.map { "{id: \($0), state: active}" }) { world in
            for user in users { try await world.add(user) }
            try await world.working(Self.setup) {
                for user in users { _ = try await world.reconcile(user) }
                try await world.waitUntil("SELECT (count(*) = 25)::integer::bigint FROM entitlement_sync.decision")
                try await world.untilNoClaimsWait()
            }
            let writes = world.simulator.claimWrites
            #expect(writes.count == 25)
            for (first, eleventh) in zip(writes, writes.dropFirst(10)) {
                // Ten gaps, less what requests overtake each other on the way.
                #expect(eleventh - first > 900, "\(writes)")
            }
        }
    }

    @Test func `Nothing is written while all is paused, nor by who does not lead`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            var setup = Self.setup
            setup.variables = ["FIREBASE_SERVICE_ACCOUNT": ""]
            _ = try await world.reconciled("ann", setup: setup)
            let waiting: PostgresQuery =
                "SELECT count(*) FROM entitlement_sync.firebase_claims AS c WHERE NOT c.is_check"
            #expect(try await world.number(waiting) == 1)
            let queue = ClaimsQueue(pool: world.pool)
            let fence = try #require(try await world.claimsLead(world.pool).take(nil))
            #expect(try await queue.due(upTo: 10, fence: fence).count == 1)
            #expect(try await queue.due(upTo: 10, fence: fence + 1).isEmpty)
            try await world.controls.set("all", paused: true)
            #expect(try await queue.due(upTo: 10, fence: fence).isEmpty)
            try await world.controls.set("all", paused: false)
            #expect(try await queue.due(upTo: 10, fence: fence).count == 1)
            // A change that comes while the one before is being written keeps the place.
            let due = try #require(try await queue.due(upTo: 10, fence: fence).first)
            for request in ClaimsQueue.note([(due.userKey, false)]) { try await world.pool.query(request.query) }
            try await queue.end(due)
            #expect(try await world.number(waiting) == 1)
            // A check adds nothing to a change that waits.
            try await queue.postpone(
                try #require(try await queue.due(upTo: 10, fence: fence).first),
                for: .zero,
                error: "timeout"
            )
            let second = try #require(try await queue.due(upTo: 10, fence: fence).first)
            #expect(second.attempt == 1 && !second.isCheck)
            try await queue.check(due.userKey)
            var third = try #require(try await queue.due(upTo: 10, fence: fence).first)
            #expect(third.version > second.version, "what is being compared is compared again")
            third.version = second.version
            #expect(third == second)
            try await world.pool.query("DELETE FROM users AS u WHERE u.id = 'ann'")
            try await world.pool.query("SELECT * FROM entitlement_sync.erase_user('ann')")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.firebase_claims") == 0)
        }
    }

    @Test func `What Firebase refuses is told, put off, and written later`() async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let end = try await world.buy("ann", days: 12)
            try await world.inject(#"{"endpoint": "identity.update", "status": 403}"#)
            try await world.working(Self.setup) {
                _ = try await world.reconcile("ann")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.firebase_claims AS c WHERE c.last_error = 'unauthorized' AND c.attempt > 0"
                )
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.alarm AS a WHERE a.name = 'claims_refused'"
                )
                try await world.heal()
                try await world.pool.query("UPDATE entitlement_sync.firebase_claims SET due = now()")
                try await world.untilClaims(#"{"entitlements":["premium"],"until":\#(end)}"#)
                // Whose account is gone needs none.
                world.simulator.setCustomClaims(nil, of: "ann")
                _ = try await world.buy("ann", days: 42)
                _ = try await world.reconcile("ann")
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.firebase_claims AS c
                     WHERE c.last_error = 'no_account' AND c.due > now() + interval '23 hours'
                    """
                )
            }
        }
    }

    @Test
    func `The first time everyone with access is compared, changes first, and Firebase is left alone as it wants`()
        async throws
    {
        try await World.with(customers: [
            "{id: ann, state: active}", "{id: bob, state: active}", "{id: eve, state: expired}",
        ]) { world in
            for user in ["ann", "bob", "eve"] { try await world.add(user) }
            _ = try await world.reconciled("ann")
            _ = try await world.reconciled("eve")
            var setup = Self.setup
            setup.variables = ["FIREBASE_SERVICE_ACCOUNT": ""]
            _ = try await world.reconciled("bob", setup: setup)
            let lead = world.claimsLead(world.pool)
            let fence = try #require(try await lead.take(nil))
            let rival = Rival(["{}"])
            rival.refusal.withLock { $0 = true }
            let writer = try world.writer(rival, lead)
            _ = try await writer.step(fence)
            #expect(
                try await world.texts(
                    """
                    SELECT u.user_id || ' ' || c.is_check || ' ' || c.last_error
                      FROM entitlement_sync.firebase_claims AS c JOIN entitlement_sync.user_sync AS u USING (user_key) ORDER BY 1
                    """
                ) == ["ann true throttled", "bob false throttled"]
            )
            let asked = rival.asked.withLock(\.self)
            #expect(asked.first == "bob" && Set(asked) == ["ann", "bob"], "\(asked)")
            try await world.pool.query("UPDATE entitlement_sync.firebase_claims SET due = now()")
            #expect(try await writer.step(fence) > .seconds(50))
            let later = rival.asked.withLock(\.self)
            #expect(later == asked, "it was to be left alone for a minute")
            // Only the first time.
            try await world.pool.query("DELETE FROM entitlement_sync.firebase_claims")
            _ = try await world.writer(rival, lead).step(fence)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.firebase_claims") == 0)
        }
    }

    @Test func `Who can't reach Firebase leaves the lead to others`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            _ = try await world.reconciled("ann")
            let lead = world.claimsLead(world.pool)
            let fence = try #require(try await lead.take(nil))
            let rival = Rival(["[]"])
            let writer = try world.writer(rival, lead)
            for _ in 0..<5 {
                #expect(try await writer.step(fence) == .seconds(5))
                try await world.pool.query("UPDATE entitlement_sync.firebase_claims SET due = now()")
            }
            await #expect(throws: Leadership.Resignation.self) { _ = try await writer.step(fence) }
        }
    }

    @Test func `A write that took most of the lead is compared again, as another process may have written meanwhile`()
        async throws
    {
        try await Self.withUnwrittenClaims(lead: .seconds(12)) { world, lead, fence, members in
            let rival = Rival(["{}", "{\(members)}"])
            rival.delay.withLock { $0 = .milliseconds(8_500) }
            _ = try await world.writer(rival, lead).step(fence)
            let checks = try await world.number(
                "SELECT count(*) FROM entitlement_sync.firebase_claims AS c WHERE c.is_check"
            )
            #expect(checks == 1)
        }
    }

    @Test func `A process that stops in the middle of a write leaves the claims to the next step`() async throws {
        try await Self.withUnwrittenClaims { world, lead, fence, members in
            let rival = Rival(["{}", "{\(members)}"])
            rival.delay.withLock { $0 = .seconds(600) }
            let writer = try world.writer(rival, lead)
            let step = Task { try await writer.step(fence) }
            defer { step.cancel() }
            try await eventually("nothing was written") { rival.written.withLock { !$0.isEmpty } }
            // The step waits for this write alone now.
            try await Task.sleep(for: .milliseconds(300))
            let stopped = ContinuousClock.now
            step.cancel()
            await #expect(throws: CancellationError.self) { _ = try await step.value }
            #expect(ContinuousClock.now - stopped < .seconds(60))
            let waiting = try await world.number(
                "SELECT count(*) FROM entitlement_sync.firebase_claims AS c WHERE c.due <= now() AND c.attempt = 0"
            )
            #expect(waiting == 1)
            rival.delay.withLock { $0 = .zero }
            _ = try await writer.step(fence)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.firebase_claims") == 0)
        }
    }

    /// Gives the body the lead over one change that waits to be written: its number, and the two members of Ann's claims.
    private static func withUnwrittenClaims(
        lead duration: Duration = ClaimsWriter.lead,
        _ body: @escaping @Sendable (World, Leadership, Int64, String) async throws -> Void
    ) async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            let end = try await world.buy("ann", days: 12)
            var setup = Self.setup
            setup.variables = ["FIREBASE_SERVICE_ACCOUNT": ""]
            _ = try await world.reconciled("ann", setup: setup)
            let lead = world.claimsLead(world.pool, for: duration)
            let fence = try #require(try await lead.take(nil))
            try await body(world, lead, fence, #""entitlements":["premium"],"until":\#(end)"#)
        }
    }

    /// An account whose claims other programs write too.
    fileprivate final class Rival: Sendable {
        /// What each reading finds, in place of what was written.
        let readings: Mutex<[String]>
        let written = Mutex<[String]>([])
        let moments = Mutex<[ContinuousClock.Instant]>([])

        /// Whether everything is refused, for a minute.
        let refusal = Mutex(false)
        /// Whose claims were asked for.
        let asked = Mutex<[String]>([])
        /// How long a write takes.
        let delay = Mutex(Duration.zero)

        init(_ readings: [String]) { self.readings = Mutex(readings) }

        var client: HTTPClient {
            HTTPClient { [self] request, body throws(HTTPClientFailure) in
                let path = request.path ?? ""
                if path.hasSuffix("/token") {
                    return Self.answer(#"{"access_token":"t","expires_in":3600,"token_type":"Bearer"}"#)
                }
                struct Lookup: Decodable { var localId: [String] }
                if let lookup = try? JSONDecoder().decode(Lookup.self, from: Data(body ?? [])) {
                    asked.withLock { $0 += lookup.localId }
                }
                if refusal.withLock(\.self) { return HTTPClientResponse(status: 429, headers: [.retryAfter: "60"]) }
                struct Update: Decodable { var customAttributes: String }
                if path.hasSuffix(":update") {
                    let update = try? JSONDecoder().decode(Update.self, from: Data(body ?? []))
                    written.withLock { $0.append(update?.customAttributes ?? "") }
                    moments.withLock { $0.append(.now) }
                    let delay = delay.withLock(\.self)
                    do { try await Task.sleep(for: delay) } catch { throw HTTPClientFailure(.cancelled) }
                    return Self.answer(#"{"localId":"ann"}"#)
                }
                let text = readings.withLock { $0.count > 1 ? $0.removeFirst() : $0[0] }
                let encoded = (try? JSONEncoder().encode(text)).map { String(decoding: $0, as: UTF8.self) } ?? ""
                return Self.answer(#"{"users":[{"localId":"ann","customAttributes":\#(encoded)}]}"#)
            }
        }

        private static func answer(_ text: String) -> HTTPClientResponse {
            HTTPClientResponse(status: 200, body: Array(text.utf8))
        }
    }

    @Test func `What another program writes at the same time is read again, and written three times at most`()
        async throws
    {
        try await Self.withUnwrittenClaims { world, lead, fence, members in
            let ours = { (others: String) in "{\(others)\(members)}" }

            // The other program takes our members away once.
            let once = Rival(["{}", #"{"vip":1}"#, ours(#""vip":1,"#)])
            #expect(try await world.writer(once, lead).step(fence) == .seconds(1))
            let written = once.written.withLock(\.self)
            #expect(written == [ours(""), ours(#""vip":1,"#)])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.firebase_claims") == 0)

            // And for ever.
            try await world.pool.query(
                "INSERT INTO entitlement_sync.firebase_claims (user_key, is_check) SELECT u.user_key, true FROM entitlement_sync.user_sync AS u"
            )
            let always = Rival([#"{"vip":1}"#])
            #expect(try await world.writer(always, lead).step(fence) == .seconds(5))
            let moments = always.moments.withLock(\.self)
            #expect(moments.count == 3)
            for (one, next) in zip(moments, moments.dropFirst()) { #expect(one.duration(to: next) > .milliseconds(95)) }
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.firebase_claims AS c
                     WHERE c.last_error = 'overtaken' AND c.attempt = 1 AND c.due > now()
                    """
                ) == 1
            )

            // What is no object is not overwritten.
            try await world.pool.query("UPDATE entitlement_sync.firebase_claims SET due = now()")
            let odd = Rival(["[1]"])
            #expect(try await world.writer(odd, lead).step(fence) == .seconds(5))
            let kept = odd.written.withLock(\.isEmpty)
            #expect(kept)
            try await world.pool.query("UPDATE entitlement_sync.firebase_claims SET due = now(), attempt = 10")
            _ = try await world.writer(odd, lead).step(fence)
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.firebase_claims AS c WHERE c.due = 'infinity' AND c.last_error = 'malformed'"
                ) == 1,
                "it is given up until the next change or check"
            )
        }
    }
}

extension World {
    /// The settings under which custom claims are kept at the simulator.
    var firebase: [String: String] {
        let base = "http://127.0.0.1:\(simulatorPort)"
        return [
            "FIREBASE_SERVICE_ACCOUNT": StoreSimulator.googleServiceAccount, "FIREBASE_PROJECT_ID": "demo-project",
            "FIREBASE_BASE_URL": base + "/identity-toolkit", "GOOGLE_OAUTH_BASE_URL": base + "/google-oauth",
        ]
    }

    /// Gives a user one subscription at the store.
    ///
    /// - Returns: when it ends, in seconds since 1970.
    fileprivate func buy(_ user: String, days: Int64, state: String = "active") async throws -> Int64 {
        let end = Int64(Date().timeIntervalSince1970) + days * 86_400
        try await change(
            user,
            #"{"subscriptions": [{"id": "sub-1", "state": "\#(state)", "product_id": "premium_monthly", "entitlements": ["premium"], "#
                + #""store_subscription_identifier": "480001", "ends": \#(end * 1000)}]}"#
        )
        return end
    }

    fileprivate func untilClaims(_ text: String, of user: String = "ann") async throws {
        try await eventually("the claims never became \(text)") { simulator.customClaims(of: user) == text }
    }

    fileprivate func untilNoClaimsWait() async throws {
        try await waitUntil("SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.firebase_claims")
    }

    fileprivate func writer(_ rival: ClaimsWriterTests.Rival, _ lead: Leadership) throws -> ClaimsWriter {
        ClaimsWriter(
            lead: lead,
            queue: ClaimsQueue(pool: pool),
            accounts: FirebaseAccounts(
                configuration: try FirebaseConfiguration(
                    serviceAccount: StoreSimulator.googleServiceAccount,
                    projectID: "demo-project"
                ),
                http: rival.client
            ),
            logger: .quiet
        )
    }
}
