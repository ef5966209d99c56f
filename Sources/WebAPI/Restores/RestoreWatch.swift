package import Foundation
package import Logging
package import Postgres
import ServiceLifecycle
import Synchronization
package import UserRequests

/// Reads restores for all callers: many at a time, and again when something has happened.
///
/// The database says that a restore has ended; that is a hint. Those that a caller waits for are also read every now and
/// then, for hints get lost. A worker of the same process tells the ends that are awaited here together with the answers,
/// which need no reading; the hint that follows is passed over.
package final class RestoreWatch: Service, RestoreAudience {
    typealias Interest = RestoreWaits.Interest
    typealias Place = RestoreWaits.Place
    typealias ReadingFailure = RestoreWaits.ReadingFailure

    /// Restores in one statement.
    private static let batch = 500
    /// What the next ones gather after several were read at a time.
    private static let gathering = Duration.milliseconds(3)
    /// How late a caller that has waited long enough may learn of it.
    ///
    /// All are found together: a timer for each of thousands who wait costs more than what they wait for.
    private static let grid = Duration.milliseconds(50)

    private let read: @Sendable ([UUID]) async throws -> [RestoreAnswer]
    private let listener: PostgresListener?
    private let pause: Duration
    /// How long a restore is followed; most have ended by then.
    private let follows: Duration
    /// How long ends are remembered that no caller waits for.
    private let remembers: Duration
    private let logger: Logger
    private let waits = Mutex(RestoreWaits())
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// Makes a watch that reads nothing before it runs.
    ///
    /// - Parameters:
    ///   - requests: where restores are read.
    ///   - listener: hears of their ends; without one they are found by reading.
    ///   - pause: how often those that a caller waits for are read anyway; four times as often while nothing is heard.
    ///   - logger: hears of a database that can't be read.
    package convenience init(
        requests: AppRequests,
        listener: PostgresListener?,
        pause: Duration = .seconds(2),
        logger: Logger
    ) {
        self.init(listener: listener, pause: pause, logger: logger) { try await requests.answers($0) }
    }

    init(
        listener: PostgresListener? = nil,
        pause: Duration = .seconds(2),
        follows: Duration = .seconds(30),
        remembers: Duration = .seconds(5),
        logger: Logger,
        read: @escaping @Sendable ([UUID]) async throws -> [RestoreAnswer]
    ) {
        self.read = read
        self.listener = listener
        self.pause = pause
        self.follows = follows
        self.remembers = remembers
        self.logger = logger
    }

    /// Whether waiting callers should end their answers.
    var isStopping: Bool { waits.withLock { $0.isStopping } }

    /// Answers all waiting callers, and lets none wait any more.
    package func stop() {
        let waiting = waits.withLock { $0.stop() }
        for waiter in waiting { waiter.continuation.resume(returning: .success(nil)) }
    }

    // MARK: Answers from the same process

    /// Whether a caller waits for a restore here, or may in a moment.
    package func awaits(_ id: UUID) -> Bool {
        waits.withLock { $0.awaits(id) }
    }

    /// Answers callers that wait for restores that a worker of this process has ended.
    package func take(_ answers: [RestoreAnswer]) -> Set<UUID> {
        deliver(answers, of: answers.map(\.id), areTold: true)
    }

    // MARK: Following

    /// Follows a restore that was asked for just now: its end is read as soon as it is heard of.
    func follow(_ answer: RestoreAnswer) {
        let isHeard = waits.withLock { $0.follow(answer, from: .now, for: follows) }
        if isHeard { signal.continuation.yield() }
    }

    /// What is known of a restore that is followed; `nil` where its end might not be heard of.
    func followed(_ id: UUID) -> RestoreAnswer? {
        waits.withLock { $0.known(id, at: .now) }
    }

    // MARK: Waiting

    /// Takes one of the places from which a user may wait or follow a stream, until it is given up.
    ///
    /// A user has few: when all are taken, the request that took its place first is answered and gives it up.
    func takePlace(_ kind: Place.Kind, of userID: String) -> Place {
        let (place, left) = waits.withLock { $0.takePlace(kind, of: userID) }
        left?.continuation.resume(returning: .success(nil))
        return place
    }

    func giveUp(_ place: Place) { waits.withLock { $0.giveUp(place) } }

    /// Whether a place is still its holder's.
    func holds(_ place: Place) -> Bool { waits.withLock { $0.holds(place) } }

    /// Reads a restore now.
    ///
    /// - Returns: `nil`: there is no such restore.
    /// - Throws: what kept it from being read.
    func reading(of id: UUID) async throws -> RestoreAnswer? {
        do { return try await wait(for: .reading, of: id).get() } catch { throw error.underlying }
    }

    /// Waits for what is of interest.
    ///
    /// - Returns: the reading that shows it; `nil` once the time has passed or the place is given to another, at a shutdown, and
    ///   for a cancelled task.
    func next(
        _ interest: Interest,
        of id: UUID,
        within limit: Duration,
        from place: Place? = nil
    ) async -> RestoreAnswer? {
        guard limit > .zero else { return nil }
        return try? await wait(for: interest, of: id, until: .now + limit, from: place).get()
    }

    private func wait(
        for interest: Interest,
        of id: UUID,
        until: ContinuousClock.Instant? = nil,
        from place: Place? = nil
    ) async -> Result<RestoreAnswer?, ReadingFailure> {
        let number = waits.withLock { $0.number() }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let waiter = RestoreWaits.Waiter(
                    interest: interest,
                    place: place,
                    until: until,
                    continuation: continuation
                )
                let isWaiting = waits.withLock { !Task.isCancelled && $0.add(waiter, number, to: id) }
                if isWaiting { signal.continuation.yield() } else { continuation.resume(returning: .success(nil)) }
            }
        } onCancel: {
            let waiter = waits.withLock { $0.remove(number, from: id) }
            waiter?.continuation.resume(returning: .success(nil))
        }
    }

    // MARK: Reading

    /// Reads and listens until a graceful shutdown or the task's cancellation; to be ended after its callers.
    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.listen() }
            group.addTask { await self.tick() }
            group.addTask { await self.readDue() }
            group.addTask { await self.endWaits() }
            try? await gracefulShutdown()
            group.cancelAll()
        }
        // A caller that still asks learns that no restore is read any more.
        let left = waits.withLock { $0.removeAll() }
        for waiter in left {
            waiter.continuation.resume(returning: .failure(ReadingFailure(underlying: CancellationError())))
        }
    }

    private func listen() async {
        guard let listener else { return }
        do {
            try await listener.run(
                channels: ["entitlement_sync_outcome"],
                onNotification: { [self] in heard($0.payload) },
                onConnected: { [self] in listens() }
            )
        } catch is CancellationError {
            return
        } catch {
            logger.warning("ends of restores are not heard; they are found by reading")
        }
        waits.withLock { $0.isListening = false }
    }

    /// Hints come from now on; those before were missed.
    func listens() {
        waits.withLock { $0.isListening = true }
        readAll()
    }

    func heard(_ payload: String) {
        guard let job = Self.job(in: payload) else { return readAll() }
        if waits.withLock({ $0.hear(of: job, at: .now, for: remembers) }) { signal.continuation.yield() }
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
        waits.withLock { $0.makeAllDue() }
        signal.continuation.yield()
    }

    private func tick() async {
        while !Task.isCancelled {
            try? await Task.sleep(for: waits.withLock { $0.isListening } ? pause : pause / 4)
            let now = ContinuousClock.now
            while waits.withLock({ $0.forget(at: now) }) {}
            readAll()
        }
    }

    private func endWaits() async {
        while !Task.isCancelled {
            try? await Task.sleep(for: Self.grid)
            let over = waits.withLock { $0.removeOver(at: .now) }
            for waiter in over { waiter.continuation.resume(returning: .success(nil)) }
        }
    }

    private func readDue() async {
        while !Task.isCancelled {
            let ids = waits.withLock { $0.takeDue(upTo: Self.batch) }
            guard !ids.isEmpty else {
                await signalled()
                continue
            }
            do {
                deliver(try await read(ids), of: ids)
                // One at a time is read at once; a stream of them a few at a time, or the reading is all that is done.
                if ids.count > 1 { try? await Task.sleep(for: Self.gathering, tolerance: .zero) }
            } catch {
                fail(error, ids)
                // Callers that wait for longer are read for again in a moment.
                try? await Task.sleep(for: .milliseconds(200))
            }
        }
    }

    private func signalled() async {
        for await _ in signal.stream { return }
    }

    /// Answers the callers that have waited for these.
    ///
    /// - Returns: the restores that a caller had waited for.
    @discardableResult
    private func deliver(_ answers: [RestoreAnswer], of ids: [UUID], areTold: Bool = false) -> Set<UUID> {
        let met = waits.withLock { $0.settle(answers, of: ids, areTold: areTold, at: .now) }
        for (waiter, answer) in met { waiter.continuation.resume(returning: .success(answer)) }
        return Set(met.compactMap { $0.1?.id })
    }

    private func fail(_ error: any Error, _ ids: [UUID]) {
        let failed = waits.withLock { $0.fail(ids) }
        for waiter in failed { waiter.continuation.resume(returning: .failure(ReadingFailure(underlying: error))) }
    }
}
