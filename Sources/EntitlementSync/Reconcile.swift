import ArgumentParser
import Logging
import Entitlements
import Foundation
import Storage

struct Reconcile: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Re-reads users and makes their records true.")

    @Argument(help: "The users' ids.")
    var users: [String] = []

    @Option(help: "Seconds to wait for the outcomes.")
    var wait = 3600

    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard !users.isEmpty else { throw ValidationError("name at least one user") }
        guard (0...86_400).contains(wait) else { throw ValidationError("--wait: give seconds from 0 to 86400") }
    }

    private struct Line: Encodable {
        var userID: String
        var jobID: String
        var outcome: String?
        var rule: String?
        var explanation: String?

        enum CodingKeys: String, CodingKey {
            case outcome, rule, explanation
            case userID = "user_id"
            case jobID = "job_id"
        }

        func encode(to encoder: any Encoder) throws {
            var row = encoder.container(keyedBy: CodingKeys.self)
            try row.encode(userID, forKey: .userID)
            try row.encode(jobID, forKey: .jobID)
            try row.encode(outcome, forKey: .outcome)
            try row.encode(rule, forKey: .rule)
            try row.encode(explanation, forKey: .explanation)
        }
    }

    private struct Summary: Encodable { var summary: [String: Int] }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            return try await runtime.withPool { pool in
                let requests = Requests(pool: pool)
                let ids = try await requests.reconcile(users, reason: "manual")
                let ended = try await Waiting(requests: requests).untilEnded(ids, within: .seconds(wait)) {
                    Output.progress($0, of: ids.count)
                }
                let statuses = Dictionary(try await requests.status(ids).map { ($0.id, $0) }) { first, _ in first }
                let decisions = try await requests.decisions(ids)
                let lines = zip(users, ids).map { user, id in
                    Line(
                        userID: user,
                        jobID: id.uuidString.lowercased(),
                        outcome: statuses[id]?.outcome ?? statuses[id]?.state,
                        rule: decisions[id]?.rule,
                        explanation: decisions[id]?.explanation ?? statuses[id]?.lastError
                    )
                }
                try print(lines)
                guard ended else { return .elapsed }
                let isDown = lines.contains { $0.outcome == Outcome.storeUnavailable.rawValue }
                return isDown ? .unavailable : .done
            }
        }
    }

    private func print(_ lines: [Line]) throws {
        let counts = Dictionary(grouping: lines) { $0.outcome ?? "unknown" }.mapValues(\.count)
        switch options.output {
        case .json:
            for line in lines { try Output.json(line) }
            try Output.json(Summary(summary: counts))
        case .text:
            Output.table(
                ["user", "outcome", "rule", "why"],
                lines.map { [$0.userID, $0.outcome ?? "-", $0.rule ?? "-", $0.explanation ?? "-"] }
            )
            Output.line(counts.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", "))
        }
    }
}
