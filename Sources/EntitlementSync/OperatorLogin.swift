import ArgumentParser
import Foundation
import Logging
import Postgres
import Storage
import SupportDesk

extension OperatorCommand {
    struct Login: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Signs an operator in at this terminal; asks for what is needed."
        )

        @Argument(help: "The operator's name.") var name: String
        @Option(help: "A file with the password, where nobody can be asked.") var passwordFile: String?
        @Option(help: "A file with the password to have from now on.") var newPasswordFile: String?
        @Option(help: "The code of the second factor.") var code: String?
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let runtime = try Runtime(level: .warning)
                var shown = SignIn.Credentials(
                    name: name,
                    password: try password(passwordFile, "Password: ", option: "--password-file"),
                    code: code
                )
                if newPasswordFile != nil {
                    shown.newPassword = try password(newPasswordFile, "", option: "--new-password-file")
                }
                return try await runtime.withPool { pool in
                    let signIn = SignIn(operators: Operators(pool: pool), kind: .terminal)
                    // Asked once for each thing that is missing.
                    for _ in 0..<4 {
                        switch try await signIn.attempt(shown, from: "terminal") {
                        case .signedIn(let token):
                            try session.keep(token)
                            try options.print("signed in as \(name)", json: ["name": name])
                            return .done
                        case .needsCode:
                            shown.code = try asked(Terminal.answer("Code: "), option: "--code")
                        case .needsEnrolment(let needsPassword, let needsDevice):
                            if needsPassword { shown.newPassword = try newPassword() }
                            if needsDevice { try takeUpDevice(&shown) }
                        case .refused:
                            throw CommandFailure(.notAllowed, "the name, the password or the code is wrong")
                        case .wait(let wait):
                            throw CommandFailure(
                                .notAllowed,
                                "too many sign-ins have failed; try again in \(max(wait.components.seconds, 1)) s"
                            )
                        }
                    }
                    throw CommandFailure(.notAllowed, "signing in did not come to an end; try again")
                }
            }
        }

        private func password(_ file: String?, _ question: String, option: String) throws -> String {
            guard let file else { return try asked(Terminal.secret(question), option: option) }
            guard let data = FileManager.default.contents(atPath: file), data.count <= 4096,
                let text = String(data: data, encoding: .utf8)
            else { throw CommandFailure(.data, "\(option): can't be read as a short UTF-8 text") }
            return text.trimmingCharacters(in: .newlines)
        }

        private func asked(_ answer: String?, option: String) throws -> String {
            guard let answer else {
                throw CommandFailure(.data, "\(option): nobody can be asked at this terminal; give the option")
            }
            return answer
        }

        private func newPassword() throws -> String {
            let first = try asked(
                Terminal.secret("New password, 12 characters or more: "),
                option: "--new-password-file"
            )
            let second = try asked(Terminal.secret("Once more: "), option: "--new-password-file")
            guard first == second else { throw CommandFailure(.data, "the two are not the same; sign in again") }
            return first
        }

        private func takeUpDevice(_ shown: inout SignIn.Credentials) throws {
            guard Terminal.isThere else {
                throw CommandFailure(.notAllowed, "this role needs a second factor; sign in at a terminal first")
            }
            let device = OneTimeCode()
            Output.write(
                "This role needs a second factor. Enter this secret in an authenticator app:\n"
                    + "  \(device.spelled)\n  \(device.address(issuer: "entitlement-sync", account: name))\n",
                to: .standardError
            )
            shown.newDevice = device
            shown.code = try asked(Terminal.answer("Its code: "), option: "--code")
        }
    }
}
