import Entitlements
import Testing

@Suite struct StoreAttributionTests {
    static let me = Scene.userKey
    static let none: Int64? = nil

    /// Whom the item names, whether the user has shown it, whether it gives access, the ledger's owner; whose it is then.
    static let cases: [(NamedOwner, shown: Bool, access: Bool, owner: Int64?, Attribution)] = [
        (.account, true, true, none, .own(purchase: 5, merging: [])),
        (.account, false, true, none, .own(purchase: 5, merging: [])),
        (.account, true, false, none, .own(purchase: 5, merging: [])),
        (.account, true, true, me, .own(purchase: 5, merging: [])),
        (.account, true, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
        (.otherAccount(id: "y"), true, true, none, .foreign(purchase: 5, owner: nil, account: "y")),
        (.otherAccount(id: "y"), false, true, none, .foreign(purchase: 5, owner: nil, account: "y")),
        (.otherAccount(id: "y"), true, true, me, .contradicted(purchase: 5, accountKey: nil, account: "y")),
        (.otherAccount(id: "y"), true, true, 2, .foreign(purchase: 5, owner: 2, account: "y")),
        (.unnamed, true, true, none, .own(purchase: 5, merging: [])),
        (.unnamed, false, true, none, .unowned(purchase: 5, merging: [])),
        (.unnamed, true, false, none, .unowned(purchase: 5, merging: [])),
        (.unnamed, true, true, me, .own(purchase: 5, merging: [])),
        (.unnamed, false, false, me, .own(purchase: 5, merging: [])),
        (.unnamed, true, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
        (.unnamed, false, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
        (.unattributable, true, true, none, .unattributed(purchase: 5)),
        (.unattributable, true, true, me, .own(purchase: 5, merging: [])),
        (.unattributable, true, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
    ]

    func attributed(_ item: Observation, _ rows: [Purchase], eligible: Bool = true) -> Attribution {
        attribute(item, holders: rows, userKey: Scene.userKey, eligible: eligible, askedAt: noon)
    }

    @Test(arguments: cases)
    func `L1, 4, 18, 19: whose an item is by its store's word, the proof and the ledger`(
        named: NamedOwner,
        shown: Bool,
        access: Bool,
        owner: Int64?,
        expected: Attribution
    ) {
        let item = stored(named, access ? "active" : "expired", access: access, shown: shown)
        #expect(attributed(item, [row(5, owner: owner)]) == expected)
    }

    @Test func `What no row knows becomes a row of its own`() {
        #expect(attributed(stored(.account), []) == .new)
        #expect(attributed(stored(.unnamed), []) == .new)
        #expect(attributed(stored(.unnamed, shown: false), []) == .unowned(purchase: nil, merging: []))
        #expect(attributed(stored(.unattributable), []) == .unattributed(purchase: nil))
        #expect(attributed(stored(.otherAccount(id: "y")), []) == .foreign(purchase: nil, owner: nil, account: "y"))
        #expect(Attribution.unowned(purchase: nil, merging: []).isNew && Attribution.unattributed(purchase: nil).isNew)
        #expect(!Attribution.unowned(purchase: 5, merging: []).isNew)
    }

    /// Whom the item names, whether it gives access, the ledger's owner; whose it is if an operator names the user.
    static let imported: [(NamedOwner, access: Bool, owner: Int64?, Attribution)] = [
        (.unnamed, true, none, .own(purchase: 5, merging: [])),
        (.unnamed, false, none, .own(purchase: 5, merging: [])),
        (.unnamed, true, me, .own(purchase: 5, merging: [])),
        (.unnamed, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
        (.account, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
        (.otherAccount(id: "y"), true, none, .foreign(purchase: 5, owner: nil, account: "y")),
        (.otherAccount(id: "y"), true, me, .contradicted(purchase: 5, accountKey: nil, account: "y")),
        (.heldElsewhere(id: "y"), true, none, .foreign(purchase: 5, owner: nil, account: "y")),
        (.unattributable, true, none, .unattributed(purchase: 5)),
    ]

    @Test(arguments: imported)
    func `An operator's word makes an owner where nothing else names one, and replaces none`(
        named: NamedOwner,
        access: Bool,
        owner: Int64?,
        expected: Attribution
    ) {
        var item = stored(named, access ? "active" : "expired", access: access, shown: false)
        item.isImported = true
        #expect(attributed(item, [row(5, owner: owner)]) == expected)
        if case .own = expected, owner == nil {
            #expect(attributed(item, []) == .new)
            #expect(attributed(item, [], eligible: false) == .unowned(purchase: nil, merging: []))
            var named = row(5, owner: nil)
            named.accountKey = 2
            #expect(attributed(item, [named]) == .unowned(purchase: 5, merging: []))
        }
    }

    @Test func `L1: identifiers of different owners are a collision here too`() {
        #expect(attributed(stored(.account), [row(5), row(6, owner: 2)]) == .collision(purchase: 6, owner: 2))
    }

    @Test func `L6: nobody who is not eligible becomes an owner by a proof`() {
        #expect(attributed(stored(.unnamed), [], eligible: false) == .unowned(purchase: nil, merging: []))
    }

    @Test func `L9: what people moved outranks the id that the store keeps echoing`() {
        let moved = row(5, transferred: .zero - day)
        #expect(attributed(stored(.otherAccount(id: "y")), [moved]) == .own(purchase: 5, merging: []))
    }

    @Test func `21: RevenueCat's word and the app's id contradict each other, and neither has its way`() {
        let both = [item("active", access: true), stored(.otherAccount(id: "y"), shown: false)]
        for rows in [[], [row(5)]] {
            let attributions = attribute(
                both,
                holders: [rows, rows],
                userKey: Scene.userKey,
                eligible: true,
                askedAt: noon
            )
            #expect(attributions.map(\.name) == ["contradicted", "contradicted"])
            #expect(attributions.map(\.isNew) == [false, rows.isEmpty], "the ledger remembers who was named")
        }
    }

    @Test(arguments: [false, true])
    func `21: a second reading of what is contradicted makes nobody the owner, in any order`(isTurned: Bool) {
        let told = item("active", access: true, id: "T1")
        // Its store names another user's account, here and for what follows it.
        var items = [told, stored(.otherAccount(id: "x"), id: "T1"), stored(.otherAccount(id: "x"), id: "T1")]
        for index in items.indices.dropFirst() { items[index].identifiers = told.identifiers }
        if isTurned { items.reverse() }
        let disputed = row(5, owner: nil, account: 2)
        for rows in [[], [disputed]] {
            let attributions = attribute(
                items,
                holders: items.map { _ in rows },
                userKey: Self.me,
                eligible: true,
                askedAt: noon
            )
            #expect(attributions.allSatisfy { $0.name == "contradicted" }, "\(attributions)")
        }
    }

    @Test func `21: what was contradicted stays so until people decide`() {
        let named = row(5, account: 2)
        let expected = Attribution.contradicted(purchase: 5, accountKey: 2, account: nil)
        #expect(attributed(item("active", access: true), [named]) == expected)
        #expect(attributed(item("active", access: true), [row(5, owner: nil, account: 2)]) == expected)
        #expect(attributed(stored(.unnamed), [row(5, owner: nil, account: 2)]) == .unowned(purchase: 5, merging: []))
        var settled = named
        settled.transferredAt = noon - hour
        #expect(attributed(item("active", access: true), [settled]) == .own(purchase: 5, merging: []))
        #expect(attributed(item("active", access: true), [row(5, account: 1)]) == .own(purchase: 5, merging: []))
    }

    @Test func `What nobody holds, and was seen since the read began, is read again before somebody has it`() {
        for owner in [NamedOwner.account, .unnamed] {
            let newer = row(5, owner: nil, observed: hour)
            #expect(
                attribute(stored(owner), holders: [newer], userKey: Scene.userKey, eligible: true, askedAt: noon)
                    == .overtaken
            )
            // Nor is what the user has already merged into it.
            #expect(
                attribute(
                    stored(owner),
                    holders: [newer, row(6)],
                    userKey: Scene.userKey,
                    eligible: true,
                    askedAt: noon
                )
                    == .overtaken
            )
        }
    }
}
