/// What a lookup of an id found with one store.
package struct StoreLookup: Hashable, Sendable {
    package enum Answer: Hashable, Sendable {
        /// Every name of what the id leads to.
        case found([PurchaseIdentifier])
        case unknown
        case impossible(CaseLookup.Obstacle)
        /// The store did not say.
        case failed(ReadFailure)
    }

    package var store: Store
    package var answer: Answer

    package init(_ store: Store, _ answer: Answer) {
        self.store = store
        self.answer = answer
    }
}

/// What a lookup of an id found with one store, as it stands in the evidence.
package struct CaseLookup: Hashable, Sendable, Codable {
    package enum Result: String, Sendable, CaseIterable, Codable {
        case found, unknown
        case lookupImpossible = "lookup_impossible"
        case unavailable
    }

    package enum Obstacle: String, Sendable, CaseIterable, Codable {
        /// The App Store finds no order of the sandbox, and this one may be of it.
        case sandbox
        case storeOff = "store_off"
        /// It is no id that the store takes.
        case form
    }

    /// Which store was asked; `nil`: no store can be asked about such an id.
    package var store: String?
    package var id: String
    package var result: Result
    package var obstacle: Obstacle?
    /// Our numbers of the purchases to which it leads; empty where our records know none of them.
    package var purchases: [Int64]
    package var isSubject: Bool

    enum CodingKeys: String, CodingKey {
        case store, id, result, obstacle, purchases
        case isSubject = "is_subject"
    }

    /// Lays out what one store said; `nil`: no store could be asked.
    ///
    /// `purchases`: to which of ours it leads. `subject`: the one in question.
    package init(_ claim: CaseClaim, _ lookup: StoreLookup?, purchases: Set<Int64> = [], subject: Int64? = nil) {
        store = lookup?.store.rawValue
        id = claim.masked
        self.purchases = purchases.sorted()
        isSubject = subject.map(purchases.contains) ?? false
        switch lookup?.answer ?? .impossible(.form) {
        case .found: result = .found
        case .unknown: result = .unknown
        case .impossible(let why): (result, obstacle) = (.lookupImpossible, why)
        case .failed: result = .unavailable
        }
    }
}

/// Whether a reported id is one that no store knows: all that can be asked say so.
///
/// A store that has not answered, a kind of id without a lookup, and RevenueCat alone, which may know of a purchase late,
/// do not speak against the id.
package func isDisproven(_ lookups: [StoreLookup]) -> Bool {
    lookups.contains { $0.answer == .unknown && $0.store != .revenueCat }
        && lookups.allSatisfy { $0.answer == .unknown || $0.answer == .impossible(.storeOff) }
}
