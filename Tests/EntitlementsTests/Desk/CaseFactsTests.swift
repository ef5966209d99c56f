@testable import Entitlements
import Testing

/// What is known of a case, and what it comes to.
@Suite struct CaseFactsTests {
    private static let claimant = CaseAccount(
        key: 1,
        id: "claimant",
        user: User(id: "claimant", type: .free, status: .active),
        createdAt: noon - day * 100
    )
    private static let owner = CaseAccount(
        key: 2,
        id: "owner",
        user: User(id: "owner", type: .subscriber, status: .active),
        createdAt: noon - day * 400
    )

    /// The owner's subscription, of which RevenueCat says so.
    private static func inputs(_ change: (inout CaseInputs) -> Void = { _ in }) -> CaseInputs {
        let subject = item("active", access: true)
        var inputs = CaseInputs(claimant: claimant, now: noon)
        inputs.owner = owner
        inputs.purchase = row(7, owner: 2)
        inputs.words = [CaseWord(subject, asked: .owner)]
        inputs.holder = .owner
        inputs.held = [HeldItem(subject, ownerKey: 2)]
        inputs.identifiers = Set(subject.identifiers.map(\.key))
        change(&inputs)
        return inputs
    }

    private static func known(_ change: (inout CaseInputs) -> Void = { _ in }) -> Set<TransferFact> {
        facts(inputs(change), DeskSettings())
    }

    @Test func `Of a plain case nothing is known that speaks for or against it`() {
        #expect(Self.known() == [])
        let evidence = CaseEvidence(Self.inputs(), DeskSettings())
        #expect(evidence.hindrance == .none && evidence.verdict == nil && evidence.reason == .noProof)
        #expect(evidence.approvals == 2 && evidence.alsoMoves.isEmpty)
    }

    @Test func `Each fact comes of what was found, and of that alone`() {
        let cases: [(TransferFact, (inout CaseInputs) -> Void)] = [
            (.purchaseUnknown, { $0.purchase = nil }),
            (.unseen, { $0.words = [] }),
            (.lapsed, { $0.words = [CaseWord(item("expired", access: false), asked: .owner)] }),
            (.ownedByClaimant, { $0.purchase = row(7, owner: 1) }),
            (.familyShared, { $0.words[0].observation.ownership = "family_shared" }),
            (.familyShared, { $0.purchase = row(7, owner: 2, familyShared: true) }),
            (.sandbox, { $0.purchase = row(7, owner: 2, environment: "sandbox") }),
            (.promotional, { $0.words[0].observation.store = "promotional" }),
            (.claimantIneligible, { $0.claimant.user?.status = .banned }),
            (.claimantIneligible, { $0.claimant.user = nil }),
            (.movedLately, { $0.purchase = row(7, owner: 2, transferred: .zero - day * 89) }),
            (.ownerBanned, { $0.owner?.user?.status = .bannedFinal }),
            (.ownerErased, { $0.owner?.id = nil }),
            (.ownerErased, { $0.owner?.user = nil }),
            (.ownerErased, { ($0.owner, $0.held) = (nil, []) }),
            (.ownerObjected, { $0.ownerObjected = true }),
            (.ownerReleased, { $0.ownerReleased = true }),
            (.proofVerified, { $0.isProven = true }),
            (.proofFailed, { $0.isDisproven = true }),
            (.heldElsewhere, { $0.holder = .other }),
            (.sourcesDisagree, { $0.holder = .claimant }),
            (.keyMissing, { $0.hasTransferKey = false }),
            (.movesForeign, { $0.held.append(HeldItem(item("active", access: true, id: "other"), ownerKey: 3)) }),
            (.tokenNamesOwner, { $0.words[0].observation.owner = .account }),
            (.tokenNamesClaimant, { $0.words[0].observation.owner = .otherAccount(id: "claimant") }),
            (.tokenNamesThird, { $0.words[0].observation.owner = .otherAccount(id: "third") }),
            (.tokenNamesThird, { $0.purchase = row(7, owner: 2, account: 9) }),
            (.chargedBack, { $0.background.movesChargedBack = true }),
            (.boughtAfterClaimantJoined, { $0.words[0].observation.boughtAt = noon - day * 99 }),
        ]
        for (fact, change) in cases { #expect(Self.known(change) == [fact], "\(fact): \(Self.known(change))") }
        let missing = Set(TransferFact.allCases).subtracting(cases.map(\.0))
        #expect(missing == [.refunded], "every fact can come to be known")
        #expect(Self.known { $0.background.chargedBackAt = noon - day } == [.chargedBack, .refunded])
        #expect(
            Self.known { $0.words = [CaseWord(item("refunded", access: false), asked: .owner)] } == [
                .lapsed, .refunded,
            ]
        )
    }

    @Test func `A period that began lately is no new payment`() {
        #expect(Self.known { $0.words[0].observation.periodStartsAt = noon - hour } == [])
        #expect(Self.known { $0.words[0].observation.boughtAt = noon - day * 101 } == [])
    }

    @Test func `Where a source is missing a transfer is forbidden, and nothing is over`() {
        let evidence = CaseEvidence(
            Self.inputs {
                $0.words = [CaseWord(item("expired", access: false), asked: .owner)]
                $0.isIncomplete = true
            },
            DeskSettings()
        )
        #expect(evidence.facts == [.unseen] && evidence.hindrance == .forbids && evidence.verdict == nil)
    }

    @Test func `Only RevenueCat and the store that sold a purchase are asked about it`() {
        let failure = ReadFailure(.timeout)
        func answers(
            _ silent: [Store: ReadFailure] = [:],
            asked: Set<Store> = [.revenueCat, .appStore, .googlePlay],
            before: [CaseSource] = [],
            _ change: (inout CaseInputs) -> Void = { _ in }
        ) -> [CaseSource] {
            CaseSource.answers(Self.inputs(change), asked: asked, silent: silent, before: before)
        }
        #expect(
            answers() == [
                CaseSource(store: .revenueCat, result: .found), CaseSource(store: .appStore, result: .unknown),
            ]
        )
        #expect(answers([.googlePlay: failure]) == answers())
        #expect(answers(asked: [.revenueCat]).last == CaseSource(store: .appStore, result: .notConfigured))
        let now = noon.microseconds
        #expect(
            answers([.appStore: failure]).last
                == CaseSource(store: .appStore, result: .unavailable, error: "timeout", since: now)
        )
        let unknown = ReadFailure(.unknownToStore, store: .appStore)
        #expect(
            answers([.appStore: unknown]).last == CaseSource(store: .appStore, result: .unknown),
            "an answer, and no failure"
        )
        // Half of what RevenueCat holds does not say whose the rest is.
        #expect(answers([.revenueCat: failure]).first?.result == .unavailable)
        let before = [CaseSource(store: .appStore, result: .unavailable, error: "throttled", since: 5)]
        #expect(answers([.appStore: failure], before: before).last?.since == 5)
        #expect(answers { $0.purchase = nil } == [])
        #expect(answers { ($0.owner, $0.words) = (nil, []) } == [CaseSource(store: .revenueCat, result: .unknown)])
    }

    @Test func `Some word of access keeps a purchase from being over`() {
        let facts = Self.known { $0.words.append(CaseWord(item("expired", access: false), asked: .claimant)) }
        #expect(!facts.contains(.lapsed))
    }

    @Test func `What RevenueCat does not have is moved without a call, and nothing else along with it`() {
        let evidence = CaseEvidence(
            Self.inputs {
                $0.holder = .unknown
                $0.hasTransferKey = false
                $0.held.append(HeldItem(item("active", access: true, id: "other"), ownerKey: 2))
            },
            DeskSettings()
        )
        #expect(evidence.hindrance == .none && evidence.alsoMoves.isEmpty && evidence.source == nil)
    }

    @Test func `The order of what was found, and who is still new, change no evidence`() {
        let first = item("active", access: true)
        let second = item("active", access: true, id: "other")
        let third = item("expired", access: false, id: "third")
        func evidence(_ held: [Observation], _ status: UserStatus) -> CaseEvidence {
            CaseEvidence(
                Self.inputs {
                    $0.held = held.map { HeldItem($0, ownerKey: 2) }
                    $0.claimant.user?.status = status
                    $0.claimant.user?.type = status == .active ? .free : .subscriber
                },
                DeskSettings()
            )
        }
        let one = evidence([first, second, third], .active)
        #expect(one == evidence([third, second, first, second], .onboarding))
        #expect(one.alsoMoves.count == 2)
        #expect(one != evidence([first, second], .active))
        #expect(one != evidence([first, second, third], .banned))
    }

    @Test func `150: what was found false is known of a case also before anybody knows what it is about`() {
        let facts = Self.known {
            $0.purchase = nil
            $0.isDisproven = true
        }
        #expect(facts == [.purchaseUnknown, .proofFailed])
    }

    @Test func `A number that somebody named closes no case, and takes nothing else out of the way`() {
        func evidence(_ isNamedByID: Bool, _ change: (inout CaseInputs) -> Void) -> CaseEvidence {
            CaseEvidence(
                Self.inputs {
                    change(&$0)
                    $0.isNamedByID = isNamedByID
                },
                DeskSettings()
            )
        }
        let changes: [((inout CaseInputs) -> Void, TransferHindrance, TransferHindrance)] = [
            ({ $0.purchase?.ownerKey = $0.claimant.key }, .closes, .forbids),
            ({ $0.hasTransferKey = false }, .forbids, .forbids),
            ({ $0.ownerObjected = true }, .needsSenior, .needsSenior),
            ({ _ in }, .none, .none),
        ]
        for (change, known, named) in changes {
            #expect(evidence(false, change).hindrance == known)
            #expect(evidence(true, change).hindrance == named)
            #expect(evidence(true, change).facts == evidence(false, change).facts)
        }
    }

    @Test func `The owner's renewal makes other evidence`() {
        let before = CaseEvidence(Self.inputs(), DeskSettings())
        let after = CaseEvidence(
            Self.inputs { $0.words[0].observation.periodEndsAt = noon + day * 60 },
            DeskSettings()
        )
        #expect(before != after)
    }
}
