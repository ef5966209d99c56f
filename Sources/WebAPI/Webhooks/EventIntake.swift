import Entitlements
import Logging
import Postgres
import ServiceLifecycle
import StoreEvents
import Synchronization

/// Keeps stores' events, many of one store in one transaction; no store waits for another's.
///
/// While the database is unavailable they are held in memory: a store that is answered 503 may send again only after an hour.
package final class EventIntake: Service {
    /// What may be held at once; half of it for one store.
    struct Room: Sendable {
        var events = 5000
        /// Of their bodies.
        var bytes = 64 << 20
    }

    private struct Held {
        var events = 0
        var bytes = 0
    }

    private let sources: [Store: RequestBatcher<Inbox.Event, Bool>]
    private let room: Room
    private let held = Mutex<[Store: Held]>([:])

    /// Makes an intake that keeps nothing before it runs.
    ///
    /// `databaseWait`: how long an event waits for a database that is unavailable.
    convenience init(inbox: Inbox, databaseWait: Duration, logger: Logger) {
        self.init(databaseWait: databaseWait, logger: logger) { events, source throws(PostgresError) in
            try await inbox.accept(events, from: source)
        }
    }

    init(
        databaseWait: Duration = .zero,
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
                    databaseWait: databaseWait
                ) { events throws(DatabaseUnavailable) in
                    do throws(PostgresError) { try await keep(events, source) } catch {
                        complaints.add(events.count, of: source, error)
                        // What is on record already is not kept twice.
                        if error.isDatabaseUnavailable { throw DatabaseUnavailable() }
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
        guard take(1, body.count, for: event.source) else { return false }
        defer { _ = take(-1, -body.count, for: event.source) }
        let kept = Inbox.Event(keeping: event, body: body)
        return await sources[event.source]?.ask(kept, since: arrival) ?? false
    }

    /// Takes room, or gives it back; `false`: there is none.
    private func take(_ events: Int, _ bytes: Int, for source: Store) -> Bool {
        held.withLock { [room] held in
            let all = held.values.reduce(into: Held()) {
                $0 = Held(events: $0.events + $1.events, bytes: $0.bytes + $1.bytes)
            }
            let own = held[source] ?? Held()
            if events > 0 {
                guard all.events < room.events, all.bytes + bytes <= room.bytes, own.events < room.events / 2,
                    own.bytes + bytes <= room.bytes / 2
                else { return false }
            }
            held[source] = Held(events: own.events + events, bytes: own.bytes + bytes)
            return true
        }
    }

    /// Ends the wait for the database.
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
            "events could not be kept yet; after HTTP_DATABASE_WAIT_SECONDS their senders have to send them again",
            metadata: [
                "event.source": "\(source.rawValue)", "event.count": "\(total)",
                "error.code": "\((error as? PostgresError)?.code.rawValue ?? "other")",
            ]
        )
    }
}
