import ArgumentParser
import Logging
import Storage

struct Explain: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Says in plain sentences why a user is what they are.")

    @Argument(help: "The user's id.")
    var user: String

    @Option(help: "Leave out what came after this instant (ISO 8601).")
    var at: String?

    @OptionGroup var options: OutputOptions

    private struct Printed: Encodable {
        var userID: String
        var events: [Timeline.Event]

        enum CodingKeys: String, CodingKey {
            case events
            case userID = "user_id"
        }
    }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            return try await runtime.withPool { pool in
                let moment = try at.map { try Moment(argument: $0, name: "--at").text }
                guard let events = try await Timeline(pool: pool).events(of: user, until: moment) else {
                    throw CommandFailure(.data, "no such user; check the id's spelling and letter case")
                }
                switch options.output {
                case .json: try Output.json(Printed(userID: user, events: events))
                case .text:
                    Output.line("User \(user)")
                    for event in events { Output.line("  \(event.at)  \(event.kind.padded(to: 11))  \(event.text)") }
                }
                return .done
            }
        }
    }
}

extension String {
    /// The text with blanks up to a width.
    func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
}
