import ArgumentParser
import Composition
import Diagnostics
import Entitlements
import Postgres
import Queue
import Reports
import SupportDesk
import UserRequests

struct Explain: DatabaseCommand {
    static let isReport = true
    static let configuration = CommandConfiguration(
        abstract: "Says in plain sentences why a user is what they are.",
        json: "one object: user_id, events [{at, kind, text}]; with --at also state, with --reply also reply",
        examples: ["explain uid-1", "explain uid-1 --at 2027-01-31T12:00:00Z"]
    )

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

    func answer(_ database: Database) async throws -> Answer {
        let moment = try at.map { try Moment(argument: $0, name: "--at") }
        guard var events = try await Timeline(pool: database.pool).events(of: user, until: moment?.last) else {
            throw CommandFailure(.data, "no such user; check the id's spelling and letter case")
        }
        if moment == nil {
            let waiting = try await JobCommands(pool: database.pool).list(of: user, limit: 10)
            events += waiting.map { Timeline.Event(at: $0.createdAt, kind: "waiting", text: $0.sentence) }
        }
        let answer = try await reply(from: database.pool)
        var state: PastState?
        if let moment {
            state = try await Histories(pool: database.pool).state(of: user, at: Instant(moment.last))
        }
        let document: JSONObject = ["user_id": user, "events": events]
        let lines =
            ["User \(user)"] + events.map { "  \($0.at)  \($0.kind.padded(to: 11))  \($0.text)" }
            + (state?.lines ?? [])
        return Answer(
            // A reply stands alone: it is pasted as it is.
            answer.map { [$0.text] } ?? lines.map { PlainText.harmless($0) },
            document: document.adding("reply", answer).adding("state", state?.json)
        )
    }

    /// The same words as on the console's page of the user.
    private func reply(from pool: PostgresPool) async throws -> Reply? {
        guard let reply, let json = try await Timeline(pool: pool).standing(of: user) else { return nil }
        return try UserStanding(json: json).reply(in: reply)
    }
}

extension JobCommands.Waiting {
    /// Says why a job waits and when its next attempt is due.
    fileprivate var sentence: String {
        let why = lastError.map { ": \($0), \(attempt) attempt\(attempt == 1 ? "" : "s")" } ?? ""
        let next = waitSeconds.map { ", next in \(Int($0.rounded(.up))) s" } ?? ""
        return "Job \(reference), a \(kind), \(state == "running" ? "runs" : "waits")\(why)\(next)."
    }
}

extension String {
    /// The text with blanks up to a width.
    func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
}
