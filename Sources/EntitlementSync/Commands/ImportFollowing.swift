import Composition
import Entitlements
import Foundation
import Glibc
import Reports
import Runs

/// Waits for workers to be done with an import, and says what came of it.
struct ImportFollowing {
    let imports: ImportRecords

    /// `result`: a file for the lines; it is made before anything is asked, so that a wait of days does not end in vain.
    func answer(_ id: Int64, within limit: Duration, result file: ResultFile?) async throws -> Answer {
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

/// A file that holds users' ids: no other account reads it, and nothing is overwritten.
struct ResultFile {
    private let handle: FileHandle

    init(path: String) throws {
        let file = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
        guard file >= 0 else {
            throw CommandFailure(.data, "--result: the file can't be made; name one that does not exist")
        }
        handle = FileHandle(fileDescriptor: file, closeOnDealloc: true)
        let attributes = try? FileManager.default.attributesOfItem(atPath: path)
        // An earlier try that failed may have left the file empty.
        guard attributes?[.type] as? FileAttributeType == .typeRegular, attributes?[.size] as? Int == 0,
            fchmod(file, 0o600) == 0
        else {
            throw CommandFailure(.data, "--result: the file is not empty; name one that does not exist")
        }
    }

    func write(_ text: String) throws {
        do { try handle.write(contentsOf: Data(text.utf8)) } catch {
            throw CommandFailure(.data, "--result: the file can't be written")
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
