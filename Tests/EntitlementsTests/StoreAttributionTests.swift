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
    Observation(
        kind: .subscription,
        store: source.rawValue,
        environment: environment,
        identifiers: [
            PurchaseIdentifier(value: id, store: source.rawValue, environment: environment, kind: "store_id")
        ],
        entitlements: entitlements,
        status: StoreStatus(status),
        givesAccess: access,
        periodEndsAt: ends.map { noon + $0 },
        ownership: ownership,
        owner: owner,
        source: source,
        isShown: shown,
        lookupID: id,
        boughtAt: noon + bought
    )
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
        (.nobody, true, true, none, .own(purchase: 5, merging: [])),
        (.nobody, false, true, none, .unowned(purchase: 5, merging: [])),
        (.nobody, true, false, none, .unowned(purchase: 5, merging: [])),
        (.nobody, true, true, me, .own(purchase: 5, merging: [])),
        (.nobody, false, false, me, .own(purchase: 5, merging: [])),
        (.nobody, true, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
        (.nobody, false, true, 2, .foreign(purchase: 5, owner: 2, account: nil)),
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
        #expect(attributed(stored(.nobody), []) == .new)
        #expect(attributed(stored(.nobody, shown: false), []) == .unowned(purchase: nil, merging: []))
        #expect(attributed(stored(.unattributable), []) == .unattributed(purchase: nil))
        #expect(attributed(stored(.otherAccount(id: "y")), []) == .foreign(purchase: nil, owner: nil, account: "y"))
        #expect(Attribution.unowned(purchase: nil, merging: []).isNew && Attribution.unattributed(purchase: nil).isNew)
        #expect(!Attribution.unowned(purchase: 5, merging: []).isNew)
    }

    @Test func `L1: identifiers of different owners are a collision here too`() {
        #expect(attributed(stored(.account), [row(5), row(6, owner: 2)]) == .collision(purchase: 6, owner: 2))
    }

    @Test func `L6: nobody who is not eligible becomes an owner by a proof`() {
        #expect(attributed(stored(.nobody), [], eligible: false) == .unowned(purchase: nil, merging: []))
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

    @Test func `21: what was contradicted stays so until people decide`() {
        let named = row(5, account: 2)
        let expected = Attribution.contradicted(purchase: 5, accountKey: 2, account: nil)
        #expect(attributed(item("active", access: true), [named]) == expected)
        #expect(attributed(item("active", access: true), [row(5, owner: nil, account: 2)]) == expected)
        #expect(attributed(stored(.nobody), [row(5, owner: nil, account: 2)]) == .unowned(purchase: 5, merging: []))
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
        let verdict = Scene(.restore, .free, stored(.nobody, source: store)).verdict
        #expect(verdict?.outcome == .restored && verdict?.rule == .storeAccess)
    }

    @Test func `4: a proof of another's purchase is a mismatch with a ticket`() throws {
        var scene = Scene(.restore, .free)
        scene.reads = [.init(stored(.nobody), holders: [row(5, owner: 2)])]
        let verdict = try #require(scene.verdict)
        #expect(verdict.outcome == .storeAccountMismatch && verdict.rule == .proofOfAnothers)
        let ticket = try #require(verdict.tickets.first)
        #expect(ticket.kind == .ownerMismatch && ticket.purchase == 5 && ticket.ownerKey == 2 && ticket.isVisible)
        #expect(ticket.priority == 1)
    }

    @Test func `17, 178, 179: only what was bought first a moment ago is money just taken`() throws {
        for (bought, priority) in [(Duration.seconds(-600), Int16(0)), (.zero - day, 1)] {
            var scene = Scene(.restore, .free)
            scene.reads = [.init(stored(.nobody, bought: bought), holders: [row(5, owner: 2)])]
            let ticket = try #require(scene.verdict?.tickets.first)
            #expect(ticket.kind == .ownerMismatch && ticket.priority == priority)
        }
    }

    @Test func `A mismatch waits for all reads, and access of one's own comes before it`() {
        var scene = Scene(.restore, .free)
        scene.reads = [.init(stored(.nobody), holders: [row(5, owner: 2)])]
        scene.coverage = .partial
        scene.failure = ReadFailure(.unavailable, store: .googlePlay)
        #expect(scene.resolution == .retry(ReadFailure(.unavailable, store: .googlePlay)))
        scene.reads.append(.init(item("active", access: true, id: "own")))
        #expect(scene.verdict?.outcome == .restored)
        #expect(scene.verdict?.tickets.isEmpty == true)
    }

    @Test func `5: what was not shown is no mismatch`() {
        var scene = Scene(.restore, .free)
        scene.reads = [.init(stored(.nobody, shown: false), holders: [row(5, owner: 2)])]
        #expect(scene.verdict?.outcome == .nothingToRestore)
        #expect(scene.verdict?.tickets.isEmpty == true)
    }

    @Test func `What is over says so to who has shown it, and belongs to nobody`() {
        let scene = Scene(.restore, .free, stored(.nobody, "expired", access: false))
        #expect(scene.verdict?.messageKey == .nothingExpired)
        let unseen = Scene(.restore, .free, stored(.nobody, "expired", access: false, shown: false))
        #expect(unseen.verdict?.messageKey == .nothing)
        let pending = Scene(.restore, .free, stored(.nobody, "incomplete", access: false))
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
        let scene = Scene(.restore, .free, stored(.nobody, ownership: "family_shared"))
        #expect(scene.verdict?.outcome == .restored)
    }

    @Test func `157: a sandbox purchase that was shown restores only who is allowed`() {
        var scene = Scene(.restore, .free, stored(.nobody, environment: "sandbox"))
        #expect(scene.verdict?.messageKey == .nothingSandbox)
        scene.sandbox = .allowed
        #expect(scene.verdict?.outcome == .restored)
    }

    @Test func `L3: a store that is not asked any more takes nothing away`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.unlisted = [row(5, source: .onside)]
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

@Suite struct NextLookTests {
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
        ("App Store, running", stored(.account, ends: day * 20), day * 20 + .seconds(60)),
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
            NextLook(Reading(coverage: .full, askedAt: noon, observations: [item]), [.new]),
            "\(name)"
        )
        #expect(look.at == expected.map { noon + $0 }, "\(name)")
    }

    @Test func `A reading without items of the stores themselves plans a look only where silence has to be read twice`()
    {
        var reading = Reading(coverage: .full, askedAt: noon, observations: [item("active", access: true, ends: hour)])
        #expect(NextLook(reading, [.new], outcome: .deferred, margin: day * 2)?.at == noon + day * 2)
        #expect(NextLook(reading, [.new])?.at == nil && NextLook(reading, [.new]) != nil, "an older plan is over")
        reading.covered = [.revenueCat]
        #expect(NextLook(reading, [.new], outcome: .deferred) == nil)
        reading.covered = [.revenueCat, .onside]
        reading.coverage = .partial
        #expect(NextLook(reading, [.new], outcome: .deferred) == nil)
    }

    @Test func `A verdict may plan an earlier look than its items do, or none`() {
        let reading = Reading(coverage: .full, askedAt: noon, observations: [stored(.account, ends: day * 20)])
        #expect(NextLook(reading, [.new], outcome: .deferred, margin: day)?.at == noon + day)
        #expect(NextLook(reading, [.new], outcome: .deferred, margin: day * 30)?.at == noon + day * 20 + .seconds(60))
        #expect(NextLook(reading, [.new], outcome: .notEligible) == NextLook(at: nil))
    }

    @Test func `RevenueCat's yes stands until its period ends, where the stores were not asked`() {
        let items = [item("active", access: true, ends: hour), item("active", access: true, ends: day)]
        var reading = Reading(coverage: .partial, askedAt: noon, observations: items, covered: [.revenueCat, .onside])
        #expect(NextLook(reading, [.new, .new], grants: true)?.at == noon + day + .seconds(60))
        #expect(NextLook(reading, [.new, .anonymous], grants: true)?.at == noon + hour + .seconds(60))
        reading.covered = [.revenueCat]
        #expect(NextLook(reading, [.new, .new], grants: true) == nil)
    }

    @Test func `What nobody holds, and was seen since the read began, is read again before somebody has it`() {
        for owner in [NamedOwner.account, .nobody] {
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
