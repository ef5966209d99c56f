import Entitlements
import Testing

/// An event that spoke of access, and readings of RevenueCat that do not show it yet.
@Suite struct PromiseTests {
    /// Readings without access, of every kind of job and user; an event spoke so long before.
    private static func scenes(_ ago: Duration?) -> [Scene] {
        let readings: [[Observation]] = [
            [], [item("expired", access: false)], [item("active", access: false, ends: .zero - hour)],
            [item("incomplete", access: false)], [item("active", access: true, environment: "sandbox")],
            [stored(.account, "expired", access: false)],
        ]
        var scenes: [Scene] = []
        for kind in JobKind.allCases {
            for type in UserType.allCases {
                for items in readings {
                    var scene = Scene(kind, type)
                    scene.reads = items.map { Scene.Read($0) }
                    scene.accessEventAt = ago.map { noon - $0 }
                    scenes.append(scene)
                }
            }
        }
        return scenes
    }

    private static func isWaiting(_ scene: Scene) -> Bool {
        guard case .retry(let failure) = scene.resolution else { return false }
        return failure.code == .readLag
    }

    // MARK: The wait

    static let waits: [(Duration, Duration)] = [
        (.zero, .seconds(2)), (.seconds(1), .seconds(2)), (.seconds(2), .seconds(2)),
        (.milliseconds(2_500), .milliseconds(2_500)), (.seconds(3), .seconds(3)), (.seconds(16), .seconds(16)),
        (.microseconds(29_999_999), .microseconds(29_999_999)), (.seconds(-5), .seconds(2)),
    ]

    @Test(arguments: waits)
    func `74: a reading without access right after an event of access is tried again`(ago: Duration, wait: Duration) {
        for scene in Self.scenes(ago) {
            #expect(scene.resolution == .retry(ReadFailure(.readLag, retryAfter: wait)), "\(scene.kind) \(scene.type)")
        }
    }

    @Test func `74: the wait grows until the reading is believed`() {
        var scene = Scene(.reconcile, .subscriber, item("expired", access: false))
        scene.accessEventAt = noon
        var waits: [Duration] = []
        while waits.count < 20, case .retry(let failure) = scene.resolution {
            let wait = failure.retryAfter ?? .zero
            waits.append(wait)
            scene.askedAt = scene.askedAt + wait
        }
        #expect(waits == [2, 2, 4, 8, 16, 32, 64].map { .seconds($0) })
        #expect(scene.verdict?.action == .demote)
    }

    @Test func `74: waiting for what was promised uses no attempt up, and lasts as long as was asked for`() {
        let policy = RetryPolicy(
            maxAttempts: 8,
            backoffBase: .seconds(1),
            backoffCap: .seconds(300),
            maxAge: .seconds(86_400)
        )
        let next = policy.next(
            after: ReadFailure(.readLag, retryAfter: .seconds(16)),
            attempt: 3,
            age: .zero,
            jitter: 1
        )
        #expect(next == .again(after: .seconds(16), attempt: 3))
    }

    @Test(arguments: [Duration.seconds(30), .seconds(31), .seconds(119), .seconds(120), hour, day])
    func `74: after half a minute the reading is believed, after two where it takes access away`(ago: Duration) {
        for (scene, plain) in zip(Self.scenes(ago), Self.scenes(nil)) {
            if ago < .seconds(120), plain.verdict?.action == .demote {
                #expect(Self.isWaiting(scene), "\(scene.kind) \(scene.type)")
                continue
            }
            #expect(scene.verdict != nil && scene.resolution == plain.resolution, "\(scene.kind) \(scene.type)")
        }
    }

    // MARK: What does not wait

    @Test(arguments: JobKind.allCases, UserType.allCases)
    func `74: access applies at once, a store's and a grant's`(kind: JobKind, type: UserType) {
        var bought = Scene(kind, type, item("active", access: true))
        bought.accessEventAt = noon
        var granted = Scene(kind, type, item("expired", access: false))
        granted.grants = .active
        granted.accessEventAt = noon
        for scene in [bought, granted] {
            #expect(scene.verdict?.action == .grant)
            #expect(scene.resolution == scene.with { $0.accessEventAt = nil }.resolution)
            #expect(scene.with { $0.coverage = .partial }.verdict?.action == .grant)
        }
    }

    @Test(arguments: JobKind.allCases)
    func `74: a promise changes nothing for whoever can gain nothing, and nothing that is tried again anyway`(
        kind: JobKind
    ) {
        var unread = Scene(kind, .free)
        unread.coverage = .partial
        unread.failure = ReadFailure(.timeout, retryAfter: .seconds(3))
        let unmapped = Scene(kind, .free, item("active", access: true, entitlements: ["gold"]))
        var overtaken = Scene(kind, .free)
        overtaken.reads = [Scene.Read(stored(.unnamed), holders: [row(5, owner: nil, observed: hour)])]
        var banned = Scene(kind, .subscriber)
        banned.status = .banned
        let failures: [(Scene, ReadFailure)] = [
            (unread, ReadFailure(.timeout, retryAfter: .seconds(3))), (unmapped, ReadFailure(.unmapped)),
            (overtaken, ReadFailure(.overtaken)),
        ]
        for (scene, failure) in failures {
            #expect(scene.resolution == .retry(failure))
            #expect(scene.with { $0.accessEventAt = noon }.resolution == .retry(failure))
        }
        let promised = banned.with { $0.accessEventAt = noon }
        #expect(promised.verdict?.outcome == .notEligible && promised.resolution == banned.resolution)
    }

    @Test func `74: where RevenueCat is not asked, nothing is waited for`() {
        let others: Set<Store> = [.appStore, .googlePlay, .onside]
        for (scene, plain) in zip(Self.scenes(.zero), Self.scenes(nil)) {
            let unasked = scene.with { $0.covered = others }
            #expect(!Self.isWaiting(unasked), "\(scene.kind) \(scene.type)")
            #expect(unasked.resolution == plain.with { $0.covered = others }.resolution)
            let alone = scene.with { $0.covered = [.revenueCat] }
            #expect(Self.isWaiting(alone), "\(scene.kind) \(scene.type)")
        }
    }

    // MARK: Later looks

    /// Seconds from the event to the reading, and to the look that follows it.
    static let looks: [(Int64, Int64?)] = [
        (30, 300), (32, 300), (299, 300), (300, 1800), (301, 1800), (1799, 1800), (1800, nil), (86_400, nil),
    ]

    @Test(arguments: looks)
    func `74: what was believed is looked at again after five minutes and after half an hour`(
        seconds: Int64,
        expected: Int64?
    ) {
        let end = expected.map { noon + Duration.seconds($0) }
        var reading = Reading(coverage: .full, askedAt: noon + .seconds(seconds), covered: [.revenueCat])
        #expect(look(reading, accessEventAt: noon) == ScheduledCheck(at: end))
        reading.covered = Set(Store.allCases)
        #expect(look(reading, accessEventAt: noon) == ScheduledCheck(at: end))
        #expect(look(reading, accessEventAt: nil) == ScheduledCheck(at: nil))
    }

    @Test func `74: where access was found, or none can be given, no such look is planned`() {
        var reading = Reading(coverage: .full, askedAt: noon + .seconds(30), covered: [.revenueCat])
        #expect(look(reading, grants: true, accessEventAt: noon) == ScheduledCheck(at: nil))
        #expect(look(reading, outcome: .notEligible, accessEventAt: noon)?.at == nil)
        reading.covered = [.onside]
        #expect(
            look(reading, accessEventAt: noon) == ScheduledCheck(at: nil),
            "only RevenueCat lags behind what it tells"
        )
    }

    @Test func `74: the earliest of all reasons to look decides`() {
        let promised = noon - .seconds(40)
        var reading = Reading(coverage: .full, askedAt: noon)
        let silent = look(reading, outcome: .deferred, accessEventAt: promised, margin: .seconds(100))
        #expect(silent?.at == noon + .seconds(100))
        #expect(look(reading, outcome: .deferred, accessEventAt: promised)?.at == noon + .seconds(260))
        // The store's own item asks for a look after 839 seconds, and then for one after 59.
        reading.observations = [stored(.account, "expired", access: false, source: .onside, ends: .seconds(-61))]
        #expect(look(reading, accessEventAt: nil)?.at == noon + .seconds(839))
        #expect(look(reading, accessEventAt: promised)?.at == noon + .seconds(260))
        reading.observations = [stored(.account, "expired", access: false, source: .onside, ends: .seconds(-1))]
        #expect(look(reading, accessEventAt: promised)?.at == noon + .seconds(59))
    }

    private func look(
        _ reading: Reading,
        outcome: Outcome = .unchanged,
        grants: Bool = false,
        accessEventAt: Instant?,
        margin: Duration = .seconds(86_400)
    ) -> ScheduledCheck? {
        var known = ScheduledCheck.Knowledge()
        known.grants = grants
        known.accessEventAt = accessEventAt
        known.margin = margin
        return ScheduledCheck(reading, reading.observations.map { _ in .new }, outcome: outcome, known: known)
    }
}
