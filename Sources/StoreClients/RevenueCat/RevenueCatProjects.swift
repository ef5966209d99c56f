package import Entitlements

/// RevenueCat's projects of one user base: what a user has is what all of them list.
package struct RevenueCatProjects: Sendable {
    /// At least one; no two of one project.
    package let clients: [RevenueCatClient]

    package init(_ clients: [RevenueCatClient]) { self.clients = clients }

    /// Their ids.
    package var names: Set<String> { Set(clients.map(\.projectID)) }

    /// Reads everything that the projects hold for a user.
    ///
    /// The reading is full only where that of each project is: one that could not be read may hold what gives access.
    package func read(_ query: CustomerQuery) async -> CustomerReading {
        let readings = await inEach { client in
            var reading = await client.read(query)
            reading.observations.note(client)
            return reading
        }
        guard var all = readings.first else { return CustomerReading(coverage: .none, requests: 0) }
        // Where a subscription gives access a project does not list purchases: its silence about them means nothing.
        func isWhole(_ reading: CustomerReading) -> Bool { reading.purchasesListed || reading.observations.isEmpty }
        guard readings.count > 1 else { return all }
        all.coverage =
            readings.allSatisfy { $0.coverage == .full }
            ? .full : readings.contains { $0.coverage != .none } ? .partial : .none
        all.purchasesListed = readings.allSatisfy(isWhole)
        for reading in readings.dropFirst() {
            all.observations += reading.observations
            all.failure = all.failure ?? reading.failure
            all.requests += reading.requests
            all.hasUnreadable = all.hasUnreadable || reading.hasUnreadable
        }
        return all
    }

    /// Finds whose purchases lie behind reported ids, in all projects, so that the time does not tell in which.
    package func find(_ ids: [TypedID], for query: CustomerQuery) async -> ClaimReading {
        let found = await inEach { client in
            var reading = await client.find(ids, for: query)
            reading.own.note(client)
            return reading
        }
        return found.reduce(into: ClaimReading()) { all, reading in
            all.found += reading.found.filter { !all.found.contains($0) }
            all.own += reading.own
            all.failure = all.failure ?? reading.failure
            all.hasUnreadable = all.hasUnreadable || reading.hasUnreadable
        }
    }

    /// Finds out what the projects know of purchases that the user has proved; see `RevenueCatClient`.
    package func owners(
        of purchases: [[String]],
        for query: CustomerQuery
    ) async -> (witnesses: [Witnesses], failure: ReadFailure?) {
        let answers = await inEach { client in
            var answer = await client.owners(of: purchases, for: query)
            for place in answer.witnesses.indices { answer.witnesses[place].items.note(client) }
            return answer
        }
        var witnesses = purchases.map { _ in Witnesses() }
        var failure: ReadFailure?
        for answer in answers {
            failure = failure ?? answer.failure
            for (place, witness) in answer.witnesses.enumerated() {
                witnesses[place].items += witness.items
                witnesses[place].hasUnreadable = witnesses[place].hasUnreadable || witness.hasUnreadable
            }
        }
        return (witnesses, failure)
    }

    /// Finds which customer has a purchase, by its store's id; `nil`: no project knows it.
    ///
    /// Several customers are `malformed`; one project that can't be asked is a failure.
    package func customer(holding id: String, lane: Lane) async throws(ReadFailure) -> String? {
        var found: String?
        for client in clients {
            guard let customer = try await client.customer(holding: id, lane: lane) else { continue }
            if let found, !found.isExactly(customer) { throw ReadFailure(.malformed) }
            found = customer
        }
        return found
    }

    /// Finds every name of what an id leads to; empty: no project has met it.
    package func names(behind id: String, lane: Lane) async throws(ReadFailure) -> [PurchaseIdentifier] {
        var names: [PurchaseIdentifier] = []
        for client in clients { names += try await client.names(behind: id, lane: lane) }
        return names
    }

    /// Every id of a customer in the projects that know one; throws why the list is not whole, or that none knows the customer.
    package func aliases(of customer: String, lane: Lane) async throws(ReadFailure) -> [String] {
        guard clients.count > 1 else { return try await clients.first?.aliases(of: customer, lane: lane) ?? [] }
        var aliases: [String] = []
        var unknown: ReadFailure?
        for client in clients {
            do throws(ReadFailure) {
                aliases += try await client.aliases(of: customer, lane: lane).filter { id in
                    !aliases.contains(where: id.isExactly)
                }
            } catch {
                guard error.code == .incomplete else { throw error }
                unknown = error
            }
        }
        if aliases.isEmpty, let unknown { throw unknown }
        return aliases
    }

    /// Asks all projects at once; the answers are in the projects' order.
    private func inEach<Answer: Sendable>(_ ask: @escaping @Sendable (RevenueCatClient) async -> Answer) async
        -> [Answer]
    {
        guard clients.count > 1 else {
            guard let client = clients.first else { return [] }
            return [await ask(client)]
        }
        return await withTaskGroup(of: (Int, Answer).self) { group in
            for (place, client) in clients.enumerated() { group.addTask { (place, await ask(client)) } }
            var answers: [Int: Answer] = [:]
            for await (place, answer) in group { answers[place] = answer }
            return clients.indices.compactMap { answers[$0] }
        }
    }
}

extension [Observation] {
    /// Notes which project listed them.
    fileprivate mutating func note(_ client: RevenueCatClient) {
        for place in indices { self[place].revenueCatProject = client.projectID }
    }
}
