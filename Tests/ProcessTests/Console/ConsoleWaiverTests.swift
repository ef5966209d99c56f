import Foundation
import Postgres
import TestSupport
import Testing
import Transport

/// The owner's time on the console: who may skip the rest of it, and what the page says before and afterwards.
@Suite(.serialized, .timeLimit(.minutes(5)))
struct ConsoleWaiverTests {
    private static let path = "/console/tickets/1"
    private static let title = "Skip the owner window"

    @Test func `A senior skips the owner's time, after a sentence that says what comes of it`() async throws {
        try await ConsoleSite.with(settings: ["TRANSFER_OWNER_HOURS": "72"]) { console in
            try await console.makeCase()
            let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: .silent)
            try await TestSupport.run {
                try await Self.run(console, ConsoleVisitor(console: console, transport: transport, cookie: nil))
            } finally: {
                await transport.shutdown()
            }
        }
    }

    private static func run(_ console: ConsoleSite, _ nobody: ConsoleVisitor) async throws {
        var bea = nobody
        var cid = nobody
        #expect(try await bea.signIn("bea", code: console.bea.code(later: 1)).status == 303)
        #expect(try await cid.signIn("cid", code: console.cid.code(later: 1)).status == 303)
        let hash = try #require(
            try await console.site.texts(
                "SELECT encode(e.hash, 'hex') FROM entitlement_sync.ticket_evidence AS e ORDER BY e.id DESC LIMIT 1"
            ).first
        )
        _ = try await bea.post(path + "/claim", [("key", bea.key())])
        #expect(try await !text(cid).contains(title), "no time of the owner's runs yet")
        _ = try await bea.post(path + "/approve", [("key", bea.key()), ("hash", hash)])
        let half = try await text(cid)
        #expect(
            half.contains(title) && half.contains("once 1 more approver has agreed and an operator starts"),
            "\(half)"
        )
        _ = try await cid.post(path + "/approve", [("key", cid.key()), ("hash", hash)])
        #expect(try await !text(bea).contains(title), "an approver may not")
        let refused = try await bea.post(path + "/waive", [("key", bea.key()), ("reason", "gave it away")])
        #expect(refused.status == 403, "\(refused)")

        let before = try await text(cid)
        let stamp = try stamp(before)
        #expect(before.contains("the owner's time ends now and not at 2"), "\(before)")
        #expect(before.contains("may move to the claimant as soon as an operator starts the transfer"), "\(before)")
        #expect(before.contains("This is no approval, and the owner may still object until then."), "\(before)")
        let silent = try await cid.post(path + "/waive", [("key", cid.key()), ("reason", "")])
        #expect(silent.status == 400 && silent.text.contains("Say first why"), "\(silent)")
        let done = try await cid.post(path + "/waive", [("key", cid.key()), ("reason", "gave it away")])
        #expect(done.status == 303 && done["Location"] == path + "?done=waive", "\(done)")
        #expect(try await text(cid, "?done=waive").contains("The owner is not waited for any longer."))

        let after = try await text(cid)
        #expect(after.contains("skipped by cid") && after.contains("gave it away"), "\(after)")
        #expect(after.contains("Start the transfer") && !after.contains(title), "\(after)")
        #expect(try Self.stamp(after) != stamp, "whoever looks at the old page is told")
        let again = try await cid.post(path + "/waive", [("key", cid.key()), ("reason", "gave it away")])
        #expect(again["Location"] == path + "?not=no_window", "\(again)")
        #expect(try await text(cid, "?not=no_window").contains("no time of the owner's is running"))
        try await expectToken(console, cid)
    }

    /// The site has no key for the App Store: the page says so, and has it tried again.
    private static func expectToken(_ console: ConsoleSite, _ cid: ConsoleVisitor) async throws {
        #expect(try await !text(cid).contains("At the App Store"))
        _ = try await cid.post(path + "/transfer", [("key", cid.key())])
        try await console.awaitTransfer()
        let ended: PostgresQuery = "SELECT count(*) FROM entitlement_sync.transfer_token AS k WHERE k.state = 'skipped'"
        try await console.site.waitUntil(ended)
        let page = try await text(cid)
        #expect(page.contains("At the App Store") && page.contains("there is no key for it"), "\(page)")
        #expect(page.contains("Notify the App Store again"), "\(page)")
        let answer = try await cid.post(path + "/token", [("key", cid.key())])
        #expect(answer["Location"] == path + "?done=token", "\(answer)")
        #expect(try await text(cid, "?done=token").contains("A worker notifies the App Store again."))
        try await console.site.waitUntil(ended)
    }

    private static func text(_ visitor: ConsoleVisitor, _ query: String = "") async throws -> String {
        try await visitor.get(path + query).text.replacing("&#39;", with: "'").replacing("&apos;", with: "'")
    }

    private static func stamp(_ page: String) throws -> Substring {
        let start = try #require(page.range(of: #"data-guard=""#))
        return page[start.upperBound...].prefix { $0 != "\"" }
    }
}
