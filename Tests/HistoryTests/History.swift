@testable import Entitlements
import TestSupport

/// How the workers of a history are configured, and how its world begins.
struct HistorySetup: Sendable {
    var mode = Mode.full
    /// Margins of nothing or of a hundred years: the database's clock cannot be moved.
    var hasMargin = false
    var brakeMinimum = 1000
    var maxAttempts = 3
    /// Retries wait an hour, or not at all.
    var backsOff = false
    var assetBatch = 1000
    var users: [(type: UserType, status: UserStatus)] = []
    var items: [StoreItem] = []

    var decision: DecisionSettings {
        let margin = Duration.seconds(hasMargin ? 3_155_760_000 : 0)
        return DecisionSettings(
            mode: mode,
            absenceMargin: margin,
            absenceMarginGooglePlay: margin,
            backgroundCheck: nil
        )
    }

    var brake: DemotionBrake { DemotionBrake(percent: 0, minimum: brakeMinimum) }

    var retry: RetryPolicy {
        RetryPolicy(
            maxAttempts: maxAttempts,
            backoffBase: backsOff ? .seconds(3600) : .zero,
            // An open breaker waits a share of the job's age, which nobody can foresee.
            backoffCap: backsOff ? .seconds(7200) : .zero,
            maxAge: .seconds(86_400)
        )
    }

    var description: String {
        let people = users.enumerated().map {
            "u\($0.offset) \($0.element.type.rawValue) \($0.element.status.rawValue)"
        }
        let things = items.enumerated().map { index, item in
            "i\(index) of \(item.customer.map { "u\($0)" } ?? "nobody") \(item.store) \(item.environment)"
                + (item.isOneTime ? " one-time" : "") + " \(item.status)"
        }
        return "mode \(mode.rawValue), margin \(hasMargin ? "huge" : "none"), brake \(brakeMinimum), attempts "
            + "\(maxAttempts), backoff \(backsOff ? "an hour" : "none"), asset batch \(assetBatch)\n"
            + (people + things).joined(separator: "; ")
    }
}

/// A made-up history.
struct History: Sendable {
    var seed: UInt64
    var setup: HistorySetup
    var steps: [Step]

    /// The first seed of histories with runs.
    static let runs: UInt64 = 1_000_000

    /// Makes up a history of 20 to 60 steps: short stories, two of which often run into each other.
    ///
    /// From `runs` on, most of them are about runs over many users.
    init(seed: UInt64) {
        self.seed = seed
        var generator = SeededGenerator(seed: seed)
        setup = HistorySetup(&generator)
        steps = []
        let length = generator.oneIn(3) ? 20 + generator.below(41) : 60
        let hasRuns = seed >= Self.runs
        if hasRuns { setup.giveEachOne(&generator) }
        var stories = Stories(
            users: setup.users.count,
            items: setup.items.count,
            owners: hasRuns ? setup.items.compactMap(\.customer) : []
        )
        while steps.count < length {
            let story = stories.next(&generator)
            guard generator.oneIn(hasRuns ? 4 : 2) else {
                steps += story
                continue
            }
            steps += Self.shuffle(story, stories.next(&generator), &generator)
        }
        steps = Array(steps.prefix(60))
    }

    /// Both in their own order, one into the other.
    private static func shuffle(_ left: [Step], _ right: [Step], _ generator: inout SeededGenerator) -> [Step] {
        var (first, second) = (left[...], right[...])
        var merged: [Step] = []
        while let step = first.first ?? second.first {
            if second.isEmpty || !first.isEmpty && generator.oneIn(2) {
                merged.append(step)
                first = first.dropFirst()
            } else {
                merged += second.prefix(1)
                second = second.dropFirst()
            }
        }
        return merged
    }
}

extension HistorySetup {
    /// Every user has one item, so that what becomes of it decides; seldom one has another.
    fileprivate mutating func giveEachOne(_ generator: inout SeededGenerator) {
        let more = generator.oneIn(4) ? 1 : 0
        items = (0..<users.count + more).map { index in
            var item = StoreItem(customer: index % users.count, names: itemNames(index))
            if generator.oneIn(5) { item.store = "play_store" }
            return item
        }
        if generator.oneIn(2) { mode = .full }
        if generator.oneIn(2) { for index in users.indices { users[index].status = .active } }
    }

    fileprivate init(_ generator: inout SeededGenerator) {
        if generator.oneIn(10) { mode = generator.pick(.promoteOnly, .observe) }
        hasMargin = generator.oneIn(4)
        brakeMinimum = generator.pick(0, 1, 1000, 1000, 1000, 1000, 1000, 1000)
        maxAttempts = generator.pick(1, 2, 2, 3)
        backsOff = generator.oneIn(4)
        assetBatch = generator.pick(1, 2, 2, 3, 1000)
        users = (0..<generator.pick(2, 2, 3, 3, 4, 5)).map { _ in
            (
                generator.oneIn(3) ? .subscriber : .free,
                generator.oneIn(6) ? generator.pick(.onboarding, .banned, .toBeDeleted) : .active
            )
        }
        items = (0..<generator.pick(1, 2, 3, 3, 4, 5, 6)).map { index in
            var item = StoreItem(customer: generator.below(users.count), names: itemNames(index))
            if generator.oneIn(5) { item.store = "play_store" }
            if generator.oneIn(7) { item.environment = "sandbox" }
            if generator.oneIn(3) {
                item.isAtStore = true
                item.isAtRevenueCat = generator.oneIn(3)
                item.account = generator.oneIn(4) ? nil : generator.below(users.count)
                // RevenueCat will hear of it for the same user, as a rule.
                if let account = item.account, !generator.oneIn(3) { item.customer = account }
            }
            if generator.oneIn(10) {
                item.isOneTime = true
                item.set("owned", true, ends: nil, renewal: nil)
            }
            if generator.oneIn(5) { item.set("expired", false, ends: StoreTruth.past, renewal: "will_not_renew") }
            return item
        }
    }
}
