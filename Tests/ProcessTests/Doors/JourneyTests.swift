import Foundation
import Glibc
import HTTPTypes
import Postgres
import TestSupport
import Testing

/// What a user's app goes through, from its token to the words that a person reads.
struct JourneyTests {
    private static let scenario = """
        customers:
          - {id: ann, state: active}
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "2000000700000001"}]}
          - {id: retry, subscriptions: [expired, billing_retry]}
          - {id: ended, state: expired}
          - {id: tester, state: sandbox}
          - {id: banned, state: active}
          - {id: leaving, state: active}
          - {id: down, state: active}
          - {id: two, subscriptions: [active, {state: active, product_id: prod-other}]}
        app_store:
          customers:
            - id: apple-owner
              transactions: [{original: "2000000700000001", product: premium_monthly, state: active, expires: +20d}]
            - id: apple-payer
              transactions: [{original: "2000000800000001", product: premium_monthly, state: active, expires: +20d}]
        google_play:
          purchases: [{token: tok-player, state: active}]
        faults: [{customer: down, status: 503}]
        """

    private static let users = [
        "ann", "owner", "retry", "ended", "tester", "banned", "leaving", "down", "two", "fresh", "thief", "payer",
        "player", "out",
    ]

    // MARK: The way

    @Test func `1, 2: a tap is accepted with all there is to tell, waited for, and answered in the app's language`()
        async throws
    {
        try await DoorSite.with(scenario: Self.scenario, users: Self.users) { doors in
            let door = try await doors.open()
            let ann = try await doors.caller("ann", at: door)
            let accepted = try await ann.ask(.post, "/v1/restores")
            #expect(accepted.status == 202)
            let asked: SeenRestore = try accepted.decode()
            #expect(accepted["Location"] == asked.path)
            #expect(accepted["Content-Type"] == "application/json" && accepted["Cache-Control"] == "no-store")
            #expect(asked.reference.wholeMatch(of: /R-[0-9A-Z]{4}-[0-9A-Z]{2}/) != nil, "\(asked)")
            // Accepted is no outcome.
            #expect(["queued", "running"].contains(asked.state), "\(asked)")
            #expect(asked.outcome == nil && asked.message == nil && asked.products.isEmpty, "\(asked)")

            let german = try await ann.ask(.get, asked.path + "?wait=25", ["Accept-Language": "de-AT, en;q=0.3"])
            let type = try await doors.site.texts("SELECT u.type FROM users AS u WHERE u.id = 'ann'")
            #expect(type == ["subscriber"], "whoever is told has it already")
            #expect(german.status == 200 && german["Content-Language"] == "de" && german["Vary"] == "Accept-Language")
            let restored: SeenRestore = try german.decode()
            #expect(restored.id == asked.id && restored.reference == asked.reference && restored.state == "done")
            #expect(restored.outcome == "restored" && restored.messageKey == "restored")
            #expect(restored.message == "Ihr Abo ist wieder aktiv.")
            let product = try #require(restored.products.first)
            #expect(restored.products.count == 1 && product.store == "app_store")
            let written = try #require(product.endsAt)
            let ends = try Date.ISO8601FormatStyle().parse(written)
            #expect(ends.timeIntervalSinceNow > 0, "\(written)")
            let members = SeenRestore.CodingKeys.allCases.map(\.rawValue).sorted()
            for answer in [accepted, german] {
                let json = try JSONSerialization.jsonObject(with: Data(answer.body)) as? [String: Any]
                let object = try #require(json)
                #expect(object.keys.sorted() == members)
            }

            let again = try await ann.restore()
            #expect(again.id != asked.id)
            let french = try await ann.ask(.get, again.path + "?wait=25", ["Accept-Language": "xx, fr;q=0.9, en;q=0.8"])
            let known: SeenRestore = try french.decode()
            #expect(french["Content-Language"] == "fr" && known.outcome == "already_subscriber")
            #expect(known.message == "Vous avez déjà accès à votre abonnement. Il n’y a rien à restaurer.")
            try await door.close()
        }
    }

    private struct Tap: Sendable {
        var user: String
        var body: String?
        var outcome: String
        var key: String
        var says: String
        var products: [String?] = []
    }

    private static func taps(_ doors: DoorSite) throws -> [Tap] {
        let help = "please contact support at help@example.com and mention reference {reference}."
        let token = #"{"proofs": [{"store": "play_store", "kind": "purchase_token", "value": "tok-player"}]}"#
        return [
            Tap(
                user: "owner",
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["prod1122334455"]
            ),
            // Only what was asked for is delivered again.
            Tap(
                user: "two",
                body: #"{"product_ids": ["prod-other"]}"#,
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["prod-other"]
            ),
            Tap(
                user: "payer",
                body: try doors.showing(transaction: "2000000800000001"),
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["premium_monthly"]
            ),
            Tap(
                user: "player",
                body: token,
                outcome: "restored",
                key: "restored",
                says: "Your subscription is active again.",
                products: ["pro"]
            ),
            Tap(
                user: "fresh",
                outcome: "nothing_to_restore",
                key: "nothing",
                says: "We found no purchases to restore. If you have paid, " + help
            ),
            Tap(
                user: "ended",
                outcome: "nothing_to_restore",
                key: "nothing.expired",
                says: "Your subscription has expired. You can subscribe again at any time."
            ),
            // One has expired as well: a card to update is what helps.
            Tap(
                user: "retry",
                outcome: "nothing_to_restore",
                key: "nothing.billing_retry",
                says: "Your last payment did not go through. Update your payment method in your app store to get your"
                    + " access back."
            ),
            Tap(
                user: "tester",
                outcome: "nothing_to_restore",
                key: "nothing.sandbox",
                says: "We found only test purchases. They cannot be restored for this account."
            ),
            Tap(
                user: "thief",
                body: try doors.showing(transaction: "2000000700000001"),
                outcome: "store_account_mismatch",
                key: "mismatch",
                says: "This purchase belongs to another account in this app. For help, " + help
            ),
            Tap(
                user: "banned",
                outcome: "not_eligible",
                key: "not_eligible",
                says: "Purchases cannot be restored for this account. P" + String(help.dropFirst())
            ),
            Tap(
                user: "leaving",
                outcome: "not_eligible",
                key: "not_eligible.deleting",
                says: "This account is being deleted. Any subscription will still be billed until you cancel it in your"
                    + " app store."
            ),
            Tap(
                user: "out",
                body: #"{"client_error": "LOGIN_DISCARDED"}"#,
                outcome: "store_unavailable",
                key: "sign_in_needed",
                says: "Please sign in to your app store on this device, then try again."
            ),
            Tap(
                user: "down",
                outcome: "store_unavailable",
                key: "unavailable",
                says: "The app store is not responding right now. Nothing is lost. Please try again later."
            ),
        ]
    }

    @Test func `3, 4, 28, 112, 114, 117, 157, 174, 184, 188: every outcome comes with its key and its words`()
        async throws
    {
        let settings = ["SUPPORT_CONTACT_URL": "mailto:help@example.com"]
        try await DoorSite.with(scenario: Self.scenario, users: Self.users, settings: settings) { doors in
            try await doors.site.execute(
                """
                UPDATE users SET status = 'banned' WHERE id = 'banned';
                UPDATE users SET status = 'to_be_deleted' WHERE id = 'leaving';
                """
            )
            let door = try await doors.open()
            for tap in try Self.taps(doors) {
                let caller = try await doors.caller(tap.user, at: door)
                let asked = try await caller.restore(tap.body)
                let end = try await caller.end(of: asked)
                #expect(end.id == asked.id && end.reference == asked.reference, "\(tap.user): \(end)")
                #expect(end.outcome == tap.outcome && end.messageKey == tap.key, "\(tap.user): \(end)")
                #expect(end.message == tap.says.replacing("{reference}", with: end.reference), "\(tap.user): \(end)")
                #expect(end.products.map(\.productID) == tap.products, "\(tap.user): \(end)")
                let shown = try await caller.entitlement()
                #expect(shown.type == (tap.outcome == "restored" ? "subscriber" : "free"), "\(tap.user): \(shown)")
                #expect(
                    shown.tickets.map(\.reference) == (tap.outcome == "store_account_mismatch" ? [end.reference] : []),
                    "\(shown)"
                )
                #expect(tap.outcome != "restored" || shown.until != nil && !shown.suggestsRestore, "\(shown)")
            }
            let ticket = try await doors.site.texts(
                "SELECT concat_ws(' ', t.user_id, t.purchase_owner_id, t.kind) FROM entitlement_sync.ticket_status AS t"
            )
            #expect(ticket == ["thief owner owner_mismatch"], "inside it is known whose it is")
            try await door.close()
        }
    }

    @Test func `91, 112: a store that is down is told at the launch, and what it kept back is suggested`()
        async throws
    {
        let scenario = "customers: [{id: ann, state: active}]\nfaults: [{customer: ann, status: 503}]\n"
        let settings = ["JOB_MAX_ATTEMPTS": "2"]
        try await DoorSite.with(scenario: scenario, users: ["ann", "ben"], settings: settings) { doors in
            let door = try await doors.open()
            let ann = try await doors.caller("ann", at: door)
            let failed = try await ann.end(of: try await ann.restore())
            #expect(failed.state == "dead" && failed.outcome == "store_unavailable", "\(failed)")
            let down = SeenEntitlement.Store(store: "revenuecat", state: "down")
            try await eventually("the store was never told to be down") {
                try await ann.entitlement().stores.contains(down)
            }
            let before = try await ann.entitlement()
            #expect(before.type == "free" && before.until == nil && before.suggestsRestore, "\(before)")

            try await doors.simulator.heal()
            let restored = try await ann.end(of: try await ann.restore())
            #expect(restored.outcome == "restored", "\(restored)")
            let well = SeenEntitlement.Store(store: "revenuecat", state: "ok")
            try await eventually("the store was never told to be well") {
                try await ann.entitlement().stores.contains(well)
            }
            let after = try await ann.entitlement()
            #expect(after.type == "subscriber" && after.until != nil && !after.suggestsRestore, "\(after)")
            let ben = try await doors.caller("ben", at: door)
            let stranger = try await ben.entitlement()
            #expect(stranger.type == "free" && stranger.suggestsRestore, "nothing was ever read of him: \(stranger)")
            try await door.close()
        }
    }

    // MARK: Repeats

    @Test func `A repeat with its key is the same restore, and other content under the key is refused`() async throws {
        try await DoorSite.with(scenario: Self.scenario, users: Self.users) { doors in
            let door = try await doors.open()
            let ann = try await doors.caller("ann", at: door)
            let first = try await ann.restore(#"{"origin": "paywall"}"#, key: "tap-1")
            let ended = try await ann.end(of: first)
            let again = try await ann.restore(#"{"origin": "paywall"}"#, key: "tap-1")
            #expect(again == ended, "it is answered with its end")
            let other = try await ann.ask(
                .post,
                "/v1/restores",
                ["Idempotency-Key": "tap-1"],
                body: #"{"origin": "profile"}"#
            )
            #expect(other.status == 422, "\(other)")
            let problem = try other.problem
            #expect(problem.kind == "key-reused" && problem.field == "Idempotency-Key", "\(problem)")
            // Keys are each user's own.
            let owner = try await doors.caller("owner", at: door)
            let theirs = try await owner.restore(#"{"origin": "profile"}"#, key: "tap-1")
            #expect(theirs.id != first.id)
            let jobs = try await doors.site.number("SELECT count(*) FROM entitlement_sync.job_status")
            #expect(jobs == 2)
            try await door.close()
        }
    }

    @Test func `78: two taps are one restore while it waits, and a tap while it runs gets the one that follows`()
        async throws
    {
        let scenario = "customers: [{id: ann, state: active}]\nfaults: [{endpoint: subscriptions, latency: 6s}]\n"
        try await DoorSite.with(scenario: scenario, users: ["ann"]) { doors in
            let door = try await doors.open("serve")
            // Two devices have two tokens.
            let phone = try await doors.caller("ann", at: door)
            let tablet = try await doors.caller("ann", at: door)
            let first = try await phone.restore()
            let second = try await tablet.restore()
            #expect(first.id == second.id && second.state == "queued")

            let worker = try await doors.site.start("worker")
            try await doors.site.until(
                "SELECT count(*) FROM entitlement_sync.job_status AS s WHERE s.state = 'running'"
            )
            let next = try await tablet.restore()
            let joined = try await phone.restore()
            #expect(next.id != first.id && joined.id == next.id && next.state == "queued", "\(next), \(joined)")
            let ends = [try await phone.end(of: first), try await tablet.end(of: second)]
            #expect(ends.map(\.outcome) == ["restored", "restored"] && ends[0] == ends[1])
            let last = try await phone.end(of: next)
            #expect(last.outcome == "already_subscriber", "\(last)")
            let jobs = try await doors.site.number("SELECT count(*) FROM entitlement_sync.job_status")
            #expect(jobs == 2)
            worker.signal(SIGTERM)
            let ending = try await worker.ending()
            #expect(ending.code == 0, "\(ending)")
            try await door.close()
        }
    }

    @Test func `191: who restores at every launch is told the last result, until there is something new to look at`()
        async throws
    {
        try await DoorSite.with(scenario: Self.scenario, users: Self.users) { doors in
            let door = try await doors.open()
            let fresh = try await doors.caller("fresh", at: door)
            var ids: Set<String> = []
            for _ in 0..<10 {
                let end = try await fresh.end(of: try await fresh.restore())
                #expect(end.messageKey == "nothing")
                ids.insert(end.id)
            }
            #expect(ids.count == 10)
            let asked = try await doors.simulator.requests(for: "fresh")
            let eleventh = try await fresh.restore()
            #expect(ids.contains(eleventh.id) && eleventh.state == "done" && eleventh.messageKey == "nothing")
            let askedAgain = try await doors.simulator.requests(for: "fresh")
            #expect(asked > 0 && askedAgain == asked, "the store is spared")
            let body = try doors.showing(transaction: "2000000800000001")
            let shown = try await fresh.end(of: try await fresh.restore(body))
            #expect(!ids.contains(shown.id) && shown.outcome == "restored", "\(shown)")
            try await door.close()
        }
    }

    // MARK: Whose it is

    @Test func `Whose a restore is the token says and nothing else, and to others it is as if there were none`()
        async throws
    {
        try await DoorSite.with(scenario: Self.scenario, users: Self.users) { doors in
            let door = try await doors.open()
            let ann = try await doors.caller("ann", at: door)
            let owner = try await doors.caller("owner", at: door)
            let hers = try await ann.restore(#"{"user_id": "owner", "sub": "owner", "origin": "profile"}"#)
            let ended = try await ann.end(of: hers)
            #expect(ended.outcome == "restored")
            let whose = try await doors.site.texts("SELECT s.user_id FROM entitlement_sync.job_status AS s")
            #expect(whose == ["ann"])

            let unknown = "/v1/restores/0197a0b2-0000-7000-8000-000000000000"
            let malformed = "/v1/restores/no-id"
            let long = "/v1/restores/" + String(repeating: "7", count: 500)
            // A request's own name is all that tells answers apart.
            let name = ["X-Request-Id": "same"]
            for end in ["", "?wait=1", "/events"] {
                let others = try await owner.ask(.get, hers.path + end, name)
                #expect(others.status == 404, "\(end): \(others)")
                let problem = try others.problem
                #expect(problem.kind == "not-found" && problem.detail == nil, "\(problem)")
                for path in [unknown, malformed, long] {
                    let none = try await owner.ask(.get, path + end, name)
                    #expect(none.status == 404 && none.body == others.body, "\(path + end): \(none)")
                    for header in ["Content-Type", "Content-Length", "Vary", "Content-Language", "Cache-Control"] {
                        #expect(none[header] == others[header], "\(path + end): \(header)")
                    }
                }
            }
            let stranger = try await doors.caller("stranger", at: door)
            for (method, path) in [(HTTPRequest.Method.post, "/v1/restores"), (.get, "/v1/entitlement")] {
                let answer = try await stranger.ask(method, path)
                let problem = try answer.problem
                #expect(answer.status == 404 && problem.kind == "unknown-user", "\(answer)")
            }
            try await door.close()
        }
    }

    @Test func `A wait is a whole number of seconds up to 25`() async throws {
        try await DoorSite.with(scenario: Self.scenario, users: Self.users) { doors in
            let door = try await doors.open("serve")
            let ann = try await doors.caller("ann", at: door)
            let asked = try await ann.restore()
            for wait in ["26", "abc", "-1", "1.5", "", "%20", "99999999999999999999"] {
                let answer = try await ann.ask(.get, asked.path + "?wait=\(wait)")
                #expect(answer.status == 400, "\(wait): \(answer)")
                let problem = try answer.problem
                #expect(problem.kind == "invalid-field" && problem.field == "wait", "\(problem)")
            }
            let began = ContinuousClock.now
            for wait in ["", "?wait=0", "?wait=1"] {
                let answer = try await ann.ask(.get, asked.path + wait)
                let seen: SeenRestore = try answer.decode()
                var expected = asked
                // Nobody works; on a busy machine more time may have passed than a restore usually takes.
                if seen.messageKey == "still_checking" {
                    expected.messageKey = seen.messageKey
                    expected.message = seen.message
                    expected.estimatedWait = seen.estimatedWait
                }
                #expect(answer.status == 200 && seen == expected, "\(wait): \(answer)")
            }
            // There is nobody who works: only the last one waited.
            let waited = (ContinuousClock.now - began) / .seconds(1)
            #expect((0.9...10).contains(waited), "\(waited)")
            try await door.close()
        }
    }

    // MARK: Events

    @Test func `Events tell what happens as it happens, with signs of life between, and the end after its commit`()
        async throws
    {
        let scenario = "customers: [{id: ann, state: active}]\nfaults: [{endpoint: subscriptions, latency: 14s}]\n"
        try await DoorSite.with(scenario: scenario, users: ["ann"]) { doors in
            let door = try await doors.open()
            let ann = try await doors.caller("ann", at: door)
            let asked = try await ann.restore()
            let stream = ann.events(of: asked, ["Accept-Language": "ja"])
            try await eventually("the end was never told") { stream.names.last == "finished" }
            let type = try await doors.site.texts("SELECT u.type FROM users AS u WHERE u.id = 'ann'")
            #expect(type == ["subscriber"])
            try await eventually("the stream never ended") { stream.isWhole }

            let head = try #require(stream.head)
            #expect(head.status == 200 && head.headers["content-type"] == "text/event-stream")
            #expect(head.headers["content-language"] == "ja" && head.headers["cache-control"] == "no-store")
            let events = stream.events
            #expect(["running finished", "queued running finished"].contains(stream.names.joined(separator: " ")))
            #expect(stream.comments >= 1)
            for event in events {
                let restore = try event.restore
                #expect(event.id == event.name && restore.id == asked.id, "\(event)")
            }
            let ending = try #require(events.last)
            let last = try ending.restore
            let polled = try await ann.ask(.get, asked.path, ["Accept-Language": "ja"])
            let seen: SeenRestore = try polled.decode()
            #expect(last == seen && last.outcome == "restored" && last.message?.isEmpty == false)

            // Who comes back says what was seen.
            let over = try await ann.ask(.get, asked.path + "/events", ["Last-Event-ID": "finished"])
            #expect(over.status == 204 && over.body.isEmpty, "nothing is left to tell: \(over)")
            let rest = try await ann.ask(.get, asked.path + "/events", ["Last-Event-ID": "running"])
            #expect(rest.text.contains("event: finished\n") && !rest.text.contains("event: running\n"), "\(rest)")
            try await door.close()
        }
    }

    @Test func `A client that goes away leaves nothing behind`() async throws {
        let users = ["ann", "bob", "cid", "dan"]
        let scenario = """
            customers: [\(users.map { "{id: \($0), state: active}" }.joined(separator: ", "))]
            faults: [{endpoint: subscriptions, latency: 60s}]
            """
        try await DoorSite.with(scenario: scenario, users: users) { doors in
            let door = try await doors.open()
            var asked: [(caller: Caller, restore: SeenRestore)] = []
            for user in users {
                let caller = try await doors.caller(user, at: door)
                asked.append((caller, try await caller.restore()))
            }
            let before = try door.connections
            // As many as each of them may have.
            var streams = asked.flatMap { asked in (0..<5).map { _ in asked.caller.events(of: asked.restore) } }
            try await eventually("streams never began") { streams.allSatisfy { $0.names.contains("running") } }
            let open = try door.connections
            #expect(open >= 20)
            streams = []
            // Far sooner than anything is due to be sent to them.
            try await eventually("connections are left", within: .seconds(5)) { try door.connections <= before }
            let complaints = try door.log.filter { $0["request.id"] != nil && $0["level"] != "info" }
            #expect(complaints == [])
            try await door.close()
        }
    }

    @Test func `Who waits longer than 20 s is told so, and how long it may take, and the work goes on`() async throws {
        try await DoorSite.with(scenario: Self.scenario, users: Self.users) { doors in
            // Nobody works yet.
            let door = try await doors.open("serve")
            let ann = try await doors.caller("ann", at: door)
            let asked = try await ann.restore()
            let began = ContinuousClock.now
            let stream = ann.events(of: asked)
            let answer = try await ann.ask(.get, asked.path + "?wait=25")
            let waited = (ContinuousClock.now - began) / .seconds(1)
            #expect(answer.status == 200, "\(answer)")
            let late: SeenRestore = try answer.decode()
            #expect((19...24).contains(waited), "\(waited)")
            #expect(late.state == "queued" && late.outcome == nil && late.messageKey == "still_checking", "\(late)")
            #expect(late.message?.hasPrefix("This is taking longer than usual.") == true, "\(late)")
            #expect((1...86_400).contains(late.estimatedWait ?? 0), "\(late)")
            try await eventually("the stream does not tell of it") { stream.names.contains("still_checking") }
            let event = try #require(stream.events.first { $0.name == "still_checking" })
            let told = try event.restore
            #expect(told.messageKey == "still_checking" && (1...86_400).contains(told.estimatedWait ?? 0), "\(told)")

            let worker = try await doors.site.start("worker")
            let end = try await ann.end(of: asked)
            #expect(end.outcome == "restored" && end.messageKey == "restored" && end.estimatedWait == nil, "\(end)")
            try await eventually("the end was never told") { stream.names.last == "finished" }
            worker.signal(SIGTERM)
            let ending = try await worker.ending()
            #expect(ending.code == 0, "\(ending)")
            try await door.close()
        }
    }

    @Test func `While everything is paused a restore waits as one that is still checked, and nobody can say how long`()
        async throws
    {
        try await DoorSite.with(scenario: Self.scenario, users: Self.users) { doors in
            let paused = try await doors.site.run("pause", "all")
            #expect(paused.code == 0, "\(paused)")
            let door = try await doors.open()
            let ann = try await doors.caller("ann", at: door)
            let asked = try await ann.restore()
            let answer = try await ann.ask(.get, asked.path + "?wait=1")
            let waiting: SeenRestore = try answer.decode()
            #expect(waiting.state == "queued" && waiting.messageKey == "still_checking", "\(waiting)")
            #expect(waiting.message?.isEmpty == false && waiting.estimatedWait == nil, "\(waiting)")
            let resumed = try await doors.site.run("resume", "all")
            #expect(resumed.code == 0, "\(resumed)")
            let end = try await ann.end(of: asked)
            #expect(end.outcome == "restored", "\(end)")
            try await door.close()
        }
    }
}
