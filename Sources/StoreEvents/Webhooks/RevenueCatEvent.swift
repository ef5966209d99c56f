import Entitlements
import StoreClients
import TextFormats

/// Understands RevenueCat's webhooks.
///
/// Everything but `id` and `type` may be missing, and new types come without notice.
///
/// - SeeAlso: https://www.revenuecat.com/docs/integrations/webhooks/event-types-and-fields
package enum RevenueCatEvent {
    /// What an event's type means here.
    enum Meaning: Hashable {
        /// A user's purchases have to be read again.
        case check
        /// The same, and access begins or goes on.
        case announcesAccess
        /// It says nothing of access.
        case nothing
    }

    /// What every documented type means; others may announce access.
    static let meanings: [String: Meaning] = {
        let types: [Meaning: [String]] = [
            .announcesAccess: [
                "INITIAL_PURCHASE", "RENEWAL", "NON_RENEWING_PURCHASE", "UNCANCELLATION", "SUBSCRIPTION_EXTENDED",
                "TEMPORARY_ENTITLEMENT_GRANT", "REFUND_REVERSED", "PURCHASE_REDEEMED",
            ],
            .check: [
                "PRODUCT_CHANGE", "CANCELLATION", "BILLING_ISSUE", "SUBSCRIPTION_PAUSED", "EXPIRATION", "TRANSFER",
                "SUBSCRIBER_ALIAS", "REFUND",
            ],
            .nothing: [
                "TEST", "INVOICE_ISSUANCE", "VIRTUAL_CURRENCY_TRANSACTION", "EXPERIMENT_ENROLLMENT",
                "PRICE_INCREASE_CONSENT_REQUIRED", "PRICE_INCREASE_CONSENT_APPROVED", "PAYWALL_IMPRESSION",
                "PAYWALL_CLOSE", "PAYWALL_CANCEL", "PAYWALL_EXIT_OFFER", "PAYWALL_COMPONENT_INTERACTED",
            ],
        ]
        return Dictionary(uniqueKeysWithValues: types.flatMap { meaning, types in types.map { ($0, meaning) } })
    }()

    /// The most ids of one event that are searched for; a customer has a few.
    private static let mostIDs = 200
    /// The most that are read for them: those of people who never signed in are many.
    private static let mostNames = 5_000
    /// What the ids of customers begin with who never signed in.
    package static let anonymous = "$RCAnonymousID:"
    /// The most customers without a name of ours that are kept of one event.
    private static let mostAnonymous = 5

    private enum Outer: String, CaseIterable { case event }
    private enum Field: String, CaseIterable {
        case id, type, environment, aliases
        case appUserID = "app_user_id"
        case originalAppUserID = "original_app_user_id"
        case timestamp = "event_timestamp_ms"
        case from = "transferred_from"
        case to = "transferred_to"
        case entitlements = "entitlement_ids"
        case store
        case transactionID = "transaction_id"
        case originalTransactionID = "original_transaction_id"
    }

    private static let outerFields = JSONFields<Outer>()
    private static let fields = JSONFields<Field>()

    private struct Draft {
        var texts: [Field: String] = [:]
        var ids: [String] = []
        var timestamp: Int64?
        /// The product is known to mean no access.
        var givesNothing = false
    }

    /// Reads a webhook's body.
    package static func read(_ body: [UInt8]) throws(MalformedEvent) -> StoreEvent {
        let draft: Draft
        do throws(JSONFault) {
            var reader = try JSONReader(body)
            var read: Draft?
            try reader.readObject(outerFields) { reader, _ throws(JSONFault) in read = try event(&reader) }
            try reader.finish()
            guard let read else { throw .missing }
            draft = read
        } catch { throw MalformedEvent(reason: error.clause) }
        guard let id = draft.texts[.id], StoreEvent.isID(id), let type = draft.texts[.type],
            (1...100).contains(type.utf8.count)
        else { throw MalformedEvent(reason: "its id or type is missing, or too long") }
        let meaning = meanings[type] ?? .announcesAccess
        let names = [draft.texts[.appUserID], draft.texts[.originalAppUserID]].compactMap(\.self) + draft.ids
        let users = meaning == .nothing ? [] : candidates(names)
        // Where an event names no user, the purchase may lead to the owner, or the customer signs in later.
        let isUnnamed = meaning != .nothing && users.isEmpty
        return StoreEvent(
            source: .revenueCat,
            id: id,
            kind: type,
            occurredAt: draft.timestamp.flatMap(Instant.init(milliseconds:)),
            // No one waits for what a sandbox announces, or for a pack of coins.
            announcesAccess: meaning == .announcesAccess && !draft.givesNothing
                && draft.texts[.environment] != "SANDBOX",
            users: users,
            purchases: isUnnamed ? purchases(draft) : [],
            anonymous: isUnnamed ? anonymousCustomers(names) : [],
            isBlocked: meaning != .nothing && names.contains(where: BlockedIDs.contains)
        )
    }

    private static func event(_ reader: inout JSONReader) throws(JSONFault) -> Draft {
        var draft = Draft()
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            case .aliases, .from, .to:
                draft.ids += try reader.readSoundElements { reader throws(JSONFault) in try reader.readString() }
                    .values.prefix(mostNames)
            case .timestamp:
                draft.timestamp = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readOptionalInteger()
                }
            case .entitlements:
                let isNothing = try reader.readIfSound { reader throws(JSONFault) -> Bool? in
                    guard try !reader.readNull() else { return true }
                    var isEmpty = true
                    try reader.readArray { reader throws(JSONFault) in
                        try reader.passOver()
                        isEmpty = false
                    }
                    return isEmpty
                }
                draft.givesNothing = isNothing ?? false
            default:
                draft.texts[field] = try reader.readIfSound { reader throws(JSONFault) in
                    try reader.readOptionalString()
                }
            }
        }
        return draft
    }

    private static func anonymousCustomers(_ names: [String]) -> [String] {
        let customers = names.filter { StoreEvent.isID($0) && $0.utf8.starts(with: anonymous.utf8) }
        var seen: Set<[UInt8]> = []
        return Array(customers.filter { seen.insert(Array($0.utf8)).inserted }.prefix(mostAnonymous))
    }

    /// The purchase by its store's ids, where that is a store that can be asked.
    private static func purchases(_ draft: Draft) -> [StoreEvent.Purchase] {
        let store: Store? =
            switch draft.texts[.store] {
            case "APP_STORE", "MAC_APP_STORE": .appStore
            case "PLAY_STORE": .googlePlay
            default: nil
            }
        guard let store else { return [] }
        var values: [String] = []
        for id in [draft.texts[.originalTransactionID], draft.texts[.transactionID]].compactMap(\.self)
        where StoreEvent.isID(id) && !values.contains(id) { values.append(id) }
        let environment = draft.texts[.environment]?.lowercased()
        return StoreEvent.Purchase.of(store, environment: environment, values)
    }

    /// The names that may be users of ours: each once, in their order.
    private static func candidates(_ names: [String]) -> [String] {
        var seen: Set<ExactText> = []
        let candidates = names.filter {
            StoreEvent.isID($0) && !$0.hasPrefix(anonymous) && !BlockedIDs.contains($0)
                && seen.insert(ExactText($0)).inserted
        }
        return Array(candidates.prefix(mostIDs))
    }
}
