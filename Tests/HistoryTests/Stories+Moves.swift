import Entitlements
import TestSupport

/// Purchases that move and merge, readings that fail, assets that go on.
extension Stories {
    static func moves(_ number: Int, _ generator: inout SeededGenerator, _ cast: Cast) -> [Step] {
        switch number {
        case 0:
            return go(
                cast.own,
                [cast.ask()],
                cast.work(),
                [
                    .store(item: cast.item, .move(to: cast.other)), cast.ask(cast.other),
                ],
                cast.work(),
                cast.work()
            )
        case 1:
            // The reading that names the former owner is applied after the one that names the new owner.
            return go(
                cast.own,
                [
                    cast.ask(),
                    .claim(cast.near, 9), .read(cast.near, pick: nil, .full),
                    .store(item: cast.item, .move(to: cast.other)),
                    cast.ask(cast.other),
                ],
                cast.work(.full, cast.far),
                [.apply(cast.near, upTo: 9)],
                cast.work(),
                cast.work()
            )
        case 2:
            return go(
                [
                    .store(item: cast.item, .move(to: cast.one)), cast.ask(),
                ],
                cast.work(),
                [
                    .store(item: cast.item, .move(to: cast.other)), cast.ask(cast.other), .claim(cast.near, 9),
                    .read(cast.near, pick: nil, .full), .apply(cast.near, upTo: 9, held: .queue(of: cast.one)),
                    .apply(cast.near, upTo: 9),
                ],
                cast.work()
            )
        case 3:
            // One batch with the former and the new owner.
            return go(
                cast.own,
                [cast.ask()],
                cast.work(),
                [
                    .reconcile(user: cast.one), .store(item: cast.item, .move(to: cast.other)), cast.ask(cast.other),
                    .claim(cast.near, 9), .read(cast.near, pick: nil, .full),
                    .apply(cast.near, upTo: 9, turn: generator.below(3)),
                ],
                cast.work(),
                cast.work()
            )
        case 4:
            return go(
                [
                    .store(item: cast.item, .move(to: cast.one)), .store(item: cast.second, .move(to: cast.one)),
                    .store(item: cast.item, .reappear), .store(item: cast.second, .reappear),
                    .reconcile(user: cast.one),
                ],
                cast.work(),
                [.store(item: cast.item, .join(with: cast.second)), .reconcile(user: cast.one)],
                cast.work()
            )
        case 5:
            return go(
                [
                    .store(item: cast.item, .move(to: cast.one)), .store(item: cast.second, .move(to: cast.other)),
                    .reconcile(user: cast.one), .reconcile(user: cast.other),
                ],
                cast.work(),
                [.store(item: cast.item, .join(with: cast.second)), cast.ask()],
                cast.work()
            )
        case 6:
            return go(
                [
                    .store(item: cast.item, .move(to: cast.one)), .store(item: cast.second, .move(to: cast.one)),
                    .store(item: cast.item, .overlap(with: cast.second)), cast.ask(),
                ],
                cast.work(),
                [.reconcile(user: cast.one)],
                cast.work()
            )
        case 7:
            return go(
                cast.own,
                [cast.ask()],
                cast.work(),
                [
                    .store(item: cast.item, .becomeFamilyShared), .store(item: cast.item, .move(to: cast.other)),
                    cast.ask(cast.other),
                ],
                cast.work()
            )
        case 8:
            return go([.store(item: cast.item, .share(with: cast.one)), cast.ask()], cast.work())
        case 10:
            // Two rows of one owner come to another user as one item.
            return go(
                [.store(item: cast.item, .move(to: cast.one)), .store(item: cast.second, .move(to: cast.one))],
                [.store(item: cast.item, .reappear), .store(item: cast.second, .reappear), .reconcile(user: cast.one)],
                cast.work(),
                [.store(item: cast.item, .join(with: cast.second)), .store(item: cast.item, .move(to: cast.other))],
                [cast.ask(cast.other)],
                cast.work()
            )
        case 9:
            // Three items of one user: the third shows the second's names, and the second the first's.
            return go(
                (0..<3).flatMap { [Step.store(item: $0, .move(to: cast.one)), .store(item: $0, .reappear)] },
                [.reconcile(user: cast.one)],
                cast.work(),
                [.store(item: 2, .overlap(with: 1)), .store(item: 1, .overlap(with: 0)), .reconcile(user: cast.one)],
                cast.work(),
                [.reconcile(user: cast.one)],
                cast.work()
            )
        default:
            return go(
                [
                    .store(item: cast.item, .share(with: cast.one)), .store(item: cast.item, .becomeAnonymous),
                    cast.ask(),
                ],
                cast.work()
            )
        }
    }

    static func failures(_ number: Int, _ generator: inout SeededGenerator, _ cast: Cast) -> [Step] {
        switch number {
        case 0:
            return go(
                [cast.ask()],
                cast.work(failure(&generator)),
                [generator.pick(.wait, cast.ask())],
                cast.work(failure(&generator)),
                [.wait],
                cast.work(failure(&generator)),
                [.retryDead(0)],
                cast.work()
            )
        case 1:
            return go(
                cast.own,
                [.map(false), .store(item: cast.item, .becomeGold), cast.ask(), .reconcile(user: cast.one)],
                cast.work(),
                cast.work(),
                [.wait],
                cast.work(),
                cast.work(),
                [.wait],
                cast.work(),
                cast.work(),
                [.map(true)],
                cast.work(),
                [
                    .map(false)
                ]
            )
        case 2:
            return go([cast.ask(), .reconcile(user: cast.one)], cast.work(.partial(generator.below(2))))
        default:
            return go(
                [
                    .claim(cast.near, 9), .read(cast.near, pick: 0, failure(&generator)),
                    .read(cast.near, pick: nil, .full),
                ],
                [.apply(cast.near, upTo: 2, turn: generator.below(3)), .apply(cast.near, upTo: 9)]
            )
        }
    }

    static func assets(_ number: Int, _ generator: inout SeededGenerator, _ cast: Cast) -> [Step] {
        switch number {
        case 0:
            return go(
                cast.own,
                [.store(item: cast.second, .expire), .store(item: cast.item, .renew)],
                [
                    .host(user: cast.one, .addLapsedAssets(9)), cast.ask(),
                ],
                cast.work(),
                [.assets(cast.near, user: cast.one), .store(item: cast.item, .expire)],
                [
                    .reconcile(user: cast.one)
                ],
                cast.work(),
                [.assets(cast.far, user: cast.one), .assets(cast.near, user: cast.one)]
            )
        case 1:
            return go(
                cast.own,
                [.store(item: cast.second, .expire), .store(item: cast.item, .renew)],
                [
                    .host(user: cast.one, .addAssets(9)), cast.ask(),
                ],
                cast.work(),
                [.store(item: cast.item, .expire), .reconcile(user: cast.one)],
                cast.work(),
                [
                    .assets(cast.near, user: cast.one), .store(item: cast.item, .renew), cast.ask(),
                ],
                cast.work(),
                [.assets(cast.near, user: cast.one), .assets(cast.far, user: cast.one)]
            )
        case 2:
            return go(
                [.host(user: cast.one, .addLapsedAssets(4)), .host(user: cast.one, .moderate), cast.ask()],
                cast.work(),
                [
                    .host(user: cast.one, generator.pick(.ban, .makeFree, .giveAsset(to: cast.other), .dropAsset)),
                    .assets(cast.near, user: cast.one), .assets(cast.near, user: cast.one),
                    .host(user: cast.one, .activate),
                ]
            )
        case 3:
            // A run that was cut off lies about until its direction is right again; it is still of the past.
            return go(
                cast.own,
                [.store(item: cast.second, .expire), .store(item: cast.item, .renew)],
                [.host(user: cast.one, .addLapsedAssets(9)), cast.ask()],
                cast.work(),
                [.store(item: cast.item, .expire), .reconcile(user: cast.one)],
                cast.work(),
                (0..<8).map { _ in .host(user: cast.one, .dropAsset) },
                [.store(item: cast.item, .renew), cast.ask()],
                cast.work(),
                [.host(user: cast.one, .addLapsedAssets(2)), .assets(cast.near, user: cast.one)]
            )
        default:
            return go(
                [.host(user: cast.one, .addAssets(3)), .host(user: cast.one, .addMysteriousAsset)],
                [
                    .host(user: cast.one, .moderate), .store(item: cast.item, .expire), .reconcile(user: cast.one),
                ],
                cast.work(),
                [.assets(cast.near, user: cast.one)]
            )
        }
    }
}
