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
            [.disagree(purchase: 7, owner: 2), .new]
        ),
        (
            "one item of a purchase is family-shared",
            [(told("a"), [theirs]), (told("b", isFamilyShared: true), [theirs]), (told("c"), [row(5)])],
            [.disagree(purchase: 7, owner: 2), .disagree(purchase: 7, owner: 2), .own(purchase: 5, merging: [])]
        ),
        ("nothing in common", [(told("a"), [row(5)]), (told("b"), [])], [.own(purchase: 5, merging: []), .new]),
    ]

    @Test(arguments: readings.indices)
    func `L1: items of one reading that share a name are one purchase, in any order`(place: Int) {
        let (name, items, expected) = Self.readings[place]
        for isTurned in [false, true] {
            let order = isTurned ? items.reversed() : items
            let attributions = attribute(
                order.map(\.0),
                holders: order.map(\.1),
                userKey: Scene.userKey,
                eligible: true,
                askedAt: noon
            )
            #expect(attributions == (isTurned ? expected.reversed() : expected), "\(name)")
        }
    }

    private static func told(_ names: String..., isFamilyShared: Bool = false) -> Observation {
        var told = item("active", access: true, ownership: isFamilyShared ? "family_shared" : "purchased")
        told.identifiers = names.map {
            PurchaseIdentifier(value: $0, store: told.store, environment: told.environment, kind: "purchase")
        }
        return told
    }
}
