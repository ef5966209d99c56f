import ArgumentParser
import Composition
import Reports
import SupportDesk

extension OperatorCommand {
    struct Identify: SignedInCommand {
        static let configuration = CommandConfiguration(
            abstract: "Says that an account is a person's at the identity provider.",
            discussion:
                "For a name that was taken when the person came first, and for accounts from before the provider was in use. The"
                + " account waits for another admin's word then."
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
            discussion: "For the case that the provider fails. Each use raises the alarm break_glass_used."
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
                "OIDC_ISSUER at the console puts one in use. The schema's owner ends it, after OIDC_ISSUER is unset."
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
