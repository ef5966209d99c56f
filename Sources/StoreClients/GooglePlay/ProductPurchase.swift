import Entitlements

/// A one-time purchase as Google Play tells of it, found by its purchase token.
///
/// - SeeAlso: https://developers.google.com/android-publisher/api-ref/rest/v3/purchases.productsv2
struct ProductPurchase: Hashable, Sendable {
    struct Item: Hashable, Sendable {
        var productID: String?
        var isConsumed = false
    }

    static let purchased = "PURCHASED"
    static let pending = "PENDING"
    static let cancelled = "CANCELLED"

    /// The raw `purchaseState`; unknown words are kept.
    var state = "PURCHASE_STATE_UNSPECIFIED"
    var orderID: String?
    var acknowledgementState: String?
    var completedAt: Instant?
    var accountID: String?
    var isTest = false
    var items: [Item] = []

    var awaitsAcknowledgement: Bool { acknowledgementState == AcknowledgementWord.pending }
    /// The items that are not used up.
    var keptItems: [Item] { items.filter { !$0.isConsumed } }
}

private enum Field: String, CaseIterable {
    case kind, orderId, purchaseStateContext, acknowledgementState, purchaseCompletionTime
    case obfuscatedExternalAccountId, testPurchaseContext, productLineItem
}

private enum StateField: String, CaseIterable { case purchaseState }
private enum ItemField: String, CaseIterable { case productId, productOfferDetails }
private enum OfferField: String, CaseIterable { case consumptionState }

private let fields = JSONFields<Field>()
private let stateFields = JSONFields<StateField>()
private let itemFields = JSONFields<ItemField>()
private let offerFields = JSONFields<OfferField>()

extension ProductPurchase {
    private static let kind = "androidpublisher#productPurchaseV2"
    private static let consumed = "CONSUMPTION_STATE_CONSUMED"

    /// Reads a whole answer.
    ///
    /// - Throws: where the text is no JSON object, a member is of a wrong type, or it says nothing of a purchase.
    init(_ body: [UInt8]) throws(JSONFault) {
        var reader = try JSONReader(body)
        var purchase = ProductPurchase()
        var hasState = false
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            case .kind: guard try reader.readOptionalString() ?? Self.kind == Self.kind else { throw .wrongType }
            case .orderId: purchase.orderID = try reader.readOptionalName()
            case .purchaseStateContext:
                try reader.readOptionalObject(stateFields) { reader, _ throws(JSONFault) in
                    guard let state = try reader.readOptionalName() else { return }
                    purchase.state = state
                    hasState = true
                }
            case .acknowledgementState: purchase.acknowledgementState = try reader.readOptionalString()
            case .purchaseCompletionTime: purchase.completedAt = try reader.readOptionalTime()
            case .obfuscatedExternalAccountId: purchase.accountID = try reader.readOptionalAccount()
            case .testPurchaseContext: purchase.isTest = try reader.readPresence()
            case .productLineItem:
                guard try !reader.readNull() else { return }
                try reader.readArray { reader throws(JSONFault) in purchase.items.append(try Self.readItem(&reader)) }
            }
        }
        try reader.finish()
        guard hasState || !purchase.items.isEmpty, purchase.state != Self.purchased || !purchase.items.isEmpty else {
            throw .missing
        }
        self = purchase
    }

    private static func readItem(_ reader: inout JSONReader) throws(JSONFault) -> Item {
        var item = Item()
        try reader.readObject(itemFields) { reader, field throws(JSONFault) in
            switch field {
            case .productId: item.productID = try reader.readOptionalName()
            case .productOfferDetails:
                try reader.readOptionalObject(offerFields) { reader, _ throws(JSONFault) in
                    item.isConsumed = try reader.readOptionalString() == consumed
                }
            }
        }
        return item
    }
}

// MARK: Mapping

/// The words of `purchaseState`, and the domain's.
let productStatusWords: [String: String] = [
    ProductPurchase.purchased: "owned",
    ProductPurchase.pending: "incomplete",
    ProductPurchase.cancelled: "refunded",
]

extension ProductPurchase {
    private static let acknowledgementTime = Duration.seconds(3 * 86_400)
    private static let testAcknowledgementTime = Duration.seconds(180)

    /// Turns the purchase into what the domain reasons about.
    ///
    /// - Parameters:
    ///   - token: its purchase token.
    ///   - now: the database's time at which it was asked for.
    /// - Returns: `nil` where everything in it is used up.
    func observation(token: String, at now: Instant) -> Observation? {
        let items = keptItems
        guard !items.isEmpty || self.items.isEmpty else { return nil }
        let environment = isTest ? "sandbox" : "production"
        var observation = Observation(
            kind: .oneTime,
            store: Store.googlePlay.rawValue,
            environment: environment,
            identifiers: googlePlayIdentifiers(
                tokens: [token],
                orders: [orderID].compactMap(\.self),
                environment: environment
            ),
            productID: items.lazy.compactMap(\.productID).first,
            entitlements: Set(items.compactMap(\.productID)).sorted().map { "google_play:\($0)" },
            status: StoreStatus(productStatusWords[state] ?? state),
            isPaymentPending: state == Self.pending,
            periodStartsAt: completedAt,
            owner: .nobody,
            source: .googlePlay,
            accountID: accountID,
            lookupID: token,
            boughtAt: completedAt,
            acknowledgement: acknowledgement(token, at: now)
        )
        observation.payloadHash = observation.factsHash
        return observation
    }

    private func acknowledgement(_ token: String, at now: Instant) -> Acknowledgement? {
        guard awaitsAcknowledgement, state == Self.purchased,
            let productID = keptItems.lazy.compactMap(\.productID).first
        else { return nil }
        let time = isTest ? Self.testAcknowledgementTime : Self.acknowledgementTime
        return Acknowledgement(
            productID: productID,
            token: token,
            kind: .oneTime,
            deadline: (completedAt ?? now) + time
        )
    }
}
