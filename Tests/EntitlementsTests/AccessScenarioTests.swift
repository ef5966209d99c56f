import Entitlements
import Testing

/// What the stores say of items, and what follows for a free user and for a subscriber (acceptance 1 to 3).
@Suite struct AccessScenarioTests {
    /// Items that give access.
    static let giving: [(String, Observation)] = [
        ("1: an active subscription", item("active", access: true, ends: day)),
        ("24: a trial", item("trialing", access: true, ends: day)),
        ("25: cancelled, the period runs", item("active", access: true, renewal: "will_not_renew", ends: day)),
        ("26: un-cancelled", item("active", access: true, renewal: "will_renew", ends: day)),
        ("27: a grace period", item("in_grace_period", access: true, ends: .zero - hour)),
        ("28: billing retry that gives access", item("in_billing_retry", access: true)),
        ("30: a pause that is scheduled", item("active", access: true, renewal: "will_pause", ends: day)),
        ("44: a changed product", item("active", access: true, renewal: "will_change_product", ends: day)),
        (
            "45: a downgrade at the period's end",
            item("active", access: true, renewal: "will_change_product", ends: hour)
        ),
        (
            "46: a price increase without consent",
            item("active", access: true, renewal: "requires_price_increase_consent", ends: day)
        ),
        ("47: an unknown status with access", item("unknown", access: true)),
        ("47: a new word with access", item("on_a_break", access: true)),
        ("50: prepaid", item("active", access: true, store: "play_store", renewal: "will_not_renew", ends: day)),
        ("51: a temporary grant of RevenueCat", item("active", access: true, store: "promotional", ends: hour * 20)),
        ("56: refunded without revocation", item("expired", access: true, store: "play_store", ends: day)),
        ("62: family-shared", item("active", access: true, ownership: "family_shared")),
        ("65: a promotional item", item("active", access: true, store: "promotional", ends: day * 9)),
        ("68: a lifetime purchase", item("owned", kind: .oneTime)),
        ("an end that our clock has passed", item("active", access: true, ends: .zero - day * 3)),
        ("a store that is not known", item("active", access: true, store: "new_store")),
        ("one mapped entitlement is enough", item("active", access: true, entitlements: ["gold", "premium"])),
    ]

    @Test(arguments: giving)
    func `Whoever has access becomes or stays a subscriber`(name: String, item: Observation) throws {
        for kind in JobKind.allCases {
            for type in UserType.allCases {
                for status in [UserStatus.active, .onboarding] {
                    for coverage in Coverage.allCases {
                        var scene = Scene(kind, type, item)
                        scene.status = status
                        scene.coverage = coverage
                        scene.absentSince = noon - day * 9
                        let verdict = try #require(scene.verdict, "\(name)")
                        #expect(verdict.action == .grant, "\(name)")
                        #expect(verdict.rule == .storeAccess, "\(name)")
                        #expect(verdict.absence == .clear, "\(name)")
                        #expect(verdict.tickets.isEmpty, "\(name)")
                        let expected: Outcome =
                            switch (kind, type) {
                            case (.restore, .free): .restored
                            case (.restore, .subscriber): .alreadySubscriber
                            case (.reconcile, .free): .promoted
                            case (.reconcile, .subscriber): .unchanged
                            }
                        #expect(verdict.outcome == expected, "\(name)")
                    }
                }
            }
        }
    }

    /// Items whose end the store has said, with the key that a free user hears.
    static let ended: [(String, Observation, MessageKey)] = [
        (
            "28: billing retry without grace", item("in_billing_retry", access: false, ends: .zero - hour),
            .nothingBillingRetry
        ),
        ("31: paused now", item("paused", access: false, ends: day), .nothingPaused),
        ("32: paused without an end", item("paused", access: false), .nothingPaused),
        ("39: expired months ago", item("expired", access: false, ends: .zero - day * 90), .nothingExpired),
        ("52: a temporary grant that ended", item("expired", access: false, store: "promotional"), .nothingExpired),
        ("55: refunded and revoked", item("refunded", access: false, ends: day), .nothingRefunded),
        ("63: a family share withdrawn", item("expired", access: false, ownership: "family_shared"), .nothingExpired),
        ("69: a lifetime purchase refunded", item("refunded", kind: .oneTime), .nothingRefunded),
        ("expired inside the margin", item("expired", access: false, ends: .zero - .seconds(30)), .nothingExpired),
        ("an ended item that is not mapped", item("expired", access: false, entitlements: ["gold"]), .nothingExpired),
    ]

    @Test(arguments: ended)
    func `A store's word that it is over demotes in a reconcile, and in a restore says why`(
        name: String,
        item: Observation,
        key: MessageKey
    ) throws {
        let demoted = try #require(Scene(.reconcile, .subscriber, item).verdict)
        #expect(demoted.rule == .storeEnded, "\(name)")
        #expect(demoted.action == .demote, "\(name)")
        #expect(demoted.outcome == .demoted, "\(name)")
        let left = try #require(Scene(.restore, .subscriber, item).verdict)
        #expect(left.action == .none, "\(name)")
        #expect(left.outcome == .nothingToRestore, "\(name)")
        let ended: [MessageKey: MessageKey] = [
            .nothingBillingRetry: .nothingEndedBillingRetry, .nothingPaused: .nothingEndedPaused,
        ]
        #expect(left.messageKey == ended[key] ?? .nothingEnded, "\(name)")
        #expect(left.enqueuesReconcile, "\(name)")
        let free = try #require(Scene(.restore, .free, item).verdict)
        #expect(free.outcome == .nothingToRestore, "\(name)")
        #expect(free.messageKey == key, "\(name)")
        #expect(!free.enqueuesReconcile, "\(name)")
        #expect(Scene(.reconcile, .free, item).verdict?.outcome == .unchanged, "\(name)")
    }

    @Test func `27: whoever has access although the payment has failed is marked as at risk`() {
        let grace = item("in_grace_period", access: true, ends: .zero - hour)
        for kind in JobKind.allCases {
            for type in UserType.allCases {
                let scene = Scene(kind, type, grace)
                #expect(scene.verdict?.explanation.contains("at risk: the last payment has failed") == true)
                let paid = Scene(kind, type, grace, item("active", access: true, id: "other", ends: day))
                #expect(paid.verdict?.explanation.contains("at risk") == false, "something else is paid for")
                #expect(scene.with { $0.grants = .active }.verdict?.explanation.contains("at risk") == false)
            }
        }
        #expect(Scene(.restore, .free, item("active", access: true)).verdict?.explanation.contains("at risk") == false)
    }

    @Test func `55: whoever is demoted after a refund finds that reason`() {
        let refunded = Scene(.reconcile, .subscriber, item("refunded", access: false, ends: day))
        #expect(refunded.verdict?.explanation.contains("(refunded)") == true)
        let expired = Scene(.reconcile, .subscriber, item("expired", access: false, ends: .zero - day))
        #expect(expired.verdict?.explanation.contains("refunded") == false)
    }

    /// Items that neither give access nor say that it is over, with the rule that keeps a subscriber.
    static let open: [(String, Observation, Rule)] = [
        (
            "34: the period ended 30 s ago", item("active", access: false, renewal: "will_renew", ends: .seconds(-30)),
            .softWindow
        ),
        (
            "35, 36: Google defers the charge",
            item("active", access: false, store: "play_store", ends: .zero - hour * 47), .softWindow
        ),
        ("the margin is over", item("active", access: false, ends: .zero - hour * 24), .firstAbsence),
        (
            "Google's margin is over", item("active", access: false, store: "play_store", ends: .zero - hour * 48),
            .firstAbsence
        ),
        ("no end is known", item("active", access: false), .firstAbsence),
        ("grace without access", item("in_grace_period", access: false, ends: .zero - hour), .softWindow),
        (
            "not mapped, in the soft window", item("active", access: false, entitlements: ["gold"], ends: .zero - hour),
            .softWindow
        ),
        ("47: an unknown status without access", item("unknown", access: false), .unknownStatus),
        ("47: a new word without access", item("on_a_break", access: false, ends: .zero - day * 9), .unknownStatus),
        ("49: not paid yet", item("incomplete", access: false), .unexplained),
    ]

    @Test(arguments: open)
    func `Without a store's word nobody is demoted at the first look`(name: String, item: Observation, rule: Rule)
        throws
    {
        let deferred = try #require(Scene(.reconcile, .subscriber, item).verdict)
        #expect(deferred.rule == rule, "\(name)")
        #expect(deferred.outcome == .deferred, "\(name)")
        #expect(deferred.action == .none, "\(name)")
        let restore = try #require(Scene(.restore, .subscriber, item).verdict)
        #expect(restore.rule == rule, "\(name)")
        #expect(restore.outcome == .alreadySubscriber, "\(name)")
        #expect(restore.messageKey == .alreadySubscriber, "\(name)")
        #expect(restore.absence == deferred.absence, "\(name)")
        #expect(Scene(.restore, .free, item).verdict?.outcome == .nothingToRestore, "\(name)")
    }

    @Test func `49: a payment that is pending says so`() {
        #expect(Scene(.restore, .free, item("incomplete", access: false)).verdict?.messageKey == .nothingPendingPayment)
    }

    @Test func `3: no purchase anywhere, every source read, is nothing at the first look`() {
        let verdict = Scene(.restore, .free).verdict
        #expect(verdict?.rule == .noAccess)
        #expect(verdict?.outcome == .nothingToRestore)
        #expect(verdict?.messageKey == .nothing)
        #expect(verdict?.tickets.isEmpty == true)
    }

    @Test(arguments: [Coverage.partial, .none], ReadFailure.Code.allCases)
    func `L3, 54, 91-112: what was not read to the end is tried again, never nothing and never a demotion`(
        coverage: Coverage,
        code: ReadFailure.Code
    ) {
        for kind in JobKind.allCases {
            for type in UserType.allCases {
                var scene = Scene(kind, type, item("expired", access: false))
                scene.unlisted = [row(4, "expired", access: false)]
                scene.coverage = coverage
                scene.failure = ReadFailure(code, retryAfter: .seconds(3))
                scene.absentSince = noon - day * 9
                #expect(scene.resolution == .retry(ReadFailure(code, retryAfter: .seconds(3))))
            }
        }
    }

    @Test func `159: an item that would give access if it were mapped is tried again for everybody`() {
        let gold = item("active", access: true, entitlements: ["gold"])
        for kind in JobKind.allCases {
            for type in UserType.allCases {
                var scene = Scene(kind, type, gold, item("expired", access: false))
                scene.absentSince = noon - day * 9
                #expect(scene.resolution == .retry(ReadFailure(.unmapped)))
                scene.grants = .active
                #expect(scene.verdict?.action == .grant, "access from elsewhere does not wait for the mapping")
            }
        }
    }

    @Test(arguments: [
        item("active", access: true, entitlements: []), item("owned", kind: .oneTime, entitlements: []),
        item("refunded", kind: .oneTime, entitlements: []), item("owned", kind: .oneTime, entitlements: ["badge"]),
        item("expired", access: false, entitlements: ["badge"]), item("something", access: false, entitlements: []),
    ])
    func `71, 186: gems and badges are no entitlement, no word and no alarm`(item: Observation) {
        #expect(Scene(.restore, .free, item).verdict?.messageKey == .nothing)
        #expect(Scene(.reconcile, .subscriber, item).verdict?.rule == .unexplained)
        let active = Scene(.reconcile, .subscriber, item, other)
        #expect(active.verdict?.action == .grant)
    }

    private var other: Observation { item("active", access: true, id: "other") }

    @Test func `71: gems in the ledger that are not listed any more never end access`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.unlisted = [row(4, kind: .oneTime, "refunded", access: nil, entitlements: [])]
        #expect(scene.verdict?.rule == .unexplained)
        scene.everObserved = true
        #expect(scene.verdict?.rule == .firstAbsence)
        scene.unlisted = [row(4, "expired", access: false, entitlements: ["badge"])]
        #expect(scene.verdict?.rule == .firstAbsence)
    }

    @Test func `41, 66: of several items one with access is enough`() {
        let expired = item("expired", access: false, id: "old")
        let scene = Scene(
            .reconcile,
            .subscriber,
            expired,
            item("unknown", access: false, id: "odd"),
            item("active", access: true)
        )
        #expect(scene.verdict?.outcome == .unchanged)
        #expect(scene.with { $0.reads.reverse() }.resolution == scene.resolution)
    }

    @Test func `35: an expired item does not speak for another that is still open`() {
        let scene = Scene(
            .reconcile,
            .subscriber,
            item("expired", access: false, id: "old", ends: .zero - day * 90),
            item("active", access: false, ends: .zero - hour)
        )
        #expect(scene.verdict?.rule == .softWindow)
    }

    @Test func `65, 193: a grant by our own people gives access, and its end follows the usual laws`() {
        var scene = Scene(.reconcile, .free, item("expired", access: false))
        scene.grants = .active
        #expect(scene.verdict?.rule == .grantAccess)
        #expect(scene.verdict?.outcome == .promoted)
        #expect(scene.with { $0.coverage = .none }.verdict?.outcome == .promoted, "no store is needed for it")
        #expect(scene.with { $0.kind = .restore }.verdict?.outcome == .restored)
        var ended = Scene(.reconcile, .subscriber)
        ended.grants = .past
        #expect(ended.verdict?.rule == .firstAbsence)
        ended.absentSince = noon - day
        #expect(ended.verdict?.rule == .absenceConfirmed)
        #expect(ended.verdict?.action == .demote)
    }

    @Test func `157, 158, 190: sandbox counts for users on the allow-list alone`() {
        let sandbox = item("active", access: true, environment: "sandbox")
        var scene = Scene(.restore, .free, sandbox)
        #expect(scene.verdict?.outcome == .nothingToRestore)
        #expect(scene.verdict?.messageKey == .nothingSandbox)
        #expect(scene.verdict?.explanation.contains("sandbox do not count for this user") == true)
        scene.sandbox = .allowed
        #expect(scene.verdict?.outcome == .restored)
        scene.sandbox = .past
        #expect(scene.verdict?.messageKey == .nothingSandbox)
        scene.kind = .reconcile
        scene.type = .subscriber
        #expect(scene.verdict?.rule == .firstAbsence, "our own list ran out: that is no store's word")
        scene.absentSince = scene.askedAt - day
        #expect(scene.verdict?.rule == .absenceConfirmed)
        scene.settings.mode = .promoteOnly
        #expect(scene.verdict?.outcome == .deferred)
    }

    @Test func `157: a sandbox item's words neither end access nor ask for a mapping`() {
        let expired = item("expired", access: false, environment: "sandbox")
        #expect(Scene(.reconcile, .subscriber, expired).verdict?.rule == .unexplained)
        let unmapped = item("active", access: true, environment: "sandbox", entitlements: ["gold"])
        #expect(Scene(.restore, .free, unmapped).verdict?.outcome == .nothingToRestore)
        let badge = item("active", access: true, environment: "sandbox", entitlements: ["badge"])
        var scene = Scene(.reconcile, .subscriber, badge)
        scene.sandbox = .past
        #expect(scene.verdict?.rule == .unexplained, "a badge never made a subscriber")
    }

    @Test func `37, 73, 82: what the ledger learned later outranks this reading, both ways`() {
        let renewed = row(5, observed: hour)
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(item("expired", access: false), holders: [renewed])]
        #expect(scene.verdict?.action == .grant)
        scene.reads = [
            Scene.Read(item("active", access: true), holders: [row(5, "expired", access: false, observed: hour)])
        ]
        #expect(scene.verdict?.rule == .storeEnded)
        scene.reads = []
        scene.unlisted = [renewed]
        #expect(scene.verdict?.action == .grant, "silence that is older than the ledger is no silence")
    }

    @Test func `82: a merged lineage is as new as the newest of its rows`() {
        let newest = row(6, "expired", access: false, observed: hour, firstSeen: .zero - day)
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [Scene.Read(item("active", access: true), holders: [row(5), newest])]
        #expect(scene.verdict?.rule == .storeEnded)
    }

    @Test func `L4: an older reading never promotes by taking a purchase from another`() {
        var scene = Scene(.restore, .free)
        scene.reads = [Scene.Read(item("active", access: true), holders: [row(5, owner: 2, observed: hour)])]
        #expect(scene.resolution == .retry(ReadFailure(.overtaken)))
    }

    @Test func `L4: what the ledger remembers gives no access by itself`() {
        var scene = Scene(.restore, .free)
        scene.unlisted = [row(5, ends: .zero - hour)]
        scene.coverage = .partial
        scene.failure = ReadFailure(.timeout)
        #expect(scene.resolution == .retry(ReadFailure(.timeout)))
        scene.coverage = .full
        #expect(scene.verdict?.outcome == .nothingToRestore)
    }
}
