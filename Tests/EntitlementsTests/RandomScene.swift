import Entitlements
import Foundation
import TestSupport

/// Which seeds the property tests walk.
enum Cases {
    /// How many seeds the bounded profile walks.
    private static let bounded: UInt64 = 25_000

    /// 25,000 seeds; 1,000,000 in the full profile; or those that are asked for.
    static let seeds: Range<UInt64> = Profile.seeds.map(Range.init) ?? 0..<(Profile.isFull ? 1_000_000 : bounded)

    /// The histories of the domain: 5,000 seeds, or as many as there are cases;
    /// `ENTITLEMENT_SYNC_TEST_HISTORIES=N` runs so many.
    static var histories: Range<UInt64> {
        let count = ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_HISTORIES"].flatMap(UInt64.init)
        return count.map { 0..<$0 } ?? (seeds.count == bounded ? 0..<5000 : seeds)
    }

    /// Whether a whole profile runs, so that rare situations must occur.
    static var isWholeProfile: Bool { seeds.count > 1 }
}

extension Scene {
    /// Makes up a user, a ledger and a reading; odd combinations are as welcome as likely ones.
    static func random(seed: UInt64) -> Scene {
        var generator = SeededGenerator(seed: seed)
        var scene = Scene(generator.pick(.restore, .reconcile), generator.pick(.free, .subscriber))
        if generator.oneIn(5) { scene.status = generator.pick(.onboarding, .banned, .bannedFinal, .toBeDeleted) }
        scene.coverage = generator.pick(.full, .full, .full, .partial, .none)
        if scene.coverage != .full {
            scene.failure = generator.pick(
                nil,
                ReadFailure(.throttled, retryAfter: .seconds(9)),
                ReadFailure(.malformed)
            )
        }
        for index in 0..<generator.pick(0, 1, 1, 1, 2, 2, 3, 5) {
            let holders = randomHolders(index: Int64(index), &generator)
            scene.reads.append(Read(randomItem(index: index, &generator), holders: holders))
        }
        if generator.oneIn(4) { scene.shareRow(&generator) }
        for index in 0..<generator.pick(0, 0, 1, 2) {
            scene.unlisted.append(randomRow(Int64(900 + index), owner: userKey, &generator))
        }
        if generator.oneIn(8) { scene.grants = generator.pick(.active, .past) }
        scene.sandbox = generator.pick(.none, .none, .allowed, .past)
        scene.everObserved = generator.oneIn(2)
        if generator.oneIn(3) { scene.decidedType = generator.pick(.free, .subscriber) }
        if generator.oneIn(2) {
            scene.absentSince =
                noon - generator.pick(.zero, hour, hour * 24, hour * 47, hour * 48, day * 9, .zero - hour)
        }
        if generator.oneIn(4) { scene.settings.mode = generator.pick(.promoteOnly, .observe) }
        scene.settings.demotionsPaused = generator.oneIn(9)
        if generator.oneIn(4) {
            scene.claims.clientError = generator.pick(
                .receiptAlreadyInUse,
                .loginDiscarded,
                .appNotRegistered,
                .cancelled,
                .connectionError,
                .other
            )
        }
        if generator.oneIn(4) { scene.claimed.append(claimedPurchase("GPA.1", purchase: generator.pick(nil, 7, 100))) }
        if generator.oneIn(9) {
            scene.claimed.append(claimedPurchase("GPA.0", customer: "$RCAnonymousID:1", purchase: nil, owner: nil))
        }
        if generator.oneIn(4) { scene.covered = [.revenueCat] }
        if generator.oneIn(9) { scene.unreadable = generator.pick([.revenueCat], [.appStore, .googlePlay]) }
        if generator.oneIn(5) {
            scene.accessEventAt = noon - generator.pick(.zero, .seconds(9), .seconds(29), .seconds(30), hour)
        }
        if generator.oneIn(6) { scene.movedAwayAt = noon - generator.pick(hour, .zero, .zero - hour) }
        if generator.oneIn(3) { scene.signInToStore(&generator) }
        return scene
    }

    /// Two store accounts, as our records know them.
    private static let accounts = [UUID(), UUID()]

    /// Lets the device name a store account, and some purchases be of one.
    private mutating func signInToStore(_ generator: inout SeededGenerator) {
        var device = SubmittedAccount(
            id: "704",
            environment: generator.pick("production", "production", "sandbox"),
            app: "com.example.app"
        )
        device.hash = Self.accounts[0]
        claims.accounts = [device]
        for place in reads.indices where generator.oneIn(2) {
            // Of an answer of its own: none is listed beside another for the same account.
            reads[place].item.storeAccount = StoreAccount(answer: "\(place)", id: "704")
            reads[place].item.storeAccount?.hash = Self.accounts[generator.below(2)]
        }
        for place in unlisted.indices where generator.oneIn(2) {
            unlisted[place].storeAccount = Self.accounts[generator.below(2)]
        }
    }

    /// Lets an item stand for the same purchase as another one of its source.
    private mutating func shareRow(_ generator: inout SeededGenerator) {
        guard reads.count > 1 else { return }
        let place = 1 + generator.below(reads.count - 1)
        guard reads[place].item.source == reads[place - 1].item.source else { return }
        reads[place].item.identifiers = reads[place - 1].item.identifiers
        reads[place].holders = reads[place - 1].holders
        reads[place].item.store = reads[place - 1].item.store
        reads[place].item.environment = reads[place - 1].item.environment
    }

    /// The status, kind, access and entitlements of an item or a row.
    private struct Facts {
        var kind: Observation.Kind
        var status: String
        var access: Bool?
        var entitlements: [String]
        var store: String
        var environment: String
        var ends: Duration?

        init(_ generator: inout SeededGenerator) {
            kind = generator.pick(.subscription, .subscription, .subscription, .oneTime)
            let known = StoreStatus.Known.allCases
            status =
                generator.oneIn(12)
                ? "never_met"
                : kind == .oneTime
                    ? generator.pick("owned", "refunded", "refunded", "incomplete")
                    : generator.pick(
                        "active",
                        "expired",
                        "expired",
                        known[Int.random(in: known.indices, using: &generator)].rawValue
                    )
            let usual = status == "active" || status == "trialing" || status == "in_grace_period"
            access = kind == .oneTime ? nil : generator.oneIn(4) ? !usual : usual
            entitlements = generator.pick(
                ["premium"],
                ["premium"],
                ["premium"],
                ["badge"],
                ["gold"],
                ["badge", "gold"],
                []
            )
            store = generator.pick("app_store", "play_store", "promotional")
            environment = generator.oneIn(5) ? "sandbox" : "production"
            ends = generator.pick(nil, .zero - day * 9, .zero - hour * 30, .zero - hour, .zero, hour, day * 20)
        }
    }

    private static func randomItem(index: Int, _ generator: inout SeededGenerator) -> Observation {
        let facts = Facts(&generator)
        if generator.oneIn(3) {
            var direct = stored(
                generator.pick(
                    .account,
                    .unnamed,
                    .unnamed,
                    .unattributable,
                    .otherAccount(id: "user-2"),
                    .otherAccount(id: "user-3")
                ),
                facts.status,
                access: facts.access,
                shown: generator.oneIn(2),
                source: generator.pick(.appStore, .googlePlay, .onside),
                // Another witness may speak of the same purchase.
                id: "lineage-\(generator.oneIn(2) ? index : max(0, index - 1))",
                entitlements: facts.entitlements,
                environment: facts.environment,
                ends: facts.ends,
                ownership: generator.oneIn(9) ? "family_shared" : "purchased"
            )
            direct.kind = facts.kind
            if generator.oneIn(2) {
                direct.identifiers = direct.identifiers.map { identifier in
                    var same = identifier
                    same.store = "app_store"
                    return same
                }
            }
            return direct
        }
        return item(
            facts.status,
            access: facts.access,
            kind: facts.kind,
            store: facts.store,
            environment: facts.environment,
            id: "lineage-\(index)",
            entitlements: facts.entitlements,
            renewal: generator.pick("will_renew", "will_not_renew", "will_pause", nil),
            ends: facts.ends,
            ownership: generator.oneIn(9) ? "family_shared" : "purchased",
            owner: generator.oneIn(9)
                ? generator.pick(.anonymous, .otherUser(id: "user-2"), .otherUser(id: "user-3")) : .askedUser
        )
    }

    private static func randomHolders(index: Int64, _ generator: inout SeededGenerator) -> [Purchase] {
        let owners: [Int64?] = generator.pick(
            [],
            [],
            [1],
            [1],
            [1],
            [nil],
            [2],
            [2],
            [1, 1],
            [1, nil],
            [1, 2],
            [2, 3],
            [2, 2]
        )
        return owners.enumerated().map { randomRow(100 + index * 10 + Int64($0.offset), owner: $0.element, &generator) }
    }

    private static func randomRow(_ id: Int64, owner: Int64?, _ generator: inout SeededGenerator) -> Purchase {
        let facts = Facts(&generator)
        return row(
            id,
            owner: owner,
            kind: facts.kind,
            store: facts.store,
            environment: facts.environment,
            facts.status,
            access: facts.access,
            entitlements: facts.entitlements,
            ends: facts.ends,
            endAnnounced: generator.oneIn(2),
            familyShared: generator.oneIn(9),
            observed: generator.pick(.zero - day, .zero - hour, .zero, hour),
            firstSeen: .zero - day * generator.pick(30, 31, 40),
            ownerSince: generator.pick(.zero - day * 40, .zero - hour),
            transferred: generator.oneIn(9) ? .zero - day : nil,
            source: generator.pick(.revenueCat, .revenueCat, .appStore, .onside),
            account: generator.oneIn(9) ? generator.pick(1, 2) : nil
        )
    }
}
