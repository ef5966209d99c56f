import Diagnostics
import Entitlements
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Two tries, hardly any wait between them.
private var twoAttempts: WorkerSetup {
    var setup = WorkerSetup()
    setup.retry.maxAttempts = 2
    return setup
}

struct FailureTests {
    @Test(arguments: [
        ("91", #""connection":"drop_before""#), ("91", #""connection":"drop_midway""#), ("92", #""status":500"#),
        ("92", #""status":503"#), ("94", #""status":423,"backoff":"10ms""#), ("100", #""body":"html""#),
        ("100", #""body":"empty""#), ("100", #""body":"truncated""#), ("103", #""body":"deep""#),
        ("103", #""body":"huge""#),
    ])
    func `91, 92, 94, 100, 103, 112: a store that keeps failing ends dead, never as nothing, and keeps everybody`(
        _ number: String,
        _ fault: String
    ) async throws {
        try await World.with(customers: ["{id: free, state: none}", "{id: paid, state: none}"]) { world in
            try await world.add("free")
            try await world.add("paid", .subscriber)
            try await world.inject("{\(fault)}")
            let restore = try await world.restore("free")
            let reconcile = try await world.reconcile("paid")
            try await world.work(twoAttempts)
            for job in [restore, reconcile] {
                let status = try await world.status(job)
                #expect(status.state == "dead", "\(number)")
                #expect(status.outcome == "store_unavailable")
                #expect(status.attempt == 2)
                #expect(status.lastError != nil)
            }
            #expect(try await world.type(of: "paid") == "subscriber")
            let found = await Doctor(pool: world.pool).checks().filter { !$0.ok }.map(\.name)
            // A customer who is locked says nothing of the store.
            #expect(found.contains("dead_jobs") && (number == "94" || found.contains("store.revenuecat")), "\(found)")
        }
    }

    @Test(arguments: [
        #""connection":"drop_before""#, #""status":500"#, #""status":423,"backoff":"10ms""#, #""body":"html""#,
        #""body":"truncated""#,
    ])
    func `91, 92, 94, 100: one failure is retried and the restore succeeds`(_ fault: String) async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject("{\(fault),\"times\":1}")
            let job = try await world.restored("ann")
            #expect(job.outcome == "restored")
            #expect(try await world.decisions(about: "ann").count == 1)
        }
    }

    @Test func `93: a 429 is waited out, then the restore succeeds`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"status":429,"backoff":"1s","times":1}"#)
            let started = ContinuousClock.now
            #expect(try await world.restored("ann").outcome == "restored")
            #expect(ContinuousClock.now - started >= .milliseconds(900))
        }
    }

    @Test(arguments: [401, 403])
    func `98: a refused key is an alarm and answers nobody with nothing`(_ status: Int) async throws {
        try await World.with(customers: ["{id: free, state: none}", "{id: paid, state: none}"]) { world in
            try await world.add("free")
            try await world.add("paid", .subscriber)
            try await world.inject("{\"status\":\(status)}")
            let restore = try await world.restore("free")
            let reconcile = try await world.reconcile("paid")
            try await world.work(twoAttempts)
            #expect(try await world.status(restore).outcome == "store_unavailable")
            #expect(try await world.status(reconcile).outcome == "store_unavailable")
            #expect(try await world.alarms() == ["credentials"])
            #expect(try await world.type(of: "paid") == "subscriber")
        }
    }

    @Test(arguments: [("subscriptions", 401), ("subscriptions", 403), ("purchases", 401), ("purchases", 403)])
    func `98: a key that one list refuses is no nothing either`(_ endpoint: String, _ status: Int) async throws {
        try await World.with(customers: ["{id: free, state: none}", "{id: paid, state: expired}"]) { world in
            try await world.add("free")
            try await world.add("paid", .subscriber)
            try await world.inject("{\"endpoint\":\"\(endpoint)\",\"status\":\(status)}")
            let restore = try await world.restore("free")
            let reconcile = try await world.reconcile("paid")
            try await world.work(twoAttempts)
            for job in [restore, reconcile] { #expect(try await world.status(job).state == "dead") }
            #expect(try await world.type(of: "paid") == "subscriber")
            #expect(try await world.alarms() == ["credentials"])
        }
    }

    @Test func `112: a dead job can be retried once the store is well`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"status":500}"#)
            let dead = try await world.restored("ann", setup: twoAttempts)
            #expect(dead.state == "dead")
            try await world.heal()
            #expect(try await world.commands.retry(dead.id))
            try await world.work()
            let status = try await world.status(dead.id)
            #expect(status.state == "done")
            #expect(status.outcome == "restored")
            #expect(try await world.commands.retry(dead.id) == false)
        }
    }

    @Test func `106: what a product gives is in our own records; no catalogue of a store's has to answer`() async throws
    {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            #expect(try await world.restored("ann").outcome == "restored")
            #expect(try await world.reconciled("ann").outcome == "unchanged")
            let asked = world.simulator.requestReport().byPath
            #expect(!asked.isEmpty && asked.keys.allSatisfy { $0.contains("/customers/") }, "\(asked)")
            // A mapping that is taken away ends nobody's access, and nobody hears that there is nothing.
            try await world.pool.query("DELETE FROM entitlement_sync.product")
            for job in [
                try await world.reconciled("ann", setup: twoAttempts),
                try await world.restored("ann", setup: twoAttempts),
            ] {
                #expect(job.state == "dead" && job.lastError == "product_unmapped")
            }
            #expect(try await world.type(of: "ann") == "subscriber")
        }
    }

    @Test func `a positive word answers at once though another list fails`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            try await world.inject(#"{"endpoint":"purchases","status":500}"#)
            let job = try await world.restored("ann")
            #expect(job.outcome == "restored")
            #expect(job.attempt == 0)
        }
    }

    @Test(arguments: [#""status":503"#, #""status":401"#, #""body":"html""#])
    func `a typed id that could not be looked up is no nothing`(_ fault: String) async throws {
        try await World.with(customers: ["{id: ann, state: none}"]) { world in
            try await world.add("ann")
            try await world.inject("{\"endpoint\":\"find_subscriptions\",\(fault)}")
            let proof = #"[{"store":"app_store","kind":"transaction_id","value":"200000070000001"}]"#
            let job = try await world.restore("ann", proofs: proof)
            try await world.work(twoAttempts)
            #expect(try await world.status(job).state == "dead")
            #expect(try await world.status(job).outcome == "store_unavailable")
        }
    }

    @Test func `15: a user whose id stands for nobody is an alarm and gets no answer of a store`() async throws {
        try await World.with(customers: ["{id: guest, state: active}"]) { world in
            try await world.add("guest")
            let job = try await world.restored("guest")
            #expect(job.state == "dead")
            #expect(job.lastError == "user_id_unusable")
            #expect(try await world.type(of: "guest") == "free")
            #expect(try await world.alarms() == ["user_id_unusable"])
        }
    }
}
