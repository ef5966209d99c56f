import ArgumentParser
import Composition
import Reports
import SupportDesk

struct OperatorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "operator",
        abstract: "Adds, lists, disables and resets those who work at the support desk, and signs them in here.",
        examples: ["operator add dana --role agent", "operator login dana"],
        subcommands: [
            Add.self, List.self, Confirm.self, Link.self, Disable.self, Reset.self, Login.self, WhoAmI.self,
            Logout.self, Sessions.self, Identify.self, BreakGlass.self, Provider.self,
        ]
    )

    struct Add: Command {
        static let configuration = CommandConfiguration(
            abstract: "Adds an operator, with a password for the first sign-in; the first one is an admin.",
            json: "one object: name, role, password",
            examples: ["operator add dana --role agent", "operator add sam --role senior --user uid-7"]
        )

        @Argument(help: "The name to sign in with: a to z, 0 to 9, dot, hyphen, underscore.") var name: String
        @Option(help: "viewer, agent, approver, senior, auditor or admin.") var role: DeskRole
        @Option(help: "The operator's own user id in the app: no operator decides their own case.") var user: String?
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func prepare() throws -> InitialPassword { try InitialPassword(for: name) }

        func answer(_ password: InitialPassword, _ database: Database) async throws -> Answer {
            let new = Operators.NewOperator(name: name, role: role.rawValue, userID: user, password: password.shown)
            try await Operators(pool: database.pool).add(new, by: try session.token()?.digest)
            return Answer(
                "operator \(name) (\(role.rawValue)) added; password for the first sign-in: \(password.text)",
                json: ["name": name, "role": role.rawValue, "password": password.text]
            )
        }
    }

    struct List: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lists the operators; for admins and auditors.",
            json: "one array of operators",
            examples: ["operator list", "operator list --output json"]
        )

        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            let rows = try await Operators(pool: database.pool).all(by: token.digest)
            return Answer(
                ["name", "role", "second factor", "signs in", "state", "held until", "seen"],
                rows.map {
                    let state = $0.isDisabled ? "disabled" : $0.isEnrolled ? "active" : "invited"
                    return [
                        $0.name, $0.role, $0.hasDevice ? "yes" : "no", $0.signsIn, state, $0.heldUntil ?? "-",
                        $0.seenAt ?? "-",
                    ]
                },
                document: rows
            )
        }
    }

    struct Confirm: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Confirms, as a second admin, an account that another one added or reset: it may decide from then on.",
            discussion:
                "Where there is one admin alone, the schema's owner confirms: sign out, and run it as that user.",
            json: "one object: name",
            examples: ["operator confirm dana", "operator confirm dana --output json"]
        )

        @Argument(help: "The operator's name.") var name: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            try await Operators(pool: database.pool).confirm(name, by: try session.token()?.digest)
            return Answer("operator \(name) is confirmed", json: ["name": name])
        }
    }

    struct Link: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Says which account in the app is an operator's own: no operator decides their own case.",
            json: "one object: name",
            examples: ["operator link dana --user uid-7", "operator link dana --user uid-7 --output json"]
        )

        @Argument(help: "The operator's name.") var name: String
        @Option(help: "The user's id.") var user: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            try await Operators(pool: database.pool).link(name, to: user, by: token.digest)
            return Answer("operator \(name) is linked to the account", json: ["name": name])
        }
    }

    struct Disable: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Ends what an operator may do, at once.",
            json: "one object: name",
            examples: ["operator disable dana", "operator disable dana --output json"]
        )

        @Argument(help: "The operator's name.") var name: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            try await Operators(pool: database.pool).disable(name, by: token.digest)
            return Answer("operator \(name) is disabled and signed out", json: ["name": name])
        }
    }

    struct Reset: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Gives an operator a password for a first sign-in again, and takes the second factor away.",
            json: "one object: name, password",
            examples: ["operator reset dana", "operator reset dana --output json"]
        )

        @Argument(help: "The operator's name.") var name: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            let password = try InitialPassword(for: name)
            try await Operators(pool: database.pool).reset(name, password: password.shown, by: token.digest)
            return Answer(
                "operator \(name) is reset; password for the first sign-in: \(password.text)",
                json: ["name": name, "password": password.text]
            )
        }
    }

    struct Sessions: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Shows where the operator who is signed in here is signed in besides, and ends those sessions.",
            json: "one array of sessions; with --end-others one object: ended",
            examples: ["operator sessions", "operator sessions --end-others"]
        )

        @Flag(help: "Sign out everywhere else.") var endOthers = false
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            let operators = Operators(pool: database.pool)
            if endOthers {
                let ended = try await operators.endOthers(than: token.digest)
                return Answer("\(ended) other sessions are ended", json: ["ended": ended])
            }
            let rows = try await operators.sessions(of: token.digest)
            return Answer(
                ["where", "since", "seen", ""],
                rows.map { [$0.kind, $0.startedAt, $0.seenAt, $0.isThis ? "this one" : ""] },
                document: rows
            )
        }
    }

    struct WhoAmI: SignedInCommand {
        static let configuration = CommandConfiguration(
            commandName: "whoami",
            abstract: "Shows who is signed in here, with the role and what it permits.",
            json: "one object: name, role, permissions [name], held",
            examples: ["operator whoami", "operator whoami --output json"]
        )

        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            let me = try await DeskConsole(pool: database.pool, session: token.digest).me()
            let held = me.isHeld ? "; decides nothing until a second admin has confirmed the account" : ""
            return Answer(
                "\(me.name), \(me.role): \(me.permissions.joined(separator: ", "))\(held)",
                json: ["name": me.name, "role": me.role, "permissions": me.permissions, "held": me.isHeld]
            )
        }
    }

    struct Logout: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Signs the operator out here.",
            json: "one empty object",
            examples: ["operator logout", "operator logout --output json"]
        )

        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            try await Operators(pool: database.pool).signOut(token.digest)
            session.forget()
            return Answer("signed out", json: [:])
        }
    }
}

extension DeskRole: ExpressibleByArgument {}

/// The password of a first sign-in: the operator has to choose another one then.
struct InitialPassword {
    /// Without characters that resemble each other.
    private static let signs = Array("abcdefghjkmnpqrstuvwxyz23456789")

    let text: String
    let shown: Operators.Shown

    init(for name: String) throws {
        var random = SystemRandomNumberGenerator()
        while true {
            let groups = (0..<5).map { _ in
                String((0..<4).map { _ in Self.signs.randomElement(using: &random) ?? "a" })
            }
            let text = groups.joined(separator: "-")
            // A name of one letter stands in many a password: it may stand in one made by chance.
            do {
                shown = try PasswordKey(new: text, for: name.count < 4 ? "" : name).shown
                self.text = text
                return
            } catch PasswordKey.Fault.named, PasswordKey.Fault.simple, PasswordKey.Fault.common {}
        }
    }
}

extension OperatorCommand {
    struct Identify: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Says that an account is a person's at the identity provider.",
            discussion:
                "For a name that was taken when the person came first, and for accounts from before the provider was in use. The"
                + " account waits for another admin's word then.",
            json: "one object: name",
            examples: [
                "operator identify dana --subject 248289761001",
                "operator identify dana --subject 248289761001 --output json",
            ]
        )

        @Argument(help: "The operator's name.") var name: String
        @Option(help: "Who the person is at the provider: the claim sub of their tokens.") var subject: String
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ token: SessionToken, _ database: Database) async throws -> Answer {
            try await Operators(pool: database.pool).identify(name, as: subject, by: token.digest)
            return Answer("operator \(name) is identified", json: ["name": name])
        }
    }

    struct BreakGlass: DatabaseCommand {
        static let configuration = CommandConfiguration(
            commandName: "break-glass",
            abstract: "Marks an admin who signs in with a password also while an identity provider is in use.",
            discussion: "For the case that the provider fails. Each use raises the alarm break_glass_used.",
            json: "one object: name",
            examples: ["operator break-glass dana", "operator break-glass dana --off"]
        )

        @Argument(help: "The admin's name.") var name: String
        @Flag(help: "Take the mark away.") var off = false
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            try await Operators(pool: database.pool).markBreakGlass(name, !off, by: try session.token()?.digest)
            return Answer(
                off ? "operator \(name) is not marked any more" : "operator \(name) is marked",
                json: ["name": name]
            )
        }
    }

    struct Provider: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Shows the identity provider that operators sign in through, or ends its use.",
            discussion:
                "OIDC_ISSUER at the console puts one in use. The schema's owner ends it, after OIDC_ISSUER is unset.",
            json: "one object: issuer; with --leave: left",
            examples: ["operator provider", "operator provider --leave"]
        )

        @Flag(help: "Take passwords of all operators again.") var leave = false
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let operators = Operators(pool: database.pool)
            if leave {
                let was = try await operators.leaveProvider()
                return Answer(
                    was ? "operators sign in with passwords again" : "no identity provider was in use",
                    json: ["left": was]
                )
            }
            let issuer = try await operators.provider()
            return Answer(
                issuer.map { "operators sign in through \($0)" } ?? "operators sign in with passwords",
                json: ["issuer": issuer]
            )
        }
    }
}
