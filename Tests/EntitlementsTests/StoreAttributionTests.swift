import Entitlements
import Testing

/// An item that its store itself told of, which names no user of ours.
func stored(
    _ owner: NamedOwner,
    _ status: String = "active",
    access: Bool? = true,
    shown: Bool = true,
    source: Store = .appStore,
    id: String = "lineage-1",
    entitlements: [String] = ["premium"],
    environment: String = "production",
    bought: Duration = .zero - day * 30,
    ends: Duration? = nil,
    ownership: String = "purchased"
) -> Observation {
    var observation = Observation(
        kind: .subscription,
        store: source.rawValue,
        environment: environment,
        identifiers: [
            PurchaseIdentifier(value: id, store: source.rawValue, environment: environment, kind: "store_id")
        ],
        entitlements: entitlements,
        status: StoreStatus(status),
        givesAccess: access,
        ownership: ownership,
        owner: owner,
        source: source
    )
    observation.periodEndsAt = ends.map { noon + $0 }
    observation.isSubmitted = shown
    observation.lookupID = id
    observation.boughtAt = noon + bought
    return observation
}

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
}

/// What becomes of proofs (acceptance 1 to 3 and 10).
@Suite struct ProofScenarioTests {
    @Test(arguments: Store.allCases.dropFirst())
    func `7: the first proof of what nobody owns restores`(store: Store) {
        let verdict = Scene(.restore, .free, stored(.unnamed, source: store)).verdict
        #expect(verdict?.outcome == .restored && verdict?.rule == .storeAccess)
    }

    @Test func `4: a proof of another's purchase is a mismatch with a ticket`() throws {
        var scene = Scene(.restore, .free)
        scene.reads = [.init(stored(.unnamed), holders: [row(5, owner: 2)])]
        let verdict = try #require(scene.verdict)
        #expect(verdict.outcome == .storeAccountMismatch && verdict.rule == .proofOfAnothers)
        let ticket = try #require(verdict.tickets.first)
        #expect(ticket.kind == .ownerMismatch && ticket.purchase == 5 && ticket.ownerKey == 2 && ticket.isVisible)
        #expect(ticket.priority == 1)
    }

    @Test func `17, 178, 179: only what was bought first a moment ago is money just taken`() throws {
        for (bought, priority) in [(Duration.seconds(-600), Int16(0)), (.zero - day, 1)] {
            var scene = Scene(.restore, .free)
            scene.reads = [.init(stored(.unnamed, bought: bought), holders: [row(5, owner: 2)])]
            let ticket = try #require(scene.verdict?.tickets.first)
            #expect(ticket.kind == .ownerMismatch && ticket.priority == priority)
        }
    }

    /// Hours since the purchase, and since an event told of it.
    private static let firstSeen: [(bought: Int?, told: Int?, isFirstSeen: Bool)] = [
        (2, 1, true), (48, 1, true), (96, 1, false), (48, 96, false), (nil, 1, false), (2, nil, false),
    ]

    @Test(arguments: firstSeen)
    func `16: what an event told of for another account a short while ago is a case of its own, looked at first`(
        bought: Int?,
        told: Int?,
        isFirstSeen: Bool
    ) throws {
        var scene = Scene(.restore, .free)
        var item = stored(.unnamed)
        item.boughtAt = bought.map { noon - hour * $0 }
        scene.reads = [.init(item, holders: [row(5, owner: 2)])]
        scene.firstSeenByEvent = told.map { [5: noon - hour * $0] } ?? [6: noon - hour]
        let verdict = try #require(scene.verdict)
        #expect(verdict.outcome == .storeAccountMismatch && verdict.rule == .proofOfAnothers)
        let ticket = try #require(verdict.tickets.first)
        #expect(ticket.kind == (isFirstSeen ? .firstSeenElsewhere : .ownerMismatch) && ticket.isVisible)
        #expect(ticket.priority == (isFirstSeen ? 0 : 1) && ticket.purchase == 5 && ticket.ownerKey == 2)
    }

    @Test func `A mismatch waits for all reads, and access of one's own comes before it`() {
        var scene = Scene(.restore, .free)
        scene.reads = [.init(stored(.unnamed), holders: [row(5, owner: 2)])]
        scene.coverage = .partial
        scene.failure = ReadFailure(.unavailable, store: .googlePlay)
        #expect(scene.resolution == .retry(ReadFailure(.unavailable, store: .googlePlay)))
        scene.reads.append(.init(item("active", access: true, id: "own")))
        #expect(scene.verdict?.outcome == .restored)
        #expect(scene.verdict?.tickets.isEmpty == true)
    }

    @Test func `5: what was not shown is no mismatch`() {
        var scene = Scene(.restore, .free)
        scene.reads = [.init(stored(.unnamed, shown: false), holders: [row(5, owner: 2)])]
        #expect(scene.verdict?.outcome == .nothingToRestore)
        #expect(scene.verdict?.tickets.isEmpty == true)
    }

    @Test func `What is over says so to who has shown it, and belongs to nobody`() {
        let scene = Scene(.restore, .free, stored(.unnamed, "expired", access: false))
        #expect(scene.verdict?.messageKey == .nothingExpired)
        let unseen = Scene(.restore, .free, stored(.unnamed, "expired", access: false, shown: false))
        #expect(unseen.verdict?.messageKey == .nothing)
        let pending = Scene(.restore, .free, stored(.unnamed, "incomplete", access: false))
        #expect(pending.verdict?.messageKey == .nothingPendingPayment)
    }

    @Test(arguments: [UserType.free, .subscriber])
    func `21: contradicting sources keep everything and open a ticket`(type: UserType) throws {
        var scene = Scene(.restore, type)
        scene.reads = [
            .init(item("active", access: true), holders: [row(5)]),
            .init(stored(.otherAccount(id: "y")), holders: [row(5)]),
        ]
        for kind in JobKind.allCases {
            scene.kind = kind
            let verdict = try #require(scene.verdict)
            #expect(verdict.action == Action.none)
            #expect(verdict.tickets.map(\.kind) == [.sourcesDisagree])
            #expect(verdict.tickets.first?.ownerID == "y" || verdict.tickets.first?.ownerID == nil)
        }
        scene.kind = .restore
        #expect(scene.verdict?.outcome == (type == .free ? .storeAccountMismatch : .alreadySubscriber))
    }

    @Test func `Onside: an order without an account goes to people`() throws {
        for shown in [true, false] {
            let verdict = try #require(
                Scene(.restore, .free, stored(.unattributable, shown: shown, source: .onside)).verdict
            )
            #expect(verdict.outcome == .nothingToRestore && verdict.messageKey == .nothing)
            #expect(verdict.tickets.map(\.kind) == [.onsideUnattributed])
            #expect(verdict.tickets.first?.isVisible == shown, "whoever merely typed an id learns nothing")
        }
    }

    @Test func `62: a family member's share gives access`() {
        let scene = Scene(.restore, .free, stored(.unnamed, ownership: "family_shared"))
        #expect(scene.verdict?.outcome == .restored)
    }

    @Test func `157: a sandbox purchase that was shown restores only who is allowed`() {
        var scene = Scene(.restore, .free, stored(.unnamed, environment: "sandbox"))
        #expect(scene.verdict?.messageKey == .nothingSandbox)
        scene.sandbox = .allowed
        #expect(scene.verdict?.outcome == .restored)
    }

    @Test func `L3: a store that is not asked any more takes nothing away`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.unlisted = [row(5, ends: .zero - hour, source: .onside)]
        scene.covered = [.revenueCat]
        #expect(scene.verdict?.rule == .storeNotAsked)
        #expect(scene.verdict?.outcome == .deferred)
        scene.covered = [.revenueCat, .onside]
        #expect(scene.verdict?.rule == .firstAbsence)
        scene.unlisted = [row(5, "expired", access: false, source: .onside)]
        scene.covered = [.revenueCat]
        #expect(scene.verdict?.rule != .storeNotAsked, "what was over before needs no store to say so")
    }
}

@Suite struct ScheduledCheckTests {
    static let cases: [(String, Observation, Duration?)] = [
        ("Onside, running", stored(.account, source: .onside, ends: day * 20), day),
        ("Onside, ends soon", stored(.account, source: .onside, ends: hour), hour + .seconds(60)),
        (
            "34: Onside, just over", stored(.account, "expired", access: false, source: .onside, ends: .seconds(-61)),
            .seconds(839)
        ),
        (
            "34: Onside, over since an hour",
            stored(.account, "expired", access: false, source: .onside, ends: .zero - hour), hour * 5
        ),
        ("Onside, long over", stored(.account, "expired", access: false, source: .onside, ends: .zero - day * 3), nil),
        ("App Store, running", stored(.account, ends: day * 20), day * 19),
        ("App Store, ends within a day", stored(.account, ends: hour * 20), hour * 20 + .seconds(60)),
        (
            "31: Google Play, paused",
            stored(.account, "paused", access: false, source: .googlePlay, ends: .zero - day * 20),
            day
        ),
        (
            "28: App Store, tries to charge again",
            stored(.account, "in_billing_retry", access: false, ends: .zero - day * 60),
            day
        ),
        (
            "Google Play, paused for good",
            stored(.account, "paused", access: false, source: .googlePlay, ends: .zero - day * 61), nil
        ),
        ("49: awaits its payment", stored(.account, "incomplete", access: false, source: .googlePlay), hour),
    ]

    @Test(arguments: cases)
    func `28, 31, 34, 49: stores that send no word are asked around the ends of what they sold`(
        name: String,
        item: Observation,
        expected: Duration?
    ) throws {
        let look = try #require(
            self.look(Reading(coverage: .full, askedAt: noon, observations: [item])),
            "\(name)"
        )
        #expect(look.at == expected.map { noon + $0 }, "\(name)")
    }

    @Test func `A pause's own end is a moment to look, until it is over`() {
        var item = stored(.account, "paused", access: false, source: .googlePlay, ends: .zero - day)
        item.changesAt = noon + hour
        let reading = { (item: Observation) in Reading(coverage: .full, askedAt: noon, observations: [item]) }
        #expect(look(reading(item))?.at == noon + hour + .seconds(60))
        item.changesAt = noon + day * 9
        #expect(look(reading(item))?.at == noon + day, "it may be ended early")
        item.changesAt = noon - .seconds(61)
        #expect(look(reading(item))?.at == noon + day)
        item.periodEndsAt = noon - day * 80
        #expect(look(reading(item))?.at == nil)
        item.changesAt = noon + day * 5
        #expect(look(reading(item))?.at == noon + day * 5 + .seconds(60), "pauses may last three months")
    }

    @Test func `RevenueCat's items are asked about around their ends like any other's`() {
        let reading = Reading(
            coverage: .full,
            askedAt: noon,
            observations: [
                item("active", access: true, ends: day * 3), item("expired", access: false, ends: .zero - day),
            ],
            covered: [.revenueCat]
        )
        #expect(look(reading)?.at == noon + day, "the second of them ended a day ago")
        let alone = reading.with { $0.observations.removeLast() }
        #expect(look(alone)?.at == noon + day * 2, "it is asked before the end whether it will be renewed")
        #expect(look(alone.with { $0.askedAt = noon + day * 2 })?.at == noon + day * 3 + .seconds(60))
        #expect(look(alone.with { $0.observations[0].periodStartsAt = noon - day })?.at == noon + day * 2)
        #expect(
            look(alone.with { $0.observations[0].periodStartsAt = noon + day * 2 })?.at == noon + day * 3 - hour * 6,
            "a quarter of a short period"
        )
    }

    @Test func `What a store says of its purchase stands before what RevenueCat says of it`() {
        var told = item("active", access: true, id: "lineage-2", ends: .seconds(-1))
        let own = stored(.account, ends: day * 20)
        var reading = Reading(coverage: .full, askedAt: noon, observations: [told, own])
        #expect(look(reading)?.at == noon + .seconds(59))
        told.identifiers = own.identifiers
        reading.observations[0] = told
        #expect(look(reading)?.at == noon + day * 19)
    }

    @Test func `Where not all was read, only a yes plans anything`() {
        let items = [item("active", access: true, ends: hour), item("active", access: true, ends: day * 9)]
        var reading = Reading(coverage: .partial, askedAt: noon, observations: items, covered: [.revenueCat, .onside])
        #expect(look(reading, outcome: .deferred) == nil)
        #expect(look(reading, grants: true)?.at == noon + hour + .seconds(60))
        #expect(look(reading, [.anonymous, .new], grants: true)?.at == noon + day * 8)
        reading.observations = []
        #expect(look(reading, grants: true)?.at == nil && look(reading, grants: true) != nil, "an older plan is over")
    }

    @Test func `A verdict may plan an earlier look than its items do, or none`() {
        let reading = Reading(coverage: .full, askedAt: noon, observations: [stored(.account, ends: day * 20)])
        #expect(look(reading, outcome: .deferred)?.at == noon + day)
        #expect(look(reading, outcome: .deferred) { $0.margin = day * 30 }?.at == noon + day * 19)
        #expect(look(reading, outcome: .alreadySubscriber)?.at == noon + day, "a restore does not forget the silence")
        #expect(look(reading, outcome: .alreadySubscriber, grants: true)?.at == noon + day * 19)
        for rule in Rule.allCases {
            let waits = look(reading, outcome: .deferred) { $0.rule = rule }?.at == noon + day
            #expect(waits == !ScheduledCheck.untimed.contains(rule), "\(rule)")
        }
        let shut = look(reading, outcome: .notEligible) { $0.background = day * 30 }
        #expect(shut?.awaitsEligibility == true && shut?.at == nil)
        #expect(look(reading)?.awaitsEligibility == false)
    }

    @Test func `Access that no store knows of is looked at when it ends`() {
        let reading = Reading(coverage: .full, askedAt: noon)
        #expect(look(reading) { $0.ownEnds = [noon + hour, noon + day] }?.at == noon + hour + .seconds(60))
        #expect(look(reading) { $0.ownEnds = [noon] } == ScheduledCheck(at: nil))
    }

    @Test func `Nobody stays unread for longer than that`() throws {
        let reading = Reading(coverage: .full, askedAt: noon)
        let quiet = try #require(look(reading) { $0.background = day * 30 })
        #expect(quiet.at == noon + day * 30 && quiet.isBackground)
        let long = reading.with { $0.observations = [stored(.account, ends: day * 300)] }
        #expect(look(long) { $0.background = day * 30 }?.at == noon + day * 30)
        let short = reading.with { $0.observations = [stored(.account, ends: day * 20)] }
        let soon = try #require(look(short) { $0.background = day * 30 })
        #expect(soon.at == noon + day * 19 && !soon.isBackground)
    }

    @Test func `Those of whom the same is known have places of their own, each always the same`() {
        let reading = Reading(coverage: .full, askedAt: noon)
        let looks = (1...1000).compactMap { key in
            look(reading) {
                $0.background = day * 40
                $0.jitter = Jitter(userKey: Int64(key))
            }?.at
        }
        let days = Dictionary(grouping: looks) { ($0 - noon).components.seconds / 86_400 }
        #expect(looks.count == 1000 && days.keys.sorted() == Array(30...39))
        #expect(days.values.allSatisfy { (60...140).contains($0.count) }, "\(days.mapValues(\.count))")
        #expect(Jitter(userKey: 7) == Jitter(userKey: 7) && Jitter(userKey: 7) != Jitter(userKey: 8))
    }

    private func look(
        _ reading: Reading,
        _ attributions: [Attribution]? = nil,
        outcome: Outcome = .unchanged,
        grants: Bool = false,
        _ tell: (inout ScheduledCheck.Knowledge) -> Void = { _ in }
    ) -> ScheduledCheck? {
        var known = ScheduledCheck.Knowledge()
        known.grants = grants
        tell(&known)
        let mine = attributions ?? reading.observations.map { _ in .new }
        return ScheduledCheck(reading, mine, outcome: outcome, known: known)
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

    @Test func `L4: what its own store says is over is not given by RevenueCat, which has not heard of it`() {
        for (status, access) in [("expired", false), ("refunded", false)] {
            var scene = Scene(.restore, .free)
            scene.reads = [
                .init(item("active", access: true), holders: [row(5)]),
                .init(stored(.account, status, access: access), holders: [row(5)]),
            ]
            #expect(scene.verdict?.outcome == .nothingToRestore)
            scene.reads.reverse()
            #expect(scene.verdict?.outcome == .nothingToRestore, "whatever the order")
        }
        var scene = Scene(
            .restore,
            .free,
            item("active", access: true),
            stored(.account, "apple_status_9", access: false)
        )
        #expect(scene.verdict?.outcome == .restored, "an unknown word overrules nobody")
        scene = Scene(.restore, .free, item("active", access: true), stored(.account, entitlements: ["new_product"]))
        #expect(scene.verdict?.outcome == .restored, "nor does a product that nobody has mapped")
    }
}

extension Reading {
    fileprivate func with(_ change: (inout Reading) -> Void) -> Reading {
        var reading = self
        change(&reading)
        return reading
    }
}
