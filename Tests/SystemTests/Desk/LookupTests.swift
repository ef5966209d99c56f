import Entitlements
import Postgres
import TestSupport
import Testing
import UserRequests

/// Ids that claimants and agents report for a case, looked up in the stores.
@Suite struct LookupTests {
    @Test func `150: an order that no store knows is a proof that failed, is put on record and raises the risk`()
        async throws
    {
        try await LookupCase.with { at in
            let proof = try at.world.transactionProof("2000000100000001")
            let job = try await at.world.restored("writer", proofs: proof, setup: at.asking)
            #expect(job.outcome == "store_account_mismatch")
            let ticket = try await at.world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            try await at.world.working(at.setup) {
                try await at.scene.collect(ticket)
                let before = try await at.evidence(ticket)
                #expect(before.approvals == 1 && before.facts.contains("proof_verified") && before.lookups.isEmpty)
                for (id, store) in [("GPA.9999-9999-9999-99999", "google_play"), ("MFORGED0001", "app_store")] {
                    try await at.world.pool.query("DELETE FROM entitlement_sync.ticket_reported_id")
                    try await at.name(id, for: ticket)
                    try await at.scene.collect(ticket)
                    let after = try await at.evidence(ticket)
                    #expect(after.lookups.contains { $0.store == store && $0.result == .unknown }, "\(after.lookups)")
                    #expect(after.facts.isSuperset(of: ["proof_failed", "proof_verified"]))
                    #expect(after.approvals == 2, "the risk is raised")
                    #expect(after.hash != before.hash)
                    #expect(!after.document.contains(id), "nothing that was typed stands where nothing is changed")
                }
                let doubts = try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket_event AS e WHERE e.kind = 'doubted'"
                )
                #expect(doubts == 1)
            }
        }
    }

    @Test func `150: what a claimant typed with a restore is looked up as well, and kept no longer than the claimant`()
        async throws
    {
        try await LookupCase.with { at in
            let proofs = #"""
                [{"store":"app_store","kind":"order_id","value":"MFORGED0001"},
                 {"store":"google_play","kind":"order_id","value":"GPA.9999-9999-9999-99999"},
                 {"store":"onside","kind":"onside_order_id","value":"5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33"}]
                """#
            let job = try await at.world.restored("writer", proofs: proofs, clientError: "7", setup: at.asking)
            #expect(job.outcome == "store_account_mismatch")
            let claims: PostgresQuery = "SELECT count(*) FROM entitlement_sync.ticket_reported_id"
            #expect(try await at.world.number(claims) == 3)
            try await at.world.working(at.setup) {
                try await at.scene.collect(1)
                let evidence = try await at.evidence(1)
                let said = Set(evidence.lookups.map { "\($0.store ?? "") \($0.result.rawValue)" })
                #expect(
                    said == [
                        "app_store unknown", "google_play unknown", "revenuecat unknown", "onside lookup_impossible",
                    ]
                )
                #expect(evidence.facts == ["proof_failed", "purchase_unknown"])
            }
            _ = try await Erasure(pool: at.world.pool).erase("writer")
            #expect(try await at.world.number(claims) == 0)
        }
    }

    @Test func `150: an outage is no word against anybody, and is asked again`() async throws {
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                try await at.world.inject(#"{"endpoint":"app_store.lookup","status":500}"#)
                let ticket = try await at.open(nil)
                try await at.name("MFORGED0001", for: ticket)
                try await at.scene.collect(ticket)
                let during = try await at.evidence(ticket)
                #expect(during.lookups.map(\.result) == [.unavailable] && !during.facts.contains("proof_failed"))
                let again: PostgresQuery = """
                    SELECT count(*) FROM entitlement_sync.evidence_request AS r
                     WHERE r.ticket_id = \(ticket) AND r.due_at BETWEEN now() + interval '50 minutes' AND now() + interval '61 minutes'
                    """
                try await at.world.waitUntil(again, comment: "nobody asks again")
                try await at.world.heal()
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("proof_failed"))
            }
        }
    }

    @Test func `150: what was found false stays, whatever else is typed, and while a store is silent`() async throws {
        try await LookupCase.with { at in
            let forged = #"[{"store":"google_play","kind":"order_id","value":"GPA.9999-9999-9999-99999"}]"#
            _ = try await at.world.restored("writer", proofs: forged, clientError: "7", setup: at.asking)
            try await at.world.working(at.setup) {
                try await at.scene.collect(1)
                #expect(try await at.evidence(1).facts.contains("proof_failed"))
            }
            for number in 0..<5 {
                let junk = (0..<3).map {
                    #"{"store":"app_store","kind":"transaction_id","value":"x-\#(number)-\#($0)"}"#
                }
                let proofs = "[" + junk.joined(separator: ",") + "]"
                _ = try await at.world.restored("writer", proofs: proofs, clientError: "7", setup: at.asking)
            }
            #expect(try await at.world.number("SELECT count(*) FROM entitlement_sync.ticket_reported_id") == 10)
            try await at.world.working(at.setup) {
                try await at.scene.collect(1)
                let after = try await at.evidence(1)
                #expect(after.lookups.count == 11 && after.facts.contains("proof_failed"), "\(after.lookups)")
                try await at.world.inject(#"{"endpoint":"google_play.order","status":500}"#)
                try await at.scene.collect(1)
                let during = try await at.evidence(1)
                #expect(during.lookups.contains { $0.result == .unavailable })
                #expect(during.hash == after.hash, "what a store said before still counts")
            }
        }
    }

    @Test func `150: a slip of an agent's is no word against the claimant, and another number takes its place`()
        async throws
    {
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                let ticket = try await at.open("MFORGED0001")
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.map(\.result) == [.unknown] && !evidence.facts.contains("proof_failed"))
                for id in [LookupCase.order, LookupCase.play, LookupCase.order] {
                    try await at.note(id, for: ticket)
                    try await at.scene.collect(ticket)
                    let subject = try #require(try await at.evidence(ticket).lookups.first { $0.isSubject })
                    #expect(subject.store == (id == LookupCase.play ? "google_play" : "app_store"), "\(id)")
                }
                // The claimant sends it as well.
                let proof = #"[{"store":"app_store","kind":"order_id","value":"MFORGED0001"}]"#
                _ = try await at.world.restored("writer", proofs: proof, clientError: "7", setup: at.asking)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).facts.contains("proof_failed"))
                #expect(try await at.evidence(ticket).lookups.contains { $0.isSubject && $0.store == "app_store" })
            }
        }
    }

    @Test func `151: an order that the App Store calls invalid with status 200 is no outage`() async throws {
        try await LookupCase.with { at in
            try await at.world.working(at.setup) {
                let path = "GET /app-store/inApps/v1/lookup/{id}"
                let before = at.world.asked(path)
                let ticket = try await at.open("MNOTHERE99")
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.map(\.store) == ["app_store"])
                #expect(evidence.lookups.map(\.result) == [.unknown])
                #expect(at.world.asked(path) > before)
                let errors = try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.evidence_request AS r WHERE r.error IS NOT NULL"
                )
                #expect(errors == 0)
                let alarms = try await at.world.alarms()
                #expect(alarms.isEmpty, "\(alarms)")
            }
        }
    }

    @Test func `152: an order of the sandbox can't be looked up, which is said and held against nobody`() async throws {
        try await LookupCase.with { at in
            try await at.world.pool.query(
                "INSERT INTO entitlement_sync.sandbox_user (user_id, until) VALUES ('writer', now() + interval '1 day')"
            )
            try await at.world.working(at.setup) {
                let ticket = try await at.open("MSANDBOX01")
                try await at.scene.collect(ticket)
                let evidence = try await at.evidence(ticket)
                #expect(evidence.lookups.map(\.result) == [.lookupImpossible])
                #expect(evidence.lookups.map(\.obstacle) == [.sandbox])
                #expect(!evidence.facts.contains("proof_failed"))
                // One of production is found for a tester as well.
                try await at.note(LookupCase.order, for: ticket)
                try await at.scene.collect(ticket)
                #expect(try await at.evidence(ticket).lookups.contains { $0.result == .found && $0.isSubject })
            }
        }
    }

    @Test func `Agents name so many numbers for a ticket, and none that no mail has`() async throws {
        try await LookupCase.with { at in
            let ticket = try await at.open("number-0")
            for number in 1..<10 { #expect(try await at.open("number-\(number)") == ticket) }
            await expectRefusal("22023") { _ = try await at.open("number-10") }
            #expect(try await at.open("number-9") == ticket, "known ones are no further ones")
            for bad in ["", "with blanks", String(repeating: "7", count: 256)] {
                await expectRefusal("22023") { try await at.note(bad, for: ticket) }
            }
            _ = try await Erasure(pool: at.world.pool).erase("writer")
            try await at.note("later", for: ticket)
            #expect(try await at.world.number("SELECT count(*) FROM entitlement_sync.ticket_reported_id") == 0)
            #expect(
                try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.original_id IS NOT NULL"
                ) == 0,
                "it stood in the ticket as well"
            )
        }
    }

    @Test func `What was typed long ago is forgotten, also where it stands in the ticket`() async throws {
        try await LookupCase.with { at in
            let ticket = try await at.open("Somebody.Real@example.com")
            try await at.world.pool.query(
                "SELECT entitlement_sync.move_ticket(\(ticket), 'expire')"
            )
            let claims: PostgresQuery = "SELECT count(*) FROM entitlement_sync.ticket_reported_id"
            for change in [
                "UPDATE entitlement_sync.ticket_reported_id SET at = at - interval '91 days'",
                "UPDATE entitlement_sync.ticket_reported_id SET at = now()",
            ] {
                try await at.world.pool.query(PostgresQuery(rawSQL: change))
                try await at.world.pool.query("SELECT entitlement_sync.forget_questions()")
                #expect(try await at.world.number(claims) == 1, "one of the two is no quarter of a year ago")
                try await at.world.pool.query(
                    "UPDATE entitlement_sync.ticket SET closed_at = now() - interval '91 days'"
                )
            }
            try await at.world.pool.query("UPDATE entitlement_sync.ticket_reported_id SET at = at - interval '91 days'")
            try await at.world.pool.query("SELECT entitlement_sync.forget_questions()")
            #expect(try await at.world.number(claims) == 0)
            _ = try await Erasure(pool: at.world.pool).erase("writer")
            #expect(
                try await at.world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket) AND t.original_id IS NULL"
                ) == 1
            )
        }
    }
}
