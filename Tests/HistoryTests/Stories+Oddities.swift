import Entitlements
import TestSupport

extension Stories {
    /// What goes wrong around the stores and the host: keys, spellings, clocks, support.
    static func oddities(_ number: Int, _ generator: inout SeededGenerator, _ cast: Cast) -> [Step] {
        switch number {
        case 0:
            // A store that suddenly knows no customer, read several times.
            return go(
                cast.own,
                [.reconcile(user: cast.one)],
                cast.work(),
                [.othersKey(true), .reconcile(user: cast.one)],
                cast.work(),
                [generator.pick(cast.ask(), .wait)],
                cast.work(),
                [.othersKey(false), .retryDead(0), .wait],
                cast.work()
            )
        case 1:
            // A resubscription beside what it follows, in any order of the list, and silence afterwards.
            return go(
                cast.own,
                generator.oneIn(2) ? [.reconcile(user: cast.one)] : [],
                cast.work(),
                [.store(item: cast.second, .reappear), .store(item: cast.second, .follow(cast.item))],
                generator.oneIn(2) ? [.store(item: cast.item, .turnLists)] : [],
                [.reconcile(user: cast.one)],
                cast.work(),
                [.reconcile(user: cast.one)],
                cast.work(),
                [.store(item: cast.second, .vanish), .store(item: cast.item, .vanish), .reconcile(user: cast.one)],
                cast.work(),
                [.store(item: cast.second, .reappear)]
            )
        case 2:
            // Support makes a user a subscriber by hand after we took access away.
            return go(
                cast.own,
                [.reconcile(user: cast.one)],
                cast.work(),
                [.store(item: cast.item, .expire), .reconcile(user: cast.one)],
                cast.work(),
                [.host(user: cast.one, .makeSubscriber), .reconcile(user: cast.one)],
                cast.work(),
                [cast.ask()],
                cast.work()
            )
        case 3:
            // A purchase of which its store's event is the first word; RevenueCat hears of it later.
            return go(
                [.notify(item: cast.item)],
                cast.work(),
                [.reconcile(user: cast.one)],
                cast.work(),
                [.store(item: cast.item, .register), generator.pick(cast.ask(), cast.ask(cast.other))],
                cast.work(),
                [.notify(item: cast.item), .reconcile(user: cast.one)],
                cast.work()
            )
        default:
            // The database's clock was ahead for a while.
            return go(
                cast.own,
                [.reconcile(user: cast.one)],
                cast.work(),
                [.clockJump(user: cast.one)],
                [.store(item: cast.item, generator.pick(.renew, .expire, .announceEnd)), cast.ask()],
                cast.work(),
                cast.work()
            )
        }
    }
}
