import Entitlements
import StoreClients
import TextFormats

/// Understands Google Play's real-time developer notifications as Pub/Sub pushes them.
///
/// - SeeAlso: https://developer.android.com/google/play/billing/rtdn-reference
package enum PlayNotification {
    private enum Outer: String, CaseIterable { case message }
    private enum MessageField: String, CaseIterable { case data, messageId }
    private enum Field: String, CaseIterable {
        case packageName, eventTimeMillis, subscriptionNotification, oneTimeProductNotification
        case voidedPurchaseNotification, pendingRefundReviewNotification, testNotification
    }
    private enum Part: String, CaseIterable { case notificationType, purchaseToken, orderId, obfuscatedAccountId }

    private static let outerFields = JSONFields<Outer>()
    private static let messageFields = JSONFields<MessageField>()
    private static let fields = JSONFields<Field>()
    private static let parts = JSONFields<Part>()

    private struct Draft {
        var packageName: String?
        var occurredMs: Int64?
        var kind: String?
        var token: String?
        var order: String?
        var account: String?
    }

    /// Reads a push's body, of the app with the package name.
    package static func read(_ body: [UInt8], package: String) throws(MalformedEvent) -> StoreEvent {
        try read(body, packages: [package], isOnly: true)
    }

    /// Reads a push's body, of an app with one of the package names; throws where it is no push of Pub/Sub's.
    ///
    /// `isOnly`: there is no other app than the one of these names.
    ///
    /// What Pub/Sub brings and can't be read comes back as an event that names no user: it never gets better by being
    /// sent again.
    package static func read(
        _ body: [UInt8],
        packages: Set<String>,
        isOnly: Bool
    ) throws(MalformedEvent) -> StoreEvent {
        let message: (id: String, data: String?)
        do throws(JSONFault) { message = try self.message(body) } catch { throw MalformedEvent(reason: error.clause) }
        var event = StoreEvent(source: .googlePlay, id: message.id, kind: "undecodable")
        guard let data = message.data, let content = Base64.decode(data.utf8, .standard),
            let draft = try? self.draft(content)
        else { return event }
        guard let package = draft.packageName, packages.contains(package) else {
            event.kind = "foreign_package"
            return event
        }
        let app = isOnly ? nil : package
        // A message's number is its topic's: two apps' topics may give the same.
        if let app, StoreEvent.isID("\(app)/\(event.id)") { event.id = "\(app)/\(event.id)" }
        event.kind = draft.kind ?? "unknown"
        event.occurredAt = draft.occurredMs.flatMap(Instant.init(milliseconds:))
        if let token = draft.token, !token.isEmpty {
            event.purchases = StoreEvent.Purchase.of(.googlePlay, app: app, [token])
        }
        // An order's purchase may be known by that alone; a renewal's order by the first one's number.
        if let order = draft.order, OrderNumber.isPlausible(order) {
            let base = OrderNumber.base(order)
            event.purchases += StoreEvent.Purchase.of(.googlePlay, app: app, base == order ? [order] : [order, base])
        }
        // Where an app gives Google the user's own id.
        if let account = draft.account, StoreEvent.isID(account) { event.users = [account] }
        return event
    }

    private static func message(_ body: [UInt8]) throws(JSONFault) -> (id: String, data: String?) {
        var reader = try JSONReader(body)
        var message: (id: String, data: String?)?
        try reader.readObject(outerFields) { reader, _ throws(JSONFault) in
            var texts: [MessageField: String] = [:]
            try reader.readObject(messageFields) { reader, field throws(JSONFault) in
                texts[field] = try reader.readNull() ? nil : try reader.readString(upTo: 256 << 10)
            }
            guard let id = texts[.messageId], StoreEvent.isID(id) else { throw .missing }
            message = (id, texts[.data])
        }
        try reader.finish()
        guard let message else { throw .missing }
        return message
    }

    private static func draft(_ content: [UInt8]) throws(JSONFault) -> Draft {
        var reader = try JSONReader(content)
        var draft = Draft()
        try reader.readObject(fields) { reader, field throws(JSONFault) in
            switch field {
            case .packageName: draft.packageName = try reader.readOptionalString()
            case .eventTimeMillis: draft.occurredMs = try milliseconds(&reader)
            default:
                guard try !reader.readNull() else { return }
                try read(&reader, field, into: &draft)
            }
        }
        try reader.finish()
        return draft
    }

    private static func read(
        _ reader: inout JSONReader,
        _ field: Field,
        into draft: inout Draft
    ) throws(JSONFault) {
        var number: Int64?
        try reader.readObject(parts) { reader, part throws(JSONFault) in
            switch part {
            case .notificationType:
                number = try reader.readIfSound { reader throws(JSONFault) in try reader.readOptionalInteger() }
            case .purchaseToken: draft.token = try reader.readOptionalString()
            case .orderId:
                draft.order = try reader.readIfSound { reader throws(JSONFault) in try reader.readOptionalString() }
            case .obfuscatedAccountId:
                draft.account = try reader.readIfSound { reader throws(JSONFault) in try reader.readOptionalString() }
            }
        }
        let name = field.rawValue.replacing("Notification", with: "")
        draft.kind = number.map { "\(name).\($0)" } ?? name
    }

    /// The documentation has a number, what is sent a string.
    private static func milliseconds(_ reader: inout JSONReader) throws(JSONFault) -> Int64? {
        let before = reader
        do { return try reader.readOptionalInteger() } catch {
            reader = before
            let text = try reader.readIfSound { reader throws(JSONFault) in try reader.readOptionalString() }
            return text.flatMap { Int64($0) }
        }
    }
}
