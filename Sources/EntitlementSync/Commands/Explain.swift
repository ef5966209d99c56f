import ArgumentParser
import Composition
import Diagnostics
import Entitlements
import Logging
import Postgres
import Queue
import Reports
import SupportDesk
import UserRequests

struct Explain: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Says in plain sentences why a user is what they are.")

    @Argument(help: "The user's id.")
    var user: String

    @Option(help: "Leave out what came after this instant (ISO 8601), and say how the user stood then.")
    var at: String?

    @Option(
        defaultAsFlag: Replies.fallback,
        help: "Print what may be written to the user, ready to be sent, in this language: \(Self.languages)."
    )
    var reply: String?

    @OptionGroup var options: OutputOptions

    private struct Printed: Encodable {
        var userID: String
        var events: [Timeline.Event]
        /// Left out where it was not asked for.
        var reply: Reply?
        /// At the moment asked for; left out where none was.
        var state: PrintedState?

        enum CodingKeys: String, CodingKey {
            case events, reply, state
            case userID = "user_id"
        }
    }

    private static let languages = Replies.languages.joined(separator: ", ")

    func validate() throws {
        // A type that took these alone would report any other as an argument too many.
        guard reply.map(Replies.languages.contains) != false else {
            throw ValidationError("--reply: give one of \(Self.languages), or none for English")
        }
        guard reply == nil || at == nil else {
            throw ValidationError("--reply says how the user stands now; leave out --at")
        }
    }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            return try await runtime.withPool { pool in
                let moment = try at.map { try Moment(argument: $0, name: "--at") }
                guard let events = try await Timeline(pool: pool).events(of: user, until: moment?.last) else {
                    throw CommandFailure(.data, "no such user; check the id's spelling and letter case")
                }
                let answer = try await reply(from: pool)
                var state: PrintedState?
                if let moment {
                    let at = Instant(moment.last)
                    state = PrintedState(try await Histories(pool: pool).state(of: user, at: at))
                }
                switch options.output {
                case .json: try Output.json(Printed(userID: user, events: events, reply: answer, state: state))
                // Alone: it is pasted as it is.
                case .text where answer != nil: Output.line(answer?.text ?? "")
                case .text:
                    Output.line(PlainText.harmless("User \(user)"))
                    for event in events {
                        Output.line(PlainText.harmless("  \(event.at)  \(event.kind.padded(to: 11))  \(event.text)"))
                    }
                    for line in state?.lines ?? [] { Output.line(PlainText.harmless(line)) }
                }
                return .done
            }
        }
    }

    /// The same words as on the console's page of the user.
    private func reply(from pool: PostgresPool) async throws -> Reply? {
        guard let reply, let json = try await Timeline(pool: pool).standing(of: user) else { return nil }
        return try UserStanding(json: json).reply(in: reply)
    }
}

extension String {
    /// The text with blanks up to a width.
    func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
}
