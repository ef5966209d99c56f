import FoundationEssentials
package import Logging
import Metrics
import Postgres
package import Queue
import ServiceLifecycle
import Synchronization
import TextFormats

/// Delivers the messages of the outbox as webhooks.
package final class OutboxDispatcher: Service {
    /// Messages under way at once.
    static let width = 32
    /// How long a process has for one, longer than any answer takes.
    private static let lease = Duration.seconds(60)
    /// After this a message is given up.
    static let patience = Duration.seconds(3 * 86_400)

    private let outbox: OutboxQueue
    private let sender: WebhookSender
    private let logger: Logger
    /// Steps in a row that delivered nothing.
    private let failures = Mutex(0)

    package init(outbox: OutboxQueue, sender: WebhookSender, logger: Logger) {
        self.outbox = outbox
        self.sender = sender
        self.logger = logger
    }

    package func run() async {
        await PeriodicService(
            "outbox dispatcher",
            .untilEnd,
            every: .milliseconds(200),
            upTo: .seconds(2),
            logger: logger
        ) { [self] in try await step() }.run()
    }

    /// Delivers the next message of each of some users.
    package func step() async throws -> PeriodicService.Next {
        let messages = try await outbox.take(upTo: Self.width, for: Self.lease)
        guard !messages.isEmpty else { return .idle }
        var delivered: [Int64] = []
        var failed: [(OutboxQueue.Message, WebhookSender.Failure)] = []
        await withTaskGroup(of: (OutboxQueue.Message, WebhookSender.Failure?).self) { group in
            for message in messages { group.addTask { [self] in (message, await deliver(message)) } }
            for await (message, failure) in group {
                if let failure { failed.append((message, failure)) } else { delivered.append(message.number) }
            }
        }
        count("delivered", delivered.count)
        // Also after a shutdown: a delivered message must not go out once more.
        try await Task { [self, delivered, failed] in
            try await outbox.end(delivered)
            for (message, failure) in failed { try await postpone(message, failure) }
        }.value
        let (before, failures) = failures.withLock { failures in
            let before = failures
            failures = delivered.isEmpty ? failures + 1 : 0
            return (before, failures)
        }
        if failures == 1, let code = failed.first?.1.code {
            logger.warning("messages are not taken; they are sent again", metadata: ["error.code": "\(code)"])
        } else if before > 0, failures == 0 {
            logger.notice("messages are taken again")
        }
        // The host's endpoint does not answer: the other messages need not be tried one by one.
        return failures == 0 ? .again : .after(min(.milliseconds(200) * (1 << min(failures, 8)), .seconds(30)))
    }

    private func deliver(_ message: OutboxQueue.Message) async -> WebhookSender.Failure? {
        do throws(WebhookSender.Failure) {
            try await sender.deliver(Array(Self.body(message).utf8), id: message.id.uuidString.lowercased())
            return nil
        } catch { return error }
    }

    private func postpone(_ message: OutboxQueue.Message, _ failure: WebhookSender.Failure) async throws {
        let isOver = .seconds(message.ageSeconds) >= Self.patience
        count(isOver ? "dead" : "failed", 1)
        try await outbox.postpone(
            message.number,
            for: isOver ? nil : Self.wait(Int(message.attempt)),
            error: failure.code
        )
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
        let time = message.createdAt.date.formatted(.iso8601)
        let user = message.userID.map(JSONText.quoted) ?? "null"
        return #"{"id":"\#(message.id.uuidString.lowercased())","type":"\#(message.topic)","created_at":"\#(time)","#
            + #""user_id":\#(user),"data":\#(message.data)}"#
    }
}
