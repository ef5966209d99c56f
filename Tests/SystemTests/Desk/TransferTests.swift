import Diagnostics
import Entitlements
import Foundation
import Postgres
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// Transfers from the ticket to the records of both users.
@Suite struct TransferTests {
    @Test func `A transfer that two people approved moves the purchase: one becomes subscriber, the other free`()
        async throws
    {
        try await DeskCase.with { scene, ticket in
            let world = scene.world
            try await world.working(scene.setup) {
                try await scene.collect(ticket)
                #expect(try await scene.facts(ticket).isEmpty)
                try await scene.approveAll(ticket)
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
                #expect(try await scene.state(ticket) == "transferred")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
                try await world.waitUntil(
                    "SELECT (count(*) = 3)::int::bigint FROM assets WHERE user_id = 'claimant' AND frozen_reasons = '{}'"
                )
            }
            #expect(try await scene.calls() == 1)
            #expect(try await world.decisions(about: "owner").last?.rule == "moved_away")
            let steps = try await world.texts("SELECT s.step FROM entitlement_sync.transfer_step AS s ORDER BY s.id")
            #expect(steps == ["calling", "confirmed", "done"])
            // What the store echoes later changes nothing.
            #expect(try await world.reconciled("owner").outcome == "unchanged")
            #expect(try await world.reconciled("claimant").outcome == "unchanged")
            let checks = await Doctor(pool: world.pool).checks().filter { !$0.ok }.map(\.name)
            #expect(!checks.contains("approved_transfers") && !checks.contains("demoted_by_word"), "\(checks)")
        }
    }

    @Test func `With several projects a transfer is made in the one that holds the purchase`() async throws {
        let customers = (["{id: claimant, state: none}"], [DeskCase.owner, "{id: claimant, state: none}"])
        try await StoreAppsScene.with(customers: customers) { apps in
            let world = apps.world
            for user in ["owner", "claimant"] { try await world.add(user) }
            let setup = try apps.asking(.revenueCat, transferKey: "sk_move") {
                $0.servesDesk = true
                $0.variables = ["TRANSFER_OWNER_HOURS": "0"]
            }
            #expect(try await world.reconciled("owner", setup: setup).outcome == "promoted")
            let job = try await world.restore("claimant", proofs: DeskCase.proof, clientError: "7")
            try await world.work(setup)
            #expect(try await world.status(job).outcome == "store_account_mismatch")
            let scene = try await DeskCase(in: world)
            let ticket = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            #expect(try await scene.shown(ticket).storeApp == StoreAppsScene.secondProject)
            try await world.working(setup) {
                try await scene.transfer(ticket)
                #expect(try await scene.state(ticket) == "transferred")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
            }
            #expect(apps.second.requests("transfer") == 1 && world.requests("transfer") == 0)
        }
    }

    @Test func `Who has shown a proof may be given access while the case is open, once, and until it is decided`()
        async throws
    {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, account: owner")
        try await World.with(scenario: scenario) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            try await world.addProducts()
            var setup = world.asking(world.googlePlay)
            _ = try await world.restored("owner", proofs: world.tokenProof("tok-a"), setup: setup)
            _ = try await world.restored("claimant", proofs: world.tokenProof("tok-a"), setup: setup)
            let ticket = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let ann = try await desk.enter("ann", .agent, by: admin)
            let bea = try await desk.enter("bea", .approver, by: admin)
            let cid = try await desk.enter("cid", .senior, by: admin)
            let scene = DeskCase(world: world, desk: desk, admin: admin, ann: ann, bea: bea, cid: cid)
            setup.servesDesk = true
            try await world.working(setup) {
                #expect(try await scene.act(ann, .giveAccess, on: ticket) == "not_claimed")
                #expect(try await scene.act(ann, .claim, on: ticket) == nil)
                #expect(try await scene.act(ann, .giveAccess, on: ticket) == "no_proof")
                try await scene.collect(ticket)
                #expect(try await scene.act(ann, .giveAccess, on: ticket) == nil)
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                #expect(try await scene.act(ann, .giveAccess, on: ticket) == "temporary_access_given_already")
                #expect(try await scene.act(ann, .refuse(how: "refuse", words: nil), on: ticket) == nil)
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync."grant" AS g
                     WHERE g.revoked_at IS NOT NULL AND g.until > g.created_at + interval '71 hours'
                    """
                )
                // Another ticket about the same purchase lends nothing again.
                try await world.pool.query(
                    "UPDATE entitlement_sync.ticket SET closed_at = closed_at - interval '91 days'"
                )
                // As after the lapse, which takes a day.
                try await world.waitUntil(
                    """
                    SELECT (count(*) > 1)::int::bigint FROM entitlement_sync.job_status AS j
                     WHERE j.user_id = 'claimant' AND j.kind = 'reconcile' AND j.state = 'done'
                    """
                )
                try await world.pool.query("UPDATE users SET type = 'free' WHERE id = 'claimant'")
                let job = try await world.restore("claimant", proofs: world.tokenProof("tok-a"), clientError: "7")
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
                )
                let second = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
                #expect(second > ticket)
                #expect(try await scene.act(ann, .claim, on: second) == nil)
                try await scene.collect(second)
                #expect(try await scene.act(ann, .giveAccess, on: second) == "temporary_access_given_already")
                // Until the period ends is an approver's word.
                let hash = try await scene.hash(second)
                let giving = DeskTickets.Act.refuse(how: "grant_until_end", words: nil, hash: hash)
                await expectRefusal { _ = try await scene.act(ann, giving, on: second) }
                #expect(try await scene.act(ann, .release, on: second) == nil)
                #expect(try await scene.act(bea, .claim, on: second) == nil)
                // On what was looked at, and by two.
                for other in [nil, Array(hash.reversed())] {
                    let blind = DeskTickets.Act.refuse(how: "grant_until_end", words: nil, hash: other)
                    #expect(try await scene.act(bea, blind, on: second) == "evidence_changed")
                }
                #expect(try await scene.act(bea, giving, on: second) == "second_needed")
                #expect(try await scene.act(bea, giving, on: second) == "second_needed")
                #expect(try await world.type(of: "claimant") == "free")
                #expect(try await scene.act(bea, .release, on: second) == nil)
                #expect(try await scene.act(cid, .claim, on: second) == nil)
                #expect(try await scene.act(cid, giving, on: second) == nil)
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
            }
            #expect(try await world.type(of: "owner") == "subscriber")
            let owner = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key WHERE u.user_id = 'owner'
                """
            )
            #expect(owner == 1)
            let decided = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync."grant" AS g
                 WHERE g.reason LIKE 'decided in ticket %' AND g.granted_by = 'operators bea, cid' AND g.revoked_at IS NULL
                """
            )
            #expect(decided == 1)
        }
    }

    @Test func `What a worker does for the desk its own role may do`() async throws {
        try await DeskCase.with { scene, ticket in
            var setup = scene.setup
            setup.role = "entitlement_sync_worker"
            try await scene.world.working(setup) {
                try await scene.transfer(ticket)
                #expect(try await scene.state(ticket) == "transferred")
                try await scene.world.waitUntil(
                    "SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'"
                )
                try await scene.world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
                // Touches as before.
                let job = try await scene.world.restore("owner", proofs: DeskCase.proof, clientError: "7")
                try await scene.world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
                )
                let again = try await scene.world.restore("owner", proofs: DeskCase.proof, clientError: "7")
                try await scene.world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(again) AND j.state = 'done'"
                )
            }
            #expect(try await scene.world.tickets(of: "owner").map(\.touches) == [1])
        }
    }

    @Test func `Where Google Play alone knows the purchase our records move, and outrank what it keeps saying`()
        async throws
    {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, account: owner")
        try await World.with(scenario: scenario) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            try await world.addProducts()
            var setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("owner", proofs: world.tokenProof("tok-a"), setup: setup).outcome == "restored"
            )
            let shown = try await world.restored("claimant", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(shown.outcome == "store_account_mismatch")
            let ticket = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            let desk = DeskPeople(world: world)
            let admin = try await desk.enter("root", .admin)
            let bea = try await desk.enter("bea", .approver, by: admin)
            let cid = try await desk.enter("cid", .senior, by: admin)
            let scene = DeskCase(world: world, desk: desk, admin: admin, ann: bea, bea: bea, cid: cid)
            setup.servesDesk = true
            setup.variables["TRANSFER_OWNER_HOURS"] = "0"
            try await world.working(setup) {
                try await scene.collect(ticket)
                #expect(try await scene.facts(ticket).contains("proof_verified"))
                try await scene.approveAll(ticket)
                #expect(try await scene.act(bea, .transfer, on: ticket) == nil)
                try await scene.untilEnded(ticket)
                #expect(try await scene.state(ticket) == "transferred")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
                try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
            }
            #expect(try await scene.calls() == 0)
            // The store still names the former owner.
            #expect(try await world.reconciled("claimant", setup: setup).outcome == "unchanged")
            #expect(
                try await world.restored("owner", proofs: world.tokenProof("tok-a"), setup: setup).outcome
                    == "store_account_mismatch"
            )
            #expect(try await world.type(of: "claimant") == "subscriber")
        }
    }

    @Test func `Who opened a case and who took it first do not give access by themselves`() async throws {
        try await DeskCase.with { scene, ticket in
            let (bea, cid) = (scene.bea, scene.cid)
            let dan = try await scene.desk.enter("dan", .approver, by: scene.admin)
            try await scene.world.pool.query(
                """
                INSERT INTO entitlement_sync.ticket_event (ticket_id, kind, operator_id)
                SELECT \(ticket), 'opened', o.id FROM entitlement_sync.operator AS o WHERE o.name = 'bea'
                """
            )
            try await scene.world.working(scene.setup) {
                try await scene.collect(ticket)
                let giving = DeskTickets.Act.refuse(
                    how: "grant_until_end",
                    words: nil,
                    hash: try await scene.hash(ticket)
                )
                for person in [cid, bea] {
                    #expect(try await scene.act(person, .claim, on: ticket) == nil)
                    #expect(try await scene.act(person, giving, on: ticket) == "second_needed", "\(person.name)")
                    #expect(try await scene.act(person, .release, on: ticket) == nil)
                }
                #expect(try await scene.world.type(of: "claimant") == "free")
                #expect(try await scene.act(dan, .claim, on: ticket) == nil)
                #expect(try await scene.act(dan, giving, on: ticket) == nil)
                try await scene.world.waitUntil(
                    "SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'"
                )
            }
            let check = try #require(await Doctor(pool: scene.world.pool).checks().first { $0.name == "desk_grants" })
            #expect(check.detail.contains("operators bea, cid, dan"), "\(check.detail)")
        }
    }
}
