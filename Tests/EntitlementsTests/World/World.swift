import Entitlements
import TestSupport

/// What a law forbids has happened.
struct Broken: Error {
    var law: String
}

/// Users, what a store holds, what is on record, and the time: all that a history changes, without a database.
///
/// What is decided is decided by the product; what is written is written as the laws ask for it.
struct World {
    struct Person: Hashable {
        var type: UserType
        var status: UserStatus
        /// The place of the record that knows this person.
        var record: Int
        var isLapsed = false
        var isModerated = false
    }

    struct Grant: Hashable {
        var until: Instant
        var isRevoked = false
    }

    /// What is known of somebody; an erasure takes the person away from it.
    struct Record: Hashable {
        var person: Int?
        var epoch = 0
        var readAt: Instant?
        var absentSince: Instant?
        var movedAwayAt: Instant?
        var everObserved = false
        var decidedType: UserType?
        var grants: [Grant] = []
    }

    struct Row: Hashable {
        var facts: Purchase
        var mergedInto: Int?
    }

    /// One thing at the store.
    struct Item {
        var customer: Int?
        var identifiers: [PurchaseIdentifier]
        var status = "active"
        var access = true
        var ends: Instant?
        var renewal: String? = "will_renew"
        var isListed = true
        var isFamilyShared = false
    }

    /// A run over everybody: what it would demote is written together, or not at all.
    struct Sweep {
        var left: [Int]
        var most: Int
        /// Records, with the versions at which they were held.
        var held: [Int: Int] = [:]
        var isStopped = false
    }

    /// Somebody's reading, which may be applied later than others.
    struct Look {
        var person: Int
        var record: Int
        var kind: JobKind
        var reading: Reading
        /// Whose it was by the store itself, and whether it gave access.
        var truth: [(keys: [PurchaseIdentifierKey], gives: Bool)] = []
        var isSwept = false
        /// A person has confirmed what comes of it.
        var isConfirmed = false
    }

    var people: [Person]
    var records: [Record]
    var rows: [Row] = []
    var names: [PurchaseIdentifierKey: Int] = [:]
    var items: [Item]
    var clock = noon
    /// Unannounced demotions that the brake has counted.
    var spent: [Instant] = []
    var limit: Int
    var sweep: Sweep?
    var situations: Set<String> = []
    /// A reading of this round has left it to people whose something is, whatever became of its user's type.
    var hasDispute = false

    mutating func note(_ situation: String) { situations.insert(situation) }

    init(_ generator: inout SeededGenerator) {
        let count = generator.pick(2, 2, 3)
        people = (0..<count).map { place in
            Person(type: generator.oneIn(4) ? .subscriber : .free, status: .active, record: place)
        }
        records = people.indices.map { Record(person: $0) }
        limit = generator.pick(0, 1, 2, 100, 100, 100)
        items = (0..<generator.pick(1, 2, 2, 3)).map { place in
            let store = generator.oneIn(4) ? "play_store" : "app_store"
            let identifiers = ["rc-\(place)", "st-\(place)"].map {
                PurchaseIdentifier(value: $0, store: store, environment: "production", kind: "store_id")
            }
            return Item(customer: generator.below(count), identifiers: identifiers, ends: noon + day * 9)
        }
    }

    /// What the store answers about a person now; `parity` leaves every other item out.
    func look(_ person: Int, _ kind: JobKind, parity: Int? = nil) -> Look {
        var listed = items.filter { $0.isListed && $0.customer == person }
        if let parity { listed = listed.enumerated().filter { $0.offset % 2 == parity }.map(\.element) }
        let observations = listed.map { item in
            Observation(
                kind: .subscription,
                store: item.identifiers[0].store,
                environment: "production",
                identifiers: item.identifiers,
                entitlements: ["premium"],
                status: StoreStatus(item.status),
                givesAccess: item.access,
                renewal: item.renewal,
                periodEndsAt: item.ends,
                ownership: item.isFamilyShared ? "family_shared" : "purchased",
                owner: .askedUser
            )
        }
        return Look(
            person: person,
            record: people[person].record,
            kind: kind,
            reading: Reading(
                coverage: parity == nil ? .full : .partial,
                askedAt: clock,
                observations: observations,
                failure: parity == nil ? nil : ReadFailure(.timeout)
            ),
            truth: listed.map { ($0.identifiers.map(\.key), $0.access) }
        )
    }

    /// Everything that a verdict rests on.
    func situation(_ look: Look) -> (situation: Situation, holders: [[Purchase]]) {
        let record = records[look.record]
        let person = record.person.map { people[$0] }
        let key = Int64(look.record + 1)
        let holders = look.reading.observations.map { observation in
            Set(observation.identifiers.compactMap { names[$0.key] }).sorted().map { rows[$0].facts }
        }
        let attributions = attribute(
            look.reading.observations,
            holders: holders,
            userKey: key,
            eligible: person?.status.isEligible ?? false,
            askedAt: look.reading.askedAt
        )
        let targets = zip(holders, attributions).map { held, attribution in
            attribution.target.flatMap { id in held.first { $0.id == id } }
        }
        let isGranted = record.grants.contains { !$0.isRevoked && clock < $0.until }
        let situation = Situation(
            kind: look.kind,
            user: person.map { User(id: "user-\(look.person)", type: $0.type, status: $0.status) },
            userKey: key,
            reading: look.reading,
            attributions: attributions,
            rows: targets,
            ledger: rows.filter { $0.mergedInto == nil && $0.facts.ownerKey == key }.map(\.facts),
            listed: Set(holders.joined().map(\.id)),
            grants: isGranted ? .active : record.grants.isEmpty ? .none : .past,
            everObserved: record.everObserved,
            decidedType: record.decidedType,
            absentSince: record.absentSince,
            movedAwayAt: record.movedAwayAt,
            catalog: catalog
        )
        return (situation, holders)
    }
}
