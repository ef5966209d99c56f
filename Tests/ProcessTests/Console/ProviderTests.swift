import Foundation
import Postgres
import TestSupport
import Testing

/// Operators who sign in through the team's identity provider, with real providers and a real browser.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ProviderTests {
    /// Opens the console and comes in through the provider.
    private func enter(
        _ browser: Browser,
        _ provider: IdentityProvider,
        _ console: ConsoleSite,
        as user: String,
        at path: String = "/console"
    ) async throws {
        try await browser.open(console.url(path))
        try await browser.follow("#provider")
        try await provider.pass(browser, as: user)
    }

    @Test func `A first sign-in has the role of the group, decides once confirmed, and ends with the group`()
        async throws
    {
        try await IdentityProvider.with(.glewlwyd) { provider, console in
            try await console.makeCase()
            try await Browser.with { browser in
                try await enter(browser, provider, console, as: "bea", at: "/console/tickets/1")
                try await browser.wait(forText: "Ticket T-")
                #expect(try await browser.text(of: ".who").contains("bea approver"))
                #expect(try await browser.text().contains("once another admin has confirmed it"))
                try await browser.submit("#panel form[action$=claim]")
                try await browser.wait(forText: "The ticket is yours")
                #expect(try await browser.exists("#panel form[action$=approve]") == false)

                // With no other admin, the schema's owner confirms.
                let confirmed = try await console.site.run("operator", "confirm", "bea")
                #expect(confirmed.code == 0, "\(confirmed)")
                // As if the sign-in had been long ago: the provider asks for the password again.
                try await console.site.execute(
                    "UPDATE entitlement_sync.operator_session SET proved_at = proved_at - interval '11 minutes'"
                )
                try await browser.open(console.url("/console/tickets/1"))
                try await browser.submit("#panel form[action$=approve]")
                try await browser.wait(forText: "Is it still you?")
                try await browser.follow("#provider")
                try await provider.pass(browser, as: "bea")
                try await browser.wait(forText: "Ticket T-")
                try await browser.submit("#panel form[action$=approve]")
                try await browser.wait(forText: "Needs a second approval")
                #expect(try await console.site.number("SELECT count(*) FROM entitlement_sync.operator_session") == 1)

                // Out of the group, she is out when her session's short life has ended.
                try await provider.control("groups bea")
                try await console.site.execute(
                    "UPDATE entitlement_sync.operator_session SET ends_at = clock_timestamp()"
                )
                try await enter(browser, provider, console, as: "bea")
                try await browser.wait(forText: "None of your groups at the identity provider has a role")
                #expect(try await console.site.number("SELECT count(*) FROM entitlement_sync.operator_session") == 0)
                let approvals = try await console.site.number(
                    """
                    SELECT count(*) FROM entitlement_sync.ticket_approval AS a
                      JOIN entitlement_sync.operator AS o ON o.id = a.operator_id WHERE a.at > o.lost_at
                    """
                )
                #expect(approvals == 0, "what she had agreed to counts no more")
                // In another group she has its role.
                try await provider.control("groups bea support-agents something-else")
                try await provider.control("rotate")
                try await enter(browser, provider, console, as: "bea")
                try await browser.wait(for: ".who")
                #expect(try await browser.text(of: ".who").contains("bea agent"))
                // Signing out leads through the provider.
                try await browser.leaving { try await browser.click(".who button") }
                try await browser.wait("not at the provider", until: "location.port === '\(provider.port)'")
            }
        }
    }

    @Test func `An old sign-in at the provider approves nothing, however often the person comes back`() async throws {
        try await IdentityProvider.with(.mock) { provider, console in
            try await console.makeCase()
            let now = Int(Date().timeIntervalSince1970)
            try await provider.claims("bea", ["auth_time": now - 3_600])
            try await Browser.with { browser in
                try await enter(browser, provider, console, as: "bea", at: "/console/tickets/1")
                try await browser.wait(forText: "Ticket T-")
                try await console.site.execute("UPDATE entitlement_sync.operator SET held_until = NULL")
                try await browser.submit("#panel form[action$=claim]")
                try await browser.wait(forText: "The ticket is yours")
                for _ in 0..<2 {
                    try await browser.submit("#panel form[action$=approve]")
                    try await browser.wait(forText: "Is it still you?")
                    try await browser.follow("#provider")
                    try await provider.pass(browser, as: "bea")
                    try await browser.wait(forText: "Ticket T-")
                }
                #expect(try await console.site.number("SELECT count(*) FROM entitlement_sync.ticket_approval") == 0)
                try await provider.claims("bea", ["auth_time": Int(Date().timeIntervalSince1970)])
                try await browser.submit("#panel form[action$=approve]")
                try await browser.follow("#provider")
                try await provider.pass(browser, as: "bea")
                try await browser.wait(forText: "Ticket T-")
                try await browser.submit("#panel form[action$=approve]")
                try await browser.wait(forText: "Needs a second approval")
            }
        }
    }

    @Test func `Answers of the provider that are not meant for this sign-in sign no one in`() async throws {
        try await IdentityProvider.with(.mock) { provider, console in
            let now = Int(Date().timeIntervalSince1970)
            for (changes, words) in [
                (["iss": "http://127.0.0.1:1"], "is not meant for this console"),
                (["aud": "other"], "is not meant for this console"),
                (["aud": ["console", "other"]], "is not meant for this console"),
                (["nonce": "another"], "is not meant for this console"), (["exp": now - 301], "is of another time"),
                (["iat": now + 400], "is of another time"), (["groups": ["others"]], "None of your groups"),
                (["groups": "support-approver"], "None of your groups"),
                (["preferred_username": "local-root", "name": "Local Root"], "Another account has your name"),
            ] as [([String: any Sendable], String)] {
                try await provider.claims("bea", changes)
                let begun = try await provider.begin(console)
                let path = try await provider.agree(begun, as: "bea")
                let answer = try await provider.arrive(path, cookie: begun.cookie, at: console)
                #expect(answer.status == 403 && answer.text.contains(words), "\(changes): \(answer)")
                #expect(!(answer["Set-Cookie"] ?? "").contains("__Host-desk="), "\(changes)")
            }
            // The clocks may differ by five minutes.
            try await provider.claims("bea", ["iat": now - 290, "exp": now - 200])
            let begun = try await provider.begin(console)
            let path = try await provider.agree(begun, as: "bea")
            let other = try await provider.begin(console)
            for (way, cookie) in [
                (path, nil), (path, other.cookie), (path, begun.cookie + "A"),
                (path.replacing("state=", with: "state=x"), begun.cookie),
                (path + "&iss=http%3A%2F%2F127.0.0.1%3A1", begun.cookie),
                ("/console/sign-in/return?error=access_denied&state=x", begun.cookie),
            ] as [(String, String?)] {
                let answer = try await provider.arrive(way, cookie: cookie, at: console)
                #expect(answer.status == 400, "\(way) \(cookie ?? "-"): \(answer)")
            }
            let answer = try await provider.arrive(path, cookie: begun.cookie, at: console)
            #expect(answer.status == 200 && (answer["Set-Cookie"] ?? "").contains("__Host-desk=esop_"), "\(answer)")
            let again = try await provider.arrive(path, cookie: begun.cookie, at: console)
            #expect(again.status == 403, "a code is used once: \(again)")
            #expect(try await console.site.number("SELECT count(*) FROM entitlement_sync.operator_session") == 1)
        }
    }

    @Test
    func `While the provider is down, admins who are marked for it sign in with a password, and an alarm tells of it`()
        async throws
    {
        try await IdentityProvider.with(.glewlwyd) { provider, console in
            let begun = try await provider.begin(console)
            try await provider.control("down")
            let path =
                "/console/sign-in/return?code=x&state=\(try #require(begun.address.firstMatch(of: /state=([^&]+)/)?.1))"
            let answer = try await provider.arrive(path, cookie: begun.cookie, at: console)
            #expect(answer.status == 503 && answer.text.contains("does not answer"), "\(answer)")
            var visitor = ConsoleVisitor(console: console, transport: provider.transport)
            let refused = try await visitor.signIn("local-root", code: console.root.code(later: 1))
            #expect(
                refused.status == 401 && refused.text.contains("sign in through the identity provider"),
                "\(refused)"
            )
            let marked = try await console.site.run("operator", "break-glass", "local-root")
            #expect(marked.code == 0, "\(marked)")
            let entered = try await visitor.signIn("local-root", code: console.root.code(later: 1))
            #expect(entered.status == 302 || entered.status == 303, "\(entered)")
            #expect(
                try await console.site.number(
                    "SELECT count(*) FROM entitlement_sync.alarm AS a WHERE a.name = 'break_glass_used'"
                ) == 1
            )
            let approver = try await console.site.run("operator", "break-glass", "local-bea")
            #expect(approver.code == 65, "admins alone: \(approver)")
            let shown = try await console.site.run("operator", "provider")
            #expect(
                shown.code == 0 && shown.out.contains("operators sign in through http://127.0.0.1:\(provider.port)"),
                "\(shown)"
            )
            let left = try await console.site.run("operator", "provider", "--leave")
            #expect(left.code == 0 && left.out.contains("passwords again"), "\(left)")
        }
    }

    @Test func `A terminal is signed in by its operator's browser`() async throws {
        try await IdentityProvider.with(.mock) { provider, console in
            try await Browser.with { browser in
                try await enter(browser, provider, console, as: "cid")
                try await browser.wait(for: ".who")
                let folder = FileManager.default.temporaryDirectory.path + "/terminal-\(UUID().uuidString)"
                defer { try? FileManager.default.removeItem(atPath: folder) }
                let session = folder + "/operator"
                let program = try await console.site.start("operator", "login", "--session", session)
                let shown = try await program.find("the terminal's code", within: .seconds(20)) {
                    program.err.firstMatch(of: /type there: ([A-Z]{4}-[A-Z]{4})/).map { String($0.1) }
                }
                #expect(program.err.contains("http://127.0.0.1:\(console.port)/console/terminal"))
                try await browser.open(console.url("/console/terminal"))
                try await browser.type("#code", "AAAA-BBBB")
                try await browser.submit("main form")
                try await browser.wait(forText: "No terminal asks with this code")
                try await browser.type("#code", shown.lowercased())
                try await browser.submit("main form")
                try await browser.wait(forText: "A terminal asks to act in your name")
                #expect(try await browser.text().contains(shown))
                try await browser.submit("main form")
                try await browser.wait(forText: "The terminal is signed in")
                let ending = try await program.ending()
                #expect(ending.code == 0 && ending.out == "signed in as cid\n", "\(ending)")
                let sessions = try await console.site.run("operator", "sessions", "--session", session)
                #expect(
                    sessions.code == 0 && sessions.out.contains("terminal") && sessions.out.contains("console"),
                    "\(sessions)"
                )
            }
        }
    }
}
