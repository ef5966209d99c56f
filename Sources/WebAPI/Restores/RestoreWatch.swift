package import Foundation
package import Logging
package import Postgres
import ServiceLifecycle
package import Storage
import Synchronization

/// Reads restores for everybody who looks at them: many at a time, and again when something has happened.
///
/// The database says that a restore has ended; that is a hint. Those that somebody waits for are also read every now and
/// then, for hints get lost.
package final class RestoreWatch: Service {
    /// What somebody waits for.
    enum Interest: Hashable, Sendable {
        /// The next reading, whatever it says.
        case reading
        case end
        /// Another state than this one.
        case change(from: String)

        func isMet(by answer: RestoreAnswer) -> Bool {
            switch self {
            case .reading: true
            case .end: answer.hasEnded
            case .change(let state): answer.state != state || answer.hasEnded
            }
        }
    }

    private struct Waiter {
        var interest: Interest
        /// When it has waited long enough.
        var until: ContinuousClock.Instant?
        var continuation: CheckedContinuation<Result<RestoreAnswer?, ReadingFailure>, Never>
    }

    /// The database could not be read.
    struct ReadingFailure: Error {
        var underlying: any Error
    }

    /// A restore whose end is awaited although nobody asks for it at the moment.
    private struct Followed {
        var answer: RestoreAnswer
        var readAt: ContinuousClock.Instant
        var until: ContinuousClock.Instant
        /// A worker of this process told the end, which is final: a reading that began before may come in later.
        var isTold = false
    }

    private struct State {
        var followed: [UUID: Followed] = [:]
        /// Ends that were heard of within the last seconds: one may be heard of before its restore is followed.
        var heard: [UUID: ContinuousClock.Instant] = [:]
        var nextNumber = 0
        var waiters: [UUID: [Int: Waiter]] = [:]
        /// Those to read next.
        var due: Set<UUID> = []
        var isListening = false
        var isStopping = false
    }

    /// Restores in one statement.
    private static let batch = 500
    /// What the next ones gather after several were read at a time.
    private static let gathering = Duration.milliseconds(3)
    /// How late whoever has waited long enough may hear of it.
    ///
    /// All are looked for together: a timer for each of thousands who wait costs more than what they wait for.
    private static let grid = Duration.milliseconds(50)
    /// Restores and ends that are kept in memory, at most.
    private static let most = 50_000

    private let read: @Sendable ([UUID]) async throws -> [RestoreAnswer]
    private let listener: PostgresListener?
    private let pause: Duration
    /// How long a restore is followed; most have ended by then.
    private let follows: Duration
    /// How long ends are remembered that nobody waits for.
    private let remembers: Duration
    private let logger: Logger
    private let state = Mutex(State())
    private let signal = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))

    /// Makes a watch that reads nothing before it runs.
    ///
    /// - Parameters:
    ///   - requests: where restores are read.
    ///   - listener: hears of their ends; without one they are found by reading.
    ///   - pause: how often those that somebody waits for are read anyway; four times as often while nothing is heard.
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

    /// Whether whoever waits should end their answer.
    var isStopping: Bool { state.withLock { $0.isStopping } }

    /// Answers everybody who waits, and lets nobody wait any more.
    package func stop() {
        let waiting = state.withLock { state in
            state.isStopping = true
            let waiting = state.waiters.values.flatMap(\.values).filter { $0.interest != .reading }
            for (id, waiters) in state.waiters {
                let left = waiters.filter { $0.value.interest == .reading }
                state.waiters[id] = left.isEmpty ? nil : left
            }
            return waiting
        }
        for waiter in waiting { waiter.continuation.resume(returning: .success(nil)) }
    }

    // MARK: Answers from the same process

    /// Whether somebody waits for a restore here, or may in a moment.
    package func awaits(_ id: UUID) -> Bool {
        state.withLock { $0.waiters[id] != nil || $0.followed[id] != nil }
    }

    /// Answers whoever waits for restores that a worker of this process has ended.
    package func take(_ answers: [RestoreAnswer]) { deliver(answers, of: answers.map(\.id), areTold: true) }

    // MARK: Following

    /// Follows a restore that was asked for just now: its end is read as soon as it is heard of.
    func follow(_ answer: RestoreAnswer) {
        let now = ContinuousClock.now
        let isHeard = state.withLock { state in
            guard state.followed.count < Self.most else { return false }
            state.followed[answer.id] = Followed(answer: answer, readAt: now, until: now + follows)
            guard state.heard[answer.id] != nil else { return false }
            state.due.insert(answer.id)
            return true
        }
        if isHeard { signal.continuation.yield() }
    }

    /// What is known of a restore that is followed; `nil` where its end might not be heard of.
    func followed(_ id: UUID) -> RestoreAnswer? {
        let now = ContinuousClock.now
        return state.withLock { state in
            guard state.isListening, let followed = state.followed[id], followed.until > now else { return nil }
            var answer = followed.answer
            answer.age += (now - followed.readAt) / .seconds(1)
            return answer
        }
    }

    // MARK: Waiting

    /// Reads a restore now.
    ///
    /// - Returns: `nil`: there is no such restore.
    /// - Throws: what kept it from being read.
    func reading(of id: UUID) async throws -> RestoreAnswer? {
        do { return try await wait(for: .reading, of: id).get() } catch { throw error.underlying }
    }

    /// Waits for what is of interest.
    ///
    /// - Returns: the reading that shows it; `nil` once the time has passed, at a shutdown, and for a cancelled task.
    func next(_ interest: Interest, of id: UUID, within limit: Duration) async -> RestoreAnswer? {
        guard limit > .zero else { return nil }
        return try? await wait(for: interest, of: id, until: .now + limit).get()
    }

    private func wait(
        for interest: Interest,
        of id: UUID,
        until: ContinuousClock.Instant? = nil
    ) async -> Result<RestoreAnswer?, ReadingFailure> {
        let number = state.withLock { state in
            state.nextNumber += 1
            return state.nextNumber
        }
        return await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let waits = state.withLock { state in
                    guard !Task.isCancelled, !state.isStopping || interest == .reading else { return false }
                    state.waiters[id, default: [:]][number] = Waiter(
                        interest: interest,
                        until: until,
                        continuation: continuation
                    )
                    // Read at once, as what it waits for may have happened already, unless that would have been heard.
                    let isFollowed =
                        interest == .end && state.isListening && state.followed[id]?.answer.hasEnded == false
                    if !isFollowed { state.due.insert(id) }
                    return true
                }
                if waits { signal.continuation.yield() } else { continuation.resume(returning: .success(nil)) }
            }
        } onCancel: {
            let waiter = state.withLock { state in
                let waiter = state.waiters[id]?.removeValue(forKey: number)
                if state.waiters[id]?.isEmpty == true { state.waiters[id] = nil }
                return waiter
            }
            waiter?.continuation.resume(returning: .success(nil))
        }
    }

    // MARK: Reading

    /// Reads and listens until a graceful shutdown or the task's cancellation; to be ended after whoever asks.
    package func run() async throws {
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.listen() }
            group.addTask { await self.tick() }
            group.addTask { await self.readDue() }
            group.addTask { await self.endWaits() }
            try? await gracefulShutdown()
            group.cancelAll()
        }
        // Whoever still asks is told that nobody reads any more.
        let left = state.withLock { state in
            let left = state.waiters.values.flatMap(\.values)
            state.waiters = [:]
            return left
        }
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
        state.withLock { $0.isListening = false }
    }

    /// Hints come from now on; those before were missed.
    func listens() {
        state.withLock { $0.isListening = true }
        readAll()
    }

    func heard(_ payload: String) {
        guard let job = Self.job(in: payload) else { return readAll() }
        let now = ContinuousClock.now
        let matters = state.withLock { state in
            if state.heard.count < Self.most { state.heard[job] = now }
            // Whose end was told needs no reading.
            guard state.waiters[job] != nil || state.followed[job]?.isTold == false else { return false }
            state.due.insert(job)
            return true
        }
        if matters { signal.continuation.yield() }
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
        state.withLock { $0.due.formUnion($0.waiters.keys) }
        signal.continuation.yield()
    }

    private func tick() async {
        while !Task.isCancelled {
            try? await Task.sleep(for: state.withLock { $0.isListening } ? pause : pause / 4)
            forget()
            readAll()
        }
    }

    private func forget(at now: ContinuousClock.Instant = .now) {
        state.withLock { state in
            state.followed = state.followed.filter { $0.value.until > now }
            state.heard = state.heard.filter { $0.value + remembers > now }
        }
    }

    private func endWaits() async {
        while !Task.isCancelled {
            try? await Task.sleep(for: Self.grid)
            let now = ContinuousClock.now
            let over = state.withLock { state in
                var over: [Waiter] = []
                for (id, waiters) in state.waiters where waiters.values.contains(where: { Self.isOver($0, at: now) }) {
                    over += waiters.values.filter { Self.isOver($0, at: now) }
                    let left = waiters.filter { !Self.isOver($0.value, at: now) }
                    state.waiters[id] = left.isEmpty ? nil : left
                }
                return over
            }
            for waiter in over { waiter.continuation.resume(returning: .success(nil)) }
        }
    }

    private static func isOver(_ waiter: Waiter, at now: ContinuousClock.Instant) -> Bool {
        waiter.until.map { $0 <= now } ?? false
    }

    private func readDue() async {
        while !Task.isCancelled {
            let ids = state.withLock { state in
                let ids = Array(state.due.prefix(Self.batch))
                state.due.subtract(ids)
                return ids
            }
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
                // Whoever waits for longer is read for again in a moment.
                try? await Task.sleep(for: .milliseconds(200))
            }
        }
    }

    private func signalled() async {
        for await _ in signal.stream { return }
    }

    private func deliver(_ answers: [RestoreAnswer], of ids: [UUID], areTold: Bool = false) {
        let found = Dictionary(answers.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        let now = ContinuousClock.now
        let met = state.withLock { state in
            var met: [(Waiter, RestoreAnswer?)] = []
            for id in ids {
                if let answer = found[id], var followed = state.followed[id],
                    answer.hasEnded || !followed.isTold
                {
                    followed.answer = answer
                    followed.readAt = now
                    followed.isTold = followed.isTold || areTold
                    state.followed[id] = followed
                }
                guard let waiters = state.waiters[id] else { continue }
                let answer = found[id]
                for (number, waiter) in waiters where answer.map(waiter.interest.isMet) ?? true {
                    state.waiters[id]?[number] = nil
                    met.append((waiter, answer))
                }
                if state.waiters[id]?.isEmpty == true { state.waiters[id] = nil }
            }
            return met
        }
        for (waiter, answer) in met { waiter.continuation.resume(returning: .success(answer)) }
    }

    private func fail(_ error: any Error, _ ids: [UUID]) {
        let failed = state.withLock { state in
            var failed: [Waiter] = []
            for id in ids {
                for (number, waiter) in state.waiters[id] ?? [:] where waiter.interest == .reading {
                    state.waiters[id]?[number] = nil
                    failed.append(waiter)
                }
                if state.waiters[id]?.isEmpty == true { state.waiters[id] = nil }
            }
            return failed
        }
        for waiter in failed { waiter.continuation.resume(returning: .failure(ReadingFailure(underlying: error))) }
    }
}
