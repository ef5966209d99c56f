/// An id that was named for a case: by the claimant with a restore, or by an agent who read it in a mail.
///
/// It proves nothing, least of all who named it.
package struct CaseClaim: Hashable, Sendable {
    /// `order_id`, `transaction_id` or `onside_order_id`.
    package var kind: String
    package var value: String
    package var store: String?
    package var isByClaimant: Bool
    package var isByAgent: Bool

    package init(
        kind: String,
        value: String,
        store: String? = nil,
        isByClaimant: Bool = true,
        isByAgent: Bool = false
    ) {
        self.kind = kind
        self.value = value
        self.store = store
        self.isByClaimant = isByClaimant
        self.isByAgent = isByAgent
    }

    /// Which stores may know the id, by its form; empty for what no store would take for one of its ids.
    package var routes: [LookupRoute] {
        guard (1...255).contains(value.utf8.count), value.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return []
        }
        if kind == "onside_order_id" || store == Store.onside.rawValue { return isUUID ? [.onsideOrder] : [] }
        if sought.hasPrefix("GPA.") || store == Store.googlePlay.rawValue { return [.googlePlayOrder, .revenueCat] }
        if isUUID { return [.onsideOrder] }
        let isShort = value.utf8.count <= 32
        // People take the one number for the other.
        if isShort, value.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
            return [kind == "order_id" ? .appStoreEither : .appStoreTransaction, .revenueCat]
        }
        // RevenueCat knows transactions of the App Store, and none of its orders.
        let isPlain = value.utf8.allSatisfy { byte in
            (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte & 0xDF)
        }
        return isShort && isPlain && kind == "order_id" ? [.appStoreOrder] : []
    }

    /// As stores write it: people type the letters of Google's orders as they like.
    package var sought: String {
        value.prefix(4).uppercased() == "GPA." ? value.uppercased() : value
    }

    private var isUUID: Bool {
        let groups = value.split(separator: "-", omittingEmptySubsequences: false)
        return groups.map(\.utf8.count) == [8, 4, 4, 4, 12] && groups.joined().allSatisfy(\.isHexDigit)
    }

    /// Enough to tell two apart: whatever was typed, it may be more than an order's number, and evidence is never changed.
    package var masked: String {
        let shown = value.count < 8 ? (0, 1) : value.count < 12 ? (2, 2) : (4, 4)
        return "\(value.prefix(shown.0))…\(value.suffix(shown.1))"
    }
}

/// With which store an id's lookup is made, and as what.
package enum LookupRoute: String, Sendable, CaseIterable {
    /// The number in the App Store's mail; the store finds it in production alone.
    case appStoreOrder
    case appStoreTransaction
    case appStoreEither
    case googlePlayOrder
    case onsideOrder
    /// Every store's transactions that RevenueCat has met, and Google Play's orders.
    case revenueCat

    package var store: Store {
        switch self {
        case .appStoreOrder, .appStoreTransaction, .appStoreEither: .appStore
        case .googlePlayOrder: .googlePlay
        case .onsideOrder: .onside
        case .revenueCat: .revenueCat
        }
    }
}
