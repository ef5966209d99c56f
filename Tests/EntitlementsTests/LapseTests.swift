@testable import Entitlements
import Testing

/// A subscriber for whom a full reading found no access.
@Suite struct LapseTests {
    /// A subscriber whose one purchase is not listed any more.
    static func absent(store: String = "app_store", since: Duration? = nil) -> Scene {
        var scene = Scene(.reconcile, .subscriber)
        scene.unlisted = [row(5, store: store, ends: .zero - hour)]
        scene.absentSince = since.map { noon - $0 }
        return scene
    }

    @Test func `L3: the first absence is noted, and demotes nobody`() {
        let verdict = Self.absent().verdict
        #expect(verdict?.rule == .firstAbsence)
        #expect(verdict?.outcome == .deferred)
        #expect(verdict?.absence == .begin(noon))
    }

    static let margins: [(String, Duration, Rule)] = [
        ("app_store", .zero, .absenceMargin), ("app_store", hour * 24 - .microseconds(1), .absenceMargin),
        ("app_store", hour * 24, .absenceConfirmed), ("play_store", hour * 24, .absenceMargin),
        ("play_store", hour * 48 - .microseconds(1), .absenceMargin), ("play_store", hour * 48, .absenceConfirmed),
        ("app_store", .zero - hour, .absenceMargin),
    ]

    @Test(arguments: margins)
    func `35: the second absence demotes when the store's margin lies between`(
        store: String,
        since: Duration,
        rule: Rule
    ) {
        let verdict = Self.absent(store: store, since: since).verdict
        #expect(verdict?.rule == rule)
        #expect(verdict?.action == (rule == .absenceConfirmed ? .demote : Action.none))
        #expect(verdict?.absence == (rule == .absenceConfirmed ? .clear : .keep))
    }

    @Test func `The margin is the one in force at the verdict`() {
        var scene = Self.absent(since: hour)
        scene.settings.absenceMargin = hour
        #expect(scene.verdict?.rule == .absenceConfirmed)
        scene.settings.absenceMargin = hour * 2
        #expect(scene.verdict?.rule == .absenceMargin)
    }

    @Test func `The widest margin among the missing purchases holds`() {
        var scene = Self.absent(since: hour * 30)
        scene.unlisted.append(row(6, store: "play_store", ends: .zero - hour))
        #expect(scene.verdict?.rule == .absenceMargin)
    }

    @Test func `161: a missing purchase whose product is not mapped any more keeps its margin`() {
        var scene = Self.absent(since: hour * 30)
        scene.unlisted = [row(6, store: "play_store", entitlements: ["gold"], ends: .zero - hour)]
        #expect(scene.verdict?.rule == .absenceMargin)
        scene.reads = [Scene.Read(item("expired", access: false))]
        #expect(scene.verdict?.rule == .absenceMargin, "another purchase's end does not speak for it")
    }

    @Test func `A missing purchase that was over already needs no second look`() {
        var scene = Self.absent()
        scene.unlisted = [row(5, "expired", access: false)]
        #expect(scene.verdict?.rule == .storeEnded)
    }

    @Test(arguments: [(hour * 24 - .microseconds(1), Rule.softWindow), (hour * 24, .firstAbsence)])
    func `34: the soft window ends a margin after the period`(after: Duration, rule: Rule) {
        let scene = Scene(.reconcile, .subscriber, item("active", access: false, ends: .zero - after))
        #expect(scene.verdict?.rule == rule)
        #expect(scene.verdict?.absence == .begin(noon))
    }

    @Test func `35: inside the soft window even a second absence keeps, and the first one's time`() {
        var scene = Scene(.reconcile, .subscriber, item("active", access: false, ends: .zero - hour))
        scene.absentSince = noon - day * 9
        #expect(scene.verdict?.rule == .softWindow)
        #expect(scene.verdict?.absence == .keep)
    }

    @Test func `192: a subscriber without any purchase is unexplained for ever`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.absentSince = noon - day * 900
        #expect(scene.verdict?.rule == .unexplained)
        #expect(scene.verdict?.outcome == .deferred)
        scene.kind = .restore
        #expect(scene.verdict?.rule == .unexplained)
        #expect(scene.verdict?.outcome == .alreadySubscriber)
        scene.kind = .reconcile
        scene.everObserved = true
        #expect(scene.verdict?.rule == .absenceConfirmed)
    }

    @Test(arguments: [
        item("owned", kind: .oneTime, entitlements: []),
        item("expired", access: false, environment: "sandbox"),
        item("incomplete", access: false),
        item("active", access: true, entitlements: ["badge"]),
    ])
    func `192: gems, sandbox trials, pending payments and badges explain no subscriber`(seen: Observation) {
        var scene = Scene(.reconcile, .subscriber, seen)
        scene.absentSince = noon - day * 900
        #expect(scene.verdict?.rule == .unexplained)
    }

    static let holds: [(DecisionSettings, Rule)] = [
        (DecisionSettings(mode: .promoteOnly), .promoteOnly),
        (DecisionSettings(mode: .full, demotionsPaused: true), .demotionsPaused),
        (DecisionSettings(mode: .promoteOnly, demotionsPaused: true), .promoteOnly),
    ]

    @Test(arguments: holds)
    func `Where demotions are off, everybody is kept and every second look says the same`(
        settings: DecisionSettings,
        rule: Rule
    ) {
        for scene in [Scene(.reconcile, .subscriber, item("expired", access: false)), Self.absent(since: day * 3)] {
            let held = scene.with { $0.settings = settings }
            #expect(held.verdict?.rule == rule)
            #expect(held.verdict?.outcome == .deferred)
            #expect(held.verdict?.absence == .keep, "the absences that were read stay read")
            #expect(held.with { $0.kind = .restore }.verdict?.outcome == .alreadySubscriber)
        }
    }

    @Test(arguments: holds)
    func `Where demotions are off, promotions go on`(settings: DecisionSettings, _: Rule) {
        let scene = Scene(.reconcile, .free, item("active", access: true)).with { $0.settings = settings }
        #expect(scene.verdict?.outcome == .promoted)
    }

    @Test func `Observing decides as the full mode does`() {
        let scene = Scene(.reconcile, .subscriber, item("expired", access: false))
        #expect(scene.with { $0.settings.mode = .observe }.resolution == scene.resolution)
    }

    @Test func `164: an end that was announced before it came is not for the brake`() {
        let expired = item("expired", access: false, renewal: "will_not_renew", ends: .zero - hour)
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(expired, holders: [row(5, endAnnounced: true)])]
        #expect(scene.verdict?.wasAnnounced == true)
        scene.reads = [Scene.Read(expired, holders: [row(5)])]
        #expect(scene.verdict?.wasAnnounced == false)
        scene.reads.append(
            Scene.Read(item("expired", access: false, id: "other"), holders: [row(6, endAnnounced: true)])
        )
        #expect(scene.verdict?.wasAnnounced == false, "one end without notice is enough")
    }

    @Test func `160 164: where the catalogue alone denies access, an older end announces nothing`() {
        let expired = item("expired", access: false, renewal: "will_not_renew", ends: .zero - hour)
        var running = item("active", access: true, id: "other")
        running.entitlements = ["badge"]
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [
            Scene.Read(expired, holders: [row(5, endAnnounced: true)]),
            Scene.Read(running, holders: [row(6, entitlements: ["badge"])]),
        ]
        #expect(scene.verdict?.action == .demote && scene.verdict?.wasAnnounced == false)
    }

    /// What the ledger holds, what the store says now, and whether the brake is asked: ends and times from noon.
    struct Announced: Sendable {
        var ends: Duration?
        var word: String
        var wordEnds: Duration?
        var isAnnounced: Bool
    }

    @Test(arguments: [
        Announced(ends: .zero - hour, word: "expired", wordEnds: .zero - hour, isAnnounced: true),
        Announced(ends: .zero - hour, word: "paused", wordEnds: .zero - hour, isAnnounced: true),
        Announced(ends: day * 300, word: "expired", wordEnds: day * 300, isAnnounced: false),
        Announced(ends: .zero - hour, word: "refunded", wordEnds: .zero - hour, isAnnounced: false),
        Announced(ends: .zero - hour, word: "in_billing_retry", wordEnds: .zero - hour, isAnnounced: false),
        Announced(ends: .zero - day * 6, word: "expired", wordEnds: nil, isAnnounced: true),
        Announced(ends: .zero - day * 8, word: "expired", wordEnds: .zero - day * 8, isAnnounced: false),
        Announced(ends: nil, word: "expired", wordEnds: nil, isAnnounced: false),
    ])
    func `164: an announced end is one that has come, a short while ago, and was no refund`(_ announced: Announced) {
        let word = item(announced.word, access: false, ends: announced.wordEnds)
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(word, holders: [row(5, ends: announced.ends, endAnnounced: true)])]
        #expect(scene.verdict?.action == .demote)
        #expect(scene.verdict?.wasAnnounced == announced.isAnnounced)
    }

    @Test func `164: what ended long ago does not announce the loss of what is gone now`() {
        // The user's running purchase followed RevenueCat to somebody else.
        var scene = Scene(.reconcile, .subscriber)
        let old = item("expired", access: false, ends: .zero - day * 400)
        let held = row(5, "expired", access: false, ends: .zero - day * 400, endAnnounced: true)
        scene.reads = [Scene.Read(old, holders: [held])]
        #expect(scene.verdict?.action == .demote && scene.verdict?.wasAnnounced == false)
    }

    @Test(arguments: ["active", "trialing", "in_grace_period"])
    func `164: a subscription that lost its entitlement at RevenueCat was not announced to end`(word: String) {
        let ended = item("expired", access: false, ends: .zero - hour)
        let running = item(word, access: true, id: "other", entitlements: [], ends: day * 20)
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(ended, holders: [row(5, ends: .zero - hour, endAnnounced: true)])]
        #expect(scene.verdict?.wasAnnounced == true)
        scene.reads.append(Scene.Read(running, holders: [row(6, entitlements: [], ends: day * 20)]))
        #expect(scene.verdict?.action == .demote && scene.verdict?.wasAnnounced == false)
        scene.reads[1].item.kind = .oneTime
        scene.reads[1].item.status = StoreStatus("owned")
        scene.reads[1].item.givesAccess = nil
        #expect(scene.verdict?.wasAnnounced == true, "gems end nothing")
    }

    @Test func `164: a subscription that is not listed any more was not announced to be gone`() {
        var scene = Scene(.reconcile, .subscriber)
        let ended = item("expired", access: false, ends: .zero - hour)
        scene.reads = [Scene.Read(ended, holders: [row(5, ends: .zero - hour, endAnnounced: true)])]
        scene.unlisted = [row(6, ends: .zero - hour)]
        scene.absentSince = noon - day * 9
        #expect(scene.verdict?.rule == .absenceConfirmed && scene.verdict?.wasAnnounced == false)
    }

    @Test func `164: the word that ends a period cannot announce itself`() {
        let early = item("expired", access: false, renewal: "will_not_renew", ends: day)
        #expect(Scene(.reconcile, .subscriber, early).verdict?.wasAnnounced == false)
    }

    @Test(arguments: [
        ("will_not_renew", day, true), ("will_pause", day, true), ("will_renew", day, false),
        ("will_not_renew", .zero, false), ("will_not_renew", .zero - hour, false), ("has_already_renewed", day, false),
    ])
    func `Only a word before the period's end announces it`(renewal: String, ends: Duration, announced: Bool) {
        #expect(
            AccessSummary.announces(item("active", access: true, renewal: renewal, ends: ends), at: noon) == announced
        )
        #expect(!AccessSummary.announces(item("active", access: true, renewal: renewal), at: noon))
        for word in ["expired", "refunded", "paused", "active"] {
            let ended = item(word, access: false, renewal: renewal, ends: ends)
            #expect(!AccessSummary.announces(ended, at: noon), "what ends access announces nothing")
        }
    }

    @Test func `181: after a restore said that it has ended, the reconcile it queued demotes`() throws {
        for scene in [Scene(.restore, .subscriber, item("expired", access: false)), Self.absent(since: day)] {
            let restore = try #require(scene.with { $0.kind = .restore }.verdict)
            #expect(restore.messageKey == .nothingEnded)
            #expect(restore.enqueuesReconcile)
            #expect(restore.absence == .keep, "the note of the first absence is the reconcile's")
            #expect(scene.with { $0.kind = .reconcile }.verdict?.action == .demote)
        }
    }
}

/// Answers that are no absence, and words that are none.
@Suite struct NoAbsenceTests {
    static let sources: [(Store, String)] = [
        (.revenueCat, "app_store"), (.appStore, "app_store"), (.googlePlay, "google_play"), (.onside, "onside"),
    ]

    @Test(arguments: sources, [JobKind.restore, .reconcile])
    func `A store that does not list a running purchase is unavailable, and nobody is demoted`(
        source: (Store, String),
        kind: JobKind
    ) {
        for type in UserType.allCases {
            var scene = Scene(kind, type)
            scene.absentSince = noon - day * 900
            scene.unlisted = [row(5, store: source.1, ends: day * 20, source: source.0)]
            let failure = ReadFailure(.unknownToStore, store: source.0)
            #expect(scene.resolution == .retry(failure))
            // The same beside another purchase that is listed, and over.
            scene.reads = [
                Scene.Read(item("expired", access: false, id: "other"), holders: [row(6, "expired", access: false)])
            ]
            #expect(scene.resolution == .retry(failure))
        }
    }

    @Test(arguments: sources)
    func `A one-time purchase that was never refunded is never absent`(source: (Store, String)) {
        var scene = Scene(.reconcile, .subscriber)
        scene.unlisted = [row(5, kind: .oneTime, store: source.1, "owned", access: nil, source: source.0)]
        scene.absentSince = noon - day * 900
        #expect(scene.resolution == .retry(ReadFailure(.unknownToStore, store: source.0)))
        scene.unlisted = [row(5, kind: .oneTime, store: source.1, "refunded", access: nil, source: source.0)]
        #expect(scene.verdict?.rule == .storeEnded)
    }

    @Test func `Once the period is over, silence counts as before`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.unlisted = [row(5, ends: .zero)]
        #expect(scene.verdict?.rule == .firstAbsence)
        scene.absentSince = noon - day * 9
        #expect(scene.verdict?.rule == .absenceConfirmed)
    }

    @Test func `Access by another purchase needs no answer about the missing one`() {
        var scene = Scene(.reconcile, .subscriber, item("active", access: true))
        scene.unlisted = [row(5, ends: day * 20)]
        #expect(scene.verdict?.action == .grant)
    }

    @Test func `What names another owner is a word about the purchase`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(item("active", access: true, owner: .anonymous), holders: [row(5, ends: day * 20)])]
        #expect(scene.verdict?.outcome == .deferred)
        scene.reads = []
        scene.unlisted = [row(5, ends: day * 20)]
        scene.movedAwayAt = noon
        #expect(scene.verdict?.outcome == .deferred, "support moved whatever RevenueCat held")
        scene.unlisted = []
        scene.everObserved = true
        #expect(scene.verdict?.rule == .movedAway)
        #expect(scene.verdict?.action == .demote)
    }

    @Test(arguments: [[], ["badge"]])
    func `An entitlement that was detached from its product takes nothing away`(left: [String]) {
        let running = item("active", access: true, entitlements: left, ends: day * 20)
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(running, holders: [row(5, ends: day * 20)])]
        scene.absentSince = noon - day * 9
        #expect(scene.verdict?.rule == .entitlementDetached)
        #expect(scene.verdict?.outcome == .deferred)
        #expect(scene.verdict?.detached == ["premium"])
        // The record has taken over what the store lists now.
        scene.reads = [
            Scene.Read(running, holders: [row(5, entitlements: left, carried: ["premium"], ends: day * 20)])
        ]
        #expect(scene.verdict?.rule == .entitlementDetached)
        scene.reads[0].item = item("expired", access: false, entitlements: left)
        #expect(scene.verdict?.action == (left == [] ? .demote : Action.none), "badges never made a subscriber")
    }

    @Test func `What never carried an entitlement is no alarm`() {
        var scene = Scene(.reconcile, .free, item("owned", kind: .oneTime, entitlements: []))
        #expect(scene.verdict?.detached == [])
        scene.reads[0].holders = [row(5, kind: .oneTime, "owned", access: nil, entitlements: [])]
        #expect(scene.verdict?.detached == [])
    }

    @Test(arguments: ["expired", "refunded", "paused", "in_billing_retry"])
    func `A user whom support made a subscriber after our decision is unexplained again`(word: String) {
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(item(word, access: false), holders: [row(5, word, access: false)])]
        #expect(scene.verdict?.action == .demote)
        scene.decidedType = .subscriber
        #expect(scene.verdict?.action == .demote)
        scene.decidedType = .free
        #expect(scene.verdict?.rule == .unexplained)
        #expect(scene.verdict?.outcome == .deferred)
        scene.kind = .restore
        #expect(scene.verdict?.outcome == .alreadySubscriber)
        scene.type = .free
        #expect(scene.verdict?.outcome == .nothingToRestore)
    }

    @Test(arguments: [
        ("in_billing_retry", MessageKey.nothingEndedBillingRetry), ("paused", .nothingEndedPaused),
        ("expired", .nothingEnded), ("refunded", .nothingEnded),
    ])
    func `A subscriber hears why access has ended`(word: String, key: MessageKey) {
        let scene = Scene(.restore, .subscriber, item(word, access: false))
        #expect(scene.verdict?.outcome == .nothingToRestore)
        #expect(scene.verdict?.messageKey == key)
        #expect(scene.verdict?.enqueuesReconcile == true)
    }

    @Test(arguments: ["expired", "refunded", "in_billing_retry", "paused"])
    func `An ended proof without an owner speaks for no subscriber`(word: String) {
        var scene = Scene(
            .restore,
            .subscriber,
            stored(.unnamed, word, access: false, shown: true, source: .googlePlay, id: "shown", ends: .zero - day)
        )
        scene.reads[0].holders = [row(9, owner: nil, word, access: false, source: .googlePlay)]
        guard scene.input.attributions.first?.counts == false else { return }
        #expect(scene.verdict?.rule == .unexplained)
        #expect(scene.verdict?.outcome == .alreadySubscriber)
        scene.type = .free
        #expect(scene.verdict?.outcome == .nothingToRestore)
        #expect(scene.verdict?.messageKey != .nothing, "it still says what it says to the user who showed it")
    }

    @Test(arguments: [Coverage.partial, .full])
    func `What has no product row is told whatever else failed`(coverage: Coverage) {
        var scene = Scene(.restore, .free, item("active", access: true, entitlements: ["gold"]))
        scene.coverage = coverage
        scene.failure = coverage == .full ? nil : ReadFailure(.unknownToStore, store: .appStore)
        #expect(scene.resolution == .retry(ReadFailure(.unmapped)))
        scene.coverage = .partial
        scene.failure = ReadFailure(.throttled, retryAfter: .seconds(9))
        #expect(scene.resolution == .retry(ReadFailure(.unmapped, retryAfter: .seconds(9))))
        scene.failure = ReadFailure(.budgetExhausted)
        #expect(scene.resolution == .retry(ReadFailure(.budgetExhausted)), "a store that was not asked is asked first")
    }
}
