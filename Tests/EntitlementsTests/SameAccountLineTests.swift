import Entitlements
import Testing

/// Several lines of one store account, of which the user has shown one.
@Suite struct SameAccountLineTests {
    static let me = Scene.userKey

    /// A line that the account's answer lists.
    static func line(
        _ id: String,
        _ owner: NamedOwner = .unnamed,
        ownership: String = "purchased",
        account: StoreAccount? = StoreAccount(answer: "1", id: "a"),
        access: Bool = true
    ) -> Observation {
        var item = stored(
            owner,
            access ? "active" : "expired",
            access: access,
            shown: false,
            id: id,
            ownership: ownership
        )
        item.storeAccount = account
        return item
    }

    static let own = (line("own", access: false), row(5, owner: me) as Purchase?)

    /// The other lines beside the user's own with their rows, and whether the open one speaks for the user.
    static let accounts: [(String, [(Observation, Purchase?)], eligible: Bool, speaks: Bool)] = [
        ("alone", [(line("open"), nil)], true, true),
        ("on record without an owner", [(line("open"), row(6, owner: nil))], true, true),
        ("without the store's name", [(line("open", account: StoreAccount(answer: "1")), nil)], true, true),
        ("of another name", [(line("open", account: StoreAccount(answer: "1", id: "b")), nil)], true, false),
        ("of another answer", [(line("open", account: StoreAccount(answer: "2", id: "a")), nil)], true, false),
        ("of no account", [(line("open", account: nil), nil)], true, false),
        ("family-shared", [(line("open", ownership: "family_shared"), nil)], true, false),
        ("another user's by its token", [(line("open", .otherAccount(id: "y")), nil)], true, false),
        ("another user's by RevenueCat", [(line("open", .heldElsewhere(id: "y")), nil)], true, false),
        ("another user's on record", [(line("open"), row(6, owner: 2))], true, false),
        ("over", [(line("open", access: false), nil)], true, false),
        ("of a user who may not", [(line("open"), nil)], false, false),
        ("beside another user's", [(line("open"), nil), (line("theirs"), row(7, owner: 2))], true, false),
        ("beside a named user's", [(line("open"), nil), (line("theirs", .otherAccount(id: "y")), nil)], true, false),
        ("beside another open one", [(line("open"), nil), (line("too"), nil)], true, true),
    ]

    @Test(arguments: accounts.indices)
    func `A line without an owner speaks beside the user's own of one account, and becomes no one's by that`(
        place: Int
    ) throws {
        let (name, lines, eligible, speaks) = Self.accounts[place]
        for order in [[Self.own] + lines, lines.reversed() + [Self.own]] {
            let attributions = attribute(
                order.map(\.0),
                holders: order.map { $0.1.map { [$0] } ?? [] },
                userKey: Self.me,
                eligible: eligible,
                askedAt: noon
            )
            let index = try #require(order.firstIndex { $0.0.lookupID == "open" })
            #expect(attributions[index].mayGiveAccess == speaks, "\(name)")
            #expect(!attributions[index].counts, "\(name)")
        }
        let alone = attribute(
            lines.map(\.0),
            holders: lines.map { $0.1.map { [$0] } ?? [] },
            userKey: Self.me,
            eligible: true,
            askedAt: noon
        )
        let isHeard = alone.contains { $0.mayGiveAccess }
        #expect(!isHeard, "without a line of the user's own")
    }
}
