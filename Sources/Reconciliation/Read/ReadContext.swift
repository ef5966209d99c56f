import Entitlements
import Ledger
import Postgres
import Queue
import StoreClients

/// What all reads of one job have in common.
struct ReadContext: Sendable {
    var job: ClaimedJob
    var userID: String
    /// When the first request begins, by the database's clock.
    var askedAt: Instant
    var lane: Lane
    var catalog: ProductCatalog
    /// Nothing is left out: what sufficed for a yes did not hold, or there may be more to find than the yes.
    var readsAll: Bool

    init(_ job: ClaimedJob, userID: String, askedAt: Instant, catalog: ProductCatalog) {
        self.job = job
        self.userID = userID
        self.askedAt = askedAt
        self.catalog = catalog
        // An item whose access did not count must not keep the rest from being read again.
        readsAll = job.lastError != nil || job.holdsSeveral || catalog.hasSeveralNames
        lane = job.kind == .restore ? .restore : job.lane == .event ? .event : .sweep
    }

    /// Whether an item with these keys may give access, so that the rest need not be asked for.
    func mayGrant(_ keys: [String]) -> Bool { !readsAll && catalog.mapping(of: keys) == .access }

    /// Whether an item is likely to give the user access.
    func givesAccess(_ item: Observation) -> Bool {
        switch item.owner {
        case .askedUser, .account: break
        case .unnamed: guard item.isSubmitted else { return false }
        case .anonymous, .otherUser, .otherAccount, .heldElsewhere, .unattributable: return false
        }
        return item.accessState == .access && catalog.mapping(of: item.entitlements) == .access
            && (!item.isSandbox || job.sandboxAllowed)
    }
}

/// What one store said of a user.
struct StorePart: Sendable {
    var store: Store
    /// `full` where its silence about anything else means that there is nothing else.
    var coverage: Coverage
    var observations: [Observation] = []
    var failure: ReadFailure?
    /// What was shown and did not verify, by kind and fault.
    var refused: [String] = []
    /// Items whose owner only a walk through the host's users can tell.
    var withheld: [Observation] = []
    /// An item can't be read: whether it gives access is not known.
    var hasUnreadable = false

    /// A store that nothing had to be asked.
    static func nothing(_ store: Store) -> StorePart { StorePart(store: store, coverage: .full) }

    static func failed(_ store: Store, _ failure: ReadFailure) -> StorePart {
        StorePart(store: store, coverage: .none, failure: failure)
    }

    /// Takes in what the same store answered to a further question.
    mutating func add(_ other: StorePart) {
        let answers = !observations.isEmpty || !other.observations.isEmpty
        coverage = coverage == other.coverage ? coverage : answers ? .partial : .none
        observations += other.observations
        failure = failure ?? other.failure
        refused += other.refused
        withheld += other.withheld
        hasUnreadable = hasUnreadable || other.hasUnreadable
    }

    /// Asks all apps of a store at once for one thing, which at most one of them has.
    ///
    /// The first app that knows it answers, whatever became of the others. It is unknown only if every app says so.
    static func first<Client: Sendable>(
        ofEach clients: [Client],
        nothing: StorePart,
        _ ask: @escaping @Sendable (Client) async -> StorePart
    ) async -> StorePart {
        if clients.count == 1, let client = clients.first { return await ask(client) }
        let parts = await withTaskGroup(of: StorePart.self) { group in
            for client in clients { group.addTask { await ask(client) } }
            return await group.reduce(into: []) { $0.append($1) }
        }
        if let found = parts.first(where: { !$0.observations.isEmpty && $0.failure == nil }) { return found }
        return parts.reduce(into: nothing) { $0.add($1) }
    }

    /// Notes that something was not read: what is silent about it says nothing.
    mutating func lack(_ reason: ReadFailure?) {
        failure = failure ?? reason
        if coverage == .full { coverage = .partial }
    }

    /// Clocks of one store's servers differ by less than this.
    private static let tolerance = Duration.seconds(300)

    /// Leaves out what the store had said before it said what our records hold: a cache on the way may keep old answers.
    mutating func dropReplays(of known: [KnownPurchase]) {
        var stated: [ExactText: Instant] = [:]
        for purchase in known where purchase.store == store.rawValue {
            if let id = purchase.lookupID, let at = purchase.statedAt { stated[ExactText(id)] = at }
        }
        let count = observations.count
        observations.removeAll { item in
            guard let id = item.lookupID, let at = item.statedAt, let newest = stated[ExactText(id)] else {
                return false
            }
            return at + Self.tolerance < newest
        }
        guard observations.count < count else { return }
        coverage = observations.isEmpty ? .none : .partial
        failure = failure ?? ReadFailure(.unavailable, store: store)
    }
}

extension Reading {
    /// Lays the parts together, where a store that is left out was not asked; `stores`: whose word is needed for a no.
    init(_ parts: [StorePart], askedAt: Instant, stores: Set<Store>) {
        let whole = parts.filter { $0.coverage == .full }
        let isFull = whole.count == parts.count && stores.isSubset(of: whole.map(\.store))
        var silent: [Store: ReadFailure] = [:]
        for part in parts where part.coverage != .full {
            silent[part.store] = silent[part.store] ?? part.failure ?? ReadFailure(.incomplete, store: part.store)
        }
        let isUseful = parts.contains { $0.coverage != .none || !$0.observations.isEmpty }
        self.init(
            coverage: isFull ? .full : isUseful ? .partial : .none,
            askedAt: askedAt,
            observations: parts.flatMap(\.observations).withoutRepeats,
            failure: parts.compactMap(\.failure).first,
            covered: stores
        )
        self.silent = silent
        withheld = parts.flatMap(\.withheld)
        unreadable = Set(parts.filter(\.hasUnreadable).map(\.store))
    }
}

extension [Observation] {
    /// Each store's word on each purchase once: a proof and our own records may lead to the same.
    fileprivate var withoutRepeats: [Observation] {
        var places: [ExactText: Int] = [:]
        var items: [Observation] = []
        for item in self {
            guard let id = item.lookupID else {
                items.append(item)
                continue
            }
            var key = "\(item.source.rawValue) \(item.environment) \(id)"
            // The parts of a Google purchase that give access are kept apart from those that do not.
            if item.source == .googlePlay { key += " \(item.status.raw) \(item.entitlements)" }
            if let place = places[ExactText(key)] {
                items[place].isSubmitted = items[place].isSubmitted || item.isSubmitted
            } else {
                places[ExactText(key)] = items.count
                items.append(item)
            }
        }
        return items
    }
}

extension ReadFailure {
    /// Why our records, or the host's users, could not be read while stores were asked.
    ///
    /// `store`: whose answer could not be used for that reason.
    init(records error: any Error, store: Store? = nil) {
        let code: Code =
            switch error {
            case is CancellationError: .interrupted
            case let error as PostgresError where error.code == .cancelled: .interrupted
            case is AdapterFault: .adapterRefused
            case let failure as ReadFailure: failure.code
            default: .recordsUnavailable
            }
        self.init(code, store: store)
    }
}

/// Reads our records, or the host's users, while stores are asked.
func readRecords<Value>(_ read: () async throws -> Value) async throws(ReadFailure) -> Value {
    do { return try await read() } catch { throw ReadFailure(records: error) }
}
