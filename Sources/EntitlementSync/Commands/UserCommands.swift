import ArgumentParser
import Composition
import Configuring
import Entitlements
import Foundation
import Reports
import UserRequests
import WebAPI

struct Restore: Command {
    static let configuration = CommandConfiguration(
        abstract: "Enqueues a restore, and waits for its outcome if asked to.",
        json: "one object: the columns of job_status, and message",
        examples: [
            "restore uid-1 --wait 30",
            "restore uid-1 --proof storekit_jws=@transaction.jws --client-error receipt_already_in_use",
        ]
    )

    @Argument(help: "The user's id.")
    var user: String

    @Option(help: "A proof or claim, [STORE:]KIND=VALUE or [STORE:]KIND=@FILE; may be given up to 20 times.")
    var proof: [String] = []

    @Option(help: "The error that the app met, by code or name.")
    var clientError: String?

    @Option(help: "Seconds to wait for the outcome.")
    var wait: Int?

    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard (0...86_400).contains(wait ?? 0) else { throw ValidationError("--wait: give seconds from 0 to 86400") }
    }

    func prepare() throws -> String { try ProofArgument.json(proof) }

    func answer(_ proofs: String, _ database: Database) async throws -> Answer {
        let requests = Requests(pool: database.pool)
        let id = try await requests.restore(user, proofs: proofs, clientError: clientError)
        let waiting = Waiting(requests: requests)
        let ended = wait == nil ? true : try await waiting.untilEnded([id], within: .seconds(wait ?? 0)) { _ in }
        guard let status = try await requests.status([id]).first else {
            throw CommandFailure(.software, "the job can't be found")
        }
        // Only a command that has waited says that it takes long.
        let key = status.messageKey ?? (wait == nil ? nil : MessageKey.stillChecking.rawValue)
        let messages = try Messages(support: database.config.supportContactURL)
        let text = key.map { messages.text(for: $0, reference: status.reference) ?? $0 }
        let isUnavailable = status.outcome == Outcome.storeUnavailable.rawValue
        return Answer(
            [
                [status.reference, status.state, status.outcome ?? "-", text ?? "-"].joined(separator: "  "),
                "job \(status.id.uuidString.lowercased())",
            ],
            document: Printed(status: status, message: text),
            status: !ended && !status.hasEnded ? .elapsed : isUnavailable ? .unavailable : .done
        )
    }

    private struct Printed: Encodable {
        var status: JobStatus
        /// `nil`, printed as null, where the command did not wait and nothing is known yet.
        var message: String?

        func encode(to encoder: any Encoder) throws {
            try status.encode(to: encoder)
            enum Key: String, CodingKey { case message }
            var container = encoder.container(keyedBy: Key.self)
            try container.encode(message, forKey: .message)
        }
    }
}

/// Waits for jobs by polling; the answer is always `job_status`.
struct Waiting {
    var requests: Requests

    /// Waits until every job has ended.
    ///
    /// `progress`: hears how many have ended.
    /// Returns whether all ended within the time.
    func untilEnded(_ ids: [UUID], within limit: Duration, progress: (Int) -> Void) async throws -> Bool {
        let deadline = ContinuousClock.now + limit
        var left = ids
        var pause = Duration.milliseconds(10)
        var notes = WaitNotes()
        while true {
            let statuses: [JobStatus]
            do { statuses = try await requests.status(Array(left.prefix(1000))) } catch {
                Output.note("\(left.count) of \(ids.count) jobs had not ended; they go on without this command")
                throw error
            }
            let ended = Set(statuses.filter(\.hasEnded).map(\.id))
            left.removeAll { ended.contains($0) }
            progress(ids.count - left.count)
            if left.isEmpty { return true }
            notes.add(
                "\(ids.count - left.count) of \(ids.count) jobs have ended; the others go on without this command"
            )
            if ContinuousClock.now >= deadline { return false }
            pause = ended.isEmpty ? min(pause * 2, .milliseconds(250)) : .milliseconds(10)
            try await Task.sleep(for: min(pause, max(deadline - .now, .zero)))
        }
    }
}

struct Erase: DatabaseCommand {
    static let configuration = CommandConfiguration(
        abstract: "Forgets who a user is, in every record; what was decided stays without a name.",
        json: "one object: purchases, tickets, events, messages, still_in_host",
        examples: ["erase uid-1", "erase uid-1 --yes --output json"]
    )

    @Argument(help: "The user's id.")
    var user: String

    @OptionGroup var confirmation: Confirmation
    @OptionGroup var options: OutputOptions

    func answer(_ database: Database) async throws -> Answer {
        try await confirmation.confirm("Every record forgets who \(PlainText.harmless(user)) is, for good.")
        guard let erased = try await Erasure(pool: database.pool).erase(user) else {
            throw CommandFailure(.data, "the user is not known here: nothing is kept under this id")
        }
        let kept = "\(erased.purchases) purchases and \(erased.tickets) tickets stand without a name"
        let gone = "the words of \(erased.events) events and \(erased.messages) messages are deleted"
        let host = erased.isHosts ? ". The host still has this user: erase it there as well" : ""
        return Answer(["erased: \(kept); \(gone)\(host)"], document: erased)
    }
}
