import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation
import Runs

extension Run {
    private var asked: RunRecords { RunRecords(pool: lane.host) }
    private var planning: RunPlanning { RunPlanning(pool: lane.host, brake: setup.brake) }

    mutating func takeLead() async throws {
        let lead = Leadership(pool: lane.host, duty: .planner, holder: "history", duration: .seconds(3600))
        guard let number = try await lead.take(nil) else { throw Failed(kind: "no lead", text: "somebody else plans") }
        fence = number
    }

    mutating func sweep(_ scope: RunRecord.Scope, isDry: Bool, most: Int32?) async throws {
        let now = try await lane.host.query("SELECT clock_timestamp()").first?.decode(PostgresTimestamp.self)
        guard let now else { throw Failed(kind: "no clock", text: "the database told no time") }
        let id = try await asked.ask(
            scope,
            isDry: isDry,
            since: scope == .since ? now : nil,
            maxDemotions: most,
            by: "a history"
        )
        let isOpen = model.sweeps.contains {
            $0.goesOn && $0.scope == scope && $0.isDry == isDry && !$0.isConfirmed
        }
        try expect((id == nil) == isOpen, "a run was \(id == nil ? "refused" : "begun beside another")")
        guard let id else { return model.note("asked for a second run of a scope") }
        let moment = try await lane.host.query("SELECT r.asked_at FROM entitlement_sync.run AS r WHERE r.id = \(id)")
        guard let at = try moment.first?.decode(PostgresTimestamp.self) else { return }
        model.note("\(isDry ? "dry " : "")run of \(scope.rawValue)")
        model.sweeps.append(
            Model.Sweep(
                id: id,
                scope: scope,
                isDry: isDry,
                askedAt: Instant(at),
                since: scope == .since ? Instant(now) : nil,
                most: most.map { Int($0) }
            )
        )
    }

    mutating func feed(_ batch: Int) async throws {
        for index in model.sweeps.indices where model.sweeps[index].goesOn {
            let looked = try await planning.feed(model.sweeps[index].id, fence: fence, batch: batch)
            let parts = model.sweeps[index].parts.count
            let expected = model.feed(index, batch: batch)
            try expect(looked == expected, "a run looked at \(looked.map { "\($0)" } ?? "nobody"), not \(expected)")
            // Looks that come to nothing are taken again hours later.
            if model.sweeps[index].scope == .due, !model.sweeps[index].isDry, model.sweeps[index].state == .reading {
                for user in model.sweeps[index].parts.dropFirst(parts).flatMap(\.users) {
                    try await adoptLook(of: user)
                }
            }
            // Keys of users whom the run has met, and ids of its jobs.
            try await compare()
        }
    }

    private mutating func adoptLook(of user: Int) async throws {
        guard model.people[user].look != nil, let key = model.people[user].key else { return }
        let row = try await lane.host.query(
            """
            SELECT u.next_check_at, u.next_check_at > clock_timestamp() + interval '5 hours'
              FROM entitlement_sync.user_sync AS u WHERE u.user_key = \(key)
            """
        ).first
        guard let (next, isLater) = try row?.decode(PostgresTimestamp?.self, Bool?.self) else { return }
        try expect(isLater == true, "a look that was planned is not put off")
        model.people[user].look = next.map(Instant.init)
    }

    mutating func plan() async throws {
        let closed = try await planning.closeParts(fence: fence, most: 1000)
        let expected = model.closeParts()
        try expect(closed == expected, "\(closed) parts were ended, not \(expected)")
        for index in model.sweeps.indices where model.sweeps[index].goesOn {
            _ = try await planning.count(model.sweeps[index].id, fence: fence, batch: 2)
            let state = try await planning.settle(model.sweeps[index].id, fence: fence)
            let next = model.settleSweep(index)
            try expect(state?.rawValue == next?.rawValue, "a run went on to be \(state?.rawValue ?? "as it was")")
        }
    }

    /// Reads a part of a dry run as its worker does; whoever touches another's purchase is predicted after that one.
    mutating func part(_ side: Side) async throws {
        let parts = RunParts(pool: lane.pool(side))
        let waiting = model.sweeps.indices.first { index in
            model.sweeps[index].isDry && model.sweeps[index].state == .reading
                && model.sweeps[index].parts.contains(where: \.isOpen)
        }
        guard let taken = try await parts.take(lease: .seconds(60)) else {
            return try expect(waiting == nil, "a part of a dry run was not found")
        }
        guard let index = waiting, taken.run == model.sweeps[index].id else {
            throw Failed(kind: "another part", text: "of run \(taken.run)")
        }
        let place = Int(taken.number) - 1
        let (apply, epoch) = (try worker(side).apply, try worker(side).epoch)
        var left: [ReadJob] = []
        var items: [ModelItem] = []
        for job in taken.jobs {
            guard let user = model.user(behind: job.userKey) else {
                throw Failed(kind: "unknown key", text: "\(job.userKey)")
            }
            var reading = Reading(coverage: .none, askedAt: job.claimedAt)
            if let asks = job.userID.flatMap(userIndex) { reading = listing(asks, job.claimedAt, parity: nil).reading }
            left.append(ReadJob(job: job, reading: reading))
            items.append(
                ModelItem(job: -1, user: user, key: job.userKey, attempt: 0, kind: .reconcile, reading: reading)
            )
        }
        var answers: [Int64: Apply.BatchDryRun.Answer] = [:]
        while !left.isEmpty {
            let dryRunWork = try await apply.performDryRun(left, epoch: epoch)
            answers.merge(dryRunWork.answers) { first, _ in first }
            for (key, retry) in dryRunWork.retries { answers[key] = .init(DryRunResult(error: retry.error)) }
            let (count, rest) = (left.count, left.filter { dryRunWork.postponed.contains($0.job.userKey) })
            try expect(rest.count < count, "a part of a dry run does not come to an end")
            if !rest.isEmpty { model.note("predicted after others of the part") }
            left = rest
        }
        let isKept = try await parts.keep(answers, of: taken)
        try expect(isKept, "a part of a dry run was not kept")
        let order = model.sweeps[index].parts[place].users
        let sorted = order.compactMap { user in items.first { $0.user == user } }
        try expect(sorted.count == items.count, "a part of a dry run has other users")
        model.lookAhead(sorted, part: place, of: index)
    }

    mutating func release(_ pick: Int, wrong: Bool) async throws {
        guard !model.sweeps.isEmpty else { return }
        let index = model.sweeps.count - 1 - pick % model.sweeps.count
        let hash = try await asked.run(model.sweeps[index].id)?.hash
        let isMade = model.sweeps.contains { $0.of == index && $0.state != .canceled }
        let mayMake = model.isReleasable(index)
        do {
            let made = try await asked.release(
                model.sweeps[index].id,
                hash: wrong ? "00" : hash ?? "",
                by: "a person"
            )
            try expect(mayMake && !wrong && !isMade, "a run was released")
            _ = model.release(index, as: made)
        } catch let refusal as RunRecords.Refusal {
            let expected: RunRecords.Refusal = mayMake && wrong ? .otherHash : .nothingToRelease
            try expect(refusal == expected, "a release was refused", "\(refusal)")
            try expect(!mayMake || wrong || isMade, "a release was refused")
            model.note(wrong && mayMake ? "released by another hash" : "nothing to release")
        }
    }

    mutating func cancelRun(_ pick: Int) async throws {
        guard !model.sweeps.isEmpty else { return }
        let index = model.sweeps.count - 1 - pick % model.sweeps.count
        let wentOn = try await asked.cancel(model.sweeps[index].id)
        try expect(wentOn == model.cancelSweep(index), "the end of a run was answered \(wentOn)")
    }

    /// Takes every run to its end; what was stopped is confirmed or given up.
    mutating func endSweeps() async throws {
        for round in 0..<30 {
            guard
                let index = model.sweeps.indices.last(where: {
                    model.sweeps[$0].goesOn || model.sweeps[$0].state == .stopped
                })
            else { return }
            let pick = model.sweeps.count - 1 - index
            if model.sweeps[index].state == .stopped {
                try await round % 2 == 0 ? release(pick, wrong: false) : cancelRun(pick)
            }
            try await wait()
            try await feed(50)
            while model.sweeps.contains(where: {
                $0.isDry && $0.state == .reading && $0.parts.contains(where: \.isOpen)
            }) {
                try await part(.a)
            }
            try await drain()
            try await plan()
            try await compare()
        }
        throw Failed(
            kind: "runs never end",
            text: model.lines.filter { $0.hasPrefix("sweep|") }.joined(separator: "\n")
        )
    }
}
