package import Entitlements
import Foundation
package import Logging
import TextFormats
package import Transport

/// Reads customers and finds purchases in RevenueCat's REST API v2, and changes nothing there.
///
/// - SeeAlso: https://www.revenuecat.com/docs/api-v2
package struct RevenueCatClient: Sendable {
    private let requester: RevenueCatRequester
    /// The project that it reads.
    package let projectID: String

    /// Makes a client; metrics go to the system that is bootstrapped by now.
    ///
    /// The gate admits each request and gets each answer. The logger hears of failures; of no ids, keys and bodies.
    /// `systemSeconds` is the system's clock, in seconds since 1970, to be compared with the store's.
    package init(
        configuration: RevenueCatConfiguration,
        http: HTTPClient,
        gate: RequestPermit,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) {
        requester = RevenueCatRequester(configuration, http, gate, logger, systemSeconds)
        projectID = configuration.projectID
    }

    /// Reads everything RevenueCat holds for a user that could matter.
    ///
    /// Subscriptions come first; one-time purchases only where no subscription of the user's own may give access.
    /// Aliases are read only for items that name another customer. A customer RevenueCat does not know is a full and
    /// empty reading after one request. A failure never passes for an absence: what was read before it stays, as
    /// evidence for access alone.
    package func read(_ query: CustomerQuery) async -> CustomerReading {
        guard !BlockedIDs.contains(query.userID), let customer = PathSegment(query.userID) else {
            // No such id can be asked for, now or later.
            return CustomerReading(coverage: .none, failure: ReadFailure(.unusableID), requests: 0)
        }
        var session = RevenueCatSession(requester, query, customer: customer)
        let reading = await read(&session)
        if reading.requests > 0 { requester.requester.recordRead(requests: reading.requests) }
        return reading
    }

    private func read(_ session: inout RevenueCatSession) async -> CustomerReading {
        let subscriptions = await session.items(.customerSubscriptions(session.customer), item: WireItem.subscription)
        if subscriptions.isMissing {
            // Unknown on the first page is an absence; on a later one the customer vanished under our hands.
            guard session.requests > 1 else {
                return CustomerReading(coverage: .full, requests: session.requests, purchasesListed: true)
            }
            session.note(ReadFailure(.unavailable))
        }
        var observations = await session.observe(subscriptions.items)
        let query = session.query
        let mayHaveAccess = observations.contains { item in
            item.owner == .askedUser && item.givesAccess == true && query.mayGrant(item.entitlements)
                && (!item.isSandbox || query.sandboxCounts)
        }
        // Even where a subscription can't be read, or their list failed, a purchase may speak for the user.
        guard subscriptions.isComplete && session.isStoreWell || session.mayAskOn, !mayHaveAccess else {
            return session.reading(observations, anyListComplete: subscriptions.isComplete, purchasesListed: false)
        }
        let purchases = await session.items(.customerPurchases(session.customer), item: WireItem.oneTime)
        // The customer existed one request ago.
        if purchases.isMissing { session.note(ReadFailure(.unavailable)) }
        observations += await session.observe(purchases.items)
        return session.reading(
            observations,
            anyListComplete: subscriptions.isComplete || purchases.isComplete,
            purchasesListed: purchases.isComplete
        )
    }

    /// Finds whose purchases lie behind the first twenty reported ids that have a lookup, in their order.
    ///
    /// Both kinds of purchase are always asked for, so that the number of requests does not tell whether an id exists.
    /// For an anonymous customer the aliases are read. Failures count for no breaker and raise no alarm.
    package func find(_ ids: [TypedID], for query: CustomerQuery) async -> ClaimReading {
        let whole = await lookup(ids, query.lane)
        var reading = ClaimReading(failure: whole.failure, hasUnreadable: whole.hasUnreadable)
        await tellOwners(of: whole.items, query, &reading)
        var seen: Set<FoundPurchase> = []
        reading.found = reading.found.filter { seen.insert($0).inserted }
        return reading
    }

    private func lookup(_ ids: [TypedID], _ lane: Lane) async -> LookupResult {
        var values: [String] = []
        for id in ids where id.hasLookup && !values.contains(where: id.value.isExactly) { values.append(id.value) }
        let asked = values.prefix(Self.maximumLookups)
        let answers = await withTaskGroup(of: (Int, LookupResult).self) { group in
            for (index, value) in asked.enumerated() {
                group.addTask {
                    let subscriptions = await lookup(.findSubscriptions(storeID: value), lane, WireItem.subscription)
                    let purchases = await lookup(.findPurchases(storeID: value), lane, WireItem.oneTime)
                    return (index, subscriptions + purchases)
                }
            }
            return await group.reduce(into: Array(repeating: LookupResult(), count: asked.count)) { $0[$1.0] = $1.1 }
        }
        return answers.reduce(LookupResult(), +)
    }

    /// Finds out what RevenueCat knows of purchases that the user has proved, each by ids that its store has verified.
    ///
    /// For each purchase it returns what was found under its ids: the user's (`askedUser`), another user's
    /// (`heldElsewhere`), or an anonymous customer's (`unnamed`); and why the answer is not whole.
    package func owners(
        of purchases: [[String]],
        for query: CustomerQuery
    ) async -> (witnesses: [Witnesses], failure: ReadFailure?) {
        guard let customer = PathSegment(query.userID) else {
            return (purchases.map { _ in Witnesses() }, ReadFailure(.unusableID))
        }
        var session = RevenueCatSession(requester, query, customer: customer)
        var failure: ReadFailure?
        var answers: [Witnesses] = []
        for (number, ids) in purchases.enumerated() {
            guard number < Self.maximumLookups else {
                // What was not asked may have an owner.
                failure = failure ?? ReadFailure(.incomplete)
                answers.append(Witnesses())
                continue
            }
            let found = await lookup(ids.map { TypedID(store: nil, kind: "transaction_id", value: $0) }, query.lane)
            failure = failure ?? found.failure
            var seen: Set<ExactText> = []
            var witnesses = Witnesses(hasUnreadable: found.hasUnreadable)
            for item in found.items where seen.insert(ExactText(item.id)).inserted {
                guard let holder = await session.holder(item.customerID) else { continue }
                let owner: NamedOwner =
                    switch holder {
                    case .askedUser: .askedUser
                    case .otherUser(let id): .heldElsewhere(id: id)
                    default: .unnamed
                    }
                var observation = Observation(item, entitlements: item.entitlements, owner: owner)
                observation.isSubmitted = true
                witnesses.items.append(observation)
            }
            answers.append(witnesses)
        }
        return (answers, failure ?? session.failure)
    }

    /// Finds which customer has a purchase, by its store's id; `nil`: RevenueCat knows no such purchase.
    ///
    /// Several customers are `malformed`.
    package func customer(holding id: String, lane: Lane) async throws(ReadFailure) -> String? {
        let found = try await whole(id, lane)
        let customers = Set(found.map { ExactText($0.customerID) })
        guard customers.count <= 1 else { throw ReadFailure(.malformed) }
        return customers.first?.text
    }

    /// Finds every name of what any transaction's id of the App Store, or any order's of Google Play, leads to.
    ///
    /// Empty: RevenueCat has never met it.
    package func names(behind id: String, lane: Lane) async throws(ReadFailure) -> [PurchaseIdentifier] {
        try await whole(id, lane).flatMap { Observation($0, entitlements: [], owner: .unnamed).identifiers }
    }

    /// What an id leads to, where all of it can be read: what can't might name another customer.
    private func whole(_ id: String, _ lane: Lane) async throws(ReadFailure) -> [WireItem] {
        let found = await lookup([TypedID(store: nil, kind: "transaction_id", value: id)], lane)
        if let failure = found.failure { throw failure }
        guard !found.hasUnreadable else { throw ReadFailure(.malformed) }
        return found.items
    }

    /// Every id of a customer; throws why the list is not whole.
    package func aliases(of customer: String, lane: Lane) async throws(ReadFailure) -> [String] {
        let query = CustomerQuery(userID: customer, lane: lane, sandboxCounts: true, isOtherUser: { _ in [] })
        guard let segment = PathSegment(customer) else { throw ReadFailure(.unusableID) }
        var session = RevenueCatSession(requester, query, customer: segment)
        let list = await session.list(.customerAliases(segment), id: { $0 }, item: readAlias)
        guard list.isComplete, list.badItems == 0 else { throw session.failure ?? ReadFailure(.incomplete) }
        return list.items
    }

    private static let maximumLookups = 20

    /// Names the owners of found items: an anonymous customer may be a known user.
    private func tellOwners(of items: [WireItem], _ query: CustomerQuery, _ reading: inout ClaimReading) async {
        guard let customer = PathSegment(query.userID) else { return }
        var session = RevenueCatSession(requester, query, customer: customer)
        var seen: Set<ExactText> = []
        for item in items where seen.insert(ExactText(item.id)).inserted {
            guard isAnonymous(item.customerID) else {
                reading.found.append(FoundPurchase(item, customerID: item.customerID))
                continue
            }
            guard let observation = await session.observe([item]).first else { continue }
            switch observation.owner {
            case .askedUser: reading.own.append(observation)
            case .otherUser(let id): reading.found.append(FoundPurchase(item, customerID: id))
            default: reading.found.append(FoundPurchase(item, customerID: item.customerID))
            }
        }
        reading.failure = reading.failure ?? session.failure
        if session.hasUnreadable { reading.hasUnreadable = true }
    }

    /// The answer to one lookup, or to several.
    private struct LookupResult: Sendable {
        var items: [WireItem] = []
        var failure: ReadFailure?
        var hasUnreadable = false

        static func + (left: LookupResult, right: LookupResult) -> LookupResult {
            LookupResult(
                items: left.items + right.items,
                failure: left.failure ?? right.failure,
                hasUnreadable: left.hasUnreadable || right.hasUnreadable
            )
        }
    }

    private func lookup(
        _ endpoint: RevenueCatEndpoint,
        _ lane: Lane,
        _ item: (inout JSONReader) throws(JSONFault) -> WireItem
    ) async -> LookupResult {
        var requests = 0
        do throws(ReadFailure) {
            let page = try await requester.page(endpoint, lane: lane, purpose: .lookup, requests: &requests, item: item)
            guard let page else { return LookupResult() }
            return LookupResult(
                items: page.items,
                failure: page.isDegraded ? ReadFailure(.malformed) : nil,
                hasUnreadable: page.badItems > 0
            )
        } catch {
            // An id that the store calls impossible leads nowhere; any other failure says nothing about it.
            // A client's id raises no alarm about our key.
            guard error.code != .rejected else { return LookupResult() }
            return LookupResult(failure: error.code == .unauthorized ? ReadFailure(.unavailable) : error)
        }
    }
}

extension FoundPurchase {
    /// Names the purchase by RevenueCat's id: the typed one may be of any of its renewals.
    fileprivate init(_ item: WireItem, customerID: String) {
        self.init(
            identifier: PurchaseIdentifier(
                value: item.id,
                store: "revenuecat",
                environment: item.environment,
                kind: "revenuecat_id"
            ),
            store: item.ledgerStore,
            customerID: customerID,
            storeID: item.storeIdentifier
        )
    }
}

extension TypedID {
    fileprivate var hasLookup: Bool {
        (kind == "transaction_id" || kind == "order_id") && store != "onside" && (1...255).contains(value.utf8.count)
            && value.utf8.allSatisfy(\.isVisible)
    }
}
