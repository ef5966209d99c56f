import ArgumentParser
import Composition
import Diagnostics
import Entitlements
import Postgres
import Queue
import Reports

struct ShadowCommand: Command {
    static let isReport = true
    static let configuration = CommandConfiguration(
        commandName: "shadow",
        abstract: "Compares what MODE=observe would have done with what the application's own code did.",
        discussion: """
            Users whose newest decision was only observed are compared with their type in the application as it is now; \
            every difference is listed with the decision's explanation. Nothing is written.
            """,
        json:
            "a line for each difference: user_id, at, difference, outcome, rule, type_before, our_type, host_type, explanation; then {\"summary\": {users, compared, agreeing, agreement, kinds}}",
        examples: ["shadow --since 2027-01-31", "shadow --csv >differences.csv"]
    )

    @Option(help: "Leave out users whose newest decision is older than an instant, such as 2027-01-31.")
    var since: String?

    @OptionGroup var list: ListOptions
    @OptionGroup var options: OutputOptions

    func validate() throws { try list.checkLimit() }

    func prepare() throws -> PostgresTimestamp? {
        try since.map { try Moment(argument: $0, name: "--since").timestamp }
    }

    func answer(_ since: PostgresTimestamp?, _ database: Database) async throws -> Answer {
        let list = DifferenceList<Shadow.Line>(
            list,
            format: options.output,
            head: ["user", "decided", "difference", "rule", "was", "ours", "host", "why"],
            csv: "user_id,at,difference,outcome,rule,type_before,our_type,host_type,explanation"
        )
        let report = ShadowReport(
            counts: try await Shadow(pool: database.pool).compare(since: since) { try list.add($0) }
        )
        try list.end(report.json, sentences: report.sentences)
        return .printed
    }
}

extension Shadow.Line: PrintedDifference {
    private var decidedAt: String { Instant(at).machineText }

    var json: JSONObject {
        [
            "user_id": userID, "at": decidedAt, "difference": kind.rawValue, "outcome": outcome, "rule": rule,
            "type_before": typeBefore, "our_type": ours, "host_type": host, "explanation": explanation,
        ]
    }

    var fields: [String] {
        [userID, decidedAt, kind.rawValue, outcome, rule, typeBefore ?? "", ours ?? "", host ?? "", explanation]
    }

    var cells: [String] {
        [userID, decidedAt, kind.rawValue, rule, typeBefore ?? "-", ours ?? "-", host ?? "-", explanation]
    }
}

/// What the comparison came to, as it is printed.
private struct ShadowReport {
    let counts: [Shadow.Kind: Int]

    private var compared: Int { counts.reduce(0) { $0 + ($1.key.isJudged ? $1.value : 0) } }
    private var agreeing: Int { counts[.agrees] ?? 0 }
    private var users: Int { counts.values.reduce(0, +) }

    var json: JSONObject {
        // A share from 0 to 1; null where no user can be compared.
        let agreement = compared > 0 ? Double(agreeing) / Double(compared) : nil
        let kinds = Shadow.Kind.allCases.map { ($0.rawValue, counts[$0] ?? 0) }
        return [
            "users": users, "compared": compared, "agreeing": agreeing, "agreement": agreement,
            "kinds": Dictionary(kinds) { $0 + $1 },
        ]
    }

    var sentences: [String] {
        guard users > 0 else { return ["no user's newest decision was only observed: run a worker with MODE=observe"] }
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
        case .hostPromoted: "the application has promoted, we would leave the user free"
        case .hostDemoted: "the application has demoted, we would leave the user a subscriber"
        case .deferred: "we would wait; not compared"
        case .deferredHostDemoted: "we would wait, the application has demoted; not compared"
        case .notEligible: "the account's status decides; not compared"
        case .gone: "no such user any more; not compared"
        }
    }
}
