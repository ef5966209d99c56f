/// What one source answered about the purchase in question, as it stands in the evidence.
package struct CaseSource: Hashable, Sendable, Codable {
    package enum Result: String, Sendable, CaseIterable, Codable {
        case found
        /// It answered, and knows nothing of the purchase.
        case unknown
        case unavailable
        case notConfigured = "not_configured"
    }

    package var store: Store
    package var result: Result
    /// Why it did not answer: a `ReadFailure.Code`.
    package var error: String?
    /// When it was first found not to answer; microseconds since 1970.
    package var since: Int64?

    /// What the sources answered whose word on the purchase counts: RevenueCat, and the store that sold it.
    ///
    /// `asked`: the configured sources. `silent`: those that did not answer in full. `before`: of the evidence before.
    package static func answers(
        _ inputs: CaseInputs,
        asked: Set<Store>,
        silent: [Store: ReadFailure],
        before: [CaseSource] = []
    ) -> [CaseSource] {
        guard let purchase = inputs.purchase else { return [] }
        let seller = Store(rawValue: purchase.store)
        return Store.allCases.filter { $0 == .revenueCat || $0 == seller }.compactMap { store in
            guard asked.contains(store) else { return CaseSource(store: store, result: .notConfigured) }
            let shows = inputs.words.contains { $0.observation.source == store }
            // Who holds it has to be seen for both sides; of a sale the store's own word is enough.
            if shows, store != .revenueCat || silent[store] == nil { return CaseSource(store: store, result: .found) }
            guard let failure = silent[store] else {
                // A store is asked about what our records hold of an owner; without one it was asked nothing.
                return store == .revenueCat || inputs.owner?.id != nil
                    ? CaseSource(store: store, result: .unknown) : nil
            }
            guard failure.code != .unknownToStore else {
                return CaseSource(store: store, result: shows ? .found : .unknown)
            }
            let known = before.first { $0.store == store && $0.result == .unavailable }?.since
            let since = known ?? inputs.now.microseconds
            return CaseSource(store: store, result: .unavailable, error: failure.code.rawValue, since: since)
        }
    }
}
