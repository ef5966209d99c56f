import Entitlements
import Foundation
import Queue
import TestSupport
import Testing

extension HistoryTests {
    /// L7: the same readings in any order, any number of times, come to the same state.
    ///
    /// Readings that were overtaken are given up instead of read again, so that each order has the same ones.
    @Test(.timeLimit(.minutes(10)), arguments: [1, 3])
    func `The same readings in any order, some of them twice, end in one state`(users: Int) async throws {
        // The last ones once went wrong.
        try await Lanes.sideBySide(Array(0..<UInt64(Profile.isFull ? 150 : 8)) + [74, 122]) { take in
            try await Lane.with { lane in
                while let seed = take() { try await Self.permute(Tale(seed: seed, users: users), seed, on: lane) }
            }
        }
    }

    private static func permute(_ tale: Tale, _ seed: UInt64, on lane: Lane) async throws {
        var first: [String]?
        for order in 0..<3 {
            var generator = SeededGenerator(seed: seed * 100 + UInt64(order))
            let readings = order == 0 ? tale.readings : tale.shuffled(&generator)
            var run = Run(lane: lane, setup: tale.setup)
            let state: [String]
            do { state = try await run.apply(readings, last: tale.last) } catch {
                Issue.record("seed \(seed), order \(order): \((error as? Failed)?.text ?? "\(error)")")
                return
            }
            let expected = first ?? state
            first = expected
            #expect(state == expected, "seed \(seed), order \(order)")
        }
    }
}

/// What a store said at some moments: one reading each, of one user, that began then.
private struct Tale {
    struct Moment {
        var user: Int
        var taken: Taken
    }

    var setup: HistorySetup
    var readings: [Moment] = []
    /// A last reading of each user.
    var last: [Moment] = []

    /// The store gives its word on everything: silence counts by its place in time, so it is left out.
    init(seed: UInt64, users: Int) {
        var generator = SeededGenerator(seed: seed)
        let items = (0..<generator.pick(1, 2, 3)).map { index in
            StoreItem(customer: generator.below(users), names: ["rc-\(index)", "st-\(index)"])
        }
        setup = HistorySetup(assetBatch: 2, users: (0..<users).map { _ in (.free, .active) }, items: items)
        var truth = StoreTruth(items: items)
        let base: Int64 = 1_700_000_000_000_000
        for moment in 0..<generator.pick(4, 5, 6) {
            let words: [StoreChange] = [.renew, .expire, .refund, .announceEnd, .grace, .pause, .billingRetry]
            var change = words[generator.below(words.count)]
            if users > 1, generator.oneIn(3) { change = .move(to: generator.below(users)) }
            truth.apply(change, to: generator.below(items.count), users: users)
            let at = Instant(microseconds: base + Int64(moment) * 1_000_000)
            readings.append(Self.moment(generator.below(users), truth, at))
        }
        let end = Instant(microseconds: base + 1_000_000_000)
        last = (0..<users).map { Self.moment($0, truth, end) }
    }

    private static func moment(_ user: Int, _ truth: StoreTruth, _ at: Instant) -> Moment {
        let items = truth.listing(for: user)
        let observations = items.map { $0.observation(for: user) }
        let reading = Reading(coverage: .full, askedAt: at, observations: observations)
        return Moment(user: user, taken: Taken(reading: reading, truth: items, manner: .full))
    }

    /// Another order, with some readings twice.
    func shuffled(_ generator: inout SeededGenerator) -> [Moment] {
        (readings + readings.filter { _ in generator.oneIn(2) }).shuffled(using: &generator)
    }
}

extension Run {
    /// Hands readings to jobs in their order.
    ///
    /// - Returns: types, assets and ledger in words that do not depend on the order in which rows were made.
    fileprivate mutating func apply(_ readings: [Tale.Moment], last: [Tale.Moment]) async throws -> [String] {
        try await begin()
        for user in model.people.indices { try await host(user, .addLapsedAssets(3)) }
        for moment in readings { try await hand(moment) }
        // Silence about a purchase that moved away was noted once; the word of a last reading settles it.
        if model.people.count > 1 {
            for moment in last + last + last { try await hand(moment) }
        }
        while let user = model.people.indices.first(where: { model.people[$0].run != nil }) {
            try await make(.assets(.a, user: user))
        }
        try await compare()
        let rows = model.purchases.indices.filter { model.purchases[$0].mergedInto == nil }.map { index in
            let facts = model.purchases[index].facts
            let held = model.names.filter { $0.value == index }.map(\.key.value).sorted()
            return "\(held) of \(facts.ownerKey ?? 0): \(facts.status.raw), \(facts.observedAt.microseconds)"
        }
        return rows.sorted() + model.lines.filter { $0.hasPrefix("user|") }
            + model.assets.values.map { "\($0.owner) \($0.reasons)" }.sorted()
    }

    /// Has a reading applied by a job of its user's own; gives it up where it was overtaken.
    private mutating func hand(_ moment: Tale.Moment) async throws {
        try await make(.reconcile(user: moment.user))
        try await make(.claim(.a, 9))
        try await compare()
        // Jobs of other users that were queued beside it wait for readings of their own.
        for place in workers[.a]?.hands.indices ?? 0..<0 where workers[.a]?.hands[place].user == moment.user {
            workers[.a]?.hands[place].taken = moment.taken
        }
        try await make(.apply(.a, upTo: 9))
        try await make(.again(.a))
        try await compare()
        try await make(.restart(.a))
        for job in model.jobs.indices where model.jobs[job].state == .queued {
            guard let id = model.jobs[job].id else { continue }
            let answer = try await commands.cancel(id)
            try expect(answer.rawValue == model.cancel(job), "a queued job could not be canceled")
        }
    }
}
