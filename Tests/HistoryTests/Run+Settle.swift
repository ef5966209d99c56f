import Diagnostics
import Entitlements
import Foundation
import Postgres

extension Run {
    /// Everything is readable, nothing is paused, nothing waits: the state settles, and stays.
    mutating func settle() async throws {
        for name in ["demotions", "all"] { try await make(.pause(name, false)) }
        try await make(.othersKey(false))
        try await make(.map(true))
        setup.mode = .full
        setup.hasMargin = false
        setup.brakeMinimum = 1_000_000
        setup.maxAttempts = 3
        setup.backsOff = false
        model.setup = setup
        for side in Side.allCases { try await make(.restart(side)) }
        // Whatever another process of the past still holds.
        try await make(.rescue(.a))
        try await drain()
        try await plan()
        try await endSweeps()
        var states: [[String]] = []
        for _ in 0..<3 {
            for user in model.people.indices where model.people[user].exists {
                try await make(.tap(user: user))
                try await make(.reconcile(user: user))
            }
            try await drain()
            states.append(model.lines.filter { $0.hasPrefix("user|") || $0.hasPrefix("asset|") })
        }
        try expect(states[1] == states[2], "not settled", "\(states[1])\n\(states[2])")
        for user in model.people.indices { try Oracle.judgeSettled(user, model, truth) }
        let open = model.jobs.filter { $0.state == .queued || $0.state == .running }
        try expect(open.isEmpty, "L11: a job never ended", "\(open)")
        try await resolveAll()
        try await checkLaws()
    }

    /// Works until nothing is left to do.
    mutating func drain() async throws {
        for round in 0..<60 {
            let isIdle = model.people.allSatisfy { $0.row == nil && $0.run == nil }
            if isIdle { return }
            let side = Side.allCases[round % 2]
            try await wait()
            try await make(.claim(side, 50))
            try await make(.read(side, pick: nil, .full))
            try await make(.apply(side, upTo: 50))
            try await make(.apply(side, upTo: 50))
            try await compare()
            for user in model.people.indices where model.people[user].run != nil {
                try await make(.assets(side, user: user))
            }
            try await compare()
        }
        let lines = model.lines.filter { $0.hasPrefix("queue|") || $0.hasPrefix("run|") }
        throw Failed(kind: "never idle", text: lines.joined(separator: "\n"))
    }

    /// The laws, as the product itself looks after them.
    private func checkLaws() async throws {
        let watch = InvariantMonitor(pool: lane.host)
        try await watch.run()
        let laws = try await watch.found()
        try expect(laws.count == 9, "\(laws.count) laws were looked at")
        // Who was banned as a subscriber stays one until somebody decides: that is the host's to find.
        // Whose store forgot a purchase that has to exist, nothing was decided: what the host froze stays frozen.
        let undecided = model.people.indices.count { user in
            let last = model.jobs.last { $0.user == user && $0.kind == .reconcile }
            return model.people[user].type == .subscriber && last?.state == .dead && last?.error == "unknown_to_store"
                && model.assets.values.contains { $0.owner == user && $0.isLapsed }
        }
        for law in laws where law.broken != 0 && law.name != "ineligible_subscribers" {
            if law.name == "frozen_subscribers", law.broken <= undecided { continue }
            throw Failed(kind: "law \(law.name)", text: "law \(law.name): \(law.broken)")
        }
    }

    /// Every id that was ever returned is found.
    private func resolveAll() async throws {
        let ids = Array(Set(model.jobs.filter(\.wasReturned).compactMap(\.id)))
        let rows = try await lane.host.query(
            "SELECT DISTINCT s.id FROM entitlement_sync.job_status AS s WHERE s.id = ANY (\(ids))"
        )
        try expect(rows.count == ids.count, "L11: an id is not found any more")
    }
}
