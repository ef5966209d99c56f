import ArgumentParser
import Composition
import Configuring
import Entitlements
import Foundation
import Postgres
import Queue
import Reports

struct GrantCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "grant",
        abstract: "Gives, lists and revokes access by our own people.",
        examples: ["grant add uid-1 --until 2027-01-31 --reason 'prize of the spring contest'", "grant list"],
        subcommands: [Add.self, List.self, Revoke.self]
    )

    struct Add: Command {
        static let configuration = CommandConfiguration(
            abstract: "Gives a user access until an instant, or for ever.",
            json: "one object: id, user_id, until, reason",
            examples: [
                "grant add uid-1 --until 2027-01-31 --reason 'prize of the spring contest'",
                "grant add uid-1 --until never --reason 'founding member'",
            ]
        )

        @Argument(help: "The user's id.") var user: String
        @Option(help: "When it ends, such as 2027-01-31, or never.") var until: String
        @Option(help: "Why.") var reason: String
        @OptionGroup var options: OutputOptions

        func validate() throws {
            guard !reason.isEmpty, reason.count <= 500 else {
                throw ValidationError("--reason: give 1 to 500 characters")
            }
        }

        func prepare() throws -> Moment { try Moment(end: until, name: "--until") }

        func answer(_ until: Moment, _ database: Database) async throws -> Answer {
            let id = try await Controls(pool: database.pool).grant(user, until: until.timestamp, reason: reason)
            return Answer(
                until.timestamp.date <= .now
                    ? "grant \(id) added; it is over already and gives no access: was another --until meant?"
                    : "grant \(id) added; the user will be checked",
                json: ["id": id, "user_id": user, "until": until.text, "reason": reason]
            )
        }
    }

    struct List: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lists the grants with their ids.",
            json: "one array of {id, user_id, until, active, reason, granted_by}; of another payer's also source,"
                + " external_id, entitlement",
            examples: ["grant list", "grant list --output json"]
        )

        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let grants = try await Controls(pool: database.pool).grants()
            return Answer(
                ["id", "user", "until", "active", "source", "reason", "by"],
                grants.map {
                    [
                        "\($0.id)", $0.userID, $0.until, $0.isActive ? "yes" : "no",
                        [$0.source, $0.externalID].compactMap(\.self).joined(separator: " "), $0.reason, $0.grantedBy,
                    ]
                },
                document: grants
            )
        }
    }

    struct Revoke: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Ends a grant at once; the user is checked.",
            json: "one object: id, revoked",
            examples: ["grant revoke 42", "grant revoke 42 --output json"]
        )

        @Argument(help: "The grant's id.") var id: Int64
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let controls = Controls(pool: database.pool)
            guard try await controls.revoke(id) else {
                throw CommandFailure(
                    .data,
                    try await controls.isAsked(id)
                        ? "grant \(id) is what other_access says: change it in the host's tables"
                        : "no grant \(id) is in force; see entitlement-sync grant list"
                )
            }
            return Answer("grant \(id) revoked; the user will be checked", json: ["id": id, "revoked": true])
        }
    }
}

struct Adopt: Command {
    static let configuration = CommandConfiguration(
        abstract:
            "Adopts a baseline of subscribers from a CSV file: user_id,until,reason, or user_id,until,source,external_id,reason.",
        json: "one object: rows, added, over",
        examples: ["adopt --file baseline.csv", "adopt --file baseline.csv --output json"]
    )

    @Option(
        help:
            "The CSV file, with a head line user_id,until,reason, or for other payers user_id,until,source,external_id,reason."
    )
    var file: String
    @OptionGroup var options: OutputOptions

    func prepare() throws -> [Controls.Adopted] {
        try Self.parse(try textOfFile(file, of: "--file"))
    }

    func answer(_ rows: [Controls.Adopted], _ database: Database) async throws -> Answer {
        do {
            let added = try await Controls(pool: database.pool).adopt(rows)
            let there = rows.count - added
            let over = rows.count { $0.until.date <= .now }
            let notes =
                (there > 0 ? ["\(there) were there already"] : [])
                + (over > 0 ? ["\(over) are over and give no access"] : [])
            return Answer(
                (["\(added) of \(rows.count) grants added"] + notes).joined(separator: "; "),
                json: ["rows": rows.count, "added": added, "over": over]
            )
        } catch let row as UnadoptableRow {
            // The head is line 1.
            throw CommandFailure(.data, "line \(row.index + 2): \(row.reason). \(row.hint) Nothing was adopted.")
        }
    }

    /// Reads the lines; nothing is adopted when one is wrong.
    private static func parse(_ text: String) throws -> [Controls.Adopted] {
        let heads = ["user_id,until,reason", "user_id,until,source,external_id,reason"]
        var lines = text.split(whereSeparator: \.isNewline).map(String.init)
        guard let head = lines.first?.lowercased().replacingOccurrences(of: " ", with: ""), heads.contains(head) else {
            throw CommandFailure(.data, "line 1: the head must be \(heads.joined(separator: " or "))")
        }
        let columns = head.split(separator: ",").count
        lines.removeFirst()
        guard lines.count <= 1_000_000 else { throw CommandFailure(.data, "more than 1,000,000 lines; split the file") }
        return try lines.enumerated().map { index, line in
            let fields = line.split(separator: ",", maxSplits: columns - 1, omittingEmptySubsequences: false).map {
                $0.trimmingCharacters(in: CharacterSet(charactersIn: " \""))
            }
            guard fields.count == columns, !fields.contains("") else {
                throw CommandFailure(.data, "line \(index + 2): write \(head)")
            }
            let until = try Moment(end: fields[1], name: "line \(index + 2), until")
            return Controls.Adopted(
                userID: fields[0],
                until: until.timestamp,
                reason: fields[columns - 1],
                payer: columns == 5 ? (fields[2], fields[3]) : nil
            )
        }
    }
}

struct SandboxCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sandbox",
        abstract: "Lets a user's sandbox purchases count for a time.",
        examples: ["sandbox allow uid-1 --until 2027-01-31", "sandbox allow uid-1 --until 2027-01-31T18:00:00Z"],
        subcommands: [Allow.self]
    )

    struct Allow: Command {
        static let configuration = CommandConfiguration(
            abstract: "Lets a user's sandbox purchases count until an instant.",
            json: "one object: user_id, until",
            examples: ["sandbox allow uid-1 --until 2027-01-31", "sandbox allow uid-1 --until 2027-01-31T18:00:00Z"]
        )

        @Argument(help: "The user's id.") var user: String
        @Option(help: "When it ends, such as 2027-01-31.") var until: String
        @OptionGroup var options: OutputOptions

        func prepare() throws -> Moment { try Moment(argument: until, name: "--until") }

        func answer(_ until: Moment, _ database: Database) async throws -> Answer {
            do { try await Controls(pool: database.pool).allowSandbox(user, until: until.timestamp) } catch let error
                as PostgresError where error.sqlState == SQLState.insufficientPrivilege
            {
                throw CommandFailure(
                    .notAllowed,
                    "\(error.message); use a database user with the role entitlement_sync_client, or the schema's owner"
                )
            }
            guard database.config.decision.sandbox == .listed else {
                return Answer(
                    "\(user) is on the list until \(until.text), and SANDBOX=off: no sandbox purchase counts before it is listed again",
                    json: ["user_id": user, "until": until.text]
                )
            }
            return Answer(
                until.timestamp.date <= .now
                    ? "sandbox purchases of \(user) do not count: \(until.text) is over"
                    : "sandbox purchases of \(user) count until \(until.text)",
                json: ["user_id": user, "until": until.text]
            )
        }
    }
}
