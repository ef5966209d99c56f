import Entitlements
import TestSupport

/// What one user lives through, and what races for the user's job.
extension Stories {
    static func lives(_ number: Int, _ generator: inout SeededGenerator, _ cast: Cast) -> [Step] {
        switch number {
        case 0:
            return go([cast.ask()], cast.work())
        case 1:
            return go([.reconcile(user: cast.one)], cast.work())
        case 2:
            let over = generator.pick(StoreChange.expire, .expire, .refund, .pause, .billingRetry)
            return go(
                cast.own,
                [.reconcile(user: cast.one)],
                cast.work(),
                [.store(item: cast.item, over), .reconcile(user: cast.one)],
                cast.work()
            )
        case 3:
            return go(
                cast.own,
                [.store(item: cast.item, .announceEnd), .reconcile(user: cast.one)],
                cast.work(),
                [.store(item: cast.item, .expire), .reconcile(user: cast.one)],
                cast.work()
            )
        case 4:
            return go(
                [.reconcile(user: cast.one)],
                cast.work(),
                [
                    .store(item: cast.item, generator.pick(.vanish, .fallSilent, .grace)), .reconcile(user: cast.one),
                ],
                cast.work(),
                [.store(item: cast.item, .vanish), .reconcile(user: cast.one)],
                cast.work(),
                [.reconcile(user: cast.one)],
                cast.work()
            )
        case 5:
            let pause = generator.pick("demotions", "all")
            return go(
                [.reconcile(user: cast.one), .store(item: cast.item, .expire)],
                cast.work(),
                [
                    .pause(pause, true), cast.ask(), .reconcile(user: cast.one),
                ],
                cast.work(),
                [.pause(pause, false)],
                cast.work(),
                cast.work()
            )
        case 6:
            if generator.oneIn(2) {
                return go(
                    [.grant(user: cast.one)],
                    cast.work(),
                    [.endGrant(user: cast.one, revoking: true)],
                    cast.work()
                )
            }
            return go(
                [.store(item: cast.item, .expire), .pay(user: cast.one)],
                cast.work(),
                [.endPay(user: cast.one), generator.pick(.endPay(user: cast.one), .pay(user: cast.one))],
                cast.work(),
                [.endPay(user: cast.one), cast.ask()],
                cast.work()
            )
        case 7:
            return go(
                [.sandbox(user: cast.one, allowed: true), cast.ask()],
                cast.work(),
                [
                    .sandbox(user: cast.one, allowed: false), .reconcile(user: cast.one),
                ],
                cast.work()
            )
        case 8:
            let error = generator.pick(
                "receipt_already_in_use",
                "7",
                "LOGIN_DISCARDED",
                "app_not_registered",
                "cancelled",
                "no such error"
            )
            return go([.tap(user: cast.one, proof: cast.item, error: error)], cast.work())
        default:
            return go(
                [.tap(user: cast.other, proof: cast.item)],
                cast.work(),
                [.tap(user: cast.other, proof: cast.item)],
                cast.work()
            )
        }
    }

    static func races(_ number: Int, _ generator: inout SeededGenerator, _ cast: Cast) -> [Step] {
        switch number {
        case 0:
            return go([cast.ask(), .reconcile(user: cast.one), cast.ask()], cast.work(), cast.work())
        case 1:
            return go(
                [
                    cast.ask(), .claim(cast.near, 1), cast.ask(), .reconcile(user: cast.one),
                    .read(cast.near, pick: nil, .full),
                ],
                [.apply(cast.near, upTo: 9)],
                cast.work(),
                cast.work()
            )
        case 2:
            let change = generator.pick(HostChange.ban, .banForGood, .askDeletion, .remove)
            let back = change == .remove ? HostChange.signUpAgain : .activate
            return go(
                [cast.ask(), .claim(cast.near, 9), .read(cast.near, pick: nil, .full), .host(user: cast.one, change)],
                [.apply(cast.near, upTo: 9), .host(user: cast.one, back)]
            )
        case 3:
            return go(
                [cast.ask(), .claim(cast.near, 9), .read(cast.near, pick: nil, .full), .expire(cast.near)],
                [
                    .rescue(cast.far), .store(item: cast.item, .expire),
                ],
                cast.work(.full, cast.far),
                [.apply(cast.near, upTo: 9), .beat(cast.near)]
            )
        case 4:
            return go(
                [
                    cast.ask(), .claim(cast.near, 9), .read(cast.near, pick: nil, .full), .expire(cast.near),
                    .apply(cast.near, upTo: 9), .beat(cast.near), .rescue(cast.near),
                ],
                cast.work()
            )
        case 5:
            return go(
                [cast.ask(), cast.ask(cast.other)],
                [.claim(cast.near, 9), .read(cast.near, pick: nil, .full)],
                [
                    .apply(cast.near, upTo: 9), .tap(user: cast.one), .claim(cast.near, 9), .again(cast.near),
                    .read(cast.near, pick: nil, .full), .apply(cast.near, upTo: 9), .again(cast.near),
                ]
            )
        case 6:
            return go([
                cast.ask(), .claim(cast.near, 9), .cancel(0), .read(cast.near, pick: nil, .full),
                .apply(cast.near, upTo: 9),
            ])
        case 7:
            return go(
                [
                    cast.ask(), .claim(cast.near, 9), .cancel(0), .expire(cast.near), .beat(cast.near),
                    .rescue(cast.far),
                ],
                [
                    .reconcile(user: cast.one), generator.pick(.cancel(0), cast.ask()),
                ],
                cast.work(.full, cast.far),
                cast.work(.full, cast.far)
            )
        case 8:
            return go(
                [
                    cast.ask(), .claim(cast.near, 9), cast.ask(), .restart(cast.near), .cancel(1),
                ],
                cast.work(.full, cast.far),
                cast.work(.full, cast.far)
            )
        case 9:
            let held = generator.pick(HeldRow.user(cast.one), .queue(of: cast.one), .asset(of: cast.one))
            return go(
                [.host(user: cast.one, .addLapsedAssets(2)), cast.ask(), .claim(cast.near, 9)],
                [
                    .read(cast.near, pick: nil, .full), .apply(cast.near, upTo: 9, held: held),
                    .apply(cast.near, upTo: 9),
                ]
            )
        case 10:
            let crash: [Step] = [.claim(cast.near, 9), .expire(cast.near), .beat(cast.near), .rescue(cast.far)]
            return go([cast.ask()], crash, crash, crash, cast.work())
        case 11:
            return go(
                [
                    cast.ask(), cast.ask(cast.other), .reconcile(user: cast.one), .claim(cast.near, 1),
                    .claim(cast.far, 9),
                ],
                [
                    .read(cast.near, pick: nil, .full),
                    .store(item: cast.item, generator.pick(.renew, .expire, .vanish)),
                    .read(cast.far, pick: nil, .full), .apply(cast.far, upTo: 9), .apply(cast.near, upTo: 9),
                ]
            )
        case 12:
            // A successor takes the place of a job that has failed before.
            return go(
                [cast.ask(), .claim(cast.near, 9), cast.ask(), .read(cast.near, pick: nil, failure(&generator))],
                [.apply(cast.near, upTo: 9), .cancel(1), .wait],
                cast.work()
            )
        case 13:
            return go(
                [cast.ask(), .reconcile(user: cast.one)],
                cast.work(.failed(.timeout, wished: generator.oneIn(2))),
                [.cancel(generator.below(3)), cast.ask()],
                cast.work(),
                cast.work()
            )
        case 14:
            return go(
                [.tap(user: cast.one, key: 1), .tap(user: cast.one, key: 1), cast.ask(), .claim(cast.near, 9)],
                [.read(cast.near, pick: nil, .full), .pause("all", true), .apply(cast.near, upTo: 9)],
                [.pause("all", false), .tap(user: cast.one, key: 1), .tap(user: cast.one, error: "7", key: 1)],
                cast.work()
            )
        case 15:
            // A batch is sent again after its job went back to the queue and was taken by the other worker.
            return go(
                [cast.ask()],
                cast.work(.failed(generator.pick(.timeout, .interrupted), wished: false)),
                [.wait, .claim(cast.far, 9), .again(cast.near), .read(cast.far, pick: nil, .full)],
                [.again(cast.near), .apply(cast.far, upTo: 9)]
            )
        default:
            return go([.reconcile(user: cast.one)], cast.work(), [.reconcile(user: cast.one)], cast.work(.stale(0)))
        }
    }
}
