import Foundation
import Runs

extension RunRecord {
    /// What stores listed beside the reading of users, in sentences.
    var listings: [String] {
        guard !isDry else {
            return scope == .since ? ["no store was asked to list what it sent: that would be written"] : []
        }
        if scope == .since, listed.isEmpty, !state.isOpen {
            return [
                listsOnly
                    ? "no store listed what it sent: no worker can have one list"
                    : "no store listed what it sent: users were read, and that is all"
            ]
        }
        return listed.sorted { $0.key < $1.key }.map { name, list in
            var line =
                "\(name): \(list.listed) listed from \(list.from.formatted(.iso8601)) on, \(list.new) of them new"
            if let unknown = list.unknown { line += ", \(unknown) about purchases that nobody is known to own" }
            if let refused = list.refused { line += ", \(refused) refused: they do not show that they are the store's" }
            if list.complete { return line }
            let until = list.until.formatted(.iso8601)
            return line + "; not to its end, only up to \(until)" + (list.error.map { " (\($0))" } ?? "")
        }
    }
}
