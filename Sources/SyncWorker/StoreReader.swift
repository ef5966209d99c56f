package import Entitlements
import FoundationEssentials
package import Jobs
package import Logging
package import Storage
package import StoreClients
import Synchronization

/// Asks the stores about a claimed job.
package struct StoreReader: Sendable {
    package var read: @Sendable (ClaimedJob) async -> Reading

    package init(read: @escaping @Sendable (ClaimedJob) async -> Reading) { self.read = read }
}

/// The reader over RevenueCat: the user's lists, and ids that were typed where nothing gave access.
package final class RevenueCatReader: Sendable {
    private let client: RevenueCatClient
    private let lookups: UserLookups
    private let catalog = Mutex<(catalog: ProductCatalog, at: ContinuousClock.Instant)?>(nil)
    private let logger: Logger

    package init(client: RevenueCatClient, lookups: UserLookups, logger: Logger) {
        self.client = client
        self.lookups = lookups
        self.logger = logger
    }

    /// The reader as the pipeline takes it.
    package var reader: StoreReader { StoreReader { [self] job in await read(job) } }

    private func read(_ job: ClaimedJob) async -> Reading {
        let askedAt = job.databaseTime(at: .now)
        guard let userID = job.userID else { return Reading(coverage: .none, askedAt: askedAt) }
        let catalog: ProductCatalog
        do {
            catalog = try await currentCatalog()
        } catch {
            return Reading(coverage: .none, askedAt: askedAt, failure: ReadFailure(.interrupted))
        }
        // An item whose access did not count must not keep the rest of the lists from being read again.
        let readsAll = job.lastError != nil
        let query = CustomerQuery(
            userID: userID,
            lane: Self.lane(of: job),
            sandboxCounts: job.sandboxAllowed,
            mayGrant: { !readsAll && catalog.mapping(of: $0) == .access },
            isOtherUser: { [lookups] ids in try await lookups.existing(ids) }
        )
        let answer = await client.read(query)
        // Purchases are left out where a subscription gives access: enough to say yes, not enough to say no.
        let isFull = answer.coverage == .full && (answer.purchasesListed || answer.observations.isEmpty)
        var reading = Reading(
            coverage: answer.coverage == .full && !isFull ? .partial : answer.coverage,
            askedAt: askedAt,
            observations: answer.observations,
            failure: answer.failure
        )
        reading.claims.clientError = job.request.clientError.map { ClientError($0) }
        if isFull {
            let ids = Self.typedIDs(in: job.request.proofs)
            if !ids.isEmpty { reading.take(await client.find(ids, for: query)) }
        }
        return reading
    }

    private static func lane(of job: ClaimedJob) -> Lane {
        switch job.kind {
        case .restore: .restore
        case .reconcile: job.lane == .event ? .event : .sweep
        }
    }

    /// The mapping is a table of a few rows that changes rarely: a copy of a second's age decides what is read, and the
    /// apply transaction reads it again before it decides anything.
    private func currentCatalog() async throws -> ProductCatalog {
        if let known = catalog.withLock({ $0 }), known.at + .seconds(1) > .now { return known.catalog }
        let fresh = try await lookups.catalog()
        catalog.withLock { $0 = (fresh, .now) }
        return fresh
    }

    private struct Proof: Decodable {
        var store: String?
        var kind: String
        var value: String
    }

    /// The ids among the proofs that were merely typed.
    private static func typedIDs(in proofs: String?) -> [TypedID] {
        guard let proofs, let all = try? JSONDecoder().decode([Proof].self, from: Data(proofs.utf8)) else { return [] }
        return all.filter { $0.kind == "transaction_id" || $0.kind == "order_id" }
            .map { TypedID(store: $0.store, kind: $0.kind, value: $0.value) }
    }
}

extension Reading {
    /// Takes over what typed ids led to.
    fileprivate mutating func take(_ claims: ClaimReading) {
        self.claims.found = claims.found
        let known = Set(observations.flatMap { $0.identifiers.map(\.key) })
        observations += claims.own.filter { known.isDisjoint(with: $0.identifiers.map(\.key)) }
        self.claims.failure = claims.failure
    }
}
