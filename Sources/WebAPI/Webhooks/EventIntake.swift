import Entitlements
import Logging
import Postgres
import ServiceLifecycle
import StoreEvents
import Synchronization

/// Keeps stores' events, many of one store in one transaction; no store waits for another's.
package final class EventIntake: Service {
    private let sources: [Store: RequestBatcher<Inbox.Event, Bool>]

    /// Makes an intake that keeps nothing before it runs.
    convenience init(inbox: Inbox, logger: Logger) {
        self.init(logger: logger) { events, source in try await inbox.accept(events, from: source) }
    }

    init(logger: Logger, keep: @escaping @Sendable ([Inbox.Event], Store) async throws -> Void) {
        let complaints = Complaints(logger: logger)
        sources = Dictionary(
            uniqueKeysWithValues: Store.allCases.map { source in
                let batcher = RequestBatcher<Inbox.Event, Bool>(batch: 500, waiting: 20_000, interval: .zero) {
                    events in
                    do { try await keep(events, source) } catch {
                        complaints.add(events.count, of: source, error)
                        return nil
                    }
                    return events.map { _ in true }
                }
                return (source, batcher)
            }
        )
    }

    /// Keeps an event.
    ///
    /// - Returns: whether it is committed; `false`: the sender has to send it again.
    func accept(_ event: StoreEvent, body: [UInt8]) async -> Bool {
        let kept = Inbox.Event(keeping: event, body: body)
        return await sources[event.source]?.ask(kept) ?? false
    }

    /// Keeps events until a graceful shutdown or the task's cancellation; to be ended after their callers.
    package func run() async throws {
        await untilShutdown(sources.values.map { batcher in { await batcher.run() } })
    }
}

/// Says that events are not kept, once in a while: their senders come again and again.
private final class Complaints: Sendable {
    private static let pause = Duration.seconds(10)

    private let logger: Logger
    private let state = Mutex<(said: ContinuousClock.Instant?, unsaid: Int)>((nil, 0))

    init(logger: Logger) { self.logger = logger }

    func add(_ count: Int, of source: Store, _ error: any Error, at now: ContinuousClock.Instant = .now) {
        let total: Int? = state.withLock { state in
            state.unsaid += count
            if let said = state.said, now - said < Self.pause { return nil }
            defer { state = (now, 0) }
            return state.unsaid
        }
        guard let total else { return }
        logger.warning(
            "events could not be kept; their senders have to send them again",
            metadata: [
                "event.source": "\(source.rawValue)", "event.count": "\(total)",
                "error.code": "\((error as? PostgresError)?.code.rawValue ?? "other")",
            ]
        )
    }
}
