import Entitlements
import Testing

/// What becomes of proofs.
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
