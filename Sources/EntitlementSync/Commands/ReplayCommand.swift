import ArgumentParser
import Composition
import Configuring
import Diagnostics
import Entitlements
import Postgres
import Reports

struct ReplayCommand: Command {
    static let isReport = true
    static let configuration = CommandConfiguration(
        commandName: "replay",
        abstract: "Decides the past again under today's rules, products and margins, and lists who would differ.",
        discussion: """
            What was read then is what it goes by: no store is asked, and nothing is written. What merely held a demotion \
            back (MODE, a pause, the brake, a run) is left out: such a decision agrees with the demotion it held.
            """,
        json: "a line for each user who differs, then {\"summary\": …}",
        examples: ["replay uid-1", "replay --all --csv >differences.csv"]
    )

    @Argument(help: "The users' ids.")
    var users: [String] = []

    @Flag(help: "Every user about whose access anything was decided.")
    var all = false

    @Option(help: "Every decision since an instant, such as 2027-01-31; without it the newest of each user.")
    var since: String?

    @OptionGroup var list: ListOptions
    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard all != !users.isEmpty else { throw ValidationError("name at least one user, or --all") }
        try list.checkLimit()
    }

    func prepare() throws -> PostgresTimestamp? {
        try since.map { try Moment(argument: $0, name: "--since").timestamp }
    }

    func answer(_ since: PostgresTimestamp?, _ database: Database) async throws -> Answer {
        let list = DifferenceList<Replay.Difference>(
            list,
            format: options.output,
            head: ["user", "at", "then", "now", "why"],
            csv: "user_id,at,then_outcome,then_rule,then_type,now_outcome,now_rule,now_type,why"
        )
        let replay = Replay(pool: database.pool, settings: database.config.decision)
        let (totals, unknown) = try await replay(of: all ? nil : users, since: since) { try list.add($0) }
        try list.end(totals.json, sentences: totals.sentences)
        guard unknown.isEmpty else {
            let names = unknown.prefix(5).joined(separator: ", ")
            throw CommandFailure(
                .data,
                "\(unknown.count) of the users were never met (\(names)); check the ids' spelling and letter case"
            )
        }
        return .printed
    }
}

extension Replay.Difference: PrintedDifference {
    var json: JSONObject {
        [
            "user_id": userID,
            "at": then.at.machineText,
            "kind": then.kind == .restore ? "restore" : "reconcile",
            "then": [
                "outcome": then.outcome, "rule": then.rule, "type_after": then.typeAfter?.rawValue,
            ] as JSONObject,
            // Null where nothing would be decided.
            "now": ["outcome": now.outcome, "rule": now.rule, "type_after": now.typeAfter?.rawValue] as JSONObject,
            "why": now.why,
        ]
    }

    var fields: [String] {
        [
            userID ?? "(erased)", then.at.machineText, then.outcome, then.rule, then.typeAfter?.rawValue ?? "",
            now.outcome ?? "", now.rule, now.typeAfter?.rawValue ?? "", now.why,
        ]
    }

    var cells: [String] {
        [
            userID ?? "(erased)", then.at.machineText,
            "\(then.outcome) (\(then.rule)), \(then.typeAfter?.rawValue ?? "-")",
            "\(now.outcome ?? "no verdict") (\(now.rule)), \(now.typeAfter?.rawValue ?? "-")", now.why,
        ]
    }
}

/// The totals, as they are printed.
extension Replay.Totals {
    private var ordered: [(then: String, now: String, count: Int)] {
        pairs.map { ($0.key.then, $0.key.now, $0.value) }
            .sorted { ($1.count, $0.then, $0.now) < ($0.count, $1.then, $1.now) }
    }

    fileprivate var json: JSONObject {
        let reasons = unreplayable.map { ($0.key.rawValue, $0.value) }
        return [
            "users": users, "decisions": decisions, "agreeing": agreeing, "held": held, "differing": differing,
            "pairs": ordered.map { ["then": $0.then, "now": $0.now, "count": $0.count] as JSONObject },
            "not_replayable": Dictionary(reasons) { $0 + $1 },
        ]
    }

    fileprivate var sentences: [String] {
        let heldBack = held > 0 ? " (\(held) of them held back then by a switch, the brake or a run)" : ""
        var lines = [
            "\(decisions) decisions about \(users) users: \(agreeing) agree\(heldBack), \(differing) differ"
        ]
        lines += ordered.map { "  \($0.then) -> \($0.now): \($0.count)" }
        for (reason, count) in unreplayable.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            lines.append("\(count) can't be made again: \(reason.words)")
        }
        return lines
    }
}

extension Replayed.Reason {
    fileprivate var words: String {
        switch self {
        case .readingsMissing: "what was read for them is not on record"
        case .ledgerIncomplete: "they rest on purchases whose readings are not on record for their user"
        case .historyTooLong: "their user's history is longer than is read"
        }
    }
}
