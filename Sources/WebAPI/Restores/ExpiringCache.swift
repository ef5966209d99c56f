import DequeModule
import Foundation

/// What is known of restores for a while: each is forgotten in its turn, so that no moment has to go through all of them.
///
/// All are kept equally long: the first to come is the first to go.
struct ExpiringCache<Value> {
    typealias Instant = ContinuousClock.Instant

    /// Forgotten with each that comes: more than one, so that those whose time is over become fewer under load.
    private static var step: Int { 2 }

    /// How many are kept at most; beyond that none is taken.
    let most: Int
    private var entries: [UUID: (value: Value, until: Instant)] = [:]
    /// In the order in which they came; who came again stands here twice, and goes with the later.
    private var order: Deque<(id: UUID, until: Instant)> = []

    init(most: Int) { self.most = most }

    var count: Int { entries.count }

    /// What is known of a restore, if its time is not over.
    func value(_ id: UUID, at now: Instant) -> Value? {
        entries[id].flatMap { $0.until > now ? $0.value : nil }
    }

    /// What is known of a restore; those whose time is over may still be there.
    subscript(id: UUID) -> Value? { entries[id]?.value }

    /// Notes something of a restore until a time that is not before those noted earlier; `false`: there are too many.
    mutating func insert(_ value: Value, for id: UUID, until: Instant, at now: Instant) -> Bool {
        forget(upTo: Self.step, at: now)
        guard order.count < most else { return false }
        entries[id] = (value, until)
        order.append((id, until))
        return true
    }

    /// Notes something else of a restore of which something is known, for the time that it had.
    mutating func update(_ value: Value, for id: UUID) { entries[id]?.value = value }

    /// Forgets those whose time is over, the first to come first; whether there are more.
    @discardableResult
    mutating func forget(upTo limit: Int, at now: Instant) -> Bool {
        for _ in 0..<limit {
            guard let first = order.first, first.until <= now else { return false }
            order.removeFirst()
            if let entry = entries[first.id], entry.until <= now { entries[first.id] = nil }
        }
        return order.first.map { $0.until <= now } ?? false
    }
}
