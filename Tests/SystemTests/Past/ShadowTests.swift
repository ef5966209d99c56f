import Diagnostics
import Entitlements
import Postgres
import TestSupport
import Testing

/// What was only observed, beside what the application did by itself.
@Suite struct ShadowTests {
    private static var observing: WorkerSetup {
        var setup = WorkerSetup()
        setup.decision.mode = .observe
        return setup
    }

    @Test func `Every difference between us and the application is found, and of its kind`() async throws {
        let states = [
            ("same", "active"), ("promote", "active"), ("demote", "expired"), ("free", "none"), ("kept", "active"),
            ("waits", "none"), ("waits-gone", "none"), ("banned", "active"), ("gone", "active"), ("later", "expired"),
        ]
        try await World.with(customers: states.map { "{id: \($0.0), state: \($0.1)}" }) { world in
            let subscribers: Set = ["demote", "kept", "waits", "waits-gone", "later"]
            for (user, _) in states {
                try await world.add(
                    user,
                    subscribers.contains(user) ? .subscriber : .free,
                    status: user == "banned" ? "banned" : "active"
                )
                _ = try await world.reconcile(user)
            }
            try await world.work(Self.observing)
            // A store that has said nothing of it yet: the worker waits.
            try await world.pool.query(
                """
                UPDATE users SET type = 'subscriber' WHERE id IN ('same', 'free');
                """
            )
            try await world.pool.query("UPDATE users SET type = 'free' WHERE id IN ('kept', 'waits-gone', 'later')")
            try await world.pool.query("DELETE FROM users WHERE id = 'gone'")
            var found: [String: Shadow.Kind] = [:]
            var explanations: [String] = []
            let shadow = Shadow(pool: world.pool)
            let counts = try await shadow.compare(since: nil) { line in
                found[line.userID] = line.kind
                explanations.append(line.explanation)
            }
            #expect(
                found == [
                    "promote": .wouldPromote, "demote": .wouldDemote, "free": .hostPromoted, "kept": .hostDemoted,
                    "waits-gone": .deferredHostDemoted,
                ]
            )
            #expect(explanations.allSatisfy { !$0.isEmpty })
            #expect(
                counts == [
                    .agrees: 2, .wouldPromote: 1, .wouldDemote: 1, .hostPromoted: 1, .hostDemoted: 1, .deferred: 1,
                    .deferredHostDemoted: 1, .notEligible: 1, .gone: 1,
                ]
            )
            #expect(try await shadow.compare(since: .infinity) { _ in Issue.record("too old") } == [:])

            let checks = await Doctor(pool: world.pool).checks()
            let check = try #require(checks.first { $0.name == "shadow" })
            #expect(check.ok && check.detail.contains("2 of 6 users agree"), "\(check)")
            #expect(check.detail.contains("4 apart"))

            // Once the worker writes, there is nothing left to compare.
            _ = try await world.reconciled("promote")
            var left: [String] = []
            _ = try await shadow.compare(since: nil) { left.append($0.userID) }
            #expect(!left.contains("promote") && left.count == 4)
        }
    }

    @Test func `A restore that leaves a subscriber without access to the reconcile is not judged`() async throws {
        try await World.with(customers: ["{id: ann, state: expired}"]) { world in
            try await world.add("ann", .subscriber)
            _ = try await world.restore("ann")
            try await world.work(Self.observing)
            // The reconcile that follows is the newest, and says what it would have done.
            var kinds: [Shadow.Kind] = []
            _ = try await Shadow(pool: world.pool).compare(since: nil) { kinds.append($0.kind) }
            #expect(kinds == [.wouldDemote])
        }
    }

    @Test func `Where nothing was only observed, doctor says nothing of it`() async throws {
        try await World.with(customers: ["{id: ann, state: active}"]) { world in
            try await world.add("ann")
            _ = try await world.reconciled("ann")
            let names = await Doctor(pool: world.pool).checks().map(\.name)
            #expect(!names.contains("shadow"))
            #expect(try await Shadow(pool: world.pool).compare(since: nil) { _ in Issue.record("listed") } == [:])
        }
    }
}
