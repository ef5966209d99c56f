package import Entitlements

/// The packages of one user base, each read by its own client: a purchase token does not say which it was sold in.
package struct GooglePlayApps: Sendable {
    /// At least one; no two of one package.
    package let clients: [GooglePlayClient]

    package init(_ clients: [GooglePlayClient]) { self.clients = clients }

    /// The client of a package; the only one where it is not known, `nil` where none fits.
    package func client(of package: String?) -> GooglePlayClient? {
        guard let package else { return clients.count == 1 ? clients.first : nil }
        return clients.first { $0.packageName.isExactly(package) }
    }

    /// Reads the purchases behind some tokens, each with the chain of tokens that it replaced.
    ///
    /// A token is asked for in its package; where that is not known, in one after the other until one knows it. It is unknown
    /// only where all say so: a failure of one of them is a failure, and one of a package that is not configured is one too.
    package func read(_ query: GooglePlayQuery) async -> GooglePlayReading {
        var chains = GooglePlayChains(query)
        var reading = await chains.read { token, mayBeProduct, package in
            await answer(token, mayBeProduct: mayBeProduct, package: package, query)
        }
        clients.first?.requester.requester.recordRead(requests: reading.requests)
        // Where there is one package, it goes without saying.
        for place in reading.observations.indices where clients.count > 1 {
            let package = reading.observations[place].storeApp
            reading.observations[place].acknowledgement?.package = package
        }
        return reading
    }

    private func answer(
        _ token: PurchaseToken,
        mayBeProduct: Bool,
        package: String?,
        _ query: GooglePlayQuery
    ) async -> GooglePlayChains.Answer {
        let purpose: StoreCall.Purpose = query.isFromClient ? .lookup : .reading
        if package != nil || clients.count == 1 {
            guard let client = client(of: package) else {
                return .init(page: .failed(ReadFailure(.storeOff, store: .googlePlay)), requests: 0)
            }
            let (page, requests) = await client.page(token, mayBeProduct: mayBeProduct, lane: query.lane, purpose)
            return .init(page: page, package: client.packageName, requests: requests)
        }
        var answer = GooglePlayChains.Answer(page: .unknown, requests: 0)
        for client in clients {
            let (page, requests) = await client.page(
                token,
                mayBeProduct: mayBeProduct,
                lane: query.lane,
                query.isFromClient ? .lookup : .probe
            )
            answer.requests += requests
            switch (page, answer.page) {
            case (.subscription, _), (.product, _):
                return .init(page: page, package: client.packageName, requests: answer.requests)
            // An app that failed may be the one that sold it: without its answer the id is not unknown.
            case (_, .failed): break
            case (.failed, _), (.gone, _): answer.page = page
            case (.unknown, _): break
            }
        }
        return answer
    }

    /// Finds what an order number leads to, in its package, or else in one after the other; `nil`: in none of them.
    package func order(
        _ id: String,
        in package: String? = nil,
        lane: Lane
    ) async throws(ReadFailure) -> GooglePlayOrder? {
        var asked = clients
        if package != nil {
            guard let client = client(of: package) else { throw ReadFailure(.storeOff, store: .googlePlay) }
            asked = [client]
        }
        var failure: ReadFailure?
        for client in asked {
            do throws(ReadFailure) {
                guard var order = try await client.order(id, lane: lane) else { continue }
                order.package = clients.count == 1 ? nil : client.packageName
                return order
            } catch { failure = failure ?? error }
        }
        if let failure { throw failure }
        return nil
    }
}
