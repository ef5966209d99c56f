import ArgumentParser
import Composition
import Foundation
import Logging
import Postgres
import SupportDesk

struct OperatorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "operator",
        abstract: "Adds, lists, disables and resets those who work at the support desk, and signs them in here.",
        subcommands: [
            Add.self, List.self, Confirm.self, Link.self, Disable.self, Reset.self, Login.self, Logout.self,
            Sessions.self, Identify.self, BreakGlass.self, Provider.self,
        ]
    )

    struct Add: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Adds an operator, with a password for the first sign-in; the first one is an admin."
        )

        @Argument(help: "The name to sign in with: a to z, 0 to 9, dot, hyphen, underscore.") var name: String
        @Option(help: "viewer, agent, approver, senior, auditor or admin.") var role: DeskRole
        @Option(help: "The operator's own user id in the app: nobody decides their own case.") var user: String?
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let (password, shown) = try InitialPassword.make(for: name)
                return try await Runtime(level: .warning).withPool { pool in
                    let new = Operators.NewOperator(name: name, role: role.rawValue, userID: user, password: shown)
                    try await Operators(pool: pool).add(new, by: try session.token()?.digest)
                    try options.print(
                        "operator \(name) (\(role.rawValue)) added; password for the first sign-in: \(password)",
                        json: Added(name: name, role: role.rawValue, password: password)
                    )
                    return .done
                }
            }
        }
    }

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Lists the operators; for admins and auditors.")

        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let token = try session.signedIn()
                return try await Runtime(level: .warning).withPool { pool in
                    let rows = try await Operators(pool: pool).all(by: token.digest)
                    switch options.output {
                    case .json: try Output.json(rows)
                    case .text:
                        Output.table(
                            ["name", "role", "second factor", "signs in", "state", "held until", "seen"],
                            rows.map {
                                let state = $0.isDisabled ? "disabled" : $0.isEnrolled ? "active" : "invited"
                                return [
                                    $0.name, $0.role, $0.hasDevice ? "yes" : "no", $0.signsIn, state,
                                    $0.heldUntil ?? "-",
                                    $0.seenAt ?? "-",
                                ]
                            }
                        )
                    }
                    return .done
                }
            }
        }
    }

    struct Confirm: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Confirms, as a second admin, an account that another one added or reset: it may decide from then on.",
            discussion:
                "Where there is one admin alone, the schema's owner confirms: sign out, and run it as that user."
        )

        @Argument(help: "The operator's name.") var name: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withPool { pool in
                    try await Operators(pool: pool).confirm(name, by: try session.token()?.digest)
                    try options.print("operator \(name) is confirmed", json: Named(name: name))
                    return .done
                }
            }
        }
    }

    struct Link: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Says which account in the app is an operator's own: nobody decides their own case."
        )

        @Argument(help: "The operator's name.") var name: String
        @Option(help: "The user's id.") var user: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let token = try session.signedIn()
                return try await Runtime(level: .warning).withPool { pool in
                    try await Operators(pool: pool).link(name, to: user, by: token.digest)
                    try options.print("operator \(name) is linked to the account", json: Named(name: name))
                    return .done
                }
            }
        }
    }

    struct Disable: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Ends what an operator may do, at once.")

        @Argument(help: "The operator's name.") var name: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let token = try session.signedIn()
                return try await Runtime(level: .warning).withPool { pool in
                    try await Operators(pool: pool).disable(name, by: token.digest)
                    try options.print("operator \(name) is disabled and signed out", json: Named(name: name))
                    return .done
                }
            }
        }
    }

    struct Reset: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Gives an operator a password for a first sign-in again, and takes the second factor away."
        )

        @Argument(help: "The operator's name.") var name: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let token = try session.signedIn()
                let (password, shown) = try InitialPassword.make(for: name)
                return try await Runtime(level: .warning).withPool { pool in
                    try await Operators(pool: pool).reset(name, password: shown, by: token.digest)
                    try options.print(
                        "operator \(name) is reset; password for the first sign-in: \(password)",
                        json: Added(name: name, role: nil, password: password)
                    )
                    return .done
                }
            }
        }
    }

    struct Sessions: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Shows where the operator who is signed in here is signed in besides, and ends those sessions."
        )

        @Flag(help: "Sign out everywhere else.") var endOthers = false
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let token = try session.signedIn()
                return try await Runtime(level: .warning).withPool { pool in
                    let operators = Operators(pool: pool)
                    if endOthers {
                        let ended = try await operators.endOthers(than: token.digest)
                        try options.print("\(ended) other sessions are ended", json: ["ended": ended])
                        return .done
                    }
                    let rows = try await operators.sessions(of: token.digest)
                    switch options.output {
                    case .json: try Output.json(rows)
                    case .text:
                        Output.table(
                            ["where", "since", "seen", ""],
                            rows.map { [$0.kind, $0.startedAt, $0.seenAt, $0.isThis ? "this one" : ""] }
                        )
                    }
                    return .done
                }
            }
        }
    }

    struct Logout: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Signs the operator out here.")

        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let token = try session.signedIn()
                return try await Runtime(level: .warning).withPool { pool in
                    try await Operators(pool: pool).signOut(token.digest)
                    session.forget()
                    try options.print("signed out", json: [String: String]())
                    return .done
                }
            }
        }
    }
}

extension DeskRole: ExpressibleByArgument {}

/// The password of a first sign-in: the operator has to choose another one then.
private enum InitialPassword {
    /// Without characters that resemble each other.
    private static let signs = Array("abcdefghjkmnpqrstuvwxyz23456789")

    static func make(for name: String) throws -> (text: String, shown: Operators.Shown) {
        var random = SystemRandomNumberGenerator()
        while true {
            let groups = (0..<5).map { _ in String((0..<4).map { _ in signs.randomElement(using: &random) ?? "a" }) }
            let text = groups.joined(separator: "-")
            // A name of one letter stands in many a password: it may stand in one made by chance.
            do { return (text, try PasswordKey(new: text, for: name.count < 4 ? "" : name).shown) } catch PasswordKey
                .Fault.named, PasswordKey.Fault.simple, PasswordKey.Fault.common
            {}
        }
    }
}

private struct Added: Encodable {
    var name: String
    var role: String?
    var password: String
}

private struct Named: Encodable { var name: String }
