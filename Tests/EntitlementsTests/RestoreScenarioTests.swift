@testable import Entitlements
import Testing

/// Who asks, what the app said, and whom a purchase belongs to (acceptance 1, 6 and 10).
@Suite struct RestoreScenarioTests {
    static let inUse = ClaimFindings(clientError: .receiptAlreadyInUse)
    static let active = item("active", access: true)

    @Test(arguments: [
        (UserStatus.banned, MessageKey.notEligible), (.bannedFinal, .notEligible), (.toBeDeleted, .notEligibleDeleting),
    ])
    func `114, 117, L6: who is not eligible gains nothing, whatever was found`(status: UserStatus, key: MessageKey) {
        for type in UserType.allCases {
            for coverage in Coverage.allCases {
                var scene = Scene(.restore, type, Self.active)
                scene.status = status
                scene.coverage = coverage
                scene.grants = .active
                scene.claims = Self.inUse
                #expect(scene.verdict?.action == Action.none)
                #expect(scene.verdict?.outcome == .notEligible)
                #expect(scene.verdict?.messageKey == key)
                #expect(scene.verdict?.tickets.isEmpty == true)
                scene.kind = .reconcile
                #expect(scene.verdict?.outcome == .notEligible)
                #expect(scene.verdict?.action == Action.none, "a lapse of theirs is not acted on either")
            }
        }
    }

    @Test(arguments: JobKind.allCases)
    func `85: a user who is gone is not eligible, and nothing is written`(kind: JobKind) {
        var input = Scene(kind, .subscriber, Self.active).input
        input.user = nil
        guard case .verdict(let verdict) = decide(input) else {
            Issue.record("a job for nobody is tried again")
            return
        }
        #expect(verdict.rule == .accountGone)
        #expect(verdict.outcome == .notEligible)
        #expect(verdict.messageKey == (kind == .restore ? .accountGone : nil))
        #expect(verdict.action == Action.none)
    }

    @Test func `113: an onboarding user who paid becomes a subscriber at once`() {
        #expect(Scene(.restore, .free, Self.active).with { $0.status = .onboarding }.verdict?.outcome == .restored)
    }

    @Test func `175: a store that fails does not hold positive evidence back`() {
        for error in ClientError.allCases {
            var scene = Scene(.restore, .free, Self.active)
            scene.coverage = .partial
            scene.failure = ReadFailure(.unavailable)
            scene.claims = ClaimFindings(clientError: error)
            #expect(scene.verdict?.outcome == .restored, "\(error)")
        }
    }

    @Test func `A receipt in use gives a mismatch and a visible ticket, found or not`() throws {
        var scene = Scene(.restore, .free)
        scene.claims = Self.inUse
        let unfound = try #require(scene.verdict)
        #expect(unfound.outcome == .storeAccountMismatch)
        #expect(unfound.messageKey == .mismatch)
        #expect(unfound.tickets == [TicketRequest(kind: .paidNoAccess)])
        scene.claimed = [claimedPurchase("GPA.1")]
        let found = try #require(scene.verdict)
        #expect(found.outcome == .storeAccountMismatch)
        #expect(found.tickets.map(\.kind) == [.ownerMismatch])
        #expect(found.tickets.first?.purchase == 7)
        #expect(found.tickets.first?.isVisible == true)
        #expect(found.explanation == unfound.explanation, "what the lookup found is not told")
    }

    @Test(arguments: ReadFailure.Code.allCases)
    func `A mismatch waits for no look-up`(code: ReadFailure.Code) {
        for type in UserType.allCases {
            var scene = Scene(.restore, type, item("expired", access: false))
            scene.claims = Self.inUse
            scene.claims.failure = ReadFailure(code, retryAfter: .seconds(3))
            #expect(scene.verdict?.outcome == .storeAccountMismatch)
            #expect(scene.verdict?.tickets.first?.kind == .paidNoAccess)
            #expect(scene.verdict?.explanation.contains("lookup of what was shown failed (\(code.rawValue))") == true)
            scene.claims.failure = nil
            #expect(scene.verdict?.explanation.contains("look-up") == false)
        }
    }

    @Test func `Access and a deferral outrank a mismatch, and an unread store withholds it`() {
        var scene = Scene(.restore, .subscriber, item("active", access: false, ends: .zero - hour))
        scene.claims = Self.inUse
        #expect(scene.verdict?.outcome == .alreadySubscriber)
        #expect(scene.verdict?.tickets.isEmpty == true)
        scene.coverage = .partial
        scene.failure = ReadFailure(.timeout)
        #expect(scene.resolution == .retry(ReadFailure(.timeout)))
    }

    @Test func `A mismatch outranks what a demoting reconcile would say, and the reconcile follows`() {
        var scene = Scene(.restore, .subscriber, item("expired", access: false))
        scene.claims = Self.inUse
        #expect(scene.verdict?.outcome == .storeAccountMismatch)
        #expect(scene.verdict?.action == Action.none)
        #expect(scene.verdict?.enqueuesReconcile == true)
    }

    @Test(arguments: [
        (ClientError.loginDiscarded, Rule.clientLoginDiscarded, MessageKey.signInNeeded),
        (.appNotRegistered, .clientAppNotRegistered, .unavailable),
    ])
    func `174, 176: a login left or an app unknown ends at once, without a ticket`(
        error: ClientError,
        rule: Rule,
        key: MessageKey
    ) {
        var scene = Scene(.restore, .free, item("expired", access: false))
        scene.claims = ClaimFindings(clientError: error)
        scene.claimed = [claimedPurchase("GPA.1")]
        #expect(scene.verdict?.rule == rule)
        #expect(scene.verdict?.outcome == .storeUnavailable)
        #expect(scene.verdict?.messageKey == key)
        #expect(scene.verdict?.tickets.isEmpty == true)
        scene.reads.append(Scene.Read(Self.active))
        #expect(scene.verdict?.outcome == .restored, "access elsewhere outranks it")
    }

    @Test(arguments: [ClientError.cancelled, .connectionError, .serviceUnavailable, .internalError, .other])
    func `175: an error of the device is no case where the server reads the store itself`(error: ClientError) {
        var scene = Scene(.restore, .free)
        scene.claims = ClaimFindings(clientError: error)
        #expect(scene.resolution == Scene(.restore, .free).resolution)
    }

    @Test func `5, 6: a typed id that exists is answered in the words of one that does not`() throws {
        let plain = try #require(Scene(.restore, .free).verdict)
        for claim in [
            claimedPurchase("GPA.1"), claimedPurchase("GPA.1", purchase: nil, owner: nil),
            claimedPurchase("GPA.1", customer: "$RCAnonymousID:1"),
        ] {
            let answer = try #require(Scene(.restore, .free).with { $0.claimed = [claim] }.verdict)
            #expect(answer.outcome == plain.outcome)
            #expect(answer.messageKey == plain.messageKey)
            #expect(answer.rule == plain.rule)
            #expect(answer.explanation == plain.explanation)
            #expect(answer.tickets.allSatisfy { $0.kind == .needsProof && !$0.isVisible })
            #expect(answer.tickets.isEmpty == claim.found.isAnonymous)
        }
    }

    @Test func `7, 188: an anonymous owner asks for a restore in the app, without a ticket`() {
        let scene = Scene(.restore, .free, item("active", access: true, owner: .anonymous))
        #expect(scene.verdict?.rule == .anonymousOwner)
        #expect(scene.verdict?.outcome == .nothingToRestore)
        #expect(scene.verdict?.messageKey == .restoreInAppSignedIn)
        #expect(scene.verdict?.tickets.isEmpty == true)
    }

    @Test func `8, 10: an item that names another user is a collision of high priority`() throws {
        let scene = Scene(.restore, .free, item("active", access: true, owner: .otherUser(id: "user-2")))
        let verdict = try #require(scene.verdict)
        #expect(verdict.rule == .identityCollision)
        #expect(verdict.outcome == .storeAccountMismatch)
        let ticket = try #require(verdict.tickets.first)
        #expect(verdict.tickets.count == 1)
        #expect(ticket.kind == .identityCollision)
        #expect(ticket.priority == 0)
        #expect(ticket.ownerID == "user-2")
        let kept = scene.with { $0.type = .subscriber }
        #expect(kept.verdict?.outcome == .alreadySubscriber)
        #expect(kept.with { $0.kind = .reconcile }.verdict?.outcome == .deferred)
        #expect(kept.with { $0.kind = .reconcile }.verdict?.tickets == verdict.tickets)
    }

    @Test func `21: sources that disagree take nothing away and move nothing`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(Self.active, holders: [row(5, owner: 2, transferred: .zero - day)])]
        scene.unlisted = [row(6, "expired", access: false)]
        #expect(scene.verdict?.rule == .sourcesDisagree)
        #expect(scene.verdict?.outcome == .deferred)
        #expect(scene.verdict?.tickets.map(\.kind) == [.sourcesDisagree])
        scene.kind = .restore
        scene.type = .free
        #expect(scene.verdict?.outcome == .storeAccountMismatch)
    }

    @Test func `L1: a collision outranks sources that disagree, whichever is listed first`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [
            Scene.Read(Self.active, holders: [row(5, owner: 2, transferred: .zero - day)]),
            Scene.Read(item("active", access: true, id: "b"), holders: [row(6), row(7, owner: 3)]),
        ]
        #expect(scene.verdict?.rule == .identityCollision)
        #expect(scene.with { $0.reads.reverse() }.resolution == scene.resolution)
        #expect(scene.verdict?.tickets.map(\.purchase) == [7, 5])
    }

    @Test func `77, 194: a purchase that RevenueCat moved gives access, and a ticket for the audit`() {
        var scene = Scene(.reconcile, .free)
        scene.reads = [Scene.Read(Self.active, holders: [row(5, owner: 2)])]
        #expect(scene.verdict?.rule == .ownerFollowedRevenuecat)
        #expect(scene.verdict?.outcome == .promoted)
        #expect(scene.verdict?.tickets.map(\.kind) == [.externalTransfer])
        #expect(scene.verdict?.tickets.first?.ownerKey == 2)
    }

    @Test func `194: an ended purchase that moved is not called the reason for access`() {
        var scene = Scene(.reconcile, .free, item("active", access: true, id: "own"))
        scene.reads.append(Scene.Read(item("expired", access: false), holders: [row(5, owner: 2)]))
        #expect(scene.verdict?.rule == .storeAccess)
        #expect(scene.with { $0.reads.reverse() }.resolution == scene.resolution)
        for error in [nil, ClientError.loginDiscarded, .receiptAlreadyInUse] {
            var restore = scene.with {
                $0.kind = .restore; $0.reads.removeFirst()
            }
            restore.claims.clientError = error
            #expect(restore.verdict?.tickets.contains { $0.kind == .externalTransfer } == true, "the move is audited")
        }
    }

    @Test func `L8: one verdict asks for one ticket a purchase, and the claimant's own comes first`() {
        var scene = Scene(.restore, .free)
        scene.reads = [Scene.Read(Self.active, holders: [row(7, owner: 2, transferred: .zero - day)])]
        scene.claims = Self.inUse
        scene.claimed = [claimedPurchase("GPA.1")]
        #expect(scene.verdict?.tickets.map(\.kind) == [.ownerMismatch])
    }

    @Test func `177, 178, 179: five restored transactions of one original are one purchase and one effect`() {
        var scene = Scene(.restore, .free)
        scene.reads = Array(repeating: Scene.Read(Self.active, holders: [row(5)]), count: 5)
        let once = scene.with { $0.reads.removeLast(4) }
        #expect(scene.resolution == once.resolution)
        #expect(scene.verdict?.outcome == .restored)
    }

    @Test func `64: two family members hold two lineages`() {
        let shared = item("active", access: true, ownership: "family_shared")
        #expect(Scene(.restore, .free, shared).verdict?.outcome == .restored)
        #expect(Scene(.restore, .free, shared).verdict?.tickets.isEmpty == true)
    }

    @Test func `Outcomes stand in the contract's order of precedence`() {
        var scene = Scene(.restore, .free)
        #expect(scene.verdict?.outcome == .nothingToRestore)
        scene.claims.clientError = .loginDiscarded
        #expect(scene.verdict?.outcome == .storeUnavailable)
        scene.claims.clientError = .receiptAlreadyInUse
        #expect(scene.verdict?.outcome == .storeAccountMismatch)
        scene.type = .subscriber
        #expect(scene.verdict?.outcome == .alreadySubscriber)
        scene.type = .free
        scene.grants = .active
        #expect(scene.verdict?.outcome == .restored)
        scene.status = .banned
        #expect(scene.verdict?.outcome == .notEligible)
    }
}
