import ArgumentParser
import Composition
import Foundation
import Logging
import Postgres
import Queue

struct GrantCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "grant",
        abstract: "Gives, lists and revokes access by our own people.",
        subcommands: [Add.self, List.self, Revoke.self]
    )

    struct Add: AsyncParsableCommand {
        @Argument(help: "The user's id.") var user: String
        @Option(help: "When it ends, such as 2027-01-31.") var until: String
        @Option(help: "Why.") var reason: String
        @OptionGroup var options: OutputOptions

        func validate() throws {
            guard !reason.isEmpty, reason.count <= 500 else {
                throw ValidationError("--reason: give 1 to 500 characters")
            }
        }

        func run() async throws {
            try await reporting {
                let moment = try Moment(argument: until, name: "--until")
                return try await Runtime(level: .warning).withPool { pool in
                    let id = try await Controls(pool: pool).grant(user, until: moment.timestamp, reason: reason)
                    let isOver = moment.timestamp.date <= .now
                    try options.print(
                        isOver
                            ? "grant \(id) added; it is over already and gives no access: was another --until meant?"
                            : "grant \(id) added; the user will be looked at",
                        json: Granted(id: id, userID: user, until: moment.text, reason: reason)
                    )
                    return .done
                }
            }
        }
    }

    struct List: AsyncParsableCommand {
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withPool { pool in
                    let grants = try await Controls(pool: pool).grants()
                    switch options.output {
                    case .json: try Output.json(grants)
                    case .text:
                        Output.table(
                            ["id", "user", "until", "active", "reason", "by"],
                            grants.map {
                                ["\($0.id)", $0.userID, $0.until, $0.isActive ? "yes" : "no", $0.reason, $0.grantedBy]
                            }
                        )
                    }
                    return .done
                }
            }
        }
    }

    struct Revoke: AsyncParsableCommand {
        @Argument(help: "The grant's id.") var id: Int64
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withPool { pool in
                    guard try await Controls(pool: pool).revoke(id) else {
                        throw CommandFailure(.data, "no grant \(id) is in force; see entitlement-sync grant list")
                    }
                    try options.print("grant \(id) revoked; the user will be looked at", json: Revoked(id: id))
                    return .done
                }
            }
        }
    }
}

struct Adopt: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Adopts a baseline of subscribers from a CSV file: user_id,until,reason."
    )

    @Option(help: "The CSV file, with a head line user_id,until,reason.")
    var file: String
    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            guard let data = FileManager.default.contents(atPath: file), let text = String(data: data, encoding: .utf8)
            else {
                throw CommandFailure(.data, "--file: can't be read as UTF-8 text")
            }
            let rows = try Self.parse(text)
            return try await Runtime(level: .warning).withPool { pool in
                let added: Int
                do {
                    added = try await Controls(pool: pool).adopt(rows)
                } catch let row as UnadoptableRow {
                    // The head is line 1.
                    throw CommandFailure(
                        .data,
                        "line \(row.index + 2): \(row.reason). \(row.hint) Nothing was adopted."
                    )
                }
                try options.print(
                    "\(added) of \(rows.count) grants added",
                    json: Adopted(rows: rows.count, added: added)
                )
                return .done
            }
        }
    }

    /// Reads the lines; nothing is adopted when one is wrong.
    static func parse(_ text: String) throws -> [(userID: String, until: PostgresTimestamp, reason: String)] {
        var lines = text.split(whereSeparator: \.isNewline).map(String.init)
        guard lines.first?.lowercased().replacingOccurrences(of: " ", with: "") == "user_id,until,reason" else {
            throw CommandFailure(.data, "line 1: the head must be user_id,until,reason")
        }
        lines.removeFirst()
        guard lines.count <= 1_000_000 else { throw CommandFailure(.data, "more than 1,000,000 lines; split the file") }
        return try lines.enumerated().map { index, line in
            let fields = line.split(separator: ",", maxSplits: 2, omittingEmptySubsequences: false).map {
                $0.trimmingCharacters(in: CharacterSet(charactersIn: " \""))
            }
            guard fields.count == 3, !fields[0].isEmpty, !fields[2].isEmpty else {
                throw CommandFailure(.data, "line \(index + 2): write user_id,until,reason")
            }
            let until = try Moment(argument: fields[1], name: "line \(index + 2), until")
            return (fields[0], until.timestamp, fields[2])
        }
    }
}

struct SandboxCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sandbox",
        abstract: "Lets a user's sandbox purchases count for a time.",
        subcommands: [Allow.self]
    )

    struct Allow: AsyncParsableCommand {
        @Argument(help: "The user's id.") var user: String
        @Option(help: "When it ends, such as 2027-01-31.") var until: String
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let moment = try Moment(argument: until, name: "--until")
                return try await Runtime(level: .warning).withPool { pool in
                    do { try await Controls(pool: pool).allowSandbox(user, until: moment.timestamp) } catch let error
                        as PostgresError where error.sqlState == SQLState.insufficientPrivilege
                    {
                        throw CommandFailure(
                            .notAllowed,
                            "\(error.message); use a database user with the role entitlement_sync_client, or the schema's owner"
                        )
                    }
                    try options.print(
                        moment.timestamp.date <= .now
                            ? "sandbox purchases of \(user) do not count: \(moment.text) is over"
                            : "sandbox purchases of \(user) count until \(moment.text)",
                        json: Allowed(userID: user, until: moment.text)
                    )
                    return .done
                }
            }
        }
    }
}

// What the commands above did, as JSON has it.

private struct Granted: Encodable {
    var id: Int64
    var userID: String
    var until: String
    var reason: String

    enum CodingKeys: String, CodingKey {
        case id, until, reason
        case userID = "user_id"
    }
}

private struct Revoked: Encodable {
    var id: Int64
    var revoked = true
}

private struct Adopted: Encodable {
    var rows: Int
    var added: Int
}

private struct Allowed: Encodable {
    var userID: String
    var until: String

    enum CodingKeys: String, CodingKey {
        case until
        case userID = "user_id"
    }
}
