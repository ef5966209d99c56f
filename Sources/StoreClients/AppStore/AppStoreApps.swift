package import Entitlements

/// The App Store's apps of one user base, each read by its own client: a transaction's id does not say which it was sold in.
package struct AppStoreApps: Sendable {
    /// At least one; no two of one bundle id.
    package let clients: [AppStoreClient]

    package init(_ clients: [AppStoreClient]) { self.clients = clients }

    /// The client of an app; `nil`: there are no credentials for it.
    package func client(of bundleID: String) -> AppStoreClient? {
        clients.first { $0.bundleID.isExactly(bundleID) }
    }

    /// Reads what the App Store holds for the customer behind an id.
    ///
    /// It is asked for in its app; where that is not known, in one after the other until one knows it. Only where none fails
    /// it is unknown to all of them; an app without credentials is a failure.
    package func read(_ query: AppStoreQuery) async -> AppStoreReading {
        if let app = query.subject.app {
            guard let client = client(of: app) else {
                return AppStoreReading(
                    coverage: .none,
                    failure: ReadFailure(.storeOff, store: .appStore),
                    requests: 0
                )
            }
            return await client.read(query)
        }
        var unknown: AppStoreReading?
        var failed: AppStoreReading?
        var requests = 0
        for client in clients {
            var reading = await client.read(query)
            requests += reading.requests
            reading.requests = requests
            if reading.isFound { return reading }
            // An app that failed may be the one that sold it: without its answer the id is not unknown.
            if reading.failure == nil || reading.isDenied {
                unknown = unknown ?? reading
            } else {
                failed = failed ?? reading
            }
        }
        var reading = failed ?? unknown ?? AppStoreReading(coverage: .full, requests: 0)
        reading.requests = requests
        return reading
    }

    /// Reads one transaction; `nil` where no app knows it.
    package func transaction(
        _ id: String,
        in environment: AppStoreEnvironment?,
        lane: Lane
    ) async throws(ReadFailure) -> SignedTransaction? {
        var failure: ReadFailure?
        for client in clients {
            do throws(ReadFailure) {
                if let found = try await client.transaction(id, in: environment, lane: lane) { return found }
            } catch { failure = failure ?? error }
        }
        if let failure { throw failure }
        return nil
    }

    /// Finds an order by its number; invalid where one of the apps says so and none finds it.
    package func lookup(order id: String, lane: Lane) async throws(ReadFailure) -> AppStoreOrder {
        var failure: ReadFailure?
        var answer = AppStoreOrder.refused
        for client in clients {
            do throws(ReadFailure) {
                switch try await client.lookup(order: id, lane: lane) {
                case .found(let transactions): return .found(transactions)
                case .invalid: answer = .invalid
                case .refused: break
                }
            } catch { failure = failure ?? error }
        }
        if let failure { throw failure }
        return answer
    }
}

extension AppStoreReading {
    /// Whether the app knows the customer, by anything that it said.
    fileprivate var isFound: Bool {
        !observations.isEmpty || !passes.isEmpty || !transactionIDs.isEmpty || hasUnreadable
    }
}
