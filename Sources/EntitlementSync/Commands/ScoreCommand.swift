import ArgumentParser
import Composition
import Diagnostics
import Entitlements
import Foundation
import Logging
import Queue

struct ScoreCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "score",
        abstract: "Compares what MODE=observe would have done with what the application's own code did.",
        discussion: """
            Users whose newest decision was only observed are compared with their type in the application as it is now; \
            every difference is listed with the decision's explanation. Nothing is written.
            """
    )

    @Option(help: "Leave out users whose newest decision is older than an instant, such as 2027-01-31.")
    var since: String?

    @Option(help: "Print at most so many differences (200 in a table, else all); the totals count all.")
    var limit: Int?

    @Flag(help: "Print the differences as CSV, and the totals on stderr.")
    var csv = false

    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard limit.map({ $0 >= 0 }) ?? true else { throw ValidationError("--limit: give 0 or more") }
    }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let moment = try since.map { try Moment(argument: $0, name: "--since").timestamp }
            return try await runtime.withPool { pool in
                let list = DifferenceList<Shadow.Line>(
                    format: csv ? nil : options.output,
                    limit: limit,
                    head: ["user", "decided", "difference", "rule", "was", "ours", "host", "why"]
                )
                list.begin(csv: "user_id,at,difference,outcome,rule,type_before,our_type,host_type,explanation")
                let score = PrintedScore(try await Shadow(pool: pool).score(since: moment) { try list.add($0) })
                try list.end(score, sentences: score.sentences)
                return .done
            }
        }
    }
}

extension Shadow.Line: PrintedDifference {
    private enum Keys: String, CodingKey {
        case at, difference, outcome, rule, explanation
        case userID = "user_id"
        case typeBefore = "type_before"
        case ours = "our_type"
        case host = "host_type"
    }

    private var decidedAt: String { Instant(at).machineText }

    func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: Keys.self)
        try row.encode(userID, forKey: .userID)
        try row.encode(decidedAt, forKey: .at)
        try row.encode(kind.rawValue, forKey: .difference)
        try row.encode(outcome, forKey: .outcome)
        try row.encode(rule, forKey: .rule)
        try row.encode(typeBefore, forKey: .typeBefore)
        try row.encode(ours, forKey: .ours)
        try row.encode(host, forKey: .host)
        try row.encode(explanation, forKey: .explanation)
    }

    var fields: [String] {
        [userID, decidedAt, kind.rawValue, outcome, rule, typeBefore ?? "", ours ?? "", host ?? "", explanation]
    }

    var cells: [String] {
        [userID, decidedAt, kind.rawValue, rule, typeBefore ?? "-", ours ?? "-", host ?? "-", explanation]
    }
}

/// The score, as it is printed.
private struct PrintedScore: Encodable {
    private let counts: [Shadow.Kind: Int]

    init(_ counts: [Shadow.Kind: Int]) { self.counts = counts }

    private enum Keys: String, CodingKey { case users, compared, agreeing, agreement, kinds }

    private var compared: Int { counts.reduce(0) { $0 + ($1.key.isJudged ? $1.value : 0) } }
    private var agreeing: Int { counts[.agrees] ?? 0 }
    private var users: Int { counts.values.reduce(0, +) }

    func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: Keys.self)
        try row.encode(users, forKey: .users)
        try row.encode(compared, forKey: .compared)
        try row.encode(agreeing, forKey: .agreeing)
        // A share from 0 to 1; null where no user can be compared.
        try row.encode(compared > 0 ? Double(agreeing) / Double(compared) : nil, forKey: .agreement)
        let kinds = Shadow.Kind.allCases.map { ($0.rawValue, counts[$0] ?? 0) }
        try row.encode(Dictionary(kinds) { $0 + $1 }, forKey: .kinds)
    }

    var sentences: [String] {
        guard users > 0 else { return ["nobody's newest decision was only observed: run a worker with MODE=observe"] }
        // Rounded down: what is not whole is never printed as 100 %.
        let share = compared > 0 ? ", \((1000 * agreeing / compared) / 10).\((1000 * agreeing / compared) % 10) %" : ""
        let head = "\(agreeing) of \(compared) users agree with the application\(share)"
        return [head]
            + Shadow.Kind.allCases.filter { $0 != .agrees && counts[$0] != nil }.map {
                "  \($0.rawValue): \(counts[$0] ?? 0) (\($0.words))"
            }
    }
}

extension Shadow.Kind {
    fileprivate var words: String {
        switch self {
        case .agrees: "both say the same"
        case .wouldPromote: "we would promote, the application has not"
        case .wouldDemote: "we would demote, the application has not"
        case .hostPromoted: "the application has promoted whom we would leave free"
        case .hostDemoted: "the application has demoted whom we would leave a subscriber"
        case .deferred: "we would wait; not compared"
        case .deferredHostDemoted: "we would wait, the application has demoted; not compared"
        case .notEligible: "the account's status decides; not compared"
        case .gone: "no such user any more; not compared"
        }
    }
}
