import Entitlements
import Testing

/// Whose the items of one reading are where they name one purchase together.
@Suite struct ReadingAttributionTests {
    private static let second = row(6, firstSeen: .zero - day * 40)
    private static let theirs = row(7, owner: 2)

    /// Items by their names, each with the rows that the ledger has under them, and whose each is.
    static let readings: [(String, [(Observation, [Purchase])], [Attribution])] = [
        (
            "one is on record", [(told("a", "b"), [row(5)]), (told("b", "c"), [])],
            [.own(purchase: 5, merging: []), .own(purchase: 5, merging: [])]
        ),
        (
            "through a third", [(told("a", "b"), [row(5)]), (told("b", "c"), []), (told("c", "d"), [])],
            [.own(purchase: 5, merging: []), .own(purchase: 5, merging: []), .own(purchase: 5, merging: [])]
        ),
        (
            "both are on record, apart", [(told("a", "b"), [row(5)]), (told("b", "c"), [second])],
            [.own(purchase: 6, merging: [5]), .own(purchase: 6, merging: [5])]
        ),
        (
            "one moves to the user", [(told("a", "b"), [theirs]), (told("b", "c"), [])],
            [.followed(purchase: 7, from: 2, merging: []), .followed(purchase: 7, from: 2, merging: [])]
        ),
        (
            "another's stays theirs", [(told("a", "b", isFamilyShared: true), [theirs]), (told("b", "c"), [])],
            [.disagree(purchase: 7, owner: 2), .disagree(purchase: 7, owner: 2)]
        ),
        (
            "one item of a purchase is family-shared",
            [(told("a"), [theirs]), (told("b", isFamilyShared: true), [theirs]), (told("c"), [row(5)])],
            [.disagree(purchase: 7, owner: 2), .disagree(purchase: 7, owner: 2), .own(purchase: 5, merging: [])]
        ),
        (
            "moved by support, under a new name",
            [
                (told("a"), [moved]), (told("a", "b", source: .appStore), [moved]), (told("b"), []),
                (told("c"), [row(5)]),
            ],
            [
                .disagree(purchase: 7, owner: 2), .foreign(purchase: 7, owner: 2, account: nil),
                .disagree(purchase: 7, owner: 2), .own(purchase: 5, merging: []),
            ]
        ),
        (
            "moved by support, and not listed any more",
            [(told("a", "b", source: .appStore), [moved]), (told("b"), [])],
            [.foreign(purchase: 7, owner: 2, account: nil), .disagree(purchase: 7, owner: 2)]
        ),
        (
            "between another's that moves and the user's",
            [
                (told("a", "b"), [theirs]), (told("b", "c"), []), (told("c", "d", source: .appStore), []),
                (told("d"), [row(5)]),
            ],
            [
                .followed(purchase: 7, from: 2, merging: []), .own(purchase: 5, merging: []),
                .own(purchase: 5, merging: []), .own(purchase: 5, merging: []),
            ]
        ),
        (
            "another's account, of the user's own and of what is beside it",
            [
                (told("a", "b"), [row(5)]), (told("b", owner: .otherAccount(id: "z"), source: .appStore), []),
                (told("b", source: .appStore), []),
            ],
            [
                .contradicted(purchase: 5, accountKey: nil, account: nil),
                .contradicted(purchase: 5, accountKey: nil, account: "z"),
                .contradicted(purchase: 5, accountKey: nil, account: nil),
            ]
        ),
        (
            "of another user whom the account id names",
            [(told("a", "b", source: .appStore), [row(7, owner: 2, account: 2)]), (told("b"), [])],
            [
                .foreign(purchase: 7, owner: 2, account: nil),
                .contradicted(purchase: 7, accountKey: 2, account: nil),
            ]
        ),
        (
            "beside another's account",
            [
                (told("a", "b", owner: .otherAccount(id: "z"), source: .appStore), []),
                (told("b", source: .appStore, isSubmitted: true), []),
            ],
            [.foreign(purchase: nil, owner: nil, account: "z"), .foreign(purchase: nil, owner: nil, account: "z")]
        ),
        (
            "another's account, on record as another's",
            [(told("a", "b", owner: .otherAccount(id: "y"), source: .appStore), [theirs]), (told("b"), [])],
            [
                .contradicted(purchase: 7, accountKey: nil, account: "y"),
                .contradicted(purchase: nil, accountKey: nil, account: nil),
            ]
        ),
        (
            "moved by support, beside a third user's",
            [
                (told("a", "b", source: .appStore), [moved]), (told("b", "c", source: .appStore), [row(8, owner: 3)]),
                (told("b"), []),
            ],
            [
                .foreign(purchase: 7, owner: 2, account: nil), .foreign(purchase: 8, owner: 3, account: nil),
                .disagree(purchase: 7, owner: 2),
            ]
        ),
        (
            "the user's own, beside what was moved by support",
            [
                (told("a", "b"), [moved]), (told("c", "d"), [row(5)]),
                (told("b", "d", "e", source: .appStore), [moved, row(5)]), (told("e"), []),
            ],
            [
                .disagree(purchase: 7, owner: 2), .own(purchase: 5, merging: []), .collision(purchase: 7, owner: 2),
                .own(purchase: 5, merging: []),
            ]
        ),
        (
            "moves to the user whom the account id names as well",
            [(told("a", "b"), [theirs]), (told("b", "c", owner: .account, source: .appStore), [])],
            [.followed(purchase: 7, from: 2, merging: []), .new]
        ),
        ("nothing in common", [(told("a"), [row(5)]), (told("b"), [])], [.own(purchase: 5, merging: []), .new]),
    ]

    @Test(arguments: readings.indices)
    func `L1: items of one reading that share a name are one purchase, in any order`(place: Int) {
        let (name, items, expected) = Self.readings[place]
        for order in Self.orders(of: Array(items.indices)) {
            let attributions = attribute(
                order.map { items[$0].0 },
                holders: order.map { items[$0].1 },
                userKey: Scene.userKey,
                eligible: true,
                askedAt: noon
            )
            #expect(attributions == order.map { expected[$0] }, "\(name), \(order)")
        }
    }

    private static let moved = row(7, owner: 2, transferred: .zero - day * 9)

    private static func orders(of places: [Int]) -> [[Int]] {
        guard let last = places.last else { return [[]] }
        return orders(of: places.dropLast()).flatMap { order in
            (0...order.count).map { Array(order[..<$0]) + [last] + Array(order[$0...]) }
        }
    }

    /// An item by its names: RevenueCat's word about the asked user, or another's.
    private static func told(
        _ names: String...,
        isFamilyShared: Bool = false,
        owner: NamedOwner? = nil,
        source: Store = .revenueCat,
        isSubmitted: Bool = false
    ) -> Observation {
        var told = item("active", access: true, ownership: isFamilyShared ? "family_shared" : "purchased")
        told.owner = owner ?? (source == .revenueCat ? .askedUser : .unnamed)
        told.source = source
        told.isSubmitted = isSubmitted
        told.identifiers = names.map {
            PurchaseIdentifier(value: $0, store: told.store, environment: told.environment, kind: "purchase")
        }
        return told
    }
}
