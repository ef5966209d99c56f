import Foundation
import HTTPTypes
import Postgres
import TestSupport
import Testing
import Transport

/// What must not work on the console, tried; and that it is on record.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ConsoleAttackTests {
    /// A console with a case, somebody to attack it, and `bea`, who has signed in.
    static func with(
        _ body: @Sendable (ConsoleSite, _ bea: ConsoleVisitor, _ nobody: ConsoleVisitor) async throws -> Void
    ) async throws {
        try await ConsoleSite.with { console in
            try await console.makeCase()
            let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: .silent)
            try await run {
                let nobody = ConsoleVisitor(console: console, transport: transport, cookie: nil)
                var bea = nobody
                let answer = try await bea.signIn("bea", code: console.bea.code(later: 1))
                try #require(answer.status == 303 && bea.cookie != nil, "\(answer)")
                try await body(console, bea, nobody)
            } finally: {
                await transport.shutdown()
            }
        }
    }

    private static func refusals(_ site: Site) async throws -> Int64 {
        try await site.number("SELECT count(*) FROM entitlement_sync.operator_event AS e WHERE e.kind = 'refused'")
    }

    @Test func `Forms from elsewhere, without the session's key or with another's do nothing`() async throws {
        try await Self.with { console, bea, nobody in
            let key = try await bea.key()
            var cid = nobody
            #expect(try await cid.signIn("cid", code: console.cid.code(later: 1)).status == 303)
            let other = try await cid.key()
            #expect(key != other)
            let path = "/console/tickets/1/claim"
            for origin in [nil, "null", "https://evil.example", "http://127.0.0.1:1", "http://127.0.0.1.evil.example"] {
                let answer = try await bea.post(path, [("key", key)], origin: origin)
                #expect(answer.status == 403, "\(origin ?? "none"): \(answer)")
            }
            for fields in [[], [("key", "")], [("key", other)], [("key", String(key.dropLast()) + "!")]] {
                #expect(try await bea.post(path, fields).status == 403, "\(fields)")
            }
            let login = try await nobody.post(
                "/console/sign-in",
                [("name", "bea"), ("password", Operator.password)],
                origin: "https://evil.example"
            )
            #expect(login.status == 403 && login["Set-Cookie"] == nil)
            #expect(
                try await console.site.number("SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.state = 'new'")
                    == 1
            )
            #expect(console.program.err.contains("security.reason=form_from_elsewhere"))
            #expect(try await bea.post(path, [("key", key)]).status == 303)
            // Nobody is led out of the console either.
            for next in [
                "https://evil.example/", "//evil.example", "/\\evil.example", "/console/../evil",
                "/console//evil.example",
                "javascript:alert(1)", "/consoleevil", "/console?\r\nSet-Cookie: a=b", "/console/sign-out",
            ] {
                let escaped = try #require(next.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
                let page = try await nobody.get("/console/sign-in?next=\(escaped)").text
                #expect(page.contains(#"name="next" value="/console""#), "\(next)")
                let answer = try await bea.post(
                    "/console/confirm",
                    [("key", bea.key()), ("next", next), ("password", Operator.password), ("code", "000000")]
                )
                #expect(answer.status == 401 && answer.text.contains(#"name="next" value="/console""#), "\(next)")
            }
        }
    }

    @Test func `A session is new with each sign-in, and over with the sign-out`() async throws {
        try await Self.with { console, bea, nobody in
            // Whatever the attacker has planted is not what the victim signs in with.
            var victim = nobody
            let planted = "__Host-desk=esop_" + String(repeating: "ab", count: 32)
            victim.cookie = planted
            #expect(try await victim.get("/console").status == 303)
            #expect(try await victim.signIn("cid", code: console.cid.code(later: 1)).status == 303)
            #expect(victim.cookie != planted && victim.cookie != bea.cookie)
            var attacker = nobody
            attacker.cookie = planted
            #expect(try await attacker.get("/console/tickets/1").status == 303)
            // A stolen cookie dies with the sign-out.
            attacker.cookie = victim.cookie
            #expect(try await attacker.get("/console/tickets/1").status == 200)
            let out = try await victim.post("/console/sign-out", [("key", victim.key())])
            #expect(out.status == 303 && out["Set-Cookie"]?.contains("Max-Age=0") == true)
            // Nothing stays behind in the browser: no page is stored, and those in its memory are given up.
            #expect(out["Clear-Site-Data"] == "\"cache\"" && out["Cache-Control"] == "no-store")
            #expect(try await bea.get("/console/tickets/1")["Cache-Control"] == "no-store")
            for path in ["/console", "/console/tickets/1", "/console/live", "/console/users/1"] {
                let answer = try await attacker.get(path)
                #expect(answer.status == 303 && answer["Location"]?.hasPrefix("/console/sign-in") == true, "\(path)")
            }
            let cookie = try #require(try await Self.signedIn(console, nobody)["Set-Cookie"])
            for part in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
                #expect(cookie.contains(part), "\(cookie)")
            }
        }
    }

    /// Signs `cid` in once more; the code of the half minute is made new again by hand.
    private static func signedIn(_ console: ConsoleSite, _ nobody: ConsoleVisitor) async throws -> HTTPAnswer {
        try await console.site.execute("UPDATE entitlement_sync.operator_secret SET last_period = NULL")
        var visitor = nobody
        return try await visitor.signIn("cid", code: console.cid.code())
    }

    @Test func `No address gives a role what it may not, or somebody their own case`() async throws {
        try await Self.with { console, bea, nobody in
            let before = try await Self.refusals(console.site)
            let key = try await bea.key()
            #expect(try await bea.get("/console/log").status == 403)
            let dead = "/console/dead/00000000-0000-7000-8000-000000000000/retry"
            #expect(try await bea.post(dead, [("key", key)]).status == 403)
            let all = [("key", key), ("error", "unavailable")]
            #expect(try await bea.post("/console/dead/retry", all).status == 403)
            try await console.site.execute("UPDATE entitlement_sync.operator SET role = 'agent' WHERE name = 'bea'")
            #expect(try await bea.post("/console/tickets/1/claim", [("key", key)]).status == 303)
            for act in ["approve", "transfer", "withdraw"] {
                let fields = [("key", key), ("hash", String(repeating: "ab", count: 32))]
                #expect(try await bea.post("/console/tickets/1/\(act)", fields).status == 403, "\(act)")
            }
            try await console.site.execute("UPDATE entitlement_sync.operator SET role = 'viewer' WHERE name = 'bea'")
            for path in [
                "tickets/1/claim", "tickets/1/reveal", "users/1/restore", "users/1/reveal", "users/1/dry-run", "open",
            ] {
                let fields = [("key", key), ("claimant", "claimant"), ("reason", "words")]
                #expect(try await bea.post("/console/\(path)", fields).status == 403, "\(path)")
            }
            #expect(try await Self.refusals(console.site) >= before + 10)
            #expect(console.program.err.contains("security: a role was refused"))
            // An operator's own case is not there for them.
            try await console.site.execute(
                """
                UPDATE entitlement_sync.operator SET role = 'approver' WHERE name = 'bea';
                INSERT INTO entitlement_sync.operator_account (operator_id, user_key)
                SELECT o.id, u.user_key FROM entitlement_sync.operator AS o, entitlement_sync.user_sync AS u
                 WHERE o.name = 'bea' AND u.user_id = 'claimant'
                """
            )
            let own = try await console.site.number(
                "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'claimant'"
            )
            #expect(try await bea.get("/console/tickets/1").status == 404)
            #expect(try await bea.get("/console/users/\(own)").status == 404)
            #expect(try await !bea.get("/console").text.contains("data-row"))
            #expect(try await !bea.get("/console/search?q=claimant").text.contains("data-row"))
            #expect(
                try await bea.post("/console/tickets/1/claim", [("key", key)])["Location"]?.contains("not=own_case")
                    == true
            )
        }
    }

    @Test func `Only words that are known are said of what was done, whatever the address holds`() async throws {
        try await Self.with { _, bea, _ in
            #expect(try await bea.get("/console?done=note").text.contains("The note is recorded."))
            #expect(try await bea.get("/console?not=held").text.contains("Not done: another operator works on this"))
            for query in [
                "done=evil", "not=evil", "not=call_us_at_once", "not=", "done=Note", "not=held%20", "said=note",
            ] {
                let page = try await bea.get("/console?\(query)")
                #expect(page.status == 200 && !page.text.contains("role=\"status\">N"), "\(query)")
                #expect(!page.text.contains("class=\"said"), "\(query)")
            }
        }
    }

    @Test func `Ids are shown as often as an hour allows; then the page says why not`() async throws {
        try await Self.with { console, bea, _ in
            try await console.site.execute(
                "UPDATE entitlement_sync.desk_setting SET value = 1 WHERE name = 'reveals_per_hour'"
            )
            let fields = [("key", try await bea.key())]
            let shown = try await bea.post("/console/tickets/1/reveal", fields)
            #expect(shown.status == 200 && shown.text.contains("<code>claimant</code>"))
            let key = try await console.site.number(
                "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'claimant'"
            )
            for path in ["/console/tickets/1", "/console/users/\(key)"] {
                let answer = try await bea.post(path + "/reveal", fields)
                #expect(answer.status == 303 && answer["Location"] == path + "?not=too_many_reveals", "\(answer)")
                let page = try await bea.get(path + "?not=too_many_reveals").text
                #expect(page.contains("as many ids as an hour allows") && !page.contains("<code>claimant</code>"))
            }
        }
    }

    @Test func `Guessing passwords is slowed down, and a code works once`() async throws {
        try await Self.with { console, _, nobody in
            var visitor = nobody
            let code = console.cid.code(later: 1)
            #expect(try await visitor.signIn("cid", code: code).status == 303)
            #expect(try await visitor.signIn("cid", code: code).status == 401, "the code was used")
            var texts: [String] = []
            for guess in 0..<12 {
                texts.append(try await visitor.signIn("cid", "a wrong guess \(guess)", code: "000000").text)
            }
            #expect(texts.contains { $0.contains("Too many sign-ins have failed") })
            #expect(texts.allSatisfy { !$0.contains("wrong guess") }, "what was typed is not shown")
            // Nobody is told whether there is such an operator.
            let known = try await nobody.post("/console/sign-in", [("name", "root"), ("password", "x"), ("code", "1")])
            let unknown = try await nobody.post(
                "/console/sign-in",
                [("name", "mary"), ("password", "x"), ("code", "1")]
            )
            #expect(known.status == unknown.status)
            #expect(known.text.replacing("root", with: "") == unknown.text.replacing("mary", with: ""))
            #expect(console.program.err.contains("security.reason=sign_in"))
        }
    }

    @Test func `A browser that has been signed in with is kept out by no one who guesses from the same address`()
        async throws
    {
        try await Self.with { console, _, nobody in
            let entered = try await nobody.post(
                "/console/sign-in",
                [("name", "cid"), ("password", Operator.password), ("code", console.cid.code(later: 1))]
            )
            #expect(entered.status == 303, "\(entered)")
            let known = try #require(entered["Set-Cookie"]?.firstMatch(of: /__Host-known=escl_[0-9a-f]{64}/)).output
            for guess in 0..<12 {
                _ = try await nobody.post(
                    "/console/sign-in",
                    [("name", "cid"), ("password", "a wrong guess \(guess)"), ("code", "000000")]
                )
            }
            let right = [("name", "cid"), ("password", Operator.password), ("code", "000000")]
            let kept = try await nobody.post("/console/sign-in", right)
            #expect(kept.text.contains("Too many sign-ins have failed"), "\(kept)")
            var browser = nobody
            browser.cookie = String(known)
            let answer = try await browser.post("/console/sign-in", right)
            #expect(answer.text.contains("The name, the password or the code is wrong"), "it was tried: \(answer)")
            // Another operator's name has nothing of it.
            let others = [("name", "bea"), ("password", "x"), ("code", "000000")]
            let other = try await browser.post("/console/sign-in", others)
            #expect(other.status == 401)
        }
    }

    @Test func `On an address of its own the console has no metrics, and the admin address no console`() async throws {
        let port = Int(freeLoopbackPort())
        try await ConsoleSite.with(settings: ["CONSOLE_PORT": "\(port)"]) { console in
            let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: .silent)
            // The admin address may answer before the console's own does.
            try await eventually { (try? await transport.ask(.get, "/health/live", at: port))?.status == 200 }
            for (path, port, status) in [
                ("/console/sign-in", port, 200), ("/metrics", port, 404),
                ("/metrics", console.port, 200), ("/console/sign-in", console.port, 404),
            ] {
                let answer = try await transport.ask(.get, path, at: port)
                #expect(answer.status == status, "\(path) at \(port): \(answer)")
            }
            await transport.shutdown()
        }
    }

    @Test func `What stores, users and operators write stays text`() async throws {
        let evil = [
            #""><script>alert(1)</script>"#, "\"\u{301} onfocus=alert(2) autofocus x=\"",
            "</textarea><img src=x onerror=alert(3)>", "{{me}}'`",
            "not \u{202E}tpecca\u{202C} \u{2066}\u{85}it",
        ]
        try await Self.with { console, bea, _ in
            let key = try await bea.key()
            #expect(try await bea.post("/console/tickets/1/claim", [("key", key)]).status == 303)
            for words in evil {
                #expect(try await bea.post("/console/tickets/1/note", [("key", key), ("text", words)]).status == 303)
            }
            let all = evil.joined(separator: " ").replacing("'", with: "''")
            try await console.site.execute(
                """
                SET search_path = entitlement_sync, public;
                UPDATE ticket SET original_id = '\(all)', store = '\(all)';
                UPDATE purchase SET product_id = '\(all)', status = '\(all)', store = '\(all)';
                INSERT INTO "grant" (user_key, until, reason) SELECT u.user_key, now(), '\(all)' FROM user_sync AS u;
                INSERT INTO job_history (id, user_key, finished_at, kind, attempt, state, last_error)
                SELECT new_id(), u.user_key, now(), 0, 1, 'dead', '\(all)' FROM user_sync AS u;
                INSERT INTO run (scope, is_dry, state, asked_by, schedule, outcomes)
                VALUES ('all', true, 'done', '\(all)', NULL, jsonb_build_object('\(all)', 1)),
                       ('due', true, 'done', '', '\(all)', '{}');
                INSERT INTO users (id) VALUES ('\(all.prefix(100))');
                SELECT user_key_of('\(all.prefix(100))');
                """
            )
            let keys = try await console.site.texts("SELECT u.user_key::text FROM entitlement_sync.user_sync AS u")
            let query = try #require(evil[0].addingPercentEncoding(withAllowedCharacters: .alphanumerics))
            let paths =
                [
                    "/console", "/console/tickets/1", "/console/dead", "/console/runs", "/console/search?q=\(query)",
                    "/console/causes",
                    "/console?lane=\(query)", "/console?kind=\(query)&done=\(query)&not=\(query)",
                ] + keys.map { "/console/users/\($0)" }
            for path in paths {
                let text = try await bea.get(path).text
                #expect(!text.contains("<script>alert") && !text.contains("<img"), "\(path)")
                // A quotation mark with an accent is one too.
                #expect(!text.utf8.contains("\"\u{301}".utf8), "\(path)")
                // Nor does what others wrote turn the direction of a page.
                #expect(text.unicodeScalars.allSatisfy { !["\u{202E}", "\u{2066}", "\u{85}"].contains($0) }, "\(path)")
            }
            try await Browser.with { browser in
                try await browser.open(console.url("/console/sign-in"))
                let cookie = try #require(bea.cookie?.split(separator: "=").last.map(String.init))
                var session = BrowserCookie("__Host-desk", cookie)
                session.secure = true
                session.httpOnly = true
                session.path = "/"
                try await browser.setCookie(session)
                for path in paths.filter({ !$0.contains("lane=") }) {
                    try await browser.open(console.url(path))
                    let found = try await browser.script(
                        "return document.querySelectorAll('main script, main img, [onfocus], [onerror]').length"
                    )
                    #expect(found.number == 0, "\(path)")
                }
                #expect(try await browser.consoleErrors() == [])
            }
        }
    }
}

extension String.UTF8View {
    /// Whether bytes stand in it.
    fileprivate func contains(_ part: String.UTF8View) -> Bool {
        String(decoding: self, as: UTF8.self).range(of: String(part), options: .literal) != nil
    }
}
