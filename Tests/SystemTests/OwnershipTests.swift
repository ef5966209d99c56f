import Entitlements
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

struct OwnershipTests {
    @Test func `1, 187: an own active subscription restores a free user, with one decision`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let job = try await world.restored("ann")
            #expect(job.state == "done")
            #expect(job.outcome == "restored")
            #expect(job.messageKey == "restored")
            #expect(try await world.type(of: "ann") == "subscriber")
            let decisions = try await world.decisions(about: "ann")
            #expect(decisions.map(\.rule) == ["store_access"])
            #expect(decisions.first?.before == "free")
            #expect(decisions.first?.after == "subscriber")
        }
    }

    @Test func `2: a subscriber with access is left untouched; one observation, one decision`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann", .subscriber)
            try await world.addAssets(2, of: "ann", frozenFor: [])
            let marks: () async throws -> Int64 = {
                try await world.number(
                    """
                    SELECT ((SELECT sum(xmin::text::bigint) FROM users)
                            + (SELECT sum(xmin::text::bigint) FROM assets))::bigint
                    """
                )
            }
            let before = try await marks()
            let job = try await world.restored("ann")
            #expect(job.outcome == "already_subscriber")
            #expect(try await marks() == before)
            #expect(try await world.decisions(about: "ann").map(\.outcome) == ["already_subscriber"])
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.observation") == 1)
        }
    }

    @Test func `3: no purchase anywhere is nothing to restore at the first complete read`() async throws {
        try await World.with(customers: ["{id: known, state: none}"]) { world in
            try await world.add("known")
            try await world.add("unheard-of")
            for user in ["known", "unheard-of"] {
                let job = try await world.restored(user)
                #expect(job.outcome == "nothing_to_restore")
                #expect(job.messageKey == "nothing")
                #expect(job.attempt == 0)
                #expect(try await world.type(of: user) == "free")
            }
        }
    }

    @Test func `5, 6: a typed id of another user and one of nobody are answered alike`() async throws {
        let other = "{id: owner, subscriptions: [{state: active, store_subscription_identifier: \"200000070000001\"}]}"
        try await World.with(customers: [other, "{id: real, state: none}", "{id: made-up, state: none}"]) { world in
            for user in ["owner", "real", "made-up"] { try await world.add(user) }
            let proof: (String) -> String = { #"[{"store":"app_store","kind":"transaction_id","value":"\#($0)"}]"# }
            let real = try await world.restore("real", proofs: proof("200000070000001"))
            let madeUp = try await world.restore("made-up", proofs: proof("999999999999999"))
            try await world.work()
            for job in [real, madeUp] {
                let status = try await world.status(job)
                #expect(status.outcome == "nothing_to_restore")
                #expect(status.messageKey == "nothing")
                #expect(status.ticketID == nil)
            }
            let realTickets = try await world.tickets(of: "real")
            #expect(realTickets == [TicketRow(kind: "needs_proof", owner: "owner", state: "new", touches: 0)])
            #expect(try await world.tickets(of: "made-up").isEmpty)
            #expect(try await world.type(of: "owner") == "free")
        }
    }

    @Test func `7: a lineage of an anonymous customer whose alias is ours restores`() async throws {
        let anonymous = "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"
        try await World.with(customers: ["{id: \"\(anonymous)\", aliases: [ann], state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored")
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test(arguments: [["main", "second"], ["second", "main"]])
    func `10: two of our users on one customer; the named one keeps it, the other gets a ticket`(
        _ order: [String]
    ) async throws {
        try await World.with(customers: ["{id: main, aliases: [second], state: active}"]) { world in
            for user in ["main", "second"] { try await world.add(user) }
            var outcomes: [String: String?] = [:]
            for user in order { outcomes[user] = try await world.restored(user).outcome }
            #expect(outcomes["main"] == "restored")
            #expect(outcomes["second"] == "store_account_mismatch")
            #expect(try await world.type(of: "main") == "subscriber")
            #expect(try await world.type(of: "second") == "free")
            #expect(try await world.tickets(of: "second").map(\.kind) == ["identity_collision"])
            #expect(try await world.tickets(of: "main").isEmpty)
        }
    }

    @Test func `15: whoever shares a customer with many of our users gets a ticket each, and nobody's purchase`()
        async throws
    {
        let others = (2...5).map { "user-\($0)" }
        let customer = "{id: user-1, aliases: [\(others.joined(separator: ", "))], state: active}"
        try await World.with(customers: [customer]) { world in
            for user in ["user-1"] + others { try await world.add(user) }
            for user in others { _ = try await world.restore(user) }
            try await world.work()
            for user in others {
                #expect(try await world.tickets(of: user).map(\.kind) == ["identity_collision"])
                #expect(try await world.type(of: user) == "free")
            }
            #expect(try await world.restored("user-1").outcome == "restored")
            #expect(try await world.tickets(of: "user-1").isEmpty)
            let owned = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.owner_key WHERE u.user_id <> 'user-1'
                """
            )
            #expect(owned == 0)
        }
    }

    @Test(arguments: ["receipt_already_in_use", "RECEIPT_ALREADY_IN_USE", "7", "7102"])
    func `a receipt in use is a mismatch with a ticket, whatever a lookup finds`(_ error: String) async throws {
        try await World.with(customers: ["{id: claimant, state: none}"]) { world in
            try await world.add("claimant")
            let job = try await world.restored("claimant", clientError: error)
            #expect(job.outcome == "store_account_mismatch")
            #expect(job.messageKey == "mismatch")
            #expect(job.ticketID != nil)
            let claimantTickets = try await world.tickets(of: "claimant")
            #expect(claimantTickets == [TicketRow(kind: "paid_no_access", owner: nil, state: "new", touches: 0)])
            #expect(try await world.type(of: "claimant") == "free")
        }
    }

    @Test func `4, 135: thirty taps of one claimant are one ticket with 29 touches, and nobody's type changes`()
        async throws
    {
        let other = "{id: owner, subscriptions: [{state: active, store_subscription_identifier: \"200000070000001\"}]}"
        try await World.with(customers: [other, "{id: claimant, state: none}"]) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            let proof = #"[{"store":"app_store","kind":"transaction_id","value":"200000070000001"}]"#
            try await world.working {
                for _ in 1...30 {
                    let job = try await world.restore("claimant", proofs: proof, clientError: "7")
                    try await eventually("a tap has no answer") { try await world.status(job).outcome != nil }
                    #expect(try await world.status(job).outcome == "store_account_mismatch")
                }
            }
            // What the last tap left to do is done as well.
            try await world.work()
            let claimantTickets = try await world.tickets(of: "claimant")
            #expect(claimantTickets == [TicketRow(kind: "owner_mismatch", owner: "owner", state: "new", touches: 29)])
            #expect(try await world.type(of: "claimant") == "free")
            #expect(try await world.type(of: "owner") == "free")
        }
    }

    @Test func `194: the ledger follows RevenueCat to another owner, with a ticket, and both are read again`()
        async throws
    {
        let item = #"[{"state":"active","id":"sub_moved","store_subscription_identifier":"200000070000001"}]"#
        try await World.with(customers: ["{id: old, state: none}", "{id: new, state: none}"]) { world in
            for user in ["old", "new"] { try await world.add(user) }
            try await world.change("old", #"{"subscriptions":\#(item)}"#)
            #expect(try await world.restored("old").outcome == "restored")
            try await world.change("old", #"{"state":"none"}"#)
            try await world.change("new", #"{"subscriptions":\#(item)}"#)
            #expect(try await world.restored("new").outcome == "restored")
            #expect(try await world.decisions(about: "new").first?.rule == "owner_followed_revenuecat")
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.ticket_status WHERE kind = 'external_transfer'"
                )
                    == 1
            )
            // The former owner was looked at again without being asked for.
            let reread = try await world.number(
                "SELECT count(*) FROM entitlement_sync.job_status WHERE user_id = 'old' AND kind = 'reconcile'"
            )
            #expect(reread == 1)
        }
    }

    @Test func `194: a former owner whom a host's transaction holds stalls nobody; the claimant waits alone`()
        async throws
    {
        let item = #"[{"state":"active","id":"sub_moved","store_subscription_identifier":"200000070000001"}]"#
        let customers = ["{id: old, state: none}", "{id: new, state: none}", "{id: ann, state: active}"]
        try await World.with(customers: customers) { world in
            for user in ["old", "new", "ann"] { try await world.add(user) }
            try await world.change("old", #"{"subscriptions":\#(item)}"#)
            #expect(try await world.restored("old").outcome == "restored")
            try await world.change("old", #"{"state":"none"}"#)
            try await world.change("new", #"{"subscriptions":\#(item)}"#)
            let claim = try await world.restore("new")
            let bystander = try await world.restore("ann")
            try await world.pool.withTransaction { host in
                // The host enqueues in its own transaction and takes its time.
                try await host.query("SELECT entitlement_sync.request_restore('old')")
                try await world.working {
                    try await world.waitUntil(
                        "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(bystander) AND state = 'done'"
                    )
                    #expect(try await world.status(claim).state == "running")
                }
            }
            try await world.work()
            #expect(try await world.status(claim).outcome == "restored")
            let reread = try await world.number(
                "SELECT count(*) FROM entitlement_sync.job_status WHERE user_id = 'old' AND kind = 'reconcile'"
            )
            #expect(reread == 1)
        }
    }

    @Test func `proofs are forgotten once their job has ended`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let proof = #"[{"store":"app_store","kind":"storekit_jws","value":"a.b.c"}]"#
            let job = try await world.restore("ann", proofs: proof, productIDs: ["monthly"])
            let kept: PostgresQuery = "SELECT count(*) FROM entitlement_sync.job_request WHERE proofs IS NOT NULL"
            #expect(try await world.number(kept) == 1)
            try await world.work()
            #expect(try await world.status(job).outcome == "restored")
            #expect(try await world.number(kept) == 0)
        }
    }

    @Test func `proofs are forgotten when their job is canceled, before it runs or while it does`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let proof = #"[{"store":"app_store","kind":"storekit_jws","value":"a.b.c"}]"#
            let kept: PostgresQuery = "SELECT count(*) FROM entitlement_sync.job_request WHERE proofs IS NOT NULL"
            let queued = try await world.restore("ann", proofs: proof)
            #expect(try await world.number(kept) == 1)
            #expect(try await world.commands.cancel(queued) == .canceled)
            #expect(try await world.number(kept) == 0)
            let running = try await world.restore("ann", proofs: proof)
            try await world.inject(#"{"latency":"500ms"}"#)
            try await world.working {
                try await world.waitUntil("SELECT count(*) FROM entitlement_sync.queue WHERE owner IS NOT NULL")
                #expect(try await world.commands.cancel(running) == .asked)
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(running) AND state = 'canceled'"
                )
            }
            #expect(try await world.number(kept) == 0)
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    @Test func `194: a store that names two owners at once ends in tickets, not in a chase`() async throws {
        let item = #"[{"state":"active","id":"sub_both","store_subscription_identifier":"200000070000001"}]"#
        try await World.with(customers: ["{id: old, state: none}", "{id: new, state: none}"]) { world in
            for user in ["old", "new"] {
                try await world.add(user)
                try await world.change(user, #"{"subscriptions":\#(item)}"#)
            }
            #expect(try await world.restored("old").outcome == "restored")
            #expect(try await world.restored("new").outcome == "restored")
            // Both were read again; the former owner is still named, which moves nothing back and takes nothing away.
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.job_status") <= 6)
            #expect(try await world.tickets(of: "old").map(\.kind) == ["sources_disagree"])
            #expect(try await world.tickets(of: "new").map(\.kind) == ["external_transfer"])
            for user in ["old", "new"] { #expect(try await world.type(of: user) == "subscriber") }
            // Once the store names one owner alone, the next move is followed again.
            try await world.change("new", #"{"state":"none"}"#)
            _ = try await world.reconciled("new")
            #expect(try await world.restored("old").outcome == "already_subscriber")
            let rules = try await world.decisions(about: "old").map(\.rule)
            #expect(rules.contains("owner_followed_revenuecat"))
        }
    }

    @Test func `L1: an item whose identifiers lead to two owners opens a ticket and gives nothing`() async throws {
        let item: @Sendable (String, String) -> String = { id, store in
            #"{"subscriptions":[{"state":"active","id":"\#(id)","store_subscription_identifier":"\#(store)"}]}"#
        }
        try await World.with(customers: ["{id: ann, state: none}", "{id: bob, state: none}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.change("ann", item("sub_a", "200000070000001"))
            try await world.change("bob", item("sub_b", "200000070000002"))
            for user in ["ann", "bob"] { #expect(try await world.restored(user).outcome == "restored") }
            try await world.change("bob", item("sub_b", "200000070000001"))
            #expect(try await world.reconciled("bob").outcome == "deferred")
            #expect(try await world.tickets(of: "bob").map(\.kind) == ["identity_collision"])
            for user in ["ann", "bob"] { #expect(try await world.type(of: user) == "subscriber") }
        }
    }

    @Test func `a case without a purchase becomes the case of the purchase that is found later`() async throws {
        let other = "{id: owner, subscriptions: [{state: active, store_subscription_identifier: \"200000070000001\"}]}"
        try await World.with(customers: [other, "{id: claimant, state: none}"]) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            #expect(try await world.restored("owner").outcome == "restored")
            #expect(try await world.restored("claimant", clientError: "7").outcome == "store_account_mismatch")
            let proof = #"[{"store":"app_store","kind":"transaction_id","value":"200000070000001"}]"#
            _ = try await world.restore("claimant", proofs: proof, clientError: "7")
            try await world.work()
            let tickets = try await world.tickets(of: "claimant")
            #expect(tickets == [TicketRow(kind: "owner_mismatch", owner: "owner", state: "new", touches: 1)])
        }
    }
}
