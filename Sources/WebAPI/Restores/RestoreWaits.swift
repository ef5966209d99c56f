import Foundation
import Storage

/// Who waits for which restores, and what is known of those that are followed.
///
/// A value without a clock of its own: it says whom to answer, and ``RestoreWatch`` answers them.
struct RestoreWaits {
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

    /// The database could not be read.
    struct ReadingFailure: Error {
        var underlying: any Error
    }

    struct Waiter {
        var interest: Interest
        /// When it has waited long enough.
        var until: ContinuousClock.Instant?
        var continuation: CheckedContinuation<Result<RestoreAnswer?, ReadingFailure>, Never>

        func isOver(at now: ContinuousClock.Instant) -> Bool { until.map { $0 <= now } ?? false }
    }

    /// A restore whose end is awaited although nobody asks for it at the moment.
    private struct Followed {
        var answer: RestoreAnswer
        var readAt: ContinuousClock.Instant
        /// A worker of this process told the end, which is final: a reading that began before may come in later.
        var isTold = false
    }

    /// Restores and ends that are kept in memory, at most.
    private static let most = 50_000
    /// How many are forgotten at a time: others wait meanwhile.
    private static let forgotten = 500

    private var followed = Fading<Followed>(most: most)
    /// Ends that were heard of within the last seconds: one may be heard of before its restore is followed.
    private var heard = Fading<Void>(most: most)
    private var nextNumber = 0
    private var waiters: [UUID: [Int: Waiter]] = [:]
    /// Those to read next.
    private var due: Set<UUID> = []
    /// Hints come in.
    var isListening = false
    /// Nobody begins to wait any more.
    private(set) var isStopping = false

    // MARK: Following

    /// Follows a restore that was asked for just now.
    ///
    /// - Returns: whether its end was heard of already, which makes it due.
    mutating func follow(_ answer: RestoreAnswer, from now: ContinuousClock.Instant, for time: Duration) -> Bool {
        guard followed.insert(Followed(answer: answer, readAt: now), for: answer.id, until: now + time, at: now),
            heard.value(answer.id, at: now) != nil
        else { return false }
        due.insert(answer.id)
        return true
    }

    /// What is known of a restore that is followed; `nil` where its end might not be heard of.
    func known(_ id: UUID, at now: ContinuousClock.Instant) -> RestoreAnswer? {
        guard isListening, let followed = followed.value(id, at: now) else { return nil }
        var answer = followed.answer
        answer.age += (now - followed.readAt) / .seconds(1)
        return answer
    }

    /// Whether somebody waits for a restore, or may in a moment.
    func awaits(_ id: UUID) -> Bool { waiters[id] != nil || followed[id] != nil }

    /// Notes that a restore has ended, for a while.
    ///
    /// - Returns: whether anybody cares, which makes it due.
    mutating func hear(of id: UUID, at now: ContinuousClock.Instant, for time: Duration) -> Bool {
        _ = heard.insert((), for: id, until: now + time, at: now)
        // Whose end was told needs no reading.
        guard waiters[id] != nil || followed[id]?.isTold == false else { return false }
        due.insert(id)
        return true
    }

    /// Forgets some of what is followed no longer, and of the ends whose time is over.
    ///
    /// - Returns: whether there are more.
    mutating func forget(at now: ContinuousClock.Instant) -> Bool {
        let isFollowedOver = followed.forget(upTo: Self.forgotten, at: now)
        let isHeardOver = heard.forget(upTo: Self.forgotten, at: now)
        return isFollowedOver || isHeardOver
    }

    // MARK: Waiting

    /// The name of whoever waits next.
    mutating func number() -> Int {
        nextNumber += 1
        return nextNumber
    }

    /// Lets somebody wait.
    ///
    /// - Returns: `false`: nobody may any more.
    mutating func add(_ waiter: Waiter, _ number: Int, to id: UUID) -> Bool {
        guard !isStopping || waiter.interest == .reading else { return false }
        waiters[id, default: [:]][number] = waiter
        // Read at once, as what it waits for may have happened already, unless that would have been heard.
        let isFollowed = waiter.interest == .end && isListening && followed[id]?.answer.hasEnded == false
        if !isFollowed { due.insert(id) }
        return true
    }

    mutating func remove(_ number: Int, from id: UUID) -> Waiter? {
        let waiter = waiters[id]?.removeValue(forKey: number)
        if waiters[id]?.isEmpty == true { waiters[id] = nil }
        return waiter
    }

    /// Takes out all who have waited long enough.
    mutating func removeOver(at now: ContinuousClock.Instant) -> [Waiter] { remove { $0.isOver(at: now) } }

    /// Takes out all but those who wait for the next reading, and lets nobody else begin.
    mutating func stop() -> [Waiter] {
        isStopping = true
        return remove { $0.interest != .reading }
    }

    mutating func removeAll() -> [Waiter] { remove { _ in true } }

    private mutating func remove(where isLeaving: (Waiter) -> Bool) -> [Waiter] {
        Array(waiters.keys).flatMap { leave($0, where: isLeaving) }
    }

    // MARK: Reading

    /// Makes all due that somebody waits for.
    mutating func makeAllDue() { due.formUnion(waiters.keys) }

    /// Takes out what is to be read next.
    mutating func takeDue(upTo limit: Int) -> [UUID] {
        let ids = Array(due.prefix(limit))
        due.subtract(ids)
        return ids
    }

    /// Notes answers.
    ///
    /// - Parameters:
    ///   - answers: what is known now.
    ///   - ids: the restores that this is about; those without an answer do not exist.
    ///   - areTold: the worker of this process told them; they are final.
    ///   - now: the moment.
    /// - Returns: whom to answer, and with what.
    mutating func settle(
        _ answers: [RestoreAnswer],
        of ids: [UUID],
        areTold: Bool,
        at now: ContinuousClock.Instant
    ) -> [(Waiter, RestoreAnswer?)] {
        let found = Dictionary(answers.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        var met: [(Waiter, RestoreAnswer?)] = []
        for id in ids {
            let answer = found[id]
            if let answer, let old = followed[id], answer.hasEnded || !old.isTold {
                followed.update(
                    Followed(answer: answer, readAt: now, isTold: old.isTold || areTold),
                    for: id
                )
            }
            met += leave(id) { waiter in answer.map(waiter.interest.isMet) ?? true }.map { ($0, answer) }
        }
        return met
    }

    /// Takes out those who wait for the reading of restores that could not be read; others go on waiting.
    mutating func fail(_ ids: [UUID]) -> [Waiter] {
        ids.flatMap { id in leave(id) { $0.interest == .reading } }
    }

    private mutating func leave(_ id: UUID, where isLeaving: (Waiter) -> Bool) -> [Waiter] {
        guard let all = waiters[id], all.values.contains(where: isLeaving) else { return [] }
        let left = all.filter { !isLeaving($0.value) }
        waiters[id] = left.isEmpty ? nil : left
        return all.values.filter(isLeaving)
    }
}
