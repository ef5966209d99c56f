@testable import Entitlements
import TestSupport
import Testing

/// Several items of one reading about one purchase.
@Suite struct PrevailingItemTests {
    private static func standing(_ items: [Observation], catalog: ProductCatalog? = catalog) -> Observation? {
        PrevailingItem(among: items, counts: items.map { _ in true }, catalog: catalog).map { items[$0.place] }
    }

    private static func stored(_ source: Store, _ status: String, _ access: Bool, ends: Duration?) -> Observation {
        var item = item(status, access: access, ends: ends, owner: source == .revenueCat ? .askedUser : .account)
        item.source = source
        if source != .revenueCat {
            item.lookupID = "lookup"
            item.statedAt = noon
        }
        return item
    }

    @Test func `The strongest state stands, then the later end, whatever the order`() {
        // The strongest first.
        let items = [
            item("active", access: true, ends: day * 20), item("active", access: true, ends: day * 9),
            item("active", access: true, entitlements: ["gold"], ends: day * 30),
            item("active", access: true, entitlements: ["badge"], ends: day * 40),
            item("active", access: true, entitlements: [], ends: day * 50),
            item("active", access: false, ends: .zero - hour), item("active", access: false, ends: .zero - day),
            item("incomplete", access: false), item("never_met", access: false),
            item("expired", access: false, ends: .zero - hour), item("expired", access: false, ends: .zero - day * 30),
            item("expired", access: false),
        ]
        for (place, strong) in items.enumerated() {
            for weak in items[(place + 1)...] {
                #expect(Self.standing([strong, weak]) == strong, "\(weak.status.raw)")
                #expect(Self.standing([weak, strong]) == strong, "\(weak.status.raw)")
            }
        }
    }

    @Test func `Access for life outlasts every end`() {
        let life = item("owned", kind: .oneTime)
        let month = item("active", access: true, ends: day * 20)
        #expect(Self.standing([life, month]) == life)
        #expect(Self.standing([month, life]) == life)
    }

    @Test func `A store's own statement stands before RevenueCat's where both say the same`() {
        let store = Self.stored(.appStore, "active", true, ends: day * 9)
        let revenueCat = Self.stored(.revenueCat, "active", true, ends: day * 20)
        #expect(Self.standing([store, revenueCat]) == store)
        #expect(Self.standing([revenueCat, store]) == store)
    }

    @Test func `What its store calls over is over, though RevenueCat still lists it`() {
        let store = Self.stored(.appStore, "refunded", false, ends: day * 9)
        let revenueCat = Self.stored(.revenueCat, "active", true, ends: day * 9)
        #expect(Self.standing([store, revenueCat]) == store)
        #expect(Self.standing([revenueCat, store]) == store)
        // Another purchase of the same line goes on.
        var next = Self.stored(.revenueCat, "active", true, ends: day * 20)
        next.identifiers = [
            PurchaseIdentifier(value: "other", store: "app_store", environment: "production", kind: "store_id")
        ]
        #expect(Self.standing([store, next, revenueCat]) == next)
    }

    @Test func `A part of a purchase that is over says nothing of the rest that its store calls running`() {
        let running = Self.stored(.googlePlay, "active", true, ends: day * 9)
        let over = Self.stored(.googlePlay, "expired", false, ends: .zero - day)
        let revenueCat = Self.stored(.revenueCat, "active", true, ends: day * 9)
        let counts = [true, true, true]
        #expect(PrevailingItem.overruled([running, over, revenueCat], counts: counts).isEmpty)
        #expect(PrevailingItem.overruled([over, revenueCat], counts: [true, true]) == [1])
        #expect(PrevailingItem.overruled([running, over, revenueCat], counts: [false, true, true]) == [2])
    }

    @Test func `RevenueCat's renewal stands before what the store has not called over`() {
        let store = Self.stored(.googlePlay, "replaced", false, ends: .zero - hour)
        let revenueCat = Self.stored(.revenueCat, "active", true, ends: day * 20)
        let pick = PrevailingItem(among: [store, revenueCat], counts: [true, true], catalog: catalog)
        #expect(pick?.place == 1)
        #expect(pick?.lookupID == "lookup", "the store can still be asked")
        #expect(pick?.statedAt == noon)
    }

    @Test func `What does not count for the user stands only where nothing does`() {
        let items = [item("active", access: true, ends: day * 20), item("expired", access: false)]
        #expect(PrevailingItem(among: items, counts: [false, true], catalog: catalog)?.place == 1)
        #expect(PrevailingItem(among: items, counts: [false, false], catalog: catalog)?.place == 0)
        #expect(PrevailingItem(among: [], counts: []) == nil)
    }

    @Test func `The order of made-up items decides nothing`() {
        for seed in Cases.seeds.prefix(max(1, Cases.seeds.count / 5)) {
            var generator = SeededGenerator(seed: seed)
            let scene = Scene.random(seed: seed)
            var items = scene.reads.map(\.item)
            for index in items.indices where generator.oneIn(3) {
                items[index].source = .appStore
                items[index].lookupID = "lookup-\(index)"
                items[index].identifiers = items[0].identifiers
            }
            let counts = items.map { _ in !generator.oneIn(5) }
            let pick = PrevailingItem(among: items, counts: counts, catalog: catalog)
            var places = Array(items.indices)
            places.shuffle(using: &generator)
            let turned = PrevailingItem(
                among: places.map { items[$0] },
                counts: places.map { counts[$0] },
                catalog: catalog
            )
            #expect(turned.map { items[places[$0.place]] } == pick.map { items[$0.place] }, "seed \(seed)")
            #expect(turned?.lookupID == pick?.lookupID && turned?.statedAt == pick?.statedAt, "seed \(seed)")
        }
    }
}
