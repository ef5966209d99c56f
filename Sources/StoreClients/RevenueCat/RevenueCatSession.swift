import Entitlements
import TextFormats

/// One reading of one customer: what was read so far, and what went wrong.
struct RevenueCatSession {
    let requester: RevenueCatRequester
    let query: CustomerQuery
    /// The asked user's id, ready for paths.
    let customer: PathSegment
    private(set) var requests = 0
    /// The last failure.
    private(set) var failure: ReadFailure?
    /// An item was listed, and whether it gives access can't be read.
    private(set) var hasUnreadable = false
    /// Whose the items of a returned customer id are, by its bytes; `nil` where that is unknown.
    private var owners: [[UInt8]: NamedOwner?] = [:]
    private var holders: [[UInt8]: NamedOwner] = [:]

    init(_ requester: RevenueCatRequester, _ query: CustomerQuery, customer: PathSegment) {
        self.requester = requester
        self.query = query
        self.customer = customer
    }

    /// Records a failure; the last one counts, but a malformed answer never hides a store that wants to be left alone.
    mutating func note(_ new: ReadFailure) {
        guard let old = failure, new.code == .malformed, old.code != .malformed else {
            failure = new
            return
        }
    }

    /// Whether further requests make sense: a list that is odd is no reason to stop, a store in trouble is.
    var isStoreWell: Bool { failure == nil || failure?.code == .malformed }

    /// Whether another list is worth a request although one failed: a person waits, and a list may fail alone.
    var mayAskOn: Bool {
        // A store that names a wait is left alone.
        guard let failure, query.lane == .restore, failure.retryAfter == nil else { return false }
        return failure.code == .unavailable || failure.code == .timeout
    }

    /// Sums the session up.
    func reading(_ observations: [Observation], anyListComplete: Bool, purchasesListed: Bool) -> CustomerReading {
        let isNothing = observations.isEmpty && !anyListComplete
        return CustomerReading(
            coverage: failure == nil ? .full : isNothing ? .none : .partial,
            observations: observations,
            failure: failure,
            requests: requests,
            purchasesListed: purchasesListed,
            hasUnreadable: hasUnreadable
        )
    }

    /// Reads a list of a customer's items; one that can't be read takes nothing from the others.
    mutating func items(
        _ endpoint: RevenueCatEndpoint,
        item: (inout JSONReader) throws(JSONFault) -> WireItem
    ) async -> List<WireItem> {
        let list = await list(endpoint, id: \.id, needsAll: false, item: item)
        if list.badItems > 0 { hasUnreadable = true }
        return list
    }

    /// The items of a list, as far as it could be read.
    struct List<Item: Sendable>: Sendable {
        var items: [Item] = []
        /// Every page was read; items may have been refused all the same.
        var isComplete = false
        /// RevenueCat does not know what was asked for.
        var isMissing = false
        /// Items that were refused.
        var badItems = 0
    }

    /// Reads a list from its first page, or from behind `cursor`, to its last; failures are recorded.
    ///
    /// No two items of the list share an `id`, where there is such a thing. With `needsAll` an element that is refused
    /// makes the list useless as a whole.
    mutating func list<Item: Sendable>(
        _ endpoint: RevenueCatEndpoint,
        after cursor: String? = nil,
        id: (Item) -> String?,
        needsAll: Bool = true,
        item: (inout JSONReader) throws(JSONFault) -> Item
    ) async -> List<Item> {
        var list = List<Item>()
        var cursor = cursor
        var cursors: Set<ExactText> = cursor.map { [ExactText($0)] } ?? []
        var ids: Set<ExactText> = []
        var pages = 0
        guard isStoreWell || mayAskOn else { return list }
        while pages < requester.maxPages, requests < maxRequests {
            let page: WirePage<Item>?
            do throws(ReadFailure) {
                page = try await requester.page(
                    endpoint,
                    after: cursor,
                    lane: query.lane,
                    requests: &requests,
                    item: item
                )
            } catch {
                note(error)
                return list
            }
            guard let page else {
                list.isMissing = true
                return list
            }
            pages += 1
            list.badItems += page.badItems
            if page.badItems > 0, needsAll { note(ReadFailure(.malformed)) }
            // What the store's load-shedder says may be old: it can only add.
            if page.isDegraded { note(ReadFailure(.unavailable)) }
            for item in page.items {
                // A list that repeats itself moved while we read it, and may have moved past something.
                if let id = id(item), !ids.insert(ExactText(id)).inserted {
                    note(ReadFailure(.malformed))
                    return list
                }
                list.items.append(item)
            }
            switch page.next {
            case .end:
                list.isComplete = true
                return list
            case .after(let next) where cursors.insert(ExactText(next)).inserted:
                cursor = next
            case .after, .unusable:
                note(ReadFailure(.malformed))
                return list
            }
        }
        // More pages than any customer has: a reading that never ends is no reading.
        note(ReadFailure(.malformed))
        return list
    }

    /// The most requests of one reading: two long lists, and the lists inside and beside them.
    private var maxRequests: Int { 4 * requester.maxPages }

    /// Makes observations of the items whose owner is clear, completing their entitlements.
    mutating func observe(_ items: [WireItem]) async -> [Observation] {
        var observations: [Observation] = []
        for item in items {
            guard let owner = await owner(ofItemsHeldBy: item.customerID) else { continue }
            let entitlements = await entitlements(of: item)
            observations.append(Observation(item, entitlements: entitlements, owner: owner))
        }
        return observations
    }

    /// Reads an item's entitlements to the end; what was not answered leaves a failure.
    private mutating func entitlements(of item: WireItem) async -> [String] {
        guard case .after(let cursor) = item.nextEntitlements, let segment = PathSegment(item.id) else {
            // One that can't be named could be the one that counts.
            if item.nextEntitlements != .end, item.mayGive { hasUnreadable = true }
            return item.entitlements
        }
        let endpoint: RevenueCatEndpoint =
            item.kind == .subscription ? .subscriptionEntitlements(segment) : .purchaseEntitlements(segment)
        let rest = await list(endpoint, after: cursor, id: { _ in nil }, item: readEntitlement)
        // The item is listed, so its entitlements exist: an answer that denies it is no answer.
        if rest.isMissing { note(ReadFailure(.unavailable)) }
        return item.entitlements + rest.items
    }

    /// Tells whose the items of a returned customer id are, or records the failure; asks once for each id.
    private mutating func owner(ofItemsHeldBy returned: String) async -> NamedOwner? {
        guard !isSame(returned, query.userID) else { return .askedUser }
        let key = Array(returned.utf8)
        if let known = owners[key] { return known }
        var owner: NamedOwner?
        if let found = await relation(to: returned) {
            owner = NamedOwner(of: returned, isSameCustomer: found.isSameCustomer, otherUsers: found.otherUsers)
            if owner == nil { note(ReadFailure(.malformed)) }
        }
        owners[key] = .some(owner)
        return owner
    }

    /// Tells who holds what a search has found: the asked user, an anonymous customer, or another user.
    ///
    /// `nil` where it is unknown: the failure is recorded.
    mutating func holder(_ returned: String) async -> NamedOwner? {
        guard !isSame(returned, query.userID) else { return .askedUser }
        let key = Array(returned.utf8)
        if let known = holders[key] { return known }
        guard let found = await relation(to: returned) else { return nil }
        let holder =
            NamedOwner(of: returned, isSameCustomer: found.isSameCustomer, otherUsers: found.otherUsers)
            ?? .otherUser(id: returned)
        holders[key] = holder
        return holder
    }

    /// How a returned customer id and the asked user go together: whether they are one customer, and who of the host's
    /// users is that customer as well.
    private mutating func relation(to returned: String) async -> (isSameCustomer: Bool, otherUsers: [String])? {
        guard let aliases = await aliases(of: returned) else { return nil }
        var candidates = aliases.ids.filter { !isSame($0, query.userID) && !isAnonymous($0) }
        if !isAnonymous(returned), !candidates.contains(where: { isSame($0, returned) }) {
            candidates.append(returned)
        }
        let others: [String]
        do {
            others =
                candidates.isEmpty ? [] : try await query.isOtherUser(candidates.sortedExactly).sorted().map(\.text)
        } catch let error as ReadFailure {
            note(error)
            return nil
        } catch {
            note(ReadFailure(error is CancellationError ? .interrupted : .unavailable))
            return nil
        }
        return (aliases.holdAskedUser, others)
    }

    /// Reads the ids of an item's customer, and whether the asked user is that customer; `nil`: they can't be read.
    private mutating func aliases(of returned: String) async -> (ids: [String], holdAskedUser: Bool)? {
        guard let segment = PathSegment(returned) else {
            note(ReadFailure(.malformed))
            return nil
        }
        let list = await list(.customerAliases(segment), id: { $0 }, item: readAlias)
        if list.isMissing {
            // Which of a customer's ids the API takes in a path is not documented: ask from the other side.
            let own = await self.list(.customerAliases(customer), id: { $0 }, item: readAlias)
            if own.isMissing { return ([], false) }
            guard own.isComplete, own.badItems == 0 else { return nil }
            return own.items.contains { isSame($0, returned) } ? (own.items, true) : ([], false)
        }
        // A list with a gap could hide the very user whose purchase this is.
        guard list.isComplete, list.badItems == 0 else { return nil }
        return (list.items, list.items.contains { isSame($0, query.userID) })
    }
}

extension NamedOwner {
    /// The table of owners of an item that was listed for one customer id and names another (`returned`).
    ///
    /// There is none for an identified customer who has nothing to do with the asked one: the store answered a
    /// question that was not asked. One customer's alias list holds both ids; other users are users of the host, other
    /// than the asked one, among the aliases or named by `returned`.
    init?(of returned: String, isSameCustomer: Bool, otherUsers: [String]) {
        // The smallest, so that every reading names the same one.
        let other = otherUsers.map(ExactText.init).min()?.text
        switch (isSameCustomer, isAnonymous(returned), otherUsers.count) {
        case (true, false, _) where otherUsers.contains { isSame($0, returned) }: self = .otherUser(id: returned)
        // Two of the host's users are one customer, and the store names neither: neither reading may take the item.
        case (true, _, 1...): self = .otherUser(id: other ?? returned)
        case (true, _, _): self = .askedUser
        case (false, true, 1): self = .otherUser(id: other ?? returned)
        case (false, true, _): self = .anonymous
        case (false, false, _): return nil
        }
    }
}

/// Whether two customer ids are one: RevenueCat compares bytes, while Swift's `==` equates Unicode's variants.
private func isSame(_ left: String, _ right: String) -> Bool { left.isExactly(right) }

func isAnonymous(_ id: String) -> Bool { id.utf8.starts(with: "$RCAnonymousID:".utf8) }
