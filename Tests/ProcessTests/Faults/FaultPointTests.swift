import TestSupport

#if FAULT_POINTS
    import FaultPoints
    import Foundation
    import Glibc
    import Postgres
    import Testing

    /// One thing that happens at one point.
    struct PointFault: Sendable, CustomTestStringConvertible {
        var point: FaultPoint
        var action: String
        /// Visits to the point between two faults, about.
        var visits: Int

        var testDescription: String { "\(action) at \(point.name)" }
    }

    /// Workers that fail at one exact instant, again and again: what is left is what an undisturbed run leaves.
    struct FaultPointTests {
        /// A run visits some points thousands of times and others a few dozen times.
        private static func visits(_ point: FaultPoint) -> Int {
            switch point {
            case .storeBefore, .storeAfter: 60
            case .statementBefore, .statementAfter: 80
            case .commitBefore, .commitLostAnswer, .commitAfter: 5
            case .transferTaken, .transferEvidence, .transferTarget, .transferAllowed, .transferCalled, .transferRead,
                .transferRecorded, .transferSettled, .transferToken:
                1
            }
        }

        private static func cases(_ action: String, _ points: [FaultPoint]) -> [PointFault] {
            points.map { PointFault(point: $0, action: action, visits: visits($0)) }
        }

        /// Those of a transfer, which restores never reach, are `SagaKillTests`'.
        private static let points = FaultPoint.allCases.filter { !FaultPoint.transfer.contains($0) }
        private static let kills = Profile.cases(cases("kill", points.reversed()))
        private static let stops = Profile.cases(
            cases("stop", [.commitBefore, .storeAfter, .statementAfter, .commitLostAnswer])
        )
        private static let losses =
            Profile.cases(cases("drop", points.reversed().filter { $0 != .commitAfter }))
            + Profile.cases(cases("error", [.statementBefore, .storeBefore, .commitBefore]))
            + (Profile.isFull ? cases("delay:100", [.storeAfter, .statementAfter, .commitBefore]) : [])

        private static let crowd = Crowd(percent: 12)
        /// Small batches, so that a run visits every point often.
        private static let settings = FaultRuns.settings.merging([
            "WORKER_CONCURRENCY": "60", "WORKER_BATCH": "15", "JOB_MAX_ATTEMPTS": "8", "JOB_BACKOFF_CAP_MS": "150",
        ]) {
            $1
        }

        @Test("166: workers that die at a point leave what an undisturbed one leaves", arguments: kills)
        func dies(fault: PointFault) async throws {
            try await Self.run(fault) { site in
                var random = SeededGenerator(seed: UInt64(fault.visits))
                var deaths = 0
                // Few enough that no job counts as one that kills its workers.
                for _ in 0..<4 {
                    let place = Int.random(in: 1...fault.visits, using: &random)
                    let ending = try await Self.start(site, "\(fault.point.name)=kill@\(place)").ending()
                    if ending.signal == SIGKILL { deaths += 1 } else { #expect(ending.code == 0, "\(ending)") }
                }
                #expect(deaths >= 3, "the point was hardly ever reached")
                try await Self.finish(site)
            }
        }

        @Test(
            "90, 167: a worker that loses, is refused or waits at a point leaves what an undisturbed one leaves",
            arguments: losses
        )
        func loses(fault: PointFault) async throws {
            try await Self.run(fault) { site in
                let plan = "seed=7;\(fault.point.name)=\(fault.action)@~\(1 / Double(fault.visits))"
                let ending = try await Self.start(site, plan).ending(within: .seconds(120))
                #expect(ending.code == 0, "\(ending)")
                let count = ending.err.split(separator: "\n").count { $0.hasPrefix("fault: ") }
                #expect(count >= 2, "it happened \(count) times")
            }
        }

        @Test(
            "A worker that stands still at a point until its lease has ended writes nothing afterwards",
            arguments: stops
        )
        func stands(fault: PointFault) async throws {
            try await Self.run(fault) { site in
                let zombie = try await Self.start(site, "\(fault.point.name)=stop@\(fault.visits)")
                try await eventually("it never stood still") { Self.isStopped(zombie.pid) }
                let other = try await site.start("worker", "--until-idle")
                // Twice the lease. What it held is free as soon as nothing of it is locked; with a transaction open, not
                // before it goes on.
                try await Task.sleep(for: .seconds(4))
                #expect(Self.isStopped(zombie.pid))
                zombie.signal(SIGCONT)
                for worker in [zombie, other] {
                    let ending = try await worker.ending(within: .seconds(120))
                    #expect(ending.code == 0, "\(ending)")
                }
                if fault.point == .storeAfter {
                    #expect(zombie.err.contains("the lease has ended"), "\(zombie.err)")
                }
            }
        }

        @Test(
            "A plan of faults that can't be read ends the worker with a clear error",
            arguments: [
                "nowhere=kill@1", "commit.after=kill", "commit.after=drop@1", "statement.after=error@1",
                "transfer.called=drop@1",
                "store.before=kill@0",
                "store.before=kill@~2", "store.before=delay:soon@1", "seed=x", "kill",
            ]
        )
        func malformed(plan: String) async throws {
            var settings = Site.settings("postgres://nobody@127.0.0.1:1/nothing")
            settings[FaultPlan.variable] = plan
            let ending = try await Site.run(["worker"], settings: settings)
            #expect(ending.code == 78, "\(ending)")
            #expect(ending.err.contains("\"\(plan)\" is no fault"), "\(ending)")
        }

        // MARK: -

        private static func run(_ fault: PointFault, _ body: @Sendable (Site) async throws -> Void) async throws {
            let undisturbed = try await Undisturbed.record(of: crowd)
            try await Turnstile.shared.pass {
                let simulator = try await Simulator(scenario: crowd.scenario)
                try await Site.with(store: simulator.url, settings: settings) { site in
                    try await site.execute(crowd.load)
                    try await body(site)
                    try await Record.expectSettled(site)
                    let record = try await Record(of: site)
                    let hasTrouble = [.storeBefore, .storeAfter].contains(fault.point)
                    #expect(record.differences(from: undisturbed, hasTrouble: hasTrouble) == [])
                }
            }
        }

        private static func start(_ site: Site, _ plan: String) async throws -> Program {
            var site = site
            site.settings[FaultPlan.variable] = plan
            return try await site.start("worker", "--until-idle")
        }

        private static func finish(_ site: Site) async throws {
            let ending = try await site.run("worker", "--until-idle", within: .seconds(120))
            #expect(ending.code == 0, "\(ending)")
        }

        /// Whether a process is stopped.
        private static func isStopped(_ pid: pid_t) -> Bool {
            let stat = (try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)) ?? ""
            return stat.split(separator: ")").last?.split(separator: " ").first == "T"
        }
    }
#endif
