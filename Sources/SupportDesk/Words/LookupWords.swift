package import Entitlements

/// What lookups of ids have found, where operators read it.
package enum LookupWords {
    /// One lookup as a sentence without the id, and which way it points.
    package static func said(_ lookup: CaseLookup) -> (words: String, weight: EvidenceWords.Weight) {
        let store = lookup.store.map(name) ?? "The store"
        switch (lookup.result, lookup.obstacle) {
        case (.found, _): return (found(lookup, by: store), .known)
        case (.unknown, _): return ("\(store) knows nothing of the kind for this app.", .against)
        case (.unavailable, _): return ("\(store) did not answer; a worker asks again.", .known)
        case (_, .sandbox):
            return (
                "No lookup is possible: \(store) has lookups of orders in production alone, and this one may be of the sandbox.",
                .known
            )
        case (_, .storeOff):
            return ("\(store) can't be asked about it: no credentials are set.", .known)
        case (_, .form), (_, nil):
            let who = lookup.store.map { "\(name($0)) does not take" } ?? "no store takes"
            return ("No lookup is possible: \(who) it for one of its ids.", .known)
        }
    }

    /// A reported id proves nothing, so that none of these speaks for a transfer.
    private static func found(_ lookup: CaseLookup, by store: String) -> String {
        if lookup.isSubject {
            return "\(store) knows it, and it leads to the purchase in question; who named it proves nothing."
        }
        guard !lookup.purchases.isEmpty else { return "\(store) knows it; our records do not have what it leads to." }
        let numbers = lookup.purchases.map { "\($0)" }.joined(separator: ", ")
        return "\(store) knows it; it leads to another purchase of our records (\(numbers))."
    }

    private static func name(_ store: String) -> String { Store(rawValue: store)?.name ?? TicketWords.plain(store) }
}
