import Entitlements
import Foundation
import UserRequests

/// Which callers wait for which restores, and what is known of those that are followed.
///
/// A value without a clock of its own: it says which callers to answer, and ``StatusHub`` answers them.
struct StatusHubState {
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

    struct Waiter {
        var interest: Interest
        /// The place from which it waits; `nil`: it is answered within a moment.
        var place: Place?
        var until: ContinuousClock.Instant?
        var continuation: CheckedContinuation<RestoreAnswer?, any Error>
    }

    /// One of the few places of a user from which restores are waited for or streamed.
    struct Place: Hashable, Sendable {
        enum Kind: Sendable { case wait, stream }

        fileprivate var user: ExactText
        fileprivate var kind: Kind
        fileprivate var number: Int
    }

    /// A restore whose end is awaited although no caller waits for it at the moment.
    private struct Followed {
        var answer: RestoreAnswer
        var readAt: ContinuousClock.Instant
        /// A worker of this process reported the end, which is final: a reading that began before may come in later.
        var isReported = false
    }

    /// Restores and ends that are kept in memory, at most.
    private static let most = 50_000
    /// Places of each kind that one user has.
    static let places = 5
    /// How many are forgotten at a time: others wait meanwhile.
    private static let forgotten = 500

    private var followed = ExpiringCache<Followed>(most: most)
    /// Ends that were notified within the last seconds: a notification may come before its restore is followed.
    private var notified = ExpiringCache<Void>(most: most)
    private var nextNumber = 0
    private var waiters: [UUID: [Int: Waiter]] = [:]
    /// The places that are taken, by user, the oldest first, with what is waited for.
    private var held: [ExactText: [(place: Place, waits: (id: UUID, number: Int)?)]] = [:]
    private var due: Set<UUID> = []
    /// Hints come in.
    var isListening = false
    /// No caller begins to wait any more.
    private(set) var isStopping = false

    // MARK: Following

    /// Follows a restore that was asked for just now.
    ///
    /// - Returns: whether its end was notified already, which makes it due.
    mutating func follow(_ answer: RestoreAnswer, from now: ContinuousClock.Instant, for time: Duration) -> Bool {
        guard followed.insert(Followed(answer: answer, readAt: now), for: answer.id, until: now + time, at: now),
            notified.value(answer.id, at: now) != nil
        else { return false }
        due.insert(answer.id)
        return true
    }

    /// What is known of a restore that is followed; `nil` where its end might not be notified.
    func known(_ id: UUID, at now: ContinuousClock.Instant) -> RestoreAnswer? {
        guard isListening, let followed = followed.value(id, at: now) else { return nil }
        var answer = followed.answer
        answer.age += (now - followed.readAt) / .seconds(1)
        return answer
    }

    func awaits(_ id: UUID) -> Bool { waiters[id] != nil || followed[id] != nil }

    /// Notes that a restore has ended, for a while.
    ///
    /// - Returns: whether a caller waits for it, or may, which makes it due.
    mutating func noteEnd(of id: UUID, at now: ContinuousClock.Instant, for time: Duration) -> Bool {
        _ = notified.insert((), for: id, until: now + time, at: now)
        // A reported end needs no reading.
        guard waiters[id] != nil || followed[id]?.isReported == false else { return false }
        due.insert(id)
        return true
    }

    /// Forgets some of what is followed no longer, and of the ends whose time is over.
    ///
    /// - Returns: whether there are more.
    mutating func forget(at now: ContinuousClock.Instant) -> Bool {
        let hasMore = followed.forget(upTo: Self.forgotten, at: now)
        return notified.forget(upTo: Self.forgotten, at: now) || hasMore
    }

    // MARK: Waiting

    /// The name of the next caller that waits.
    mutating func number() -> Int {
        nextNumber += 1
        return nextNumber
    }

    /// Gives a user a place; of those who have taken all of a kind, the one who came first gives way.
    ///
    /// - Returns: the place, and who waited from the one that was given up.
    mutating func takePlace(_ kind: Place.Kind, of userID: String) -> (place: Place, left: Waiter?) {
        let user = ExactText(userID)
        let place = Place(user: user, kind: kind, number: number())
        var left: Waiter?
        let same = (held[user] ?? []).filter { $0.place.kind == kind }
        if same.count >= Self.places, let oldest = same.first {
            giveUp(oldest.place)
            left = oldest.waits.flatMap { remove($0.number, from: $0.id) }
        }
        held[user, default: []].append((place, nil))
        return (place, left)
    }

    mutating func giveUp(_ place: Place) {
        held[place.user]?.removeAll { $0.place == place }
        if held[place.user]?.isEmpty == true { held[place.user] = nil }
    }

    /// Whether a place is still its holder's.
    func holds(_ place: Place) -> Bool { held[place.user]?.contains { $0.place == place } ?? false }

    /// Lets a caller wait.
    ///
    /// - Returns: `false`: waiting has ended for all, or for this place.
    mutating func add(_ waiter: Waiter, _ number: Int, to id: UUID) -> Bool {
        guard !isStopping || waiter.interest == .reading else { return false }
        if let place = waiter.place {
            guard let index = held[place.user]?.firstIndex(where: { $0.place == place }) else { return false }
            held[place.user]?[index].waits = (id, number)
        }
        waiters[id, default: [:]][number] = waiter
        // Read at once, as what it waits for may have happened already, unless that would have been notified.
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
    mutating func removeOver(at now: ContinuousClock.Instant) -> [Waiter] {
        remove { $0.until.map { $0 <= now } ?? false }
    }

    /// Takes out all but those who wait for the next reading, and lets no other caller begin.
    mutating func stop() -> [Waiter] {
        isStopping = true
        return remove { $0.interest != .reading }
    }

    mutating func removeAll() -> [Waiter] { remove { _ in true } }

    private mutating func remove(where isLeaving: (Waiter) -> Bool) -> [Waiter] {
        Array(waiters.keys).flatMap { leave($0, where: isLeaving) }
    }

    // MARK: Reading

    /// Makes all due that a caller waits for.
    mutating func makeAllDue() { due.formUnion(waiters.keys) }

    mutating func takeDue(upTo limit: Int) -> [UUID] {
        let ids = Array(due.prefix(limit))
        due.subtract(ids)
        return ids
    }

    /// Notes answers about restores; those of `ids` without an answer do not exist.
    ///
    /// `areReported`: the worker of this process reported them; they are final.
    ///
    /// - Returns: which callers to answer, and with what.
    mutating func settle(
        _ answers: [RestoreAnswer],
        of ids: [UUID],
        areReported: Bool,
        at now: ContinuousClock.Instant
    ) -> [(Waiter, RestoreAnswer?)] {
        let found = Dictionary(answers.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        return ids.flatMap { id in
            let answer = found[id]
            if let answer, let old = followed[id], answer.hasEnded || !old.isReported {
                let isReported = old.isReported || areReported
                followed.update(Followed(answer: answer, readAt: now, isReported: isReported), for: id)
            }
            return leave(id) { waiter in answer.map(waiter.interest.isMet) ?? true }.map { ($0, answer) }
        }
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
