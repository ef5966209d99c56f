import Composition
import Foundation
import Postgres
import Runs

/// Asks for a run of many users and follows it to its end.
struct RunFollowing {
    let runs: RunRecords
    let output: OutputFormat

    /// Asks for a run and prints what became of it; the run goes on where the wait ends before it.
    func ask(
        _ scope: RunRecord.Scope,
        isDry: Bool,
        since: PostgresTimestamp?,
        listsOnly: Bool,
        maxDemotions: Int32?,
        waiting limit: Duration
    ) async throws -> ExitStatus {
        let asked =
            if listsOnly, let since {
                try await runs.askLists(since: since, by: Asker.name)
            } else {
                try await runs.ask(scope, isDry: isDry, since: since, maxDemotions: maxDemotions, by: Asker.name)
            }
        guard let id = asked else {
            let open = try await runs.open(scope, isDry: isDry)
            throw CommandFailure(
                .data,
                "\(open.map { "run \($0.id)" } ?? "a run") of this scope goes on; wait for it, or end it with"
                    + " entitlement-sync runs cancel \(open.map { "\($0.id)" } ?? "ID")"
            )
        }
        guard let run = try await follow(id, within: limit) else {
            throw CommandFailure(.software, "run \(id) is gone")
        }
        guard run.state == .done || run.state == .stopped || run.state == .canceled else {
            switch output {
            case .json: try Output.json(["summary": run.summary()])
            case .text: Output.line("run \(id) goes on; see entitlement-sync runs show \(id)")
            }
            return .elapsed
        }
        try await printEnd(of: run)
        return run.outcomes["store_unavailable"] ?? 0 > 0 || !run.isListed ? .unavailable : .done
    }

    /// Waits for a run's end, with a bar on a terminal.
    private func follow(_ id: Int64, within limit: Duration) async throws -> RunRecord? {
        let deadline = ContinuousClock.now + limit
        var pause = Duration.milliseconds(50)
        var notes = WaitNotes()
        while true {
            let run: RunRecord
            do {
                guard let found = try await runs.run(id) else { return nil }
                run = found
            } catch let error as PostgresError where error.isRetryable && ContinuousClock.now < deadline {
                // The run goes on without us, and so does the wait.
                try await Task.sleep(for: .seconds(1))
                continue
            }
            guard run.state.isOpen else { return run }
            Output.progress(of: run)
            notes.add(
                "run \(id) has read \(run.ended) of \(run.total.map { "\($0)" } ?? "?") users; it goes on without this command,"
                    + " see entitlement-sync runs show \(id)"
            )
            guard ContinuousClock.now < deadline else { return run }
            try await Task.sleep(for: min(pause, max(deadline - .now, .zero)))
            pause = min(pause * 2, .seconds(1))
        }
    }

    private func printEnd(of run: RunRecord) async throws {
        switch output {
        case .text: try await RunChanges(runs: runs).print(run, as: .text)
        case .json:
            for part in 0..<run.parts {
                for line in try await runs.lines(of: run.id, part: part + 1) {
                    try Output.json(ReconcileLine(line, isDry: run.isDry).json)
                }
            }
            try Output.json(["summary": run.summary(try await runs.changeCounts(of: run.id))])
        }
    }
}

extension Output {
    /// A run's bar with its pace and its expected end, on stderr, if that is a terminal.
    static func progress(of run: RunRecord) {
        guard isatty(STDERR_FILENO) == 1 else { return }
        let done = run.ended + run.skipped
        var line = bar(done, of: run.total) + " \(run.state.rawValue)"
        if let started = run.startedAt, case let seconds = Date.now.timeIntervalSince(started), seconds > 1 {
            line += String(format: ", %.0f/s", Double(run.ended) / seconds)
        }
        if let end = run.predictedEnd { line += ", until \(end.formatted(.iso8601))" }
        write(line + "\u{1b}[K", to: .standardError)
    }
}
