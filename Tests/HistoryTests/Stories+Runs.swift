import Entitlements
import Runs
import TestSupport

/// Runs over many users, and what becomes of accounts and purchases in their middle.
extension Stories {
    static func runs(_ number: Int, _ generator: inout SeededGenerator, _ cast: Cast) -> [Step] {
        // Who pays no more; whoever was read before is a subscriber then.
        let ends: [Step] = [.store(item: cast.item, generator.pick(.expire, .expire, .refund, .pause))]
        let own: [Step] = [.store(item: cast.item, .reappear), .store(item: cast.item, .renew)]
        let subscribed = go(own, [.reconcile(user: cast.one)], cast.work())
        let written: [Step] = go([.feed(9)], cast.work(), [.plan])
        let few = generator.pick(1, 2, 9)
        let swept: [Step] = go([.feed(few), .feed(9), .feed(9)], cast.work(), [.plan])
        switch number {
        case 0:
            return go(subscribed, ends, [.sweep(.all)], swept, written)
        case 1:
            let word = generator.pick(
                Step.release(0),
                .release(0),
                .cancelRun(0),
                .release(0, wrong: true),
                .release(0, wrong: true)
            )
            return go(subscribed, ends, [.sweep(.all, most: 0)], swept, [word], written)
        case 2:
            return go(
                subscribed,
                ends,
                [.sweep(.all, isDry: true), .feed(few), .feed(9), .feed(9), .part(cast.near), .part(cast.far)],
                [.part(cast.near), .part(cast.far), .part(cast.near), .plan, .release(0), .release(1)],
                written
            )
        case 3:
            return go(
                subscribed,
                ends,
                [.fallDue(user: cast.one), .fallDue(user: cast.other), .sweep(.due), .sweep(.due)],
                swept,
                written
            )
        case 4:
            return go(subscribed, [.sweep(.since)], ends, swept, written)
        case 5:
            // Somebody is erased in the middle.
            let moment = generator.below(4)
            let fate: [Step] = [.erase(user: cast.one)]
            return go(
                subscribed,
                ends,
                [.sweep(.all, most: generator.pick(nil, 0)), .feed(9), .claim(cast.near, 9)],
                moment == 0 ? fate : [],
                [.read(cast.near, pick: nil, .full)],
                moment == 1 ? fate : [],
                [.apply(cast.near, upTo: 9)],
                moment == 2 ? fate : [],
                [.plan],
                moment == 3 ? fate : [],
                [.release(0)],
                written,
                [cast.ask()],
                cast.work()
            )
        case 6:
            // Support moves a purchase in the middle.
            let fate: [Step] = [.transfer(item: cast.item, to: cast.other, echoes: generator.oneIn(3))]
            let isEarly = generator.oneIn(2)
            return go(
                subscribed,
                [.tap(user: cast.other, proof: cast.item, error: "7")],
                cast.work(),
                isEarly ? fate : [],
                [.sweep(.all, most: generator.pick(nil, 0)), .feed(9)],
                isEarly ? [] : fate,
                cast.work(),
                [.plan, .release(0)],
                written,
                cast.work()
            )
        case 7:
            // Everything stands still for a while, and what was allowed is written afterwards.
            let pause = generator.pick("demotions", "all")
            return go(
                subscribed,
                ends,
                [.sweep(.all)],
                swept,
                [.pause(pause, true), .feed(9), .pause(pause, false), .feed(9), .claim(cast.near, 9)],
                [.read(cast.near, pick: nil, .full), .pause("demotions", true), .apply(cast.near, upTo: 9)],
                [.pause("demotions", false), .plan, .feed(9), .wait],
                written
            )
        case 8:
            // Nobody can read those who were allowed.
            return go(
                subscribed,
                ends,
                [.sweep(.all)],
                swept,
                [.feed(9)],
                cast.work(.failed(generator.pick(.timeout, .rejected), wished: false)),
                [.wait],
                cast.work(.failed(.unavailable, wished: false)),
                [.wait],
                cast.work(.failed(.unavailable, wished: false)),
                [.plan, .wait],
                written
            )
        case 9:
            // What a run holds is held from whoever reads the user meanwhile, unless they pay again.
            return go(
                subscribed,
                ends,
                [.sweep(.all, most: 0)],
                swept,
                [.reconcile(user: cast.one)],
                cast.work(),
                generator.oneIn(2) ? [.store(item: cast.item, .renew), cast.ask()] : [],
                cast.work(),
                [generator.pick(.host(user: cast.one, .ban), .host(user: cast.one, .activate)), .release(0)],
                written
            )
        case 10:
            // A later run finds the same, and stands for the earlier one.
            return go(
                subscribed,
                ends,
                [.sweep(.all, most: 0)],
                swept,
                [.sweep(.all, most: generator.pick(0, 9))],
                generator.oneIn(2) ? [.host(user: cast.one, .ban)] : [],
                swept,
                written
            )
        case 11:
            // Nothing but a sweep finds that a grant has ended.
            return go(
                [.store(item: cast.item, .expire), .grant(user: cast.one)],
                cast.work(),
                [.endGrant(user: cast.one, revoking: generator.oneIn(3)), .sweep(.all)],
                swept,
                [.sweep(.all)],
                swept,
                written
            )
        case 12:
            // An end that was known before counts for nothing; one beside it does.
            return go(
                own,
                [.store(item: cast.item, .announceEnd), .reconcile(user: cast.one)],
                cast.work(),
                ends,
                [.sweep(.all, most: 0)],
                swept,
                [.release(0)],
                written
            )
        case 13:
            // Two runs speak of one user, and one is given up.
            return go(
                subscribed,
                ends,
                [.sweep(.all, isDry: true), .feed(9), .part(cast.near), .plan, .sweep(.since, most: 0), .release(1)],
                [.feed(9)],
                cast.work(),
                [.plan, generator.pick(.cancelRun(0), .cancelRun(1), .release(0))],
                written
            )
        case 14:
            // The purchase comes to another user while the run goes on: whom an event names waits for no run.
            return go(
                subscribed,
                [.sweep(.all), .feed(9), .store(item: cast.item, .move(to: cast.other)), cast.ask(cast.other)],
                [.claim(cast.near, 9), .read(cast.near, pick: nil, .full), .apply(cast.near, upTo: 1)],
                [.apply(cast.near, upTo: 9)],
                ends,
                cast.work(),
                cast.work(),
                [.plan],
                written
            )
        case 15:
            return go(
                subscribed,
                ends,
                [.sweep(.all), .feed(1), .cancelRun(0)],
                cast.work(),
                [.plan, cast.ask()],
                cast.work()
            )
        default:
            // An account is erased beside everything else, and its user comes back.
            return go(
                subscribed,
                [.host(user: cast.one, .addLapsedAssets(3)), cast.ask(), .claim(cast.near, 9)],
                generator.oneIn(2) ? [.read(cast.near, pick: nil, .full)] : [],
                generator.oneIn(3) ? [.host(user: cast.one, .remove)] : [],
                [.erase(user: cast.one), .read(cast.near, pick: nil, .full), .apply(cast.near, upTo: 9)],
                [.host(user: cast.one, .signUpAgain), cast.ask(), .reconcile(user: cast.one)],
                cast.work(),
                cast.work()
            )
        }
    }

    /// What is rarest by itself comes more often.
    static let runStories = [
        0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 12, 13, 14, 15, 16,
    ]
}
