import Foundation
import Postgres
import TestSupport
import Testing

/// The desk in a real browser, from the sign-in to the transfer.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ConsoleJourneyTests {
    @Test func `Two operators find a ticket, read the evidence, approve, and the purchase moves`() async throws {
        try await ConsoleSite.with { console in
            try await console.makeCase()
            try await Browser.with { bea in
                // Whoever is not signed in is asked first, and led on.
                try await console.signIn(console.bea, in: bea, at: "/console/tickets/1")
                try await bea.wait(forText: "Ticket T-")
                try await bea.click(".brand")
                try await bea.wait(for: "[data-row]")
                #expect(try await bea.text(of: "#queue").contains("Purchase belongs to another account"))
                #expect(!(try await bea.text().contains("claimant\n")), "ids are masked")
                try await bea.follow("[data-row]")
                try await bea.wait(for: "#evidence .known")
                let evidence = try await bea.text(of: "#evidence")
                for words in ["Suggestion: ", "RevenueCat has it for the owner.", "Gives access", "2 approvals needed"]
                {
                    #expect(evidence.contains(words), "\(evidence)")
                }
                try await bea.submit("#panel form[action$=claim]")
                try await bea.wait(forText: "The ticket is yours")
                #expect(try await bea.text(of: "#approve-words").contains("once 1 more approver has agreed"))
                try await bea.submit("#panel form[action$=approve]")
                try await bea.wait(forText: "Needs a second approval")
                #expect(try await bea.exists("#panel form[action$=approve]") == false, "nobody approves twice")
                try await Browser.with { cid in
                    try await console.signIn(console.cid, in: cid)
                    try await cid.wait(for: "[data-row]")
                    try await cid.follow("[data-row]")
                    try await cid.submit("#panel form[action$=approve]")
                    try await cid.wait(forText: "Your approval is recorded")
                    try await cid.submit("#panel form[action$=transfer]")
                    try await cid.wait(forText: "The transfer has begun")
                    try await console.awaitTransfer()
                    // The page is told; nobody loads it again.
                    try await cid.wait(forText: "Transferred")
                    #expect(try await cid.consoleErrors() == [])
                }
                try await bea.wait(forText: "Transferred")
                for (side, words) in [
                    ("claimant", "A purchase was moved to this user by support"),
                    ("owner", "A purchase of this user was moved to another account by support"),
                ] {
                    let key = try await console.site.number(
                        "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = \(side)"
                    )
                    try await bea.open(console.url("/console/users/\(key)"))
                    #expect(try await bea.text(of: "#events").contains(words), "\(side)")
                }
                #expect(try await bea.consoleErrors() == [])
            }
        }
    }

    @Test func `A case by keyboard alone, found by its reference`() async throws {
        try await ConsoleSite.with { console in
            try await console.makeCase()
            let reference = try #require(
                try await console.site.texts("SELECT s.reference FROM entitlement_sync.ticket_status AS s").first
            )
            func signIn(_ person: Operator, _ browser: Browser) async throws {
                try await browser.open(console.url("/console"))
                // The name's field gets the focus by itself, at a busy time a moment after the page is there.
                try await browser.wait("no focus on the name", until: "document.activeElement.id === 'name'")
                try await browser.keys(.init(stringLiteral: person.name), .tab)
                try await browser.keys(.init(stringLiteral: Operator.password), .tab)
                try await browser.leaving {
                    try await browser.keys(.init(stringLiteral: person.code(later: 1)), .enter)
                }
                try await browser.wait(for: "[data-row]")
            }
            try await Browser.with { browser in
                try await signIn(console.bea, browser)
                try await browser.keys("/")
                try await browser.leaving {
                    try await browser.keys(.init(stringLiteral: reference.lowercased()), .enter)
                }
                try await browser.wait(forText: "Ticket \(reference)")
                try await browser.leaving { try await browser.keys("c") }
                try await browser.wait(forText: "The ticket is yours")
                try await browser.keys("a")
                #expect(try await browser.focused()?.name == "Approve")
                try await browser.leaving { try await browser.keys(.enter) }
                try await browser.wait(forText: "Your approval is recorded")
                #expect(try await browser.consoleErrors() == [])
            }
            try await Browser.with { browser in
                try await signIn(console.cid, browser)
                try await browser.keys("j")
                #expect(try await browser.focused()?.name.contains(reference) == true)
                try await browser.leaving { try await browser.keys(.enter) }
                try await browser.wait(forText: "Ticket \(reference)")
                try await browser.keys("a")
                try await browser.leaving { try await browser.keys(.enter) }
                try await browser.wait(forText: "Your approval is recorded")
                try await browser.keys("a")
                #expect(try await browser.focused()?.name == "Start the transfer")
                try await browser.leaving { try await browser.keys(.enter) }
                try await console.awaitTransfer()
                try await browser.wait(forText: "Transferred")
                // What follows may load the page once more, just then.
                try await eventually("the keys were never shown", within: .seconds(10)) {
                    if try await browser.exists("dialog[open]") { return true }
                    try await browser.keys("?")
                    return false
                }
                try await browser.wait(for: "dialog[open]")
                try await browser.keys(.escape)
                try await browser.wait(forNo: "dialog[open]")
                #expect(try await browser.consoleErrors() == [])
            }
        }
    }

    @Test func `The first sign-in takes a password of one's own and a device`() async throws {
        try await ConsoleSite.with { console in
            let added = try await console.root.run("operator", "add", "dora", "--role", "agent", "--output", "json")
            let given = try Operator.password(added.out)
            try await Browser.with { browser in
                try await browser.open(console.url("/console"))
                try await browser.type("#name", "dora")
                try await browser.type("#password", given)
                try await browser.submit("main form")
                try await browser.wait(forText: "Your first sign-in")
                let device = try await browser.value(of: "input[name=device]")
                let dora = try Operator("dora", device: device, at: console.site)
                try await browser.type("#password", given)
                try await browser.type("#new-password", Operator.password)
                try await browser.type("#new-password-again", Operator.password + "x")
                try await browser.type("#code", dora.code())
                try await browser.submit("main form")
                try await browser.wait(forText: "are not the same")
                #expect(try await browser.value(of: "input[name=device]") == device, "the device's secret stays")
                try await browser.type("#password", given)
                try await browser.type("#new-password", Operator.password)
                try await browser.type("#new-password-again", Operator.password)
                try await browser.type("#code", dora.code())
                try await browser.submit("main form")
                try await browser.wait(for: ".who")
                #expect(try await browser.text(of: ".who").contains("dora"))
                #expect(try await browser.text().contains("once another admin has confirmed it"))
                try await browser.submit(".who")
                try await browser.wait(forText: "Sign in")
                #expect(try await browser.consoleErrors(expecting: 401) == [])
            }
        }
    }

    @Test func `What to write to a user is the same on the page and at a terminal, in each language`() async throws {
        try await ConsoleSite.with { console in
            try await console.makeCase()
            try await Browser.with { browser in
                try await console.signIn(console.bea, in: browser)
                for (user, reason) in [("claimant", "case_open"), ("owner", "active_until")] {
                    let key = try await console.site.number(
                        "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = \(user)"
                    )
                    for language in ["de", "en", "es", "fr", "it", "pt"] {
                        try await browser.open(console.url("/console/users/\(key)?language=\(language)"))
                        let page = try await browser.value(of: "#reply-text")
                        let printed = try await console.site.run("explain", user, "--reply", language)
                        #expect(printed.code == 0 && printed.out == page + "\n", "\(printed)")
                        for other in ["owner", "claimant", "200000070000001"] {
                            #expect(!page.contains(other), "\(user) in \(language): \(page)")
                        }
                        let json = try await console.site.run("explain", user, "--reply", language, "--output", "json")
                        struct Printed: Decodable {
                            struct Reply: Decodable, Hashable { var reason, language, text: String }
                            var reply: Reply
                        }
                        let reply = try JSONDecoder().decode(Printed.self, from: Data(json.out.utf8)).reply
                        #expect(reply == .init(reason: reason, language: language, text: page))
                    }
                }
                let short = try await console.site.run("explain", "owner", "--reply")
                #expect(short.out.hasPrefix("Your access is active until "), "\(short)")
                let plain = try await console.site.run("explain", "owner", "--output", "json")
                #expect(!plain.out.contains("\"reply\""), "\(plain)")
                let nobody = try await console.site.run("explain", "nobody", "--reply")
                #expect(nobody.code == 65 && nobody.out == "", "\(nobody)")
            }
        }
    }

    @Test func `What a reconcile would do is asked on a user's page, and at a terminal`() async throws {
        try await ConsoleSite.with { console in
            try await console.makeCase()
            let key = try await console.site.number(
                "SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'owner'"
            )
            // Somebody changed the record by hand.
            try await console.site.execute("UPDATE users SET type = 'free' WHERE id = 'owner'")
            try await Browser.with { browser in
                try await console.signIn(console.bea, in: browser)
                try await browser.open(console.url("/console/users/\(key)"))
                try await browser.submit("form[action$=dry-run]")
                try await browser.wait(forText: "A reconcile would make this user a subscriber instead of free.")
                #expect(try await browser.text(of: "#dry-run").contains("nothing was written"))
                try await browser.screenshot("dry-run-desktop")
                #expect(try await browser.consoleErrors() == [])
            }
            let asked = try await console.site.run("reconcile", "owner", "claimant", "--dry-run", "--output", "json")
            let lines = asked.out.split(separator: "\n").map(String.init)
            #expect(asked.code == 0 && lines.count == 3, "\(asked)")
            for part in [
                #""dry_run":true"#, #""job_id":null"#, #""outcome":"promoted""#, #""rule":"store_access""#,
                #""type_before":"free""#, #""type_after":"subscriber""#, #""user_id":"owner""#,
            ] {
                #expect(lines.first?.contains(part) == true, "\(part) in \(asked)")
            }
            #expect(lines.last == #"{"summary":{"promoted":1,"unchanged":1}}"#, "\(asked)")
            let text = try await console.site.run("reconcile", "owner", "--dry-run")
            #expect(text.out.contains("free -> subscriber") && text.out.contains("nothing was changed"), "\(text)")
            let unknown = try await console.site.run("reconcile", "owner", "nobody", "--dry-run")
            #expect(unknown.code == 65 && unknown.out == "", "\(unknown)")
            #expect(
                try await console.site.number("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'") == 1
            )
        }
    }
}
