import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// How cases end, and what stays on record of them.
@Suite struct CaseEndTests {
    @Test func `139: the owner's subscription lapses while the ticket waits: it closes by itself`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                try await scene.changeOwner(state: "expired", ends: "-1d")
                try await scene.collect(ticket)
            }
            #expect(try await scene.state(ticket) == "auto_resolved")
            #expect(try await scene.facts(ticket).contains("lapsed"))
            #expect(try await CaseRecords(pool: scene.world.pool).tell() == 1)
            let told = try await scene.ticketMessages()
            #expect(told.count == 1 && told.first?.hasPrefix("claimant ticket.decided") == true, "\(told)")
            #expect(told.first?.contains("auto_resolved") == true)
        }
    }

    @Test func `136: two claimants of one purchase: one gets it, the other's ticket closes as a duplicate`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.add("other")
            try await world.working(scene.setup) {
                let job = try await world.restore("other", proofs: DeskCase.proof, clientError: "7")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
                )
                let second = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
                #expect(second > ticket)
                for id in [ticket, second] {
                    try await scene.collect(id)
                    try await scene.approveAll(id)
                }
                async let one = scene.act(scene.bea, .transfer, on: ticket)
                async let two = scene.act(scene.cid, .transfer, on: second)
                let answers = try await [one, two]
                #expect(answers.filter { $0 == nil }.count == 1 && answers.contains("busy"), "\(answers)")
                let winner = answers[0] == nil ? ticket : second
                try await scene.untilEnded(winner)
                #expect(try await scene.state(winner) == "transferred")
                #expect(try await scene.state(winner == ticket ? second : ticket) == "duplicate")
            }
            #expect(try await scene.calls() == 1)
        }
    }

    @Test func `189: a refused ticket is touched for 90 days, and opened again where the evidence is another`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            @Sendable func tap() async throws -> String? {
                let job = try await world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
                )
                return try await world.status(job).outcome
            }
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
                #expect(try await scene.act(scene.ann, .refuse(how: "guide_to_login", words: nil), on: ticket) == nil)
                #expect(try await tap() == "store_account_mismatch")
                #expect(try await world.tickets(of: "claimant").map(\.touches) == [1])
                try await scene.collect(ticket)
                #expect(try await scene.state(ticket) == "refused")
                // The owner's account is erased: now there may be something to decide.
                try await world.pool.query("UPDATE users SET status = 'to_be_deleted' WHERE id = 'owner'")
                #expect(try await tap() == "store_account_mismatch")
                try await scene.collect(ticket)
                #expect(try await scene.state(ticket) == "new")
                #expect(try await world.tickets(of: "claimant").map(\.touches) == [2])
                // After 90 days it is a case of its own.
                #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
                #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
                try await world.pool.query(
                    "UPDATE entitlement_sync.ticket SET closed_at = closed_at - interval '91 days'"
                )
                #expect(try await tap() == "store_account_mismatch")
                #expect(try await world.tickets(of: "claimant").map(\.state) == ["refused", "new"])
            }
        }
    }

    @Test func `A case that the claimant does not see is over without a word to them`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.pool.query("UPDATE entitlement_sync.ticket SET visible = false")
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            #expect(try await scene.act(scene.ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
            #expect(try await CaseRecords(pool: scene.world.pool).tell() == 0)
        }
    }

    @Test func `154: what happened to a ticket, what was found and who agreed is never changed`() async throws {
        try await DeskCase.with { scene, ticket in
            try await scene.world.working(scene.setup) {
                try await scene.transfer(ticket)
            }
            for table in ["ticket_event", "ticket_evidence", "transfer_step", "operator_event"] {
                for change in [
                    "UPDATE entitlement_sync.\(table) SET id = DEFAULT", "DELETE FROM entitlement_sync.\(table)",
                ] {
                    await expectRefusal(SQLState.insufficientPrivilege) {
                        try await scene.world.pool.query(PostgresQuery(rawSQL: change))
                    }
                }
            }
            #expect(try await scene.act(scene.bea, .refuse(how: "refuse", words: "no"), on: ticket) == "state")
            #expect(try await scene.act(scene.bea, .note("a correction"), on: ticket) == nil)
        }
    }

    @Test func `A blank remark is none, and a note needs words`() async throws {
        try await DeskCase.with { scene, ticket in
            #expect(try await scene.act(scene.ann, .claim, on: ticket) == nil)
            for words in ["", " \n", String(repeating: "x", count: 4001)] {
                await expectRefusal("22023") { _ = try await scene.act(scene.ann, .note(words), on: ticket) }
            }
            let long = String(repeating: "x", count: 4001)
            await expectRefusal("22023") {
                _ = try await scene.act(scene.ann, .refuse(how: "refuse", words: long), on: ticket)
            }
            let refusal = try await scene.act(scene.ann, .refuse(how: "refuse", words: " \n"), on: ticket)
            #expect(refusal == nil)
            #expect(try await scene.world.number("SELECT count(*) FROM entitlement_sync.ticket_note") == 0)
        }
    }
}
