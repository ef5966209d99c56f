import Entitlements
import Logging
import Postgres
import ServiceLifecycle
import StoreEvents
import Synchronization

/// Keeps stores' events, many of one store in one transaction; no store waits for another's.
///
/// While the database is away they are held in memory, for a store that is refused comes back after an hour, or not at all.
package final class EventIntake: Service {
    /// What may be held at once.
    struct Room: Sendable {
        var events = 5000
        /// Of their bodies.
        var bytes = 64 << 20
    }

    private let sources: [Store: RequestBatcher<Inbox.Event, Bool>]
    private let room: Room
    private let held = Mutex<(events: Int, bytes: Int)>((0, 0))

    /// Makes an intake that keeps nothing before it runs.
    ///
    /// `patience`: how long an event waits for a database that is away.
    convenience init(inbox: Inbox, patience: Duration, logger: Logger) {
        self.init(patience: patience, logger: logger) { events, source throws(PostgresError) in
            try await inbox.accept(events, from: source)
        }
    }

    init(
        patience: Duration = .zero,
        room: Room = Room(),
        logger: Logger,
        keep: @escaping @Sendable ([Inbox.Event], Store) async throws(PostgresError) -> Void
    ) {
        self.room = room
        let complaints = Complaints(logger: logger)
        sources = Dictionary(
            uniqueKeysWithValues: Store.allCases.map { source in
                let batcher = RequestBatcher<Inbox.Event, Bool>(
                    batch: 500,
                    waiting: room.events,
                    interval: .zero,
                    patience: patience
                ) { events throws(DatabaseAway) in
                    do throws(PostgresError) { try await keep(events, source) } catch {
                        complaints.add(events.count, of: source, error)
                        // What is on record already is not kept twice.
                        if error.isDatabaseAway { throw DatabaseAway() }
                        return nil
                    }
                    return events.map { _ in true }
                }
                return (source, batcher)
            }
        )
    }

    /// Keeps an event that came at `arrival`.
    ///
    /// - Returns: whether it is committed; `false`: the sender has to send it again.
    func accept(_ event: StoreEvent, body: [UInt8], since arrival: ContinuousClock.Instant = .now) async -> Bool {
        let hasRoom = held.withLock { [room] held in
            guard held.events < room.events, held.bytes + body.count <= room.bytes else { return false }
            held = (held.events + 1, held.bytes + body.count)
            return true
        }
        guard hasRoom else { return false }
        defer { held.withLock { $0 = ($0.events - 1, $0.bytes - body.count) } }
        let kept = Inbox.Event(keeping: event, body: body)
        return await sources[event.source]?.ask(kept, since: arrival) ?? false
    }

    /// Ends the wait for a database that is away.
    func stopWaiting() {
        for batcher in sources.values { batcher.stopWaiting() }
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
            "events could not be kept; after a while their senders have to send them again",
            metadata: [
                "event.source": "\(source.rawValue)", "event.count": "\(total)",
                "error.code": "\((error as? PostgresError)?.code.rawValue ?? "other")",
            ]
        )
    }
}
