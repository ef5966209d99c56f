package import Entitlements
import Queue
package import StoreClients

extension StoresReader {
    /// Everything that the stores say of a user, as evidence for agents.
    ///
    /// The job names the user, and does not stand in the queue.
    package func readAll(_ job: ClaimedJob, lane: Lane) async -> Reading {
        await read(job, lane: lane, everything: true)
    }

    /// Asks RevenueCat which of its customers has a purchase, by the names under which our records know it.
    ///
    /// `nil`: RevenueCat is not configured, or has never met the purchase.
    package func customer(holding identifiers: [PurchaseIdentifier], lane: Lane) async throws(ReadFailure) -> String? {
        guard let revenueCat = sources.revenueCat else { return nil }
        let names = identifiers.filter { $0.kind == "store_id" || $0.kind == "order_id" }.map(\.value)
        for name in names.prefix(Self.mostNames) {
            if let customer = try await revenueCat.projects.customer(holding: name, lane: lane) { return customer }
        }
        // It has met the purchase, and there is no name left to ask by: not knowing is no word.
        guard names.count <= Self.mostNames, !identifiers.contains(where: { $0.kind == "revenuecat_id" }) else {
            throw ReadFailure(.incomplete)
        }
        return nil
    }

    private static let mostNames = 20

    /// Every id under which RevenueCat knows a customer.
    package func aliases(of customer: String, lane: Lane) async throws(ReadFailure) -> [String] {
        try await sources.revenueCat?.projects.aliases(of: customer, lane: lane) ?? []
    }

    /// Everything that RevenueCat holds for one of its customers, any of them.
    ///
    /// - Throws: why the list is not whole.
    package func everything(of customer: String, lane: Lane) async throws(ReadFailure) -> [Observation] {
        guard let revenueCat = sources.revenueCat else { return [] }
        let answer = await revenueCat.everything(of: customer, lane: lane)
        guard answer.coverage == .full, answer.failure == nil else {
            throw answer.failure ?? ReadFailure(.incomplete)
        }
        return answer.observations
    }

    /// The lookup of an id that was reported for a ticket.
    package struct LookupRequest: Sendable {
        package var claim: CaseClaim
        /// The case may be about the sandbox, in which the App Store finds no orders.
        package var mayBeSandbox: Bool
        /// The database's time.
        package var askedAt: Instant
        package var lane: Lane

        package init(claim: CaseClaim, mayBeSandbox: Bool, askedAt: Instant, lane: Lane) {
            self.claim = claim
            self.mayBeSandbox = mayBeSandbox
            self.askedAt = askedAt
            self.lane = lane
        }
    }

    /// Asks every store that may know an id, through the same limits as every other read.
    ///
    /// What it leads to is a name for a purchase, and no word on whose it is. Returns each store's word, a failure included; empty:
    /// no store has such ids. Throws where no store is to blame.
    package func lookup(_ request: LookupRequest) async throws(ReadFailure) -> [StoreLookup] {
        var lookups: [StoreLookup] = []
        for route in request.claim.routes {
            let answer = await answer(request, by: route)
            if case .failed(let failure) = answer, failure.isOurs { throw failure }
            lookups.append(StoreLookup(route.store, answer))
        }
        return lookups
    }

    private func answer(_ request: LookupRequest, by route: LookupRoute) async -> StoreLookup.Answer {
        let (id, lane) = (request.claim.sought, request.lane)
        do throws(ReadFailure) {
            let names: [PurchaseIdentifier]?
            switch route {
            case .appStoreOrder, .appStoreTransaction, .appStoreEither:
                return try await sources.appStore?.lookup(request, by: route) ?? .impossible(.storeOff)
            case .googlePlayOrder:
                guard let source = sources.googlePlay else { return .impossible(.storeOff) }
                names = try await source.apps.order(id, lane: lane)?.identifiers ?? []
            case .onsideOrder: names = try await sources.onside?.names(behind: id, request)
            case .revenueCat: names = try await sources.revenueCat?.projects.names(behind: id, lane: lane)
            }
            guard let names else { return .impossible(.storeOff) }
            return names.isEmpty ? .unknown : .found(names)
        } catch {
            return .failed(error)
        }
    }
}

extension AppStoreSource {
    /// Finds an id as a transaction's or as an order's.
    package func lookup(
        _ request: StoresReader.LookupRequest,
        by route: LookupRoute
    ) async throws(ReadFailure) -> StoreLookup.Answer {
        guard let apps else { return .impossible(.storeOff) }
        let id = request.claim.value
        if route != .appStoreOrder,
            let transaction = try await apps.transaction(id, in: nil, lane: request.lane)
        {
            return .found(Observation(named: transaction).identifiers)
        }
        guard route != .appStoreTransaction else { return .unknown }
        switch try await apps.lookup(order: id, lane: request.lane) {
        case .found(let transactions): return .found(transactions.flatMap { Observation(named: $0).identifiers })
        // Only production finds orders, and it answers for a sandbox order as for one that does not exist.
        case _ where request.mayBeSandbox: return .impossible(.sandbox)
        case .invalid: return .unknown
        case .refused: return route == .appStoreEither ? .unknown : .impossible(.form)
        }
    }
}

extension OnsideSource {
    /// Finds the number of an order.
    func names(
        behind id: String,
        _ request: StoresReader.LookupRequest
    ) async throws(ReadFailure) -> [PurchaseIdentifier] {
        let reading = await client.read(
            OnsideQuery(orderIDs: [id], askedAt: request.askedAt, lane: request.lane, isFromClient: true)
        )
        if let failure = reading.failure { throw failure }
        return reading.observations.flatMap(\.identifiers)
    }
}
