package import Entitlements
import Queue
import StoreClients

/// A purchase as a file names it.
package struct NamedPurchase: Sendable, Hashable {
    package enum Kind: String, Sendable, CaseIterable {
        case originalTransactionID = "original_transaction_id"
        case purchaseToken = "purchase_token"
        case orderID = "order_id"
    }

    package var store: Store
    package var kind: Kind
    /// Of a token: never shown, never logged.
    package var value: String

    /// `nil`: the store has no such kind.
    package init?(store: Store, kind: Kind, value: String) {
        guard Self.kinds[store]?.contains(kind) == true else { return nil }
        self.store = store
        self.kind = kind
        self.value = value
    }

    /// By which names each store is asked.
    package static let kinds: [Store: [Kind]] = [
        .appStore: [.originalTransactionID, .orderID],
        .googlePlay: [.purchaseToken, .orderID],
        .onside: [.orderID],
    ]
}

extension StoresReader {
    /// Asks a store about a purchase that a file names for the job's user, and what names its owner.
    ///
    /// The job does not stand in the queue.
    ///
    /// - Returns: what the store says of this one purchase; empty: the store knows none of this name.
    /// - Throws: why there is no answer.
    package func read(named name: NamedPurchase, for job: ClaimedJob) async throws(ReadFailure) -> Reading {
        let askedAt = job.databaseTime(at: .now)
        guard let userID = job.userID else { return Reading(coverage: .none, askedAt: askedAt) }
        var context = ReadContext(job, userID: userID, askedAt: askedAt, catalog: try await currentCatalog())
        var part = try await find(name, context)
        if part.observations.isEmpty, part.failure == nil, !context.readsAll, name.store == .appStore {
            // A subscription that gives access may have kept the reader from listing the purchase that is named.
            context.readsAll = true
            part = try await find(name, context)
        }
        for index in part.observations.indices { part.observations[index].isImported = true }
        var parts = [part]
        try await self.name(&parts, context)
        try await consult(&parts, [], own: [], context)
        try await resolveOwners(&parts, [], context)
        if let failure = parts.lazy.compactMap(\.failure).first { throw failure }
        let reading = Reading(parts, askedAt: askedAt, stores: [name.store])
        if reading.observations.isEmpty, !reading.unreadable.isEmpty {
            throw ReadFailure(.malformed, store: name.store)
        }
        return reading
    }

    private func find(_ name: NamedPurchase, _ context: ReadContext) async throws(ReadFailure) -> StorePart {
        let off = ReadFailure(.storeOff, store: name.store)
        switch name.store {
        case .appStore:
            guard let source = sources.appStore, source.canAsk else { throw off }
            return try await source.find(name, context)
        case .googlePlay:
            guard let source = sources.googlePlay else { throw off }
            return try await source.find(name, context)
        case .onside:
            guard let source = sources.onside else { throw off }
            return await source.find(name.value, context)
        case .revenueCat: throw off
        }
    }
}

extension AppStoreSource {
    fileprivate func find(_ name: NamedPurchase, _ context: ReadContext) async throws(ReadFailure) -> StorePart {
        var subjects: [AppStoreQuery.Subject] = [.init(id: name.value)]
        if name.kind == .orderID {
            guard case .found(let transactions)? = try await apps?.lookup(order: name.value, lane: context.lane) else {
                return .nothing(.appStore)
            }
            subjects = []
            for transaction in transactions {
                let subject = AppStoreQuery.Subject(
                    id: transaction.originalTransactionID,
                    environment: AppStoreEnvironment(rawValue: transaction.environment),
                    app: transaction.bundleID
                )
                if !subjects.contains(subject) { subjects.append(subject) }
            }
        }
        var part = await read(shown: subjects, isProven: false, context)
        // The answer lists all that the buyer has: the line is about what it names.
        let ids = Set(subjects.map { ExactText($0.id) })
        part.observations.removeAll { item in !item.identifiers.contains { ids.contains(ExactText($0.value)) } }
        return part
    }
}

extension GooglePlaySource {
    fileprivate func find(_ name: NamedPurchase, _ context: ReadContext) async throws(ReadFailure) -> StorePart {
        guard name.kind == .orderID else { return await read(shown: [name.value], known: [], context) }
        guard let order = try await apps.order(name.value, lane: context.lane) else { return .nothing(.googlePlay) }
        guard let token = order.purchaseToken else { throw ReadFailure(.malformed, store: .googlePlay) }
        return await read(shown: [token], known: [], context)
    }
}
