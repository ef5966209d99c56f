package import Entitlements
package import Foundation
package import Logging
package import Transport

/// Reads customers of the App Store through its Server API, and writes account tokens to their purchases.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstoreserverapi
package struct AppStoreClient: Sendable {
    let requester: AppStoreRequester

    /// The app that it reads.
    package var bundleID: String { requester.configuration.bundleID }

    /// Makes a client; metrics go to the system that is bootstrapped by now.
    ///
    /// The gate admits each request and gets each answer; limits are by environment and kind of request. The logger
    /// hears of failures; of no ids, keys and bodies. `systemSeconds`, in seconds since 1970, dates the tokens.
    package init(
        configuration: AppStoreConfiguration,
        proofs: AppStoreProofs,
        http: HTTPClient,
        gate: @escaping @Sendable (AppStoreEnvironment, AppStoreBudget) -> RequestPermit,
        logger: Logger,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) {
        requester = AppStoreRequester(configuration, proofs, http, gate, logger, systemSeconds)
    }

    /// Reads what the App Store holds for the customer behind an id.
    ///
    /// The subscriptions come first; the other purchases only where none of them gives access. A failure never passes
    /// for an absence: what was read before it stays, as evidence for access alone.
    package func read(_ query: AppStoreQuery) async -> AppStoreReading {
        var session = AppStoreSession(requester, query)
        await session.run()
        let reading = session.reading()
        if reading.requests > 0 { requester.requester.recordRead(requests: reading.requests) }
        return reading
    }

    /// Reads one transaction, by an id or an original one from any source; `nil` where neither environment knows it.
    ///
    /// Without an environment production is asked, and the sandbox where that does not know it.
    package func transaction(
        _ id: String,
        in environment: AppStoreEnvironment?,
        lane: Lane
    ) async throws(ReadFailure) -> SignedTransaction? {
        guard let id = AppStoreID(id) else { return nil }
        var requests = 0
        let found = try await requester.search(
            .transaction(id),
            in: environment,
            lane: lane,
            purpose: .lookup,
            requests: &requests,
            decode: AppStoreWire.transaction
        )
        guard let found else { return nil }
        return try await verified([found.value], in: found.environment).first
    }

    /// Finds an order by its number, as it stands in the mail that the customer got; production alone can.
    ///
    /// No transactions where the number is not valid for this app.
    package func order(_ id: String, lane: Lane) async throws(ReadFailure) -> [SignedTransaction] {
        guard case .found(let transactions) = try await lookup(order: id, lane: lane) else { return [] }
        return transactions
    }

    /// Finds an order by its number, and tells an invalid number from one that the App Store can't find.
    ///
    /// An invalid number comes with status 200.
    package func lookup(order id: String, lane: Lane) async throws(ReadFailure) -> AppStoreOrder {
        guard let id = AppStoreOrderID(id) else { return .refused }
        var requests = 0
        let texts: [String]?
        do throws(ReadFailure) {
            texts = try await requester.send(
                .lookup(id),
                in: .production,
                lane: lane,
                purpose: .lookup,
                requests: &requests
            ) { answer throws(ReadFailure) -> [String]? in
                guard case .content(let body) = answer else { return nil }
                return try decoded(body, AppStoreWire.order)
            }
        } catch {
            guard error.code == .unauthorized else { throw error }
            // Until an app has been released production refuses every key: whether ours is bad the sandbox tells.
            try await requester.send(.lookup(id), in: .sandbox, lane: lane, purpose: .lookup, requests: &requests) {
                _ in
            }
            throw ReadFailure(.unavailable, store: .appStore)
        }
        guard let texts else { return .refused }
        let transactions = try await verified(texts, in: .production)
        return transactions.isEmpty ? .invalid : .found(transactions)
    }

    /// Lists the refunded transactions of a customer, the oldest refund first, by any id of theirs in our own records.
    ///
    /// Without an environment production is asked, and the sandbox where that does not know it.
    package func refunds(
        of id: String,
        in environment: AppStoreEnvironment?,
        lane: Lane
    ) async throws(ReadFailure) -> [SignedTransaction] {
        guard let id = AppStoreID(id) else { return [] }
        var refunds: [SignedTransaction] = []
        var environment = environment
        var revision: String?
        var requests = 0
        for _ in 0..<AppStoreSession.maxPages {
            let found = try await requester.search(
                .refunds(id, revision: revision),
                in: environment,
                lane: lane,
                purpose: .reading,
                requests: &requests,
                decode: AppStoreWire.list
            )
            guard let (page, place) = found else {
                guard revision == nil else { throw ReadFailure(.unavailable, store: .appStore) }
                return []
            }
            environment = place
            guard !page.hasOddTexts else { throw ReadFailure(.malformed, store: .appStore) }
            let verified = try await verified(page.signed, in: place)
            let ids = Set(verified.map(\.transactionID))
            refunds = refunds.filter { !ids.contains($0.transactionID) } + verified
            guard page.hasMore else { return refunds }
            guard let next = page.next, next != revision else { throw ReadFailure(.malformed, store: .appStore) }
            revision = next
        }
        throw ReadFailure(.malformed, store: .appStore)
    }

    /// Writes whose a purchase is, for its current period and all later ones.
    ///
    /// The token is the user's, as the app would give it with a purchase.
    package func setAppAccountToken(
        _ token: UUID,
        on originalID: String,
        in environment: AppStoreEnvironment,
        lane: Lane
    ) async throws(ReadFailure) -> AppStoreTokenAnswer {
        guard let id = AppStoreID(originalID) else { return .unknown }
        var requests = 0
        return try await requester.send(
            .token(id),
            in: environment,
            lane: lane,
            purpose: .reading,
            body: Array(#"{"appAccountToken":"\#(token.uuidString.lowercased())"}"#.utf8),
            requests: &requests
        ) { answer throws(ReadFailure) in
            switch answer {
            case .content(let body):
                // The App Store sends no body here: another server answered.
                guard body.isEmpty || AppStoreWire.isJSON(body) else { throw ReadFailure(.malformed) }
                return .set
            case .refused(.unknownHere, _), .refused(.unknown, _): return .unknown
            case .refused(_, 4_000_185): return .familyShared
            case .refused(_, 4_000_187): return .notOriginal
            case .refused: return .rejected
            }
        }
    }

    /// Verifies signed transactions; one that does not hold is `malformed`.
    private func verified(
        _ texts: [String],
        in environment: AppStoreEnvironment
    ) async throws(ReadFailure) -> [SignedTransaction] {
        var transactions: [SignedTransaction] = []
        for text in texts {
            guard let transaction = await requester.transaction(text, in: environment) else {
                throw ReadFailure(.malformed, store: .appStore)
            }
            transactions.append(transaction)
        }
        return transactions
    }
}
