@testable import Entitlements
import Testing

/// What gives a user access, each thing once, beside the verdict.
@Suite struct HeldEntitlementTests {
    private static func set(_ scene: Scene, _ change: (inout DecisionInput) -> Void = { _ in }) -> [HeldEntitlement]? {
        var input = scene.input
        change(&input)
        guard case .verdict(let verdict) = decide(input), verdict.action == .grant else { return nil }
        return verdict.entitlements
    }

    /// As short as a test needs it: the product, or who granted it, and the end in hours from noon.
    private static func short(_ set: [HeldEntitlement]?) -> [String]? {
        set?.map { held in
            let end = held.endsAt.map { "\(($0 - noon) / .seconds(3600))" } ?? "-"
            return "\(held.store ?? held.source ?? "?") \(end)"
        }
    }

    @Test func `Each thing has its end, its renewal and its risk`() throws {
        let scene = Scene(
            .reconcile,
            .free,
            item("active", access: true, id: "one", renewal: "will_renew", ends: day),
            item("in_grace_period", access: true, store: "play_store", id: "two", ends: .zero - hour),
            item("owned", kind: .oneTime, store: "onside", id: "three"),
            item("active", access: true, store: "amazon", id: "four", renewal: "will_pause", ends: hour),
            item("expired", access: false, id: "five", ends: .zero - day),
            item("active", access: true, id: "six", entitlements: ["badge"], ends: day)
        )
        let set = try #require(Self.set(scene))
        #expect(Self.short(set) == ["amazon 1.0", "app_store 24.0", "onside -", "play_store -1.0"])
        #expect(set.map(\.willRenew) == [false, true, false, nil])
        #expect(set.map(\.isAtRisk) == [false, false, false, true])
        #expect(set.allSatisfy { $0.name == "premium" && $0.source == nil && $0.environment == "production" })
        #expect(set.allSatisfy { $0.productID == "monthly" })
    }

    @Test func `Names are the team's, and a thing that gives several stands under each`() {
        let names = ["premium": ["plus", "archive"], "pro:month": ["pro"], "badge": []]
        let own = ProductCatalog(["premium": true, "pro:month": true, "badge": false], names: names)
        #expect(own.hasSeveralNames && !catalog.hasSeveralNames)
        let scene = Scene(.reconcile, .free, item("active", access: true, entitlements: ["premium", "badge"]))
        let set = Self.set(scene) { $0.catalog = own }
        #expect(set?.map(\.name) == ["archive", "plus"])
    }

    @Test func `A purchase that two sources list stands there once, as the ledger takes it over`() {
        for turn in [false, true] {
            var items = [
                Scene.Read(item("active", access: true, renewal: "will_renew", ends: day)),
                Scene.Read(stored(.account, ends: day * 2)),
            ]
            if turn { items.reverse() }
            var scene = Scene(.reconcile, .free)
            scene.reads = items
            #expect(Self.short(Self.set(scene)) == ["app_store 48.0"])
        }
    }

    @Test func `Grants stand beside purchases, each with its own end`() throws {
        var scene = Scene(.reconcile, .free, item("active", access: true, ends: day))
        scene.grants = .active
        let set = try #require(
            Self.set(scene) { input in
                input.activeGrants = [
                    ActiveGrant(until: nil, source: "grant"),
                    ActiveGrant(until: noon + hour, source: "stripe", entitlement: "premium"),
                ]
            }
        )
        #expect(Self.short(set) == ["grant -", "stripe 1.0", "app_store 24.0"])
        #expect(set.map(\.name) == [nil, "premium", "premium"])
        #expect(set.map(\.willRenew) == [false, false, nil])
    }

    @Test func `A tester's purchases end with the list that lets them count`() {
        var scene = Scene(.reconcile, .free, item("active", access: true, environment: "sandbox", ends: day * 9))
        #expect(Self.set(scene) == nil)
        scene.sandbox = .allowed
        #expect(Self.short(Self.set(scene) { $0.sandboxEnds = noon + day }) == ["app_store 24.0"])
        #expect(Self.short(Self.set(scene)) == ["app_store 216.0"])
    }

    @Test(arguments: Coverage.allCases)
    func `Silence about an add-on that still runs does not end it`(coverage: Coverage) {
        var scene = Scene(.reconcile, .subscriber, item("active", access: true, id: "base", ends: day))
        scene.coverage = coverage
        scene.unlisted = [row(7, store: "play_store", ends: hour), row(8, store: "onside", "refunded", access: false)]
        #expect(Self.short(Self.set(scene)) == ["app_store 24.0", "play_store 1.0"])
        // After its end a whole reading without it is enough, and an incomplete one for as long as its store may be late.
        scene.unlisted = [row(7, store: "play_store", ends: .zero - hour)]
        #expect(Self.set(scene)?.count == (coverage == .full ? 1 : 2))
        scene.unlisted = [row(7, store: "play_store", ends: .zero - day * 90)]
        #expect(Self.set(scene)?.count == 1)
    }

    @Test func `A store's word ends an add-on at once, and the rest stands`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [
            Scene.Read(item("active", access: true, id: "base", ends: day)),
            Scene.Read(item("refunded", access: false, id: "addon", ends: day), holders: [row(7, ends: day)]),
        ]
        #expect(Self.short(Self.set(scene)) == ["app_store 24.0"])
    }

    @Test func `An add-on that is late to renew stands while its store may be late`() {
        for (ends, count) in [(Duration.zero - hour, 2), (.zero - day * 90, 1)] {
            var scene = Scene(.reconcile, .subscriber)
            scene.reads = [
                Scene.Read(item("active", access: true, id: "base", ends: day)),
                Scene.Read(item("active", access: false, id: "addon", ends: ends), holders: [row(7, ends: ends)]),
            ]
            #expect(Self.set(scene)?.count == count)
        }
    }

    @Test func `An entitlement that was detached is kept beside what gives access`() {
        var scene = Scene(.reconcile, .subscriber)
        scene.reads = [
            Scene.Read(item("active", access: true, id: "base", ends: day)),
            Scene.Read(
                item("active", access: true, store: "play_store", id: "addon", entitlements: [], ends: day),
                holders: [row(7, store: "play_store", ends: day)]
            ),
        ]
        #expect(Self.short(Self.set(scene)) == ["app_store 24.0", "play_store 24.0"])
    }

    @Test func `A change is news unless it is the risk alone`() {
        var held = HeldEntitlement()
        (held.name, held.store, held.endsAt) = ("premium", "app_store", noon)
        var risky = held
        risky.isAtRisk = true
        #expect(!EntitlementChange(from: [held], to: [risky], record: "").isNews)
        var later = held
        later.endsAt = noon + .milliseconds(10)
        #expect(!EntitlementChange(from: [held], to: [later], record: "").isNews)
        later.endsAt = noon + hour
        #expect(EntitlementChange(from: [held], to: [later], record: "").isNews)
        #expect(EntitlementChange(from: [], to: [held], record: "").isNews)
    }
}
