import Composition
import Entitlements
import Foundation
import Reports
import Runs

/// Waits for workers to be done with an import, and says what came of it.
struct ImportFollowing {
    let imports: ImportRecords

    /// `result`: a file for the lines; it is made before anything is asked, so that a wait of days does not end in vain.
    func answer(_ id: Int64, within limit: Duration, result file: PrivateFile?) async throws -> Answer {
        let record = try await follow(id, within: limit)
        if let file {
            try file.write(CSV.row(["line", "user_id", "store", "kind", "result", "gives_access", "reason"]))
            try await imports.eachLine(of: id) { lines in
                try file.write(lines.map { CSV.row($0.row) }.joined())
            }
        }
        var status = ExitStatus.done
        if record.state.isOpen, limit > .zero { status = .elapsed }
        if !record.state.isOpen, record.results[.unread] ?? 0 > 0 { status = .unavailable }
        return Answer(record.text, document: record.summary, status: status)
    }

    private func follow(_ id: Int64, within limit: Duration) async throws -> ImportRecord {
        let deadline = ContinuousClock.now + limit
        var pause = Duration.milliseconds(100)
        var notes = WaitNotes()
        while true {
            let record = try await imports.known(id)
            guard record.state.isOpen, ContinuousClock.now < deadline else { return record }
            notes.add(
                "import \(id): \(record.left) of \(record.lines) lines are left; it goes on without this command, see"
                    + " entitlement-sync import show \(id)"
            )
            try await Task.sleep(for: min(pause, max(deadline - .now, .zero)))
            pause = min(pause * 2, .seconds(2))
        }
    }
}

extension ImportRecords {
    /// - Throws: `CommandFailure` where there is no such import.
    func known(_ id: Int64) async throws -> ImportRecord {
        guard let record = try await record(id) else {
            throw CommandFailure(.data, "ID: there is no import of this number; see entitlement-sync import list")
        }
        return record
    }
}

extension ImportRecords.Line {
    fileprivate var row: [String] {
        [
            "\(number)", userID ?? "", store ?? "", kind ?? "", result ?? "waiting",
            givesAccess.map { $0 ? "yes" : "no" } ?? "", reason,
        ]
    }
}

extension ImportRecord {
    fileprivate var counts: [(String, Int64)] {
        ImportResult.allCases.compactMap { result in results[result].map { (result.rawValue, $0) } }
    }

    fileprivate var text: [String] {
        var lines = ["import \(id) is \(state.rawValue)\(isDry ? " (dry run)" : ""): \(self.lines) lines"]
        if state.isOpen { lines.append("  \(left) left; it goes on, see entitlement-sync import show \(id)") }
        lines += counts.map { "  \($0.0.padded(to: 18)) \($0.1)" }
        if let hash {
            lines.append("  planned or imported with access: \(accesses); conflicts, in the result alone: \(conflicts)")
            lines.append("  hash \(hash)")
            if state == .ready {
                lines.append("To write them: entitlement-sync import release \(id) --hash \(hash.prefix(12))")
            }
        }
        return lines
    }

    var summary: JSONObject {
        [
            "import": id, "state": state.rawValue, "dry_run": isDry, "lines": lines,
            "results": Dictionary(counts) { $1 }, "conflicts": conflicts, "gives_access": accesses, "left": left,
            "hash": hash, "asked_by": askedBy, "asked_at": askedAt.formatted(.iso8601), "approved_by": approvedBy,
            "ended_at": endedAt?.formatted(.iso8601),
        ]
    }
}
