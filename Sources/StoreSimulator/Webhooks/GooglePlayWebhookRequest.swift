/// What Pub/Sub is to push; also the body of `POST /control/webhooks/google-play`.
struct GooglePlayWebhookRequest {
    var notification: GooglePlayNotification
    /// The app; the scenario's by default.
    var packageName: String?
    /// The same for every delivery of one message; a new one by default.
    var messageID: String?
}

extension GooglePlayWebhookRequest: Decodable {
    enum CodingKeys: String, CodingKey, CaseIterable {
        case subscription, voided, test, raw
        case oneTime = "one_time"
        case packageName = "package"
        case messageID = "message_id"
    }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        let subscription: SubscriptionNotice? = try fields.optional(.subscription)
        let oneTime: OneTimeNotice? = try fields.optional(.oneTime)
        let voided: VoidedNotice? = try fields.optional(.voided)
        let test: [String: JSONValue]? = try fields.optional(.test)
        guard test?.isEmpty ?? true else { throw fields.fault(.test, "has members; write {}") }
        let raw: String? = try fields.optional(.raw)
        var given: [GooglePlayNotification] = []
        if let subscription { given.append(subscription.notification) }
        if let oneTime { given.append(oneTime.notification) }
        if let voided { given.append(voided.notification) }
        if test != nil { given.append(.test) }
        if let raw { given.append(.raw(raw)) }
        guard let notification = given.first, given.count == 1 else {
            throw DecodingError.dataCorrupted(
                .init(
                    codingPath: decoder.codingPath,
                    debugDescription: "give one of subscription, one_time, voided, test and raw"
                )
            )
        }
        self.init(
            notification: notification,
            packageName: try fields.optional(.packageName),
            messageID: try fields.optional(.messageID)
        )
    }
}

private struct SubscriptionNotice: Decodable {
    var notification: GooglePlayNotification

    enum CodingKeys: String, CodingKey, CaseIterable { case notificationType, purchaseToken, subscriptionId }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        notification = .subscription(
            kind: try fields.required(.notificationType),
            token: try fields.required(.purchaseToken),
            product: try fields.optional(.subscriptionId)
        )
    }
}

private struct OneTimeNotice: Decodable {
    var notification: GooglePlayNotification

    enum CodingKeys: String, CodingKey, CaseIterable { case notificationType, purchaseToken, sku }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        notification = .oneTime(
            kind: try fields.required(.notificationType),
            token: try fields.required(.purchaseToken),
            product: try fields.optional(.sku)
        )
    }
}

private struct VoidedNotice: Decodable {
    var notification: GooglePlayNotification

    enum CodingKeys: String, CodingKey, CaseIterable { case purchaseToken, orderId, productType, refundType }

    init(from decoder: any Decoder) throws {
        let fields = try StrictFields<CodingKeys>(decoder)
        notification = .voided(
            token: try fields.required(.purchaseToken),
            order: try fields.optional(.orderId),
            productKind: try fields.optional(.productType),
            refundKind: try fields.optional(.refundType) ?? 1
        )
    }
}
