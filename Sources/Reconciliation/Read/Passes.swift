import Entitlements
import Ledger
import StoreClients

/// Ends one-time purchases after the duration of their product, whichever store lists them.
struct Passes: Sendable {
    let lookups: UserLookups

    /// Items with their ends.
    struct Limited: Sendable {
        var items: [Observation] = []
        /// An item has a duration, but its store gave no date to count it from.
        var hasUnreadable = false
    }

    /// Ends what has a duration; what the store itself calls limited counts as not mapped until it has one.
    ///
    /// The items are of one customer of a store.
    func limit(_ items: [Observation], _ context: ReadContext) async throws(ReadFailure) -> Limited {
        var passes: [UserLookups.Pass] = []
        /// For each item the places of its passes; `nil`: it is as its store says.
        var places: [[Int]?] = []
        for item in items {
            let keys = item.isOwnedOnce ? context.catalog.durations(of: item) : []
            guard !keys.isEmpty else {
                places.append(nil)
                continue
            }
            var own: [Int] = []
            for (nth, key) in keys.enumerated() {
                guard let boughtAt = item.periodStartsAt else { break }
                // What one purchase gives at once does not add up.
                let account = (item.accountID ?? "") + (nth == 0 ? "" : " \(nth)")
                own.append(passes.count)
                passes.append((key, account, boughtAt))
            }
            places.append(own)
        }
        let ends = try await readRecords { try await lookups.ends(of: passes) }
        var limited = Limited()
        for (item, places) in zip(items, places) {
            guard let places else {
                if let item = item.withoutLength(context.catalog) { limited.items.append(item) }
                continue
            }
            if let end = places.compactMap({ ends[$0] }).max() {
                limited.items.append(item.ending(at: end, now: context.askedAt))
            } else if places.isEmpty {
                limited.hasUnreadable = true
            } else {
                // The duration went away between two reads of the catalogue: the next one knows.
                throw ReadFailure(.interrupted)
            }
        }
        return limited
    }
}

extension StorePart {
    /// Takes over items with their ends.
    mutating func limit(by passes: Passes, _ context: ReadContext) async {
        do throws(ReadFailure) {
            let limited = try await passes.limit(observations, context)
            observations = limited.items
            hasUnreadable = hasUnreadable || limited.hasUnreadable
        } catch {
            observations = observations.filter { !$0.isOwnedOnce }
            lack(ReadFailure(error.code, store: store))
        }
    }
}

extension Observation {
    fileprivate var isOwnedOnce: Bool { kind == .oneTime && status.known == .owned }

    /// The item as one that ends and does not renew.
    fileprivate func ending(at end: Instant, now: Instant) -> Observation {
        var item = self
        item.kind = .subscription
        item.givesAccess = now < end
        item.status = StoreStatus(now < end ? "active" : "expired")
        item.renewal = "will_not_renew"
        item.periodEndsAt = end
        item.isLimited = false
        item.payloadHash = item.factsHash
        return item
    }

    /// The item as it is where nothing limits it, else with keys that no product has.
    ///
    /// That shows the team that a length is missing. `nil` where the item gives nothing anyway.
    fileprivate func withoutLength(_ catalog: ProductCatalog) -> Observation? {
        guard isLimited else { return self }
        guard catalog.mapping(of: entitlements) != .noAccess else { return nil }
        var item = self
        item.entitlements = entitlements.map { "\($0) without duration" }
        item.payloadHash = item.factsHash
        return item
    }
}
