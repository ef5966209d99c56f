package import Logging
import Synchronization

/// A message from NOTIFY.
package struct PostgresNotification: Hashable, Sendable {
    /// The channel it was sent on.
    package var channel: String
    /// The text it carries; may be empty.
    package var payload: String
    /// The server process of the sender.
    package var backendPID: Int32
}

/// Listens for notifications on a connection of its own, for ever.
///
/// A notification is a hint: those sent while the connection was down, or faster than they are handled, are lost. After
/// each such gap `onConnected` is called, so that the listener can read the current state.
package struct PostgresListener: Sendable {
    /// How long silence may last before the server is asked whether it is still there.
    static let silenceBeforeCheck = Duration.seconds(30)
    /// How many notifications wait for a slow handler; older ones are dropped.
    static let bufferedNotifications = 1024

    private enum Event: Sendable {
        case connected
        case notification(PostgresNotification)
    }

    /// Remembers between the two tasks that notifications were dropped.
    private final class Gap: Sendable {
        private let isOpen = Atomic(false)
        func open() { isOpen.store(true, ordering: .releasing) }
        func close() -> Bool { isOpen.exchange(false, ordering: .acquiring) }
    }

    private let configuration: PostgresConfiguration
    private let logger: Logger?

    /// Creates a listener.
    ///
    /// Its connection keeps session state whatever the configuration says, since LISTEN is nothing else.
    package init(configuration: PostgresConfiguration, logger: Logger? = nil) {
        var configuration = configuration
        configuration.sessionState = true
        self.configuration = configuration
        self.logger = logger
    }

    /// Listens until the task is cancelled, then returns.
    ///
    /// Reconnects with growing pauses, whatever goes wrong.
    ///
    /// Handlers are called one after the other. The connection is read all the while: a client that stopped reading
    /// would hold back the server's notification queue and its vacuum.
    ///
    /// - Parameters:
    ///   - channels: the channels' names, as written in `LISTEN "name"`.
    ///   - onNotification: called for each notification, in order.
    ///   - onConnected: called when listening has begun, each time, and after notifications were dropped.
    /// - Throws: `PostgresError` with `.configuration`, which no reconnecting mends.
    package func run(
        channels: [String],
        onNotification: @escaping @Sendable (PostgresNotification) async -> Void,
        onConnected: @escaping @Sendable () async -> Void
    ) async throws {
        let (events, queue) = AsyncStream.makeStream(
            of: Event.self,
            bufferingPolicy: .bufferingNewest(Self.bufferedNotifications)
        )
        let gap = Gap()
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask {
                defer { queue.finish() }
                try await listen(channels) { event in
                    if case .dropped = queue.yield(event) { gap.open() }
                }
            }
            group.addTask {
                for await event in events {
                    if gap.close() { await onConnected() }
                    switch event {
                    case .connected: await onConnected()
                    case .notification(let notification): await onNotification(notification)
                    }
                }
            }
            try await group.waitForAll()
        }
    }

    /// Connects, listens and reports; again after every failure.
    private func listen(_ channels: [String], _ report: @Sendable (Event) -> Void) async throws(PostgresError) {
        let backoff = Backoff(base: .milliseconds(100), cap: .seconds(10))
        let script = channels.map { "LISTEN \"\($0.replacing("\"", with: "\"\""))\"" }.joined(separator: ";")
        var failures = 0
        while !Task.isCancelled {
            let connection = PostgresConnection(configuration: configuration)
            do throws(PostgresError) {
                try await connection.open()
                try await connection.execute(script: script)
                failures = 0
                report(.connected)
                while true {
                    let silenceEnds = ContinuousClock.now + Self.silenceBeforeCheck
                    for notification in try await connection.notifications(until: silenceEnds) {
                        report(.notification(notification))
                    }
                }
            } catch {
                await connection.close()
                switch error.code {
                case .cancelled: return
                case .configuration: throw error
                default:
                    failures += 1
                    logger?.info(
                        "listening interrupted",
                        metadata: [
                            "error.code": "\(error.code.rawValue)", "error.sqlstate": "\(error.sqlState ?? "-")",
                        ]
                    )
                }
            }
            do {
                try await Task.sleep(for: backoff.delay(afterFailures: failures, spread: .random(in: 0..<1)))
            } catch {
                // Cancelled, which is how this ends.
                return
            }
        }
    }
}
