import Entitlements
import TestSupport

/// A made-up history of a made-up world; the same for the same seed.
struct WorldHistory {
    var generator: SeededGenerator
    var world: World
    /// Readings that were made, and are applied at some time.
    private var looks: [World.Look] = []
    private(set) var trace: [String] = []
    private let isTraced: Bool

    init(seed: UInt64, isTraced: Bool = false) {
        generator = SeededGenerator(seed: seed)
        world = World(&generator)
        self.isTraced = isTraced
    }

    mutating func tell(_ text: @autoclosure () -> String) { if isTraced { trace.append(text()) } }

    /// Makes 8 to 16 moves, then lets everything settle.
    mutating func perform() throws(Broken) {
        for _ in 0..<generator.pick(8, 10, 12, 16) { try move() }
        try judgeOrder()
        try settle()
    }

    private mutating func move() throws(Broken) {
        world.clock = world.clock + generator.pick(.seconds(1), .seconds(1), .seconds(60), hour, hour * 20, day * 3)
        // A clock that was ahead is set right again after a while.
        if world.lead > .zero, generator.oneIn(3) { return setClock() }
        let person = generator.below(world.people.count)
        // What was begun is brought to its end more often than not.
        if world.sweep != nil, generator.oneIn(3) { return try sweep() }
        switch generator.below(22) {
        case 0, 1, 2: change(generator.below(world.items.count))
        case 3: changePerson(person)
        case 4: changeGrant(person)
        case 5 where generator.oneIn(2): transfer(generator.below(world.items.count), person)
        case 6 where generator.oneIn(2): erase(person)
        case 7, 8: try sweep()
        case 9 where !looks.isEmpty:
            let place = generator.below(looks.count)
            try apply(looks.remove(at: place))
        case 10:
            // Somebody reads, and writes later than others.
            tell("u\(person) is read")
            looks.append(world.look(person, generator.pick(.restore, .reconcile)))
        case 11: try apply(world.look(person, generator.pick(.restore, .reconcile), parity: generator.below(2)))
        case 12: try hear(generator.below(world.items.count))
        case 13:
            let shown = generator.below(world.items.count)
            tell("u\(person) shows i\(shown)")
            try apply(world.look(person, .restore, shown: shown))
        case 14: followUp(generator.below(world.items.count))
        case 15 where generator.oneIn(2): setClock()
        case 15:
            let isOthers = !world.hasOthersKey
            world.hasOthersKey = isOthers
            tell(isOthers ? "another project's key" : "the right key again")
        case 16: comp(person)
        case 17: try end(generator.below(world.items.count))
        default: try apply(world.look(person, generator.pick(.restore, .reconcile, .reconcile)))
        }
    }

    @discardableResult
    mutating func apply(_ look: World.Look) throws(Broken) -> Rule? {
        tell("u\(look.person) reads " + look.reading.observations.map(Self.words).joined(separator: "; "))
        if !look.isSwept, !look.isConfirmed, world.sweep == nil, generator.oneIn(4) { try world.judgeListing(look) }
        let isRepeated = !look.isSwept && !look.isConfirmed && world.sweep == nil && generator.oneIn(4)
        let isMoving = isRepeated && world.isMoving(look)
        let rule = try world.apply(look)
        tell("u\(look.person) \(look.kind) of \(look.reading.askedAt.microseconds): \(rule.map { "\($0)" } ?? "again")")
        if isRepeated, rule != nil, !isMoving { try world.judgeRepetition(look) }
        return rule
    }

    private static func words(_ item: Observation) -> String {
        "\(item.identifiers.map(\.value)) \(item.status.raw) \(item.source.rawValue) \(item.owner)"
    }

    private mutating func change(_ place: Int) {
        let kind = generator.below(13)
        tell("i\(place) change \(kind)")
        switch kind {
        case 0, 1: set(place, "active", true, ends: world.clock + day * 20, renewal: "will_renew")
        case 2: set(place, "active", true, ends: world.clock + hour * 30, renewal: "will_not_renew")
        case 3, 4: set(place, "expired", false, ends: min(world.clock, world.items[place].ends ?? world.clock))
        case 5: set(place, generator.pick("refunded", "paused", "in_billing_retry"), false, ends: world.clock)
        case 6: set(place, "active", false, ends: world.clock)
        case 7: set(place, generator.pick("never_met", "incomplete"), false, ends: nil)
        case 8: world.items[place].isListed = false
        case 9: world.items[place].isListed = true
        case 10: world.items[place].customer = generator.below(world.people.count)
        case 11:
            let other = world.items[generator.below(world.items.count)]
            // A store that is asked about a purchase tells of all that belongs to it.
            guard other.identifiers[0].store == world.items[place].identifiers[0].store,
                other.isAtStore == world.items[place].isAtStore,
                !other.isAtStore || other.account == world.items[place].account
            else { return }
            for identifier in other.identifiers where !world.items[place].identifiers.contains(identifier) {
                world.items[place].identifiers.append(identifier)
            }
        default:
            // A line that is shared names no account, and makes no owner by a proof.
            guard !world.items[place].isAtStore else { return }
            world.items[place].isFamilyShared = generator.oneIn(2)
        }
    }

    mutating func set(
        _ place: Int,
        _ status: String,
        _ access: Bool,
        ends: Instant?,
        renewal: String? = "will_not_renew"
    ) {
        world.items[place].status = status
        world.items[place].access = access
        world.items[place].ends = ends
        world.items[place].renewal = renewal
    }

    private mutating func changePerson(_ person: Int) {
        let change = generator.below(5)
        tell("u\(person) change \(change)")
        switch change {
        case 0: world.people[person].status = generator.pick(.banned, .bannedFinal, .toBeDeleted, .onboarding)
        case 1, 2: world.people[person].status = .active
        case 3: world.people[person].isModerated.toggle()
        default:
            world.people[person].type = generator.pick(.free, .subscriber)
            if world.people[person].type == .subscriber { world.people[person].isLapsed = false }
        }
    }

    private mutating func changeGrant(_ person: Int) {
        let record = world.people[person].record
        let until = world.clock + generator.pick(hour, hour * 30, day * 30)
        if generator.oneIn(2) {
            world.records[record].grants.append(.init(until: until))
            world.note("grant added")
            tell("grant for u\(person)")
        } else if generator.oneIn(3), let last = world.records[record].grants.indices.last {
            // Another payer's renewal, also of what had ended, or its earlier end.
            let end = generator.oneIn(3) ? world.clock : until
            world.note(world.records[record].grants[last].until < world.clock ? "grant begun again" : "grant changed")
            world.records[record].grants[last] = .init(until: end)
            tell("u\(person)'s grant ends at another time")
        } else if let last = world.records[record].grants.indices.last {
            let isPast = world.records[record].grants[last].until < world.clock
            world.note(isPast ? "grant expired" : "grant revoked")
            world.records[record].grants[last].isRevoked = true
            tell("u\(person)'s grant is revoked")
        }
    }

    /// Support moves what an item's owner has; the store follows, or goes on naming the former one.
    private mutating func transfer(_ place: Int, _ person: Int) {
        let target = world.people[person].record
        guard let row = world.names[Name(world.items[place].identifiers[0])],
            let from = world.rows[row].facts.ownerKey.map({ Int($0) - 1 }), from != target
        else { return }
        world.note("transferred")
        tell("i\(place) is transferred to u\(person)")
        if !world.rows[row].facts.entitlements.isEmpty, world.rows[row].facts.givesAccess == true {
            world.records[from].movedAwayAt = world.clock
        }
        world.rows[row].facts.ownerKey = Int64(target + 1)
        world.rows[row].facts.ownerSince = world.clock
        world.rows[row].facts.transferredAt = world.clock
        world.rows[row].facts.observedAt = world.clock
        world.rows[row].facts.formerOwnerKey = nil
        if generator.oneIn(3) {
            world.note("a store echoes what was transferred")
        } else {
            world.items[place].customer = person
        }
    }

    private mutating func erase(_ person: Int) {
        world.note(world.sweep == nil ? "erased" : "erased in a run")
        tell("u\(person) is erased")
        world.records[world.people[person].record].person = nil
        world.people[person].record = world.records.count
        world.records.append(.init(person: person))
    }

    /// One step of a run over everybody.
    private mutating func sweep() throws(Broken) {
        guard var sweep = world.sweep else {
            let able = world.people.indices.filter { world.people[$0].status.isEligible }
            world.sweep = .init(left: able, most: generator.pick(0, 1, 9))
            return tell("a run begins")
        }
        if sweep.isStopped {
            let held = sweep.held.keys.sorted().compactMap { world.records[$0].person }
            if let person = held.first, generator.oneIn(3) { erase(person) }
            let isReleased = generator.oneIn(2)
            world.note(isReleased ? "run released" : "run canceled")
            tell("the run is \(isReleased ? "released" : "canceled")")
            world.sweep = nil
            if isReleased { try write(sweep, isConfirmed: true) }
            return
        }
        if let person = sweep.left.popLast() {
            world.sweep = sweep
            var look = world.look(person, .reconcile)
            look.isSwept = true
            try apply(look)
            return
        }
        let held = sweep.held.filter { world.records[$0.key].epoch == $0.value }
        let today = world.spent.count { world.clock < $0 + day }
        guard held.count <= min(max(world.limit - today, 0), sweep.most) else {
            world.note("run stopped")
            tell("the run stops")
            world.sweep?.isStopped = true
            return
        }
        world.note(held.isEmpty ? "run done" : "run within its limit")
        world.sweep = nil
        try write(sweep, isConfirmed: false)
    }

    /// Each is read anew before anything is written.
    private mutating func write(_ sweep: World.Sweep, isConfirmed: Bool) throws(Broken) {
        for (record, epoch) in sweep.held.sorted(by: { $0.key < $1.key }) {
            guard world.records[record].epoch == epoch else {
                world.note("changed while a run held it")
                continue
            }
            guard let person = world.records[record].person else {
                world.note("erased while a run held it")
                continue
            }
            var look = world.look(person, .reconcile)
            look.isConfirmed = isConfirmed
            try apply(look)
        }
    }

    /// Everything can be read, and the store gives its word on all it has.
    private static func calm(_ world: inout World) {
        world.sweep = nil
        world.limit = 1000
        world.hasOthersKey = false
        // No grant ends while everything settles.
        for record in world.records.indices {
            for grant in world.records[record].grants.indices {
                let until = world.records[record].grants[grant].until
                if world.clock < until { world.records[record].grants[grant].until = until + day * 90 }
            }
        }
        for place in world.items.indices {
            world.items[place].isListed = true
            if world.items[place].access || world.items[place].status == "active" {
                world.items[place].status = "active"
                world.items[place].access = true
            } else {
                world.items[place].status = "expired"
            }
        }
        for person in world.people.indices { world.people[person].status = .active }
    }

    /// L7: readings that are made and not applied come to the same in any order.
    private mutating func judgeOrder() throws(Broken) {
        guard looks.count > 1 else { return }
        world.note("readings in two orders")
        Self.calm(&world)
        world.clock = world.clock + hour
        // What was never given back is not taken away again.
        for person in world.people.indices where world.people[person].type == .free {
            world.people[person].isLapsed = true
        }
        var other = world
        var (first, second) = (world, looks.shuffled(using: &generator))
        for look in looks { try first.apply(look) }
        second += looks
        for look in second { try other.apply(look) }
        looks = []
        let isFirstSettled = try Self.settle(&first)
        guard try Self.settle(&other), isFirstSettled, !first.hasDispute, !other.hasDispute else {
            // Who is first with what is family-shared, or has another's names, has it until people decide.
            return world.note("people have to look")
        }
        world.note("two orders, one state")
        guard first.people == other.people, first.ledger == other.ledger else {
            throw Broken(law: "L7: the order of readings counts: \(first.people) but \(other.people)")
        }
    }

    /// Reads everybody some times, many days apart.
    ///
    /// - Returns: whether nobody is left to people.
    private static func settle(_ world: inout World) throws(Broken) -> Bool {
        var rules: [Rule?] = []
        // Beyond the end of whatever was bought while the clock was 40 days ahead: what is paid for is not absent.
        for _ in 0..<4 {
            world.clock = world.clock + day * 15
            world.hasDispute = false
            rules = []
            for person in world.people.indices { rules.append(try world.apply(world.look(person, .reconcile))) }
        }
        let waits: Set<Rule> = [.identityCollision, .sourcesDisagree, .unexplained]
        return rules.allSatisfy { $0.map { !waits.contains($0) } ?? false }
    }

    /// In the end a type says what the store says, unless people have to look.
    private mutating func settle() throws(Broken) {
        Self.calm(&world)
        guard try Self.settle(&world) else { return }
        world.note("settled")
        for (place, person) in world.people.enumerated() {
            let key = Int64(person.record + 1)
            let isGranted = world.records[person.record].grants.contains { !$0.isRevoked && world.clock < $0.until }
            func isHeld(_ item: World.Item, _ names: [PurchaseIdentifier]) -> Bool {
                let rows = Set(names.compactMap { world.names[Name($0)] })
                return (item.customer == place || !rows.isEmpty) && item.access
                    && rows.allSatisfy { row in
                        let facts = world.rows[row].facts
                        let isNamed = (facts.accountKey ?? key) == key && (item.account ?? place) == place
                        return facts.ownerKey == key && (isNamed || facts.transferredAt != nil)
                    }
            }
            let hasItem = world.items.indices.contains { index in
                let item = world.items[index]
                // A store's own answer has the names of all that belongs to the purchase.
                let all = world.lineage(of: index).flatMap { world.items[$0].identifiers }
                // What is not on record yet is judged with everything that is listed of its purchase.
                let isNew = item.identifiers.allSatisfy { world.names[Name($0)] == nil }
                let listed = isNew ? world.lineage(of: index) { $0.customer == place || $0.isAtStore } : [index]
                let names = listed.flatMap { world.items[$0].identifiers }
                return item.customer == place && isHeld(item, names) || item.isAtStore && isHeld(item, all)
            }
            guard (person.type == .subscriber) == (isGranted || hasItem) else {
                throw Broken(law: "not settled: u\(place) is \(person.type)")
            }
            if person.type == .subscriber, person.isLapsed { throw Broken(law: "not settled: assets of u\(place)") }
        }
    }
}
