package import Entitlements
package import StoreClients

extension StoresReader {
    /// How an id that was named for a case is looked up.
    package struct LookupRequest: Sendable {
        package var claim: CaseClaim
        /// The case may be about the sandbox, in which the App Store looks no order up.
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

    /// Looks an id up with everybody who may know it, through the gates of every other read.
    ///
    /// What it leads to is a name for a purchase, and no word on whose it is.
    ///
    /// - Parameter request: what to look up, and on whose behalf.
    /// - Returns: each store's word, a failure included; empty: no store has such ids.
    /// - Throws: `ReadFailure`, where no store is to blame.
    package func lookUp(_ request: LookupRequest) async throws(ReadFailure) -> [StoreLookup] {
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
                return try await sources.appStore?.lookUp(request, by: route) ?? .impossible(.storeOff)
            case .googlePlayOrder:
                guard let client = sources.googlePlay?.client else { return .impossible(.storeOff) }
                names = try await client.order(id, lane: lane)?.identifiers ?? []
            case .onsideOrder: names = try await sources.onside?.names(behind: id, request)
            case .revenueCat: names = try await sources.revenueCat?.names(behind: id, lane: lane)
            }
            guard let names else { return .impossible(.storeOff) }
            return names.isEmpty ? .unknown : .found(names)
        } catch {
            return .failed(error)
        }
    }
}

extension AppStoreSource {
    /// Looks an id up as a transaction's, as an order's, or as whichever of the two it is.
    package func lookUp(
        _ request: StoresReader.LookupRequest,
        by route: LookupRoute
    ) async throws(ReadFailure) -> StoreLookup.Answer {
        guard let client else { return .impossible(.storeOff) }
        let id = request.claim.value
        if route != .appStoreOrder,
            let transaction = try await client.transaction(id, in: nil, lane: request.lane)
        {
            return .found(Observation(named: transaction).identifiers)
        }
        guard route != .appStoreTransaction else { return .unknown }
        switch try await client.lookUp(order: id, lane: request.lane) {
        case .found(let transactions): return .found(transactions.flatMap { Observation(named: $0).identifiers })
        // Production alone looks orders up, and says of one of the sandbox what it says of one that nobody has.
        case _ where request.mayBeSandbox: return .impossible(.sandbox)
        case .invalid: return .unknown
        case .refused: return route == .appStoreEither ? .unknown : .impossible(.form)
        }
    }
}

extension OnsideSource {
    /// Looks the number of an order up.
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
