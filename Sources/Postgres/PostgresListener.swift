import CLibPQ
package import Logging
import Synchronization

/// A message from NOTIFY.
package struct PostgresNotification: Hashable, Sendable {
    package var channel: String
    /// May be empty.
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
        case interrupted
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

    /// Its connection keeps session state whatever the configuration says, because LISTEN is session state.
    package init(configuration: PostgresConfiguration, logger: Logger? = nil) {
        var configuration = configuration
        configuration.sessionState = true
        self.configuration = configuration
        self.logger = logger
    }

    /// Listens until the task is cancelled, then returns; reconnects with growing pauses after every failure.
    ///
    /// Handlers are called one after the other, `onConnected` each time when listening has begun and after
    /// notifications were dropped, `onInterrupted` when it has ended. The connection is read all the while: a client that stopped reading would hold back
    /// the server's notification queue and its vacuum. Throws `PostgresError` with `.configuration`, which no
    /// reconnecting mends.
    package func run(
        channels: [String],
        onNotification: @escaping @Sendable (PostgresNotification) async -> Void,
        onConnected: @escaping @Sendable () async -> Void,
        onInterrupted: @escaping @Sendable () async -> Void = {}
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
                    case .interrupted: await onInterrupted()
                    case .notification(let notification): await onNotification(notification)
                    }
                }
            }
            try await group.waitForAll()
        }
    }

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
                report(.interrupted)
                switch error.code {
                case .cancelled: return
                case .configuration: throw error
                default:
                    failures += 1
                    logger?.info("listening interrupted", metadata: error.logMetadata)
                }
            }
            // Fails where the task is cancelled, which ends the loop.
            try? await Task.sleep(for: backoff.delay(afterFailures: failures, spread: .random(in: 0..<1)))
        }
    }
}

extension PostgresConnection {
    /// Waits for notifications; after silence until `deadline` the server is asked whether it is still there.
    func notifications(until deadline: ContinuousClock.Instant) async throws(PostgresError) -> [PostgresNotification] {
        while let raw = handle.raw {
            guard readsWithoutEnd() else {
                let error = PostgresError(lost: raw)
                close()
                throw error
            }
            let arrived = takeNotifications()
            guard arrived.isEmpty else { return arrived }
            switch await Reactor.shared.wait(PQsocket(raw), for: .read, until: deadline, cancellable: true) {
            case .ready: continue
            case .closed: throw PostgresError(.closed, message: "the connection was closed")
            case .cancelled: throw PostgresError(.cancelled, message: "the task is cancelled")
            case .timedOut:
                guard await isAlive(roundTrip: true) else {
                    throw PostgresError(.connectionLost, message: "the server gives no sign of life")
                }
                return takeNotifications()
            }
        }
        throw PostgresError(.closed, message: "the connection is closed")
    }

    private func takeNotifications() -> [PostgresNotification] {
        var taken: [PostgresNotification] = []
        while let raw = handle.raw, let next = PQnotifies(raw) {
            defer { PQfreemem(next) }
            taken.append(
                PostgresNotification(
                    channel: next.pointee.relname.map { String(cString: $0) } ?? "",
                    payload: next.pointee.extra.map { String(cString: $0) } ?? "",
                    backendPID: next.pointee.be_pid
                )
            )
        }
        return taken
    }
}
