import TestSupport
import HTTPTypes
import Postgres
import Testing

/// How an app follows a restore: it waits for the end, or reads events.
struct RestoreProgressTests {
    @Test func `A wait is a whole number of seconds up to 25`() async throws {
        try await EndpointSite.with(scenario: RestoreScene.scenario, users: RestoreScene.users) { endpoints in
            let endpoint = try await endpoints.open("serve")
            let ann = try await endpoints.caller("ann", at: endpoint)
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
            try await endpoint.close()
        }
    }

    @Test func `Events tell what happens as it happens, with signs of life between, and the end after its commit`()
        async throws
    {
        let scenario = "customers: [{id: ann, state: active}]\nfaults: [{endpoint: subscriptions, latency: 14s}]\n"
        try await EndpointSite.with(scenario: scenario, users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open()
            let ann = try await endpoints.caller("ann", at: endpoint)
            let asked = try await ann.restore()
            let stream = ann.events(of: asked, ["Accept-Language": "ja"])
            try await eventually("the end was never told") { stream.names.last == "finished" }
            let type = try await endpoints.site.texts("SELECT u.type FROM users AS u WHERE u.id = 'ann'")
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
            try await endpoint.close()
        }
    }

    @Test func `A client that goes away leaves nothing behind`() async throws {
        let users = ["ann", "bob", "cid", "dan"]
        let scenario = """
            customers: [\(users.map { "{id: \($0), state: active}" }.joined(separator: ", "))]
            faults: [{endpoint: subscriptions, latency: 60s}]
            """
        try await EndpointSite.with(scenario: scenario, users: users) { endpoints in
            let endpoint = try await endpoints.open()
            var asked: [(caller: Caller, restore: SeenRestore)] = []
            for user in users {
                let caller = try await endpoints.caller(user, at: endpoint)
                asked.append((caller, try await caller.restore()))
            }
            let before = try endpoint.connections
            // As many as each of them may have.
            var streams = asked.flatMap { asked in (0..<5).map { _ in asked.caller.events(of: asked.restore) } }
            try await eventually("streams never began") { streams.allSatisfy { $0.names.contains("running") } }
            let open = try endpoint.connections
            #expect(open >= 20)
            streams = []
            // Far sooner than anything is due to be sent to them.
            try await eventually("connections are left", within: .seconds(5)) { try endpoint.connections <= before }
            let complaints = try endpoint.log.filter { $0["request.id"] != nil && $0["level"] != "info" }
            #expect(complaints == [])
            try await endpoint.close()
        }
    }

    @Test func `Who waits longer than 20 s is told so, and how long it may take, and the work goes on`() async throws {
        try await EndpointSite.with(scenario: RestoreScene.scenario, users: RestoreScene.users) { endpoints in
            // Nobody works yet.
            let endpoint = try await endpoints.open("serve")
            let ann = try await endpoints.caller("ann", at: endpoint)
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

            let worker = try await endpoints.site.start("worker")
            let end = try await ann.end(of: asked)
            #expect(end.outcome == "restored" && end.messageKey == "restored" && end.estimatedWait == nil, "\(end)")
            try await eventually("the end was never told") { stream.names.last == "finished" }
            try await worker.stop()
            try await endpoint.close()
        }
    }

    @Test func `While everything is paused a restore waits as one that is still checked, and nobody can say how long`()
        async throws
    {
        try await EndpointSite.with(scenario: RestoreScene.scenario, users: RestoreScene.users) { endpoints in
            let paused = try await endpoints.site.run("pause", "all")
            #expect(paused.code == 0, "\(paused)")
            let endpoint = try await endpoints.open()
            let ann = try await endpoints.caller("ann", at: endpoint)
            let asked = try await ann.restore()
            let answer = try await ann.ask(.get, asked.path + "?wait=1")
            let waiting: SeenRestore = try answer.decode()
            #expect(waiting.state == "queued" && waiting.messageKey == "still_checking", "\(waiting)")
            #expect(waiting.message?.isEmpty == false && waiting.estimatedWait == nil, "\(waiting)")
            let resumed = try await endpoints.site.run("resume", "all")
            #expect(resumed.code == 0, "\(resumed)")
            let end = try await ann.end(of: asked)
            #expect(end.outcome == "restored", "\(end)")
            try await endpoint.close()
        }
    }
}
