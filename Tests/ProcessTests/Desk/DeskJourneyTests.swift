import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

/// The support desk at a terminal, as a newcomer would use it.
@Suite struct DeskJourneyTests {
    private static let scenario = """
        api_keys: [sk_move, {key: sk_process_tests, write: false}]
        customers:
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "200000070000001"}]}
          - {id: claimant, state: none}
        """
    private static let proof = "transaction_id=200000070000001"

    /// A site with a case, an admin and two who may approve.
    private static func with(
        ownerHours: String = "0",
        _ body: @Sendable (Site, _ bea: Operator, _ cid: Operator) async throws -> Void
    ) async throws {
        let simulator = try await Simulator(scenario: scenario)
        try await Site.with(
            .staffed,
            store: simulator.url,
            settings: ["REVENUECAT_TRANSFER_API_KEY": "sk_move", "TRANSFER_OWNER_HOURS": ownerHours]
        ) { site in
            try await site.execute("INSERT INTO users (id) VALUES ('owner'), ('claimant')")
            let staff = try await Staff(at: site)
            defer { staff.leave() }
            try await body(site, staff.bea, staff.cid)
        }
    }

    private static func evidence(_ site: Site) async throws -> String {
        try await site.waitUntil(
            """
            SELECT count(*) FROM entitlement_sync.ticket AS t
             WHERE t.evidence_id IS NOT NULL AND t.purchase_id IS NOT NULL
               AND EXISTS (SELECT 1 FROM entitlement_sync.evidence_request AS r WHERE r.ticket_id = t.id AND r.due_at IS NULL)
            """,
            comment: "no evidence was collected"
        )
        return try #require(
            try await site.texts(
                """
                SELECT encode(e.hash, 'hex') FROM entitlement_sync.ticket AS t
                  JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                """
            ).first
        )
    }

    @Test func `From the claim to the transfer, and what both users see of it`() async throws {
        try await Self.with { site, bea, cid in
            let worker = try await site.start("worker")
            _ = try await site.run("reconcile", "owner", "--wait", "20")
            _ = try await site.run("restore", "claimant", "--proof", Self.proof, "--client-error", "7", "--wait", "20")
            try await site.execute("SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t")
            let hash = try await Self.evidence(site)

            let listed = try await bea.run("tickets", "--output", "json")
            #expect(listed.code == 0 && listed.out.contains(#""state":"new""#), "\(listed)")
            #expect(!listed.out.contains("claimant"), "masked: \(listed.out)")
            let reference = try #require(
                try await site.texts("SELECT t.reference FROM entitlement_sync.ticket_status AS t").first
            )
            for word in [reference, reference.lowercased(), "1"] {
                let shown = try await bea.run("ticket", word)
                #expect(shown.code == 0 && shown.out.contains(hash) && shown.out.contains(reference), "\(shown)")
            }
            let early = try await bea.run("ticket", reference, "approve", "--evidence", hash)
            #expect(early.code == 77 && early.err.contains("claim the ticket first"), "\(early)")
            #expect(try await bea.run("ticket", reference, "claim").code == 0)
            let other = try await bea.run("ticket", reference, "approve", "--evidence", String(hash.reversed()))
            #expect(other.code == 77, "\(other)")
            #expect(try await bea.run("ticket", reference, "approve", "--evidence", hash).code == 0)
            let twice = try await bea.run("ticket", reference, "approve", "--evidence", hash)
            #expect(twice.code == 77 && twice.err.contains("approved this already"), "\(twice)")
            let alone = try await bea.run("ticket", reference, "transfer")
            #expect(alone.code == 77, "\(alone)")
            #expect(try await cid.run("ticket", reference, "approve", "--evidence", String(hash.prefix(12))).code == 0)
            #expect(try await cid.run("ticket", reference, "transfer", "--output", "json").code == 0)
            try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
            try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
            let done = try await cid.run("ticket", reference, "--output", "json")
            #expect(done.out.contains(#""state": "transferred""#), "\(done)")
            let doctor = try await site.run("doctor", "--output", "json")
            #expect(doctor.out.contains("approved_transfers"))
            let ending = try await worker.stop()
            #expect(!ending.err.contains("owner\"") && !ending.err.contains("200000070000001"), "\(ending.err)")
        }
    }

    @Test func `A question is asked at the terminal, and the answer is read there`() async throws {
        try await Self.with { site, bea, _ in
            let worker = try await site.start("worker")
            _ = try await site.run("reconcile", "owner", "--wait", "20")
            _ = try await site.run("restore", "claimant", "--proof", Self.proof, "--client-error", "7", "--wait", "20")
            try await worker.stop()
            #expect(try await bea.run("ticket", "1", "claim").code == 0)
            let missing = try await bea.run("ticket", "1", "ask")
            #expect(missing.code == 64 && missing.err.contains("which_store"), "\(missing)")
            let unknown = try await bea.run("ticket", "1", "ask", "--question", "shoe_size")
            #expect(unknown.code == 65 && unknown.err.contains("order_number"), "\(unknown)")
            let asked = try await bea.run("ticket", "1", "ask", "--question", "which_store", "--text", "no receipt")
            #expect(asked.code == 0 && asked.out == "ticket 1: the claimant is asked\n", "\(asked)")
            try await site.execute(
                """
                SELECT entitlement_sync.reply_to_ticket('claimant', (c.t ->> 'id')::uuid, E'on a tablet\\n\\x1b[2J', NULL, NULL)
                  FROM jsonb_array_elements(entitlement_sync.ticket_answers('claimant')) AS c(t)
                """
            )
            let shown = try await bea.run("ticket", "1")
            #expect(shown.code == 0, "\(shown)")
            #expect(shown.out.contains("claimant_asked by bea  which_store"), "\(shown)")
            #expect(shown.out.contains("Z  claimant  on a tablet  [2J"), "words steer no terminal: \(shown)")
            let explained = try await site.run("explain", "claimant")
            #expect(explained.out.contains("was answered by the claimant"), "\(explained)")
        }
    }

    @Test func `A senior skips the rest of the owner's time at the terminal, and says why`() async throws {
        try await Self.with(ownerHours: "72") { site, bea, cid in
            let worker = try await site.start("worker")
            _ = try await site.run("reconcile", "owner", "--wait", "20")
            _ = try await site.run("restore", "claimant", "--proof", Self.proof, "--client-error", "7", "--wait", "20")
            try await site.execute("SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t")
            let hash = try await Self.evidence(site)
            #expect(try await bea.run("ticket", "1", "claim").code == 0)
            for person in [bea, cid] {
                #expect(try await person.run("ticket", "1", "approve", "--evidence", hash).code == 0)
            }
            let early = try await cid.run("ticket", "1", "transfer")
            #expect(early.code == 77 && early.err.contains("the owner may still object"), "\(early)")
            let silent = try await cid.run("ticket", "1", "waive")
            #expect(silent.code == 64 && silent.err.contains("--reason: say why"), "\(silent)")
            let blank = try await cid.run("ticket", "1", "waive", "--reason", " ")
            #expect(blank.code == 65 && blank.err.contains("reason: has to have 1 to 4000 characters"), "\(blank)")
            let junior = try await bea.run("ticket", "1", "waive", "--reason", "gave it away")
            #expect(junior.code == 77 && junior.err.contains("the role approver may not do this"), "\(junior)")
            let waived = try await cid.run("ticket", "1", "waive", "--reason", "gave it away")
            #expect(
                waived.out
                    == "ticket 1: the owner is waited for no longer, and may object until the transfer begins\n",
                "\(waived)"
            )
            let twice = try await cid.run("ticket", "1", "waive", "--reason", "gave it away")
            #expect(twice.code == 77 && twice.err.contains("no time of the owner's is running"), "\(twice)")
            let shown = try await bea.run("ticket", "1")
            #expect(shown.out.contains("  approved\n"), "\(shown)")
            #expect(shown.out.contains("owner's time was skipped by cid at 2"), "\(shown)")
            #expect(shown.out.contains("owner_window_waived by cid"), "\(shown)")
            #expect(shown.out.contains("note by cid  gave it away"), "\(shown)")
            #expect(try await cid.run("ticket", "1", "transfer").code == 0)
            try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
            let explained = try await site.run("explain", "claimant")
            #expect(explained.out.contains("waits for the owner no longer"), "\(explained)")
            let told: PostgresQuery =
                "SELECT count(*) FROM entitlement_sync.transfer_token AS k WHERE k.state = 'skipped'"
            try await site.waitUntil(told)
            let after = try await bea.run("ticket", "1")
            #expect(
                after.out.contains("The App Store was not given the account token: there is no key for it"),
                "\(after)"
            )
            let again = try await bea.run("ticket", "1", "token")
            #expect(again.out == "ticket 1: the App Store will be notified again\n", "\(again)")
            try await site.waitUntil(told)
            try await worker.stop()
        }
    }

    @Test func `What is wrong is said with the field and the fix`() async throws {
        try await Self.with { site, bea, _ in
            for (words, code, text) in [
                (["ticket", "99"], 65, "there is no ticket 99"), (["ticket", "T-0000-00"], 65, "there is no ticket"),
                (["ticket", "99", "claim"], 65, "there is no ticket 99"),
                (["operator", "list"], 77, "the role approver may not do this"),
                (["operator", "add", "eve", "--role", "senior"], 77, "may not do this"),
            ] as [([String], Int32, String)] {
                let ending = try await Site.run(
                    words + ["--session", bea.folder + "/session"],
                    settings: site.settings
                )
                #expect(ending.code == code && ending.err.contains(text), "\(words): \(ending)")
            }
            let me = try await bea.run("operator", "whoami")
            #expect(me.code == 0 && me.out.hasPrefix("bea, approver: approve, "), "\(me)")
            let nobody = try await site.run("tickets", "--session", bea.folder + "/none")
            #expect(nobody.code == 77 && nobody.err.contains("operator login"), "\(nobody)")
            try FileManager.default.setAttributes(
                [.posixPermissions: 0o644],
                ofItemAtPath: bea.folder + "/session"
            )
            let open = try await bea.run("tickets")
            #expect(open.code == 77 && open.err.contains("no other user may read it"), "\(open)")
            let wrong = try await site.run(
                "operator",
                "login",
                "bea",
                "--password-file",
                bea.folder + "/initial",
                "--session",
                bea.folder + "/s2"
            )
            #expect(wrong.code == 77 && wrong.err.contains("wrong"), "\(wrong)")
        }
    }

    @Test func `142: a worker killed while RevenueCat moves the purchase is followed by one that finds out`()
        async throws
    {
        try await Self.with { site, bea, cid in
            let worker = try await site.start("worker")
            _ = try await site.run("reconcile", "owner", "--wait", "20")
            _ = try await site.run("restore", "claimant", "--proof", Self.proof, "--client-error", "7", "--wait", "20")
            try await site.execute("SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t")
            let hash = try await Self.evidence(site)
            #expect(try await bea.run("ticket", "1", "claim").code == 0)
            for person in [bea, cid] {
                #expect(try await person.run("ticket", "1", "approve", "--evidence", hash).code == 0)
            }
            #expect(try await cid.run("ticket", "1", "transfer").code == 0)
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.transfer AS x WHERE x.calls > 0")
            try await worker.kill()
            try await site.execute("UPDATE entitlement_sync.transfer SET due = now()")
            let next = try await site.start("worker")
            // A call that had not been sent may still be on its way for all that anybody knows: ten minutes are waited for it.
            try await site.waitUntil(
                "SELECT count(*) FROM entitlement_sync.transfer AS x WHERE x.step = 'done' OR x.last_error = 'unsettled'"
            )
            try await site.execute(
                """
                UPDATE entitlement_sync.transfer SET called_at = called_at - interval '10 minutes', due = now()
                 WHERE step = 'begun'
                """
            )
            try await site.waitUntil("SELECT count(*) FROM entitlement_sync.transfer AS x WHERE x.step = 'done'")
            try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
            try await next.stop()
            let steps = try await site.texts("SELECT s.step FROM entitlement_sync.transfer_step AS s ORDER BY s.id")
            for (step, following) in zip(steps, steps.dropFirst()) where following == "calling" {
                #expect(step == "not_moved", "\(steps)")
            }
        }
    }
}
