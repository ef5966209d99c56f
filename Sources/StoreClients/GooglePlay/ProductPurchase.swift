import Entitlements
import TextFormats

/// A one-time purchase as Google Play tells of it, found by its purchase token.
///
/// - SeeAlso: https://developers.google.com/android-publisher/api-ref/rest/v3/purchases.productsv2
struct ProductPurchase: Hashable, Sendable {
    struct Item: Hashable, Sendable {
        var productID: String?
        var isConsumed = false
        /// It was rented: it ends, and Google does not tell when.
        var isRented = false
        /// When what was ordered ahead begins.
        var releasedAt: Instant?
        /// What it was bought as can't be read.
        var isOdd = false
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
    /// One of the items, or their list, is nothing that can be read.
    var hasOddItems = false
    /// The state, or whose the purchase is, can't be read.
    var isOdd = false

    var awaitsAcknowledgement: Bool { acknowledgementState == AcknowledgementWord.pending }
    /// The items that are not used up.
    var keptItems: [Item] { items.filter { !$0.isConsumed } }
}

private enum Field: String, CaseIterable {
    case kind, orderId, purchaseStateContext, acknowledgementState, purchaseCompletionTime
    case obfuscatedExternalAccountId, testPurchaseContext, productLineItem
}

private enum ItemField: String, CaseIterable { case productId, productOfferDetails }
private enum OfferField: String, CaseIterable { case consumptionState, rentOfferDetails, preorderOfferDetails }

private let fields = JSONFields<Field>()
private let stateContext = JSONFields(only: "purchaseState")
private let itemFields = JSONFields<ItemField>()
private let offerFields = JSONFields<OfferField>()
private let preorder = JSONFields(only: "preorderReleaseTime")

extension ProductPurchase {
    private static let kind = "androidpublisher#productPurchaseV2"
    private static let consumed = "CONSUMPTION_STATE_CONSUMED"

    /// Reads a whole answer; what is odd in one member says nothing of the others.
    ///
    /// - Throws: where the text is no JSON object, or it says nothing of a purchase.
    init(_ body: [UInt8]) throws(JSONFault) {
        var purchase = ProductPurchase()
        var hasState = false
        try JSONReader.readObject(in: body, fields) { reader, field throws(JSONFault) in
            switch field {
            case .kind: guard try reader.readOptionalString() ?? Self.kind == Self.kind else { throw .wrongType }
            case .orderId: purchase.orderID = try reader.readSoundName()
            case .purchaseStateContext:
                hasState = try !reader.readNull() || hasState
                guard hasState else { return }
                let state = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readMember(stateContext) { reader throws(JSONFault) in try reader.readOptionalName() }
                        ?? purchase.state
                }
                if let state { purchase.state = state } else { purchase.isOdd = true }
            case .acknowledgementState: purchase.acknowledgementState = try reader.readSoundName()
            case .purchaseCompletionTime: purchase.completedAt = try reader.readSoundTime()
            case .obfuscatedExternalAccountId:
                let account = try reader.readIfSound { reader throws(JSONFault) in
                    try .some(reader.readOptionalAccount())
                }
                // It names some user: a first proof must not stand in for what can't be read.
                if let account { purchase.accountID = account } else { purchase.isOdd = true }
            case .testPurchaseContext: purchase.isTest = try reader.readPresence()
            case .productLineItem:
                (purchase.items, purchase.hasOddItems) = try reader.readSoundElements(Self.readItem)
            }
        }
        guard hasState || !purchase.items.isEmpty || purchase.hasOddItems else { throw .missing }
        self = purchase
    }

    private static func readItem(_ reader: inout JSONReader) throws(JSONFault) -> Item {
        var item = Item()
        try reader.readObject(itemFields) { reader, field throws(JSONFault) in
            switch field {
            case .productId: item.productID = try reader.readOptionalName()
            case .productOfferDetails:
                let offer = try reader.readIfSound { reader throws(JSONFault) in try readOffer(&reader, item) }
                if let offer { item = offer } else { item.isOdd = true }
            }
        }
        return item
    }

    private static func readOffer(_ reader: inout JSONReader, _ known: Item) throws(JSONFault) -> Item {
        var item = known
        try reader.readOptionalObject(offerFields) { reader, field throws(JSONFault) in
            switch field {
            case .consumptionState: item.isConsumed = try reader.readOptionalString() == consumed
            case .rentOfferDetails: item.isRented = try reader.readPresence()
            case .preorderOfferDetails:
                item.releasedAt = try reader.readMember(preorder) { reader throws(JSONFault) in
                    try reader.readOptionalTime()
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

    /// Whether something in it may give access, or name an owner, that can't be read.
    var isUnreadable: Bool {
        isOdd
            || state == Self.purchased
                && (items.isEmpty || hasOddItems || keptItems.contains { $0.isOdd || $0.productID == nil })
    }

    /// Turns the purchase into what the domain reasons about; none for what can't be read.
    ///
    /// What is owned comes first, and apart from it what is limited in time, and what has not begun. Where our records
    /// hold it, that it is used up is news, and else nothing.
    func observations(token: String, at now: Instant, isKnown: Bool = false) -> [Observation] {
        guard !isOdd else { return [] }
        let items = keptItems
        guard state == Self.purchased else {
            guard !items.isEmpty || self.items.isEmpty else { return [] }
            return [observation(of: items, productStatusWords[state] ?? state, token: token, at: now)]
        }
        guard !items.isEmpty || self.items.isEmpty else {
            // It gives nothing, whatever the catalogue makes of the product.
            return isKnown ? [observation(of: [], "consumed", token: token, at: now)] : []
        }
        let sound = items.filter { !$0.isOdd && $0.productID != nil }
        let ahead = sound.filter { $0.releasedAt.map { now < $0 } ?? false }
        let begun = sound.filter { $0.releasedAt.map { $0 <= now } ?? true }
        var observations: [Observation] = []
        for (items, isLimited) in [(begun.filter { !$0.isRented }, false), (begun.filter(\.isRented), true)] {
            guard !items.isEmpty else { continue }
            var item = observation(of: items, "owned", token: token, at: now)
            item.isLimited = isLimited
            observations.append(item)
        }
        if !ahead.isEmpty {
            var item = observation(of: ahead, "scheduled", token: token, at: now)
            item.changesAt = ahead.compactMap(\.releasedAt).min()
            observations.append(item)
        }
        return observations
    }

    private func observation(of items: [Item], _ word: String, token: String, at now: Instant) -> Observation {
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
            entitlements: Set(items.compactMap(\.productID)).sorted().map { "google_play:\($0)" },
            status: StoreStatus(word),
            owner: .unnamed,
            source: .googlePlay
        )
        observation.productID = items.lazy.compactMap(\.productID).first
        observation.isPaymentPending = state == Self.pending
        // What was ordered ahead begins when it is released.
        observation.periodStartsAt = [completedAt, items.compactMap(\.releasedAt).max()].compactMap(\.self).max()
        observation.accountID = accountID
        observation.lookupID = token
        observation.boughtAt = completedAt
        observation.acknowledgement = word == "owned" ? acknowledgement(token, at: now) : nil
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
