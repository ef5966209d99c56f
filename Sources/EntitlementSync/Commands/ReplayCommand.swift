import ArgumentParser
import Composition
import Configuring
import Diagnostics
import Entitlements
import Foundation
import Logging
import Reports

struct ReplayCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "replay",
        abstract: "Decides the past again under today's rules, products and margins, and lists who would differ.",
        discussion: """
            What was read then is what it goes by: no store is asked, and nothing is written. What merely held a demotion \
            back (MODE, a pause, the brake, a run) is left out: such a decision agrees with the demotion it held.
            """
    )

    @Argument(help: "The users' ids.")
    var users: [String] = []

    @Flag(help: "Everybody about whom anything was decided.")
    var all = false

    @Option(help: "Every decision since an instant, such as 2027-01-31; without it the newest of each user.")
    var since: String?

    @Option(help: "Print at most so many differences (200 in a table, else all); the totals count all.")
    var limit: Int?

    @Flag(help: "Print the differences as CSV, and the totals on stderr.")
    var csv = false

    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard all != !users.isEmpty else { throw ValidationError("name at least one user, or --all") }
        guard limit.map({ $0 >= 0 }) ?? true else { throw ValidationError("--limit: give 0 or more") }
    }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let moment = try since.map { try Moment(argument: $0, name: "--since").timestamp }
            return try await runtime.withPool { pool in
                let list = DifferenceList<Replay.Difference>(
                    format: csv ? nil : options.output,
                    limit: limit,
                    head: ["user", "at", "then", "now", "why"]
                )
                list.begin(csv: "user_id,at,then_outcome,then_rule,then_type,now_outcome,now_rule,now_type,why")
                let replay = Replay(pool: pool, settings: runtime.config.decision)
                let (totals, unknown) = try await replay(of: all ? nil : users, since: moment) { try list.add($0) }
                try list.end(PrintedTotals(totals), sentences: PrintedTotals(totals).sentences)
                guard unknown.isEmpty else {
                    let names = unknown.prefix(5).joined(separator: ", ")
                    throw CommandFailure(
                        .data,
                        "\(unknown.count) of the users were never met (\(names)); check the ids' spelling and letter case"
                    )
                }
                return .done
            }
        }
    }
}

extension Replay.Difference: PrintedDifference {
    private enum Keys: String, CodingKey {
        case at, kind, then, now, why
        case userID = "user_id"
    }

    private enum Side: String, CodingKey {
        case outcome, rule
        case type = "type_after"
    }

    func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: Keys.self)
        try row.encode(userID, forKey: .userID)
        try row.encode(then.at.machineText, forKey: .at)
        try row.encode(then.kind == .restore ? "restore" : "reconcile", forKey: .kind)
        var before = row.nestedContainer(keyedBy: Side.self, forKey: .then)
        try before.encode(then.outcome, forKey: .outcome)
        try before.encode(then.rule, forKey: .rule)
        try before.encode(then.typeAfter?.rawValue, forKey: .type)
        var after = row.nestedContainer(keyedBy: Side.self, forKey: .now)
        // Null where nothing would be decided.
        try after.encode(now.outcome, forKey: .outcome)
        try after.encode(now.rule, forKey: .rule)
        try after.encode(now.typeAfter?.rawValue, forKey: .type)
        try row.encode(now.why, forKey: .why)
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

/// The totals of a replay, as they are printed.
private struct PrintedTotals: Encodable {
    private let totals: Replay.Totals

    init(_ totals: Replay.Totals) { self.totals = totals }

    private enum Keys: String, CodingKey {
        case users, decisions, agreeing, held, differing, pairs
        case unreplayable = "not_replayable"
    }

    private struct Pair: Encodable {
        var then: String
        var now: String
        var count: Int
    }

    private var pairs: [Pair] {
        totals.pairs.map { Pair(then: $0.key.then, now: $0.key.now, count: $0.value) }
            .sorted { ($1.count, $0.then, $0.now) < ($0.count, $1.then, $1.now) }
    }

    func encode(to encoder: any Encoder) throws {
        var row = encoder.container(keyedBy: Keys.self)
        try row.encode(totals.users, forKey: .users)
        try row.encode(totals.decisions, forKey: .decisions)
        try row.encode(totals.agreeing, forKey: .agreeing)
        try row.encode(totals.held, forKey: .held)
        try row.encode(totals.differing, forKey: .differing)
        try row.encode(pairs, forKey: .pairs)
        let reasons = totals.unreplayable.map { ($0.key.rawValue, $0.value) }
        try row.encode(Dictionary(reasons) { $0 + $1 }, forKey: .unreplayable)
    }

    var sentences: [String] {
        let held = totals.held > 0 ? " (\(totals.held) of them held back then by a switch, the brake or a run)" : ""
        var lines = [
            "\(totals.decisions) decisions about \(totals.users) users: \(totals.agreeing) agree\(held), \(totals.differing) differ"
        ]
        lines += pairs.map { "  \($0.then) -> \($0.now): \($0.count)" }
        for (reason, count) in totals.unreplayable.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
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
        case .historyTooLong: "their user's history is longer than is looked at"
        }
    }
}
