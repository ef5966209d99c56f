import Entitlements
import TestSupport

extension WorldHistory {
    /// A store notifies of a purchase: the person of its account, or the owner of what it follows, is read with it.
    mutating func hear(_ place: Int) throws(Broken) {
        let item = world.items[place]
        guard item.isAtStore else { return }
        let lineage = world.lineage(of: place)
        let rows = lineage.flatMap { world.items[$0].identifiers }.compactMap { world.names[Name($0)] }
        let owner = rows.compactMap { world.rows[$0].facts.ownerKey }.first.flatMap {
            world.records[Int($0) - 1].person
        }
        guard let person = owner ?? item.account else { return tell("i\(place) is notified, and no one is named") }
        let look = world.look(person, .reconcile, notified: place)
        let isFirstWord =
            rows.isEmpty && item.isListed && item.access && !lineage.contains { world.items[$0].customer == person }
        tell("i\(place) is notified of u\(person)")
        let rule = try apply(look)
        guard isFirstWord, world.people[person].status.isEligible, rule != nil else { return }
        world.note("a purchase known by its notification alone")
        // A store's first word makes the owner's access, whatever RevenueCat says.
        guard world.people[person].type == .subscriber else {
            throw Broken(law: "L2: notified by its store, and not given")
        }
    }

    /// A purchase follows another: a resubscription, which keeps one of its names, or a change of plans with a new token.
    mutating func followUp(_ place: Int) {
        guard world.items.count < 6 else { return }
        let old = world.items[place]
        var next = world.makeItem(store: old.identifiers[0].store, &generator)
        next.identifiers.append(old.identifiers[generator.below(old.identifiers.count)])
        next.customer = old.customer
        next.account = old.account
        next.isAtStore = old.isAtStore
        next.ends = world.clock + day * 20
        // RevenueCat has not heard of a change of plans that a notification alone tells of.
        if old.isAtStore, generator.oneIn(2) { next.customer = nil }
        set(place, generator.pick("expired", "replaced"), false, ends: min(world.clock, old.ends ?? world.clock))
        // Lists have no documented order.
        if generator.oneIn(2) {
            world.items.append(next)
        } else {
            world.items.insert(next, at: 0)
        }
        tell("i\(place) is followed by another")
    }

    /// A purchase ends whose end was announced, or not.
    mutating func end(_ place: Int) throws(Broken) {
        guard let person = world.items[place].customer, world.sweep == nil else { return }
        let renewal = generator.pick("will_renew", "will_not_renew")
        set(place, "active", true, ends: world.clock + hour, renewal: renewal)
        try apply(world.look(person, .reconcile))
        world.clock = world.clock + hour * 2
        set(place, "expired", false, ends: world.clock - hour, renewal: "will_not_renew")
        try apply(world.look(person, .reconcile))
    }

    /// The clock jumps ahead, or is set right again.
    mutating func setClock() {
        if world.lead > .zero {
            world.clock = world.clock - world.lead
            world.lead = .zero
            return tell("the clock is set right")
        }
        let lead = generator.pick(hour, hour * 30, day * 40)
        world.lead = lead
        world.clock = world.clock + lead
        world.note("the clock jumped ahead")
        tell("the clock is ahead by \(lead)")
    }

    /// Support makes a person a subscriber who lost or never had access by our last decision.
    mutating func comp(_ person: Int) {
        let record = world.people[person].record
        guard world.people[person].type == .free, world.records[record].decidedType == .free else { return }
        world.people[person].type = .subscriber
        world.people[person].isLapsed = false
        tell("u\(person) is comped")
    }
}
