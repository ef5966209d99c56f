import Entitlements
import Foundation
import Postgres
import Queue
import TestSupport
import Testing
import UserRequests

struct RepeatTests {
    @Test func `78: a double tap is one job, and both callers get its id`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let first = try await world.restore("ann")
            #expect(try await world.restore("ann") == first)
            try await world.work()
            #expect(try await world.status(first).outcome == "restored")
            #expect(try await world.decisions(about: "ann").count == 1)
        }
    }

    @Test func `78, 183: taps during the run get its one successor, with their proofs`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"latency":"500ms"}"#)
            let first = try await world.restore("ann")
            try await world.working {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(first) AND state = 'running'"
                )
                let proof = #"[{"store":"app_store","kind":"transaction_id","value":"1"}]"#
                let second = try await world.restore("ann", proofs: proof)
                #expect(second != first)
                #expect(try await world.restore("ann") == second)
                #expect(
                    try await world.number(
                        "SELECT jsonb_array_length(proofs)::bigint FROM entitlement_sync.job_request WHERE id = \(second)"
                    ) == 1
                )
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(second) AND state = 'done'"
                )
                #expect(try await world.status(first).outcome == "restored")
                #expect(try await world.status(second).outcome == "already_subscriber")
            }
            #expect(try await world.decisions(about: "ann").count == 2)
        }
    }

    @Test func `177: five restores are five answers, one purchase and one effect`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.addAssets(1, of: "ann", frozenFor: ["subscription_lapsed"])
            var jobs: Set<UUID> = []
            var outcomes: [String?] = []
            for _ in 1...5 {
                let job = try await world.restored("ann")
                jobs.insert(job.id)
                outcomes.append(job.outcome)
            }
            #expect(jobs.count == 5)
            #expect(outcomes == ["restored"] + Array(repeating: "already_subscriber", count: 4))
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.purchase") == 1)
            #expect(try await world.decisions(about: "ann").map(\.assetsChanged) == [1, 0, 0, 0, 0])
        }
    }

    @Test func `182: a tap while the job waits in backoff makes it due now and unites the proofs`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"status":500,"times":1}"#)
            var setup = WorkerSetup()
            setup.retry.backoffBase = .seconds(3600)
            setup.retry.backoffCap = .seconds(3600)
            let proof: (Int) -> String = { #"[{"store":"app_store","kind":"transaction_id","value":"\#($0)"}]"# }
            let job = try await world.restore("ann", proofs: proof(1))
            let second = proof(2)
            try await world.working(setup) {
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.job_status
                     WHERE id = \(job) AND state = 'queued' AND attempt = 1
                    """
                )
                #expect(try await world.restore("ann", proofs: second) == job)
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND outcome = 'restored'"
                )
            }
        }
    }

    @Test func `184: product_ids that leave out the active product do not withhold promotion`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let job = try await world.restore("ann", productIDs: ["another"])
            try await world.work()
            #expect(try await world.status(job).outcome == "restored")
        }
    }

    @Test func `90: an idempotency key answers with the same job, also after its end`() async throws {
        try await World.with(customers: ["{id: ann, state: active}", "{id: bob, state: active}"]) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            let job = try await world.restore("ann", key: "k")
            #expect(try await world.restore("ann", key: "k") == job)
            try await world.work()
            #expect(try await world.restore("ann", key: "k") == job)
            #expect(try await world.restore("ann") != job)
            // Keys are each user's own.
            #expect(try await world.restore("bob", clientError: "7", key: "k") != job)
            await expectRefusal("ES004") { _ = try await world.restore("ann", clientError: "7", key: "k") }
        }
    }

    @Test func `requests that are wrong are refused with their codes, and nothing is enqueued`() async throws {
        try await World.with { world in
            try await world.add("ann")
            let proof = #"{"store":"app_store","kind":"order_id","value":"1"}"#
            let many = "[" + Array(repeating: proof, count: 21).joined(separator: ",") + "]"
            await expectRefusal("ES001") { _ = try await world.restore("nobody") }
            await expectRefusal("ES001") { _ = try await world.reconcile("nobody") }
            await expectRefusal("ES002", naming: "proofs[0].kind") {
                _ = try await world.restore("ann", proofs: #"[{"store":"app_store","kind":"x","value":"1"}]"#)
            }
            await expectRefusal("ES002", naming: "proofs[1].value") {
                _ = try await world.restore("ann", proofs: "[\(proof),{\"store\":\"app_store\",\"kind\":\"order_id\"}]")
            }
            await expectRefusal("ES003") { _ = try await world.restore("ann", key: String(repeating: "k", count: 256)) }
            await expectRefusal("ES005") { _ = try await world.restore("ann", proofs: many) }
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.queue") == 0)
        }
    }

    @Test func `a queued job can be canceled; its user is not touched`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let job = try await world.restore("ann")
            #expect(try await world.commands.cancel(job) == .canceled)
            try await world.work()
            #expect(try await world.status(job).state == "canceled")
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.commands.cancel(job) == .notFound)
        }
    }

    private func expectRefusal(
        _ code: String,
        naming part: String = "",
        _ body: () async throws -> Void
    ) async {
        let error = await #expect(throws: PostgresError.self) { try await body() }
        #expect(error?.sqlState == code)
        #expect(part.isEmpty || error?.message.contains(part) == true)
    }

    @Test func `a tap that meets a job whose cancellation was asked for before its worker died is not canceled`()
        async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            let canceled = try await world.restore("ann")
            // As a worker leaves it that dies after `queue cancel`.
            try await world.pool.query("UPDATE entitlement_sync.queue SET active = 0, cancel = true, crashes = 1")
            let second = try await world.restore("ann")
            #expect(second != canceled)
            try await world.work()
            #expect(try await world.status(canceled).state == "canceled")
            #expect(try await world.status(second).outcome == "restored")
        }
    }
}
