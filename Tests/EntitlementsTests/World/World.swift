import Entitlements
import TestSupport

/// What a law forbids has happened.
struct Broken: Error {
    var law: String
}

/// A name of a purchase, byte for byte: two spellings of one character are two names.
struct Name: Hashable {
    private var text: String

    init(_ identifier: PurchaseIdentifier) { text = identifier.value }

    static func == (left: Self, right: Self) -> Bool { left.text.utf8.elementsEqual(right.text.utf8) }

    func hash(into hasher: inout Hasher) { for byte in text.utf8 { hasher.combine(byte) } }
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
        /// The type that our last decision gave the person or found right.
        var decidedType: UserType?
        var grants: [Grant] = []
    }

    struct Row: Hashable {
        var facts: Purchase
        var mergedInto: Int?
    }

    /// One thing at the store.
    struct Item {
        /// The person that RevenueCat names; `nil`: RevenueCat does not know it.
        var customer: Int?
        /// The person whose id the app gave the store; `nil`: it gave none.
        var account: Int?
        /// Whether the store itself can be asked about it.
        var isAtStore = false
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
        /// What is listed, by the store itself.
        var truth: [Truth] = []
        var isSwept = false
        /// A person has confirmed what comes of it.
        var isConfirmed = false
    }

    /// What the store itself holds of a listed item.
    struct Truth {
        var names: [Name]
        var gives: Bool
        /// Whether RevenueCat names the person who was asked for.
        var isCustomers: Bool
        /// The person whose id the app gave the store.
        var account: Int?
        var isSubmitted: Bool
    }

    var people: [Person]
    var records: [Record]
    var rows: [Row] = []
    var names: [Name: Int] = [:]
    var items: [Item]
    var clock = noon
    /// How far the clock is ahead of the time.
    var lead = Duration.zero
    /// RevenueCat is asked with the key of another project, which knows none of these customers.
    var hasOthersKey = false
    /// Unannounced demotions that the brake has counted.
    var spent: [Instant] = []
    var limit: Int
    var sweep: Sweep?
    var situations: Set<String> = []
    /// A reading of this round has left it to people whose something is, whatever became of its user's type.
    var hasDispute = false
    /// How the ids of this world are spelled.
    private let spellings: [String]

    mutating func note(_ input: String) { situations.insert(input) }

    init(_ generator: inout SeededGenerator) {
        let count = generator.pick(2, 2, 3)
        people = (0..<count).map { place in
            Person(type: generator.oneIn(4) ? .subscriber : .free, status: .active, record: place)
        }
        records = people.indices.map { Record(person: $0) }
        limit = generator.pick(0, 1, 2, 100, 100, 100)
        spellings = ["0", "1", "2", "3"]
        items = []
        for _ in 0..<generator.pick(1, 2, 2, 3) {
            items.append(makeItem(store: generator.oneIn(4) ? "play_store" : "app_store", &generator))
        }
    }

    /// The id of a person.
    func id(of person: Int) -> String { "user-\(spellings[person])" }

    /// The person behind an id.
    func person(behind id: String) -> Int? {
        people.indices.first { self.id(of: $0).utf8.elementsEqual(id.utf8) }
    }

    /// Makes an item up, with names of its own.
    func makeItem(store: String, _ generator: inout SeededGenerator) -> Item {
        let place = items.count
        let spelled = spellings[place % spellings.count] + String(repeating: "+", count: place / spellings.count)
        let identifiers = ["rc-", "st-"].map {
            PurchaseIdentifier(value: $0 + spelled, store: store, environment: "production", kind: "store_id")
        }
        var item = Item(customer: generator.below(people.count), identifiers: identifiers, ends: noon + day * 9)
        guard generator.oneIn(3) else { return item }
        item.isAtStore = true
        // RevenueCat hears of it later, or never.
        if generator.oneIn(2) { item.customer = nil }
        if generator.below(3) > 0 { item.account = generator.below(people.count) }
        return item
    }
}
