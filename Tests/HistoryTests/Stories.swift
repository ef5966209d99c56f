import Entitlements
import TestSupport

/// Short stories that lead to the situations worth seeing; what happens between them is chance.
struct Stories {
    let users: Int
    let items: Int
    /// Where runs over many users go on: who has each item at first.
    var owners: [Int] = []

    /// Who plays in a story.
    struct Cast {
        var one: Int
        var other: Int
        var item: Int
        var second: Int
        var near: Side
        var far: Side

        /// A whole round of a worker: claim, read, apply.
        func work(_ manner: Manner = .full, _ side: Side? = nil) -> [Step] {
            let side = side ?? near
            return [.claim(side, 9), .read(side, pick: nil, manner), .apply(side, upTo: 9)]
        }

        /// The item is the first one's own, listed, paid for and mapped.
        var own: [Step] {
            [.store(item: item, .move(to: one)), .store(item: item, .reappear), .store(item: item, .renew)]
        }

        func ask(_ user: Int? = nil) -> Step { .tap(user: user ?? one) }
    }

    /// The next story.
    mutating func next(_ generator: inout SeededGenerator) -> [Step] {
        let near = generator.pick(Side.a, .b)
        let one = generator.below(users)
        let item = generator.below(items)
        let cast = Cast(
            one: one,
            other: (one + 1 + generator.below(users - 1)) % users,
            item: item,
            second: items > 1 ? (item + 1 + generator.below(items - 1)) % items : item,
            near: near,
            far: near == .a ? .b : .a
        )
        if !owners.isEmpty, generator.below(5) > 0 {
            var owning = cast
            owning.one = owners[item]
            owning.other = (owning.one + 1 + generator.below(users - 1)) % users
            return Self.runs(Self.runStories[generator.below(Self.runStories.count)], &generator, owning)
        }
        if generator.oneIn(5) { return [Self.anything(&generator, cast)] }
        if generator.oneIn(7) { return Self.oddities(generator.below(5), &generator, cast) }
        let story = Self.weighted[generator.below(Self.weighted.count)]
        return story.tell(story.number, &generator, cast)
    }

    private typealias Teller = @Sendable (Int, inout SeededGenerator, Cast) -> [Step]
    private typealias Story = (tell: Teller, number: Int)

    /// Each story as often as its weight.
    private static let weighted: [Story] =
        [
            each(10, lives), each(17, races), each(12, moves), each(4, failures), each(5, assets),
            // More often those whose situations are rare without that.
            again(2, assets, 0), again(2, assets, 1), again(1, lives, 3), again(1, moves, 9), again(1, failures, 1),
            again(1, moves, 6), again(3, races, 9), again(2, assets, 3), again(3, moves, 9),
        ].flatMap(\.self)

    private static func each(_ count: Int, _ tell: @escaping Teller) -> [Story] { (0..<count).map { (tell, $0) } }

    private static func again(_ weight: Int, _ tell: @escaping Teller, _ number: Int) -> [Story] {
        Array(repeating: (tell, number), count: weight)
    }

    /// One step by itself.
    private static func anything(_ generator: inout SeededGenerator, _ cast: Cast) -> Step {
        let changes: [StoreChange] = [
            .renew, .announceEnd, .expire, .refund, .pause, .grace, .billingRetry, .pend, .unknownWord,
            .unknownWithAccess, .fallSilent, .vanish, .reappear, .move(to: cast.one), .becomeAnonymous,
            .share(with: cast.other), .join(with: cast.second), .overlap(with: cast.second), .becomeGems,
            .follow(cast.second), .turnLists, .register,
        ]
        let hosts: [HostChange] = [
            .ban, .banForGood, .askDeletion, .onboard, .activate, .activate, .remove, .signUpAgain, .makeSubscriber,
            .makeFree, .addAssets(2), .addLapsedAssets(3), .addMysteriousAsset, .moderate, .clearModeration,
            .giveAsset(to: cast.other), .dropAsset,
        ]
        switch generator.below(15) {
        case 0, 1: return .store(item: cast.item, changes[generator.below(changes.count)])
        case 2, 3: return .host(user: cast.one, hosts[generator.below(hosts.count)])
        case 4: return .tap(user: cast.one, key: generator.below(2))
        case 5: return .grant(user: cast.one)
        case 6: return .endGrant(user: cast.one, revoking: generator.oneIn(2))
        case 7: return .cancel(generator.below(8))
        case 8: return .retryDead(generator.below(8))
        case 9: return .pause(generator.pick("demotions", "all"), generator.oneIn(2))
        case 10: return .sandbox(user: cast.one, allowed: generator.oneIn(2))
        case 11: return .wait
        case 12: return .beat(cast.near)
        case 13: return generator.pick(.pay(user: cast.one), .endPay(user: cast.one))
        default:
            return generator.pick(.restart(cast.near), .rescue(cast.near), .again(cast.near), .map(generator.oneIn(2)))
        }
    }

    /// A reading that failed, in one of the ways.
    static func failure(_ generator: inout SeededGenerator) -> Manner {
        let codes: [ReadFailure.Code] = [
            .throttled, .unavailable, .timeout, .malformed, .unauthorized, .rejected, .budgetExhausted, .breakerOpen,
            .interrupted, .locked,
        ]
        return .failed(codes[generator.below(codes.count)], wished: generator.oneIn(3))
    }

    static func go(_ parts: [Step]...) -> [Step] { Array(parts.joined()) }
}
