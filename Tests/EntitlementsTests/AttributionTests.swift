import Entitlements
import Testing

@Suite struct AttributionTests {
    /// The ledger rows under an item's identifiers, and whose the item is then.
    static let cases: [(String, [Purchase], Attribution)] = [
        ("nobody holds it", [], .new),
        ("nobody owns it", [row(5, owner: nil)], .own(purchase: 5, merging: [])),
        ("the user's", [row(5)], .own(purchase: 5, merging: [])),
        ("two of the user's", [row(5), row(4, firstSeen: .zero - day)], .own(purchase: 5, merging: [4])),
        ("of one age", [row(9), row(5), row(7)], .own(purchase: 5, merging: [7, 9])),
        (
            "the user's and nobody's", [row(5), row(4, owner: nil, firstSeen: .zero - day * 40)],
            .own(purchase: 4, merging: [5])
        ),
        ("another's", [row(5, owner: 2)], .followed(purchase: 5, from: 2, merging: [])),
        ("the user's and another's", [row(5), row(6, owner: 2)], .collision(purchase: 6, owner: 2)),
        ("two others'", [row(5, owner: 3), row(6, owner: 2)], .collision(purchase: 5, owner: 3)),
        ("another's, family", [row(5, owner: 2, familyShared: true)], .disagree(purchase: 5, owner: 2)),
        ("moved by people", [row(5, owner: 2, transferred: .zero - day * 9)], .disagree(purchase: 5, owner: 2)),
        ("read later for another", [row(5, owner: 2, observed: hour)], .overtaken),
        ("read at once for another", [row(5, owner: 2, observed: .zero)], .followed(purchase: 5, from: 2, merging: [])),
        ("the user's, moved by people", [row(5, transferred: .zero - day)], .own(purchase: 5, merging: [])),
        ("the user's, family", [row(5, familyShared: true)], .own(purchase: 5, merging: [])),
        ("the user's, read later", [row(5, observed: hour)], .own(purchase: 5, merging: [])),
    ]

    func attributed(_ item: Observation, _ rows: [Purchase], eligible: Bool = true) -> Attribution {
        attribute(item, holders: rows, userKey: Scene.userKey, eligible: eligible, askedAt: noon)
    }

    @Test(arguments: cases)
    func `L1, 194: the ledger rows under an item decide whose it is`(
        name: String,
        rows: [Purchase],
        expected: Attribution
    ) {
        #expect(attributed(item("active", access: true), rows) == expected, "\(name)")
        #expect(attributed(item("active", access: true), rows.reversed()) == expected, "\(name), the other way round")
    }

    @Test(arguments: cases)
    func `10: an item that names another user is that user's, whatever the ledger holds`(
        name: String,
        rows: [Purchase],
        _: Attribution
    ) {
        #expect(
            attributed(item("active", owner: .otherUser(id: "user-2")), rows) == .otherUser(id: "user-2"),
            "\(name)"
        )
        #expect(attributed(item("active", owner: .anonymous), rows) == .anonymous, "\(name)")
    }

    @Test func `62: a family-shared item never moves from one user to another`() {
        let shared = item("active", access: true, ownership: "family_shared")
        #expect(attributed(shared, [row(5, owner: 2)]) == .disagree(purchase: 5, owner: 2))
        #expect(attributed(shared, []) == .new)
        #expect(attributed(shared, [row(5)]) == .own(purchase: 5, merging: []))
    }

    @Test func `114: nothing moves to a user who is not eligible, but what nobody owns becomes theirs`() {
        let own = item("active", access: true)
        #expect(attributed(own, [row(5, owner: 2)], eligible: false) == .disagree(purchase: 5, owner: 2))
        #expect(attributed(own, [row(5, owner: nil)], eligible: false) == .own(purchase: 5, merging: []))
        #expect(attributed(own, [], eligible: false) == .new)
    }

    @Test func `L1: several rows of one other owner are merged, and the oldest follows`() {
        let rows = [row(6, owner: 2), row(5, owner: 2), row(7, owner: nil)]
        let expected = Attribution.followed(purchase: 5, from: 2, merging: [6, 7])
        #expect(attributed(item("active", access: true), rows) == expected)
        #expect(attributed(item("active", access: true), rows.reversed()) == expected)
    }

    @Test func `82: a read that began before the ledger's newest word about another owner is done again`() {
        let newer = row(6, owner: 2, observed: hour)
        #expect(attributed(item("active", access: true), [newer]) == .overtaken)
        #expect(attributed(item("active", access: true), [row(5, owner: 2), newer]) == .overtaken)
    }

    @Test func `194: a store that names two owners at once moves nothing to and fro`() {
        let item = item("active", access: true)
        var moved = row(5, owner: 2, ownerSince: .zero - hour)
        moved.formerOwnerKey = Scene.userKey
        #expect(attributed(item, [moved]) == .disagree(purchase: 5, owner: 2))
        moved.formerOwnerKey = 3
        #expect(attributed(item, [moved]) == .disagree(purchase: 5, owner: 2), "whoever is named third")
        moved.formerOwnerKey = nil
        #expect(attributed(item, [moved]) == .followed(purchase: 5, from: 2, merging: []))
    }

    @Test(arguments: [.zero - hour, .zero - day])
    func `77, 194: the ledger follows RevenueCat each time it names somebody else`(since: Duration) {
        let row = row(5, owner: 2, ownerSince: since)
        #expect(attributed(item("active", access: true), [row]) == .followed(purchase: 5, from: 2, merging: []))
    }

    @Test func `Only new, own and followed items speak for the user`() {
        let all: [(Attribution, Bool)] = [
            (.new, true), (.own(purchase: 1, merging: []), true), (.followed(purchase: 1, from: 2, merging: []), true),
            (.overtaken, false), (.disagree(purchase: 1, owner: 2), false), (.collision(purchase: 1, owner: 2), false),
            (.otherUser(id: "x"), false), (.anonymous, false), (.unowned(purchase: nil, merging: []), false),
            (.foreign(purchase: 1, owner: 2, account: nil), false), (.unattributed(purchase: nil), false),
            (.contradicted(purchase: 1, accountKey: 2, account: nil), false),
        ]
        for (attribution, counts) in all { #expect(attribution.counts == counts) }
        #expect(Set(all.map(\.0.name)).count == all.count)
    }

    @Test func `Identifiers are sorted, so that every worker inserts them in one order`() {
        let made = item("active", id: "z")
        #expect(made.identifiers == made.identifiers.sorted())
        #expect(made.identifiers.map(\.value) == ["rc-z", "z"])
    }
}
