import Foundation
import Postgres
import ArgumentParser
import Composition
import Configuring
import Logging
import Reports
import SupportDesk

extension OperatorCommand {
    struct Login: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Signs an operator in at this terminal; asks for what is needed.",
            discussion:
                "Without a name, the operator's browser signs the terminal in: it shows a code, which is typed at the console.",
            json: "one object: name",
            examples: ["operator login dana", "operator login"]
        )

        @Argument(help: "The operator's name; left out, the console signs this terminal in.") var name: String?
        @Option(help: "A file with the password, where there is no terminal to ask at.") var passwordFile: String?
        @Option(help: "A file with the password to have from now on.") var newPasswordFile: String?
        @Option(help: "A file with the base32 secret of the device to have from now on; --code has to be its code.")
        var newDeviceFile: String?
        @Option(help: "The code of the second factor.") var code: String?
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let runtime = try Runtime(level: .warning)
                let before = try? session.token()
                guard let name else {
                    return try await runtime.withPool { pool in
                        try await throughConsole(Operators(pool: pool), runtime.config.console.url, before)
                    }
                }
                var shown = SignIn.Credentials(
                    name: name,
                    password: try await password(passwordFile, "Password: ", option: "--password-file"),
                    code: code
                )
                if newPasswordFile != nil {
                    shown.newPassword = try await password(newPasswordFile, "", option: "--new-password-file")
                }
                if let newDeviceFile {
                    shown.newDevice = SecondFactor(
                        spelled: try await password(newDeviceFile, "", option: "--new-device-file")
                    )
                    guard shown.newDevice != nil else {
                        throw CommandFailure(.data, "--new-device-file: give 32 letters and digits of base32")
                    }
                }
                return try await runtime.withPool { pool in
                    let operators = Operators(pool: pool)
                    let signIn = SignIn(operators: operators, kind: .terminal)
                    let client = try session.client()
                    // Asked once for each thing that is missing.
                    for _ in 0..<3 {
                        switch try await signIn.attempt(shown, from: nil, client: client) {
                        case .signedIn(let token, let client):
                            // The session that was here is not kept beside the new one.
                            if let before { try await operators.signOut(before.digest) }
                            try session.keep(token, client)
                            return try signedIn(name)
                        case .not(.needs(let needs)):
                            try await fill(needs, in: &shown)
                        case .not(.wait(let wait)):
                            throw CommandFailure(
                                .notAllowed,
                                "too many sign-ins have failed; try again in \(wait.components.seconds + 1) s"
                            )
                        case .not(.locked): throw CommandFailure(.notAllowed, Operators.lockedWords)
                        case .not(.provider): throw CommandFailure(.notAllowed, Operators.providerWords)
                        case .not(.samePassword):
                            throw CommandFailure(.data, "\(PasswordKey.Fault.same.rawValue); choose another one")
                        case .not(.refused), .not(.signedIn):
                            throw CommandFailure(.notAllowed, "the name, the password or the code is wrong")
                        }
                    }
                    throw CommandFailure(.notAllowed, "signing in did not come to an end; try again")
                }
            }
        }

        /// Has the operator's browser sign this terminal in.
        private func throughConsole(
            _ operators: Operators,
            _ url: String?,
            _ before: SessionToken?
        ) async throws -> ExitStatus {
            let token = SessionToken()
            let code = try await operators.askTerminal(token.digest)
            let place = url.map { $0 + "/console/terminal" } ?? "/console/terminal at the console's address"
            let spelled = String(code.prefix(4)) + "-" + String(code.dropFirst(4))
            Output.write("open \(place) in your browser, and type there: \(spelled)\n", to: .standardError)
            let deadline = ContinuousClock.now + .seconds(300)
            while ContinuousClock.now < deadline {
                try await Task.sleep(for: .seconds(1))
                guard let name = try await operators.name(of: token.digest) else { continue }
                if let before { try await operators.signOut(before.digest) }
                try session.keep(token)
                return try signedIn(name)
            }
            throw CommandFailure(.notAllowed, "the code was not typed at the console within five minutes; try again")
        }

        private func signedIn(_ name: String) throws -> ExitStatus {
            try Answer("signed in as \(name)", json: ["name": name]).print(as: options.output)
        }

        private func fill(_ needs: Set<Operators.Need>, in shown: inout SignIn.Credentials) async throws {
            if needs.contains(.password) { shown.newPassword = try await newPassword() }
            if needs.contains(.device) {
                try await takeUpDevice(&shown)
            } else if needs.contains(.code) {
                shown.code = try asked(await Terminal.ask("Code: ", shown: true), option: "--code")
            }
        }

        private func password(_ file: String?, _ question: String, option: String) async throws -> String {
            guard let file else { return try asked(await Terminal.ask(question, shown: false), option: option) }
            do { return try ValueFile.read(file) } catch {
                throw CommandFailure(.data, "\(option): \(error.problem)")
            }
        }

        private func asked(_ answer: String?, option: String) throws -> String {
            guard let answer else {
                throw CommandFailure(
                    .notAllowed,
                    "nothing was answered (\(option)); sign in again, or give the option where there is no terminal"
                )
            }
            return answer
        }

        private func newPassword() async throws -> String {
            let first = try asked(
                await Terminal.ask("New password, 12 characters or more: ", shown: false),
                option: "--new-password-file"
            )
            let second = try asked(await Terminal.ask("Once more: ", shown: false), option: "--new-password-file")
            guard first == second else { throw CommandFailure(.data, "the two are not the same; sign in again") }
            return first
        }

        private func takeUpDevice(_ shown: inout SignIn.Credentials) async throws {
            let device = SecondFactor()
            guard
                Terminal.say(
                    "This role needs a second factor. Enter this secret in an authenticator app:\n"
                        + "  \(device.spelled)\n  \(device.address(account: shown.name))\n"
                )
            else {
                throw CommandFailure(
                    .data,
                    "--new-device-file: this role needs a second factor, and there is no terminal to ask at"
                )
            }
            shown.newDevice = device
            shown.code = try asked(await Terminal.ask("Its code: ", shown: true), option: "--code")
        }
    }
}
