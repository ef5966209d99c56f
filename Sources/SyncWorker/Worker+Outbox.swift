import FoundationEssentials
package import Logging
import Metrics
package import Outbox
import Postgres
import StoreClients

/// Tells others what they must hear.
package struct Messenger: Sendable {
    /// Messages under way at once.
    static let width = 32
    /// How long a process has for one, longer than any answer takes.
    private static let hold = Duration.seconds(60)
    /// After this a message is given up.
    static let patience = Duration.seconds(3 * 86_400)

    private let outbox: OutboxQueue
    private let receiver: Receiver
    private let logger: Logger

    package init(outbox: OutboxQueue, receiver: Receiver, logger: Logger) {
        self.outbox = outbox
        self.receiver = receiver
        self.logger = logger
    }

    /// What came of a round.
    struct Round: Sendable {
        var delivered = 0
        var failed = 0
    }

    /// Delivers the next message of each of some users.
    func step() async throws -> Round {
        let messages = try await outbox.take(upTo: Self.width, for: Self.hold)
        guard !messages.isEmpty else { return Round() }
        var delivered: [Int64] = []
        var failed: [(OutboxQueue.Message, Receiver.Failure)] = []
        await withTaskGroup(of: (OutboxQueue.Message, Receiver.Failure?).self) { group in
            for message in messages { group.addTask { (message, await deliver(message)) } }
            for await (message, failure) in group {
                if let failure { failed.append((message, failure)) } else { delivered.append(message.number) }
            }
        }
        count("delivered", delivered.count)
        let (ended, putBack) = (delivered, failed)
        // Also where the process is told to stop meanwhile: what was delivered must not go out once more.
        try await Task {
            try await outbox.end(ended)
            for (message, failure) in putBack { try await putOff(message, failure) }
        }.value
        return Round(delivered: delivered.count, failed: failed.count)
    }

    private func deliver(_ message: OutboxQueue.Message) async -> Receiver.Failure? {
        do throws(Receiver.Failure) {
            try await receiver.deliver(Array(Self.body(message).utf8), id: message.id.uuidString.lowercased())
            return nil
        } catch { return error }
    }

    private func putOff(_ message: OutboxQueue.Message, _ failure: Receiver.Failure) async throws {
        let isOver = message.age >= Self.patience
        count(isOver ? "dead" : "failed", 1)
        try await outbox.putOff(message.number, for: isOver ? nil : Self.wait(message.attempt), error: failure.code)
        guard isOver else { return }
        logger.error(
            "a message was given up",
            metadata: ["outbox.id": "\(message.id)", "error.code": "\(failure.code)"]
        )
        try await outbox.alarm()
    }

    private func count(_ result: String, _ number: Int) {
        guard number > 0 else { return }
        Counter(label: "entitlement_sync_outbox_messages_total", dimensions: [("result", result)]).increment(by: number)
    }

    /// From five seconds to six hours, about three days in all until it is given up.
    static func wait(_ attempt: Int) -> Duration {
        min(.seconds(5) * (1 << min(max(attempt - 1, 0), 13)), .seconds(21_600))
    }

    /// The message as it is sent: who, what and when, in a stable order.
    static func body(_ message: OutboxQueue.Message) -> String {
        let seconds = Double(message.createdAt.microsecondsSinceUnixEpoch) / 1_000_000
        let time = Date(timeIntervalSince1970: seconds).formatted(.iso8601)
        let user = message.userID.map(quoted) ?? "null"
        return #"{"id":"\#(message.id.uuidString.lowercased())","type":"\#(message.topic)","created_at":"\#(time)","#
            + #""user_id":\#(user),"data":\#(message.data)}"#
    }

    private static func quoted(_ text: String) -> String {
        // A text alone: there is nothing that can't be written.
        (try? JSONEncoder().encode(text)).map { String(decoding: $0, as: UTF8.self) } ?? "null"
    }
}

extension Worker {
    /// Tells others of what has changed, as long as there is anything to tell.
    func outboxDuty() async {
        guard let messenger else { return }
        var pause = Duration.milliseconds(200)
        var failures = 0
        while !Task.isCancelled {
            do {
                let round = try await messenger.step()
                // Nobody there: the others need not be tried one by one.
                failures = round.delivered > 0 ? 0 : failures + (round.failed > 0 ? 1 : 0)
                if round.delivered > 0 {
                    pause = .milliseconds(200)
                    continue
                }
            } catch {
                guard !Task.isCancelled else { return }
                logger.warning("messages could not be read; trying again", metadata: describe(error))
            }
            let rest = min(.milliseconds(200) * (1 << min(failures, 8)), .seconds(30))
            try? await Task.sleep(for: max(pause, rest))
            pause = min(pause * 2, .seconds(2))
        }
    }
}
