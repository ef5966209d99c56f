package import Foundation
import ServiceLifecycle
import Synchronization
package import UserRequests

/// Reads restores for all callers: many at a time, and again when something has happened.
///
/// The database notifies that a restore has ended; that is a hint. Those that a caller waits for are also read every now
/// and then, for hints get lost. A worker of the same process reports the ends that are awaited here together with the
/// answers, which need no reading; the hint that follows is passed over.
package final class StatusHub: Service, RestoreAudience {
    typealias Interest = StatusHubState.Interest
    typealias Place = StatusHubState.Place

    private static let batch = 500
    /// How long the next ones wait for each other after several were read at a time.
    private static let interval = Duration.milliseconds(3)
    /// How late a caller that has waited long enough may learn of it.
    ///
    /// All are found together: a timer for each of thousands who wait costs more than what they wait for.
    private static let grid = Duration.milliseconds(50)

    private let read: @Sendable ([UUID]) async throws -> [RestoreAnswer]
    /// How often restores that a caller waits for are read anyway; four times as often without a connection to listen on.
    private let pause: Duration
    /// How long a restore is followed; most have ended by then.
    private let follows: Duration
    /// How long ends are remembered that no caller waits for.
    private let remembers: Duration
    private let state = Mutex(StatusHubState())
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// Makes a hub that reads nothing before it runs; ends that it is not notified of are found by reading.
    package convenience init(requests: AppRequests) {
        self.init { try await requests.answers($0) }
    }

    init(
        pause: Duration = .seconds(2),
        follows: Duration = .seconds(30),
        remembers: Duration = .seconds(5),
        read: @escaping @Sendable ([UUID]) async throws -> [RestoreAnswer]
    ) {
        self.read = read
        self.pause = pause
        self.follows = follows
        self.remembers = remembers
    }

    /// Whether waiting callers should end their answers.
    var isStopping: Bool { state.withLock { $0.isStopping } }

    /// Answers all waiting callers, and lets none wait any more.
    package func stop() { end(state.withLock { $0.stop() }) }

    // MARK: Answers from the same process

    /// Whether a caller waits for a restore here, or may in a moment.
    package func awaits(_ id: UUID) -> Bool { state.withLock { $0.awaits(id) } }

    /// Answers callers that wait for restores that a worker of this process has ended.
    package func take(_ answers: [RestoreAnswer]) -> Set<UUID> {
        deliver(answers, of: answers.map(\.id), areReported: true)
    }

    // MARK: Following

    /// Follows a restore that was asked for just now: its end is read as soon as it is notified.
    func follow(_ answer: RestoreAnswer) {
        if state.withLock({ $0.follow(answer, from: .now, for: follows) }) { signal.continuation.yield() }
    }

    /// What is known of a restore that is followed; `nil` where its end might not be notified.
    func followed(_ id: UUID) -> RestoreAnswer? { state.withLock { $0.known(id, at: .now) } }

    // MARK: Waiting

    /// Takes one of the places from which a user may wait or follow a stream, until it is given up.
    ///
    /// A user has few: when all are taken, the request that took its place first is answered and gives it up.
    func takePlace(_ kind: Place.Kind, of userID: String) -> Place {
        let (place, left) = state.withLock { $0.takePlace(kind, of: userID) }
        left?.continuation.resume(returning: nil)
        return place
    }

    func giveUp(_ place: Place) { state.withLock { $0.giveUp(place) } }

    /// Whether a place is still its holder's.
    func holds(_ place: Place) -> Bool { state.withLock { $0.holds(place) } }

    /// Reads a restore now; `nil`: there is none.
    func reading(of id: UUID) async throws -> RestoreAnswer? { try await wait(for: .reading, of: id) }

    /// Waits for the reading that shows what is of interest.
    ///
    /// - Returns: `nil` once the time has passed or the place is given to another, at a shutdown, and for a cancelled
    ///   task.
    func next(
        _ interest: Interest,
        of id: UUID,
        within limit: Duration,
        from place: Place? = nil
    ) async -> RestoreAnswer? {
        guard limit > .zero else { return nil }
        return try? await wait(for: interest, of: id, until: .now + limit, from: place)
    }

    private func wait(
        for interest: Interest,
        of id: UUID,
        until: ContinuousClock.Instant? = nil,
        from place: Place? = nil
    ) async throws -> RestoreAnswer? {
        let number = state.withLock { $0.number() }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let waiter = StatusHubState.Waiter(
                    interest: interest,
                    place: place,
                    until: until,
                    continuation: continuation
                )
                let isWaiting = state.withLock { !Task.isCancelled && $0.add(waiter, number, to: id) }
                if isWaiting { signal.continuation.yield() } else { continuation.resume(returning: nil) }
            }
        } onCancel: {
            let waiter = state.withLock { $0.remove(number, from: id) }
            waiter?.continuation.resume(returning: nil)
        }
    }

    /// Answers callers that nothing more is known.
    private func end(_ waiters: [StatusHubState.Waiter]) {
        for waiter in waiters { waiter.continuation.resume(returning: nil) }
    }

    // MARK: Reading

    /// Reads until a graceful shutdown or the task's cancellation; to be ended after its callers.
    package func run() async throws {
        await untilShutdown([
            { await self.tick() }, { await self.readDue() }, { await self.endWaits() },
        ])
        // A caller that still asks learns that no restore is read any more.
        for waiter in state.withLock({ $0.removeAll() }) { waiter.continuation.resume(throwing: CancellationError()) }
    }

    /// Hints come from now on; those before were missed.
    package func connected() {
        state.withLock { $0.isListening = true }
        readAll()
    }

    /// No hints come any more.
    package func disconnected() { state.withLock { $0.isListening = false } }

    /// Takes a hint that a restore has ended.
    package func notified(_ payload: String) {
        guard let job = Self.job(in: payload) else { return readAll() }
        if state.withLock({ $0.noteEnd(of: job, at: .now, for: remembers) }) { signal.continuation.yield() }
    }

    /// The job that a hint is about, which stands first where a worker wrote it.
    static func job(in payload: String) -> UUID? {
        struct Hint: Decodable { var job: UUID }
        let start = #"{"job":""#
        if payload.hasPrefix(start), let job = UUID(uuidString: String(payload.dropFirst(start.utf8.count).prefix(36)))
        {
            return job
        }
        return (try? JSONDecoder().decode(Hint.self, from: Data(payload.utf8)))?.job
    }

    private func readAll() {
        state.withLock { $0.makeAllDue() }
        signal.continuation.yield()
    }

    private func tick() async {
        while !Task.isCancelled {
            try? await Task.sleep(for: state.withLock { $0.isListening } ? pause : pause / 4)
            let now = ContinuousClock.now
            while state.withLock({ $0.forget(at: now) }) {}
            readAll()
        }
    }

    private func endWaits() async {
        while !Task.isCancelled {
            try? await Task.sleep(for: Self.grid)
            end(state.withLock { $0.removeOver(at: .now) })
        }
    }

    private func readDue() async {
        while !Task.isCancelled {
            let ids = state.withLock { $0.takeDue(upTo: Self.batch) }
            guard !ids.isEmpty else {
                for await _ in signal.stream { break }
                continue
            }
            do {
                deliver(try await read(ids), of: ids)
                // One at a time is read at once; a stream of them a few at a time, or the reading is all that is done.
                if ids.count > 1 { try? await Task.sleep(for: Self.interval, tolerance: .zero) }
            } catch {
                for waiter in state.withLock({ $0.fail(ids) }) { waiter.continuation.resume(throwing: error) }
                // Callers that wait for longer are read for again in a moment.
                try? await Task.sleep(for: .milliseconds(200))
            }
        }
    }

    /// Answers the callers that have waited for these.
    ///
    /// - Returns: the restores that a caller had waited for.
    @discardableResult
    private func deliver(_ answers: [RestoreAnswer], of ids: [UUID], areReported: Bool = false) -> Set<UUID> {
        let met = state.withLock { $0.settle(answers, of: ids, areReported: areReported, at: .now) }
        for (waiter, answer) in met { waiter.continuation.resume(returning: answer) }
        return Set(met.compactMap { $0.1?.id })
    }
}
