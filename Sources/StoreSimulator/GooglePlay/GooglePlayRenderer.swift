/// Writes purchases as the API does: what has its type's default is left out.
struct GooglePlayRenderer {
    let nowMs: Int64
    private var json = JSONBytes()
    private var digits = 3

    init(nowMs: Int64) { self.nowMs = nowMs }

    /// The raw state of a subscription.
    static func state(_ standing: GooglePlayPurchase.Standing) -> String {
        switch standing {
        case .takenBack, .replaced: "SUBSCRIPTION_STATE_EXPIRED"
        case .told(let state):
            switch state {
            case .active, .silentGrace, .deferred: "SUBSCRIPTION_STATE_ACTIVE"
            case .grace: "SUBSCRIPTION_STATE_IN_GRACE_PERIOD"
            case .onHold: "SUBSCRIPTION_STATE_ON_HOLD"
            case .paused: "SUBSCRIPTION_STATE_PAUSED"
            case .canceled, .canceledPast: "SUBSCRIPTION_STATE_CANCELED"
            case .expired: "SUBSCRIPTION_STATE_EXPIRED"
            case .pending: "SUBSCRIPTION_STATE_PENDING"
            case .pendingCanceled: "SUBSCRIPTION_STATE_PENDING_PURCHASE_CANCELED"
            case .unknown: "SUBSCRIPTION_STATE_NEVER_HEARD_OF"
            case .gone: "gone"
            }
        }
    }

    /// The raw state of a one-time purchase.
    static func productState(_ standing: GooglePlayPurchase.Standing) -> String {
        switch standing {
        case .takenBack, .replaced: "CANCELLED"
        case .told(let state):
            switch state {
            case .pending: "PENDING"
            case .canceled, .canceledPast, .expired, .pendingCanceled: "CANCELLED"
            case .unknown: "NEVER_HEARD_OF"
            case .gone: "gone"
            default: "PURCHASED"
            }
        }
    }

    // MARK: Subscriptions

    mutating func subscription(_ purchase: GooglePlayPurchase, _ standing: GooglePlayPurchase.Standing) -> Reply {
        let scenario = purchase.scenario
        digits = scenario.fractionDigits
        let state = Self.state(standing)
        let isPaid = purchase.expiresMs != nil
        json.beginObject()
        text("kind", "androidpublisher#subscriptionPurchaseV2")
        text("regionCode", "DE")
        if isPaid { time("startTime", purchase.startedMs) }
        text("subscriptionState", state)
        text("acknowledgementState", Self.word(isAcknowledged: purchase.isAcknowledged))
        if isPaid { text("latestOrderId", purchase.latestOrderID(at: nowMs)) }
        if let linked = scenario.linked { text("linkedPurchaseToken", linked) }
        json.key("lineItems")
        json.beginArray()
        items(purchase, standing)
        json.endArray()
        account(purchase)
        context(standing, isPrepaid: scenario.prepaid)
        if scenario.test { empty("testPurchase") }
        if let context = scenario.outOfApp, !purchase.isAcknowledged {
            json.key("outOfAppPurchaseContext")
            json.beginObject()
            if let token = context.expiredToken { text("expiredPurchaseToken", token) }
            if let account = context.account {
                json.key("expiredExternalAccountIdentifiers")
                json.beginObject()
                text("obfuscatedExternalAccountId", account)
                json.endObject()
            }
            json.endObject()
        }
        if case .told(.unknown) = standing { text("fieldThatIsNew", "what it means nobody knows") }
        text("etag", "simulated")
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }

    private mutating func items(_ purchase: GooglePlayPurchase, _ standing: GooglePlayPurchase.Standing) {
        let scenario = purchase.scenario
        let isDeferred = if case .told(.deferred) = standing { true } else { false }
        let replacement = isDeferred ? scenario.replacement ?? scenario.product + "_next" : nil
        var end = purchase.endMs(at: nowMs)
        // What was taken back ended there and then.
        if case .takenBack = standing, let expires = end { end = min(expires, nowMs) }
        item(purchase, product: scenario.product, plan: scenario.plan, end: end, replacement: replacement)
        for (addon, end) in zip(scenario.addons, purchase.addonsMs) {
            item(purchase, product: addon.product, plan: addon.plan, end: end)
        }
        if let replacement { item(purchase, product: replacement, plan: scenario.plan, end: nil) }
    }

    private mutating func item(
        _ purchase: GooglePlayPurchase,
        product: String,
        plan: String,
        end: Int64?,
        replacement: String? = nil
    ) {
        json.beginObject()
        text("productId", product)
        if let end {
            time("expiryTime", end)
            text("latestSuccessfulOrderId", purchase.latestOrderID(at: nowMs))
        }
        if purchase.scenario.prepaid {
            empty("prepaidPlan")
        } else {
            json.key("autoRenewingPlan")
            json.beginObject()
            if purchase.willRenew {
                json.key("autoRenewEnabled")
                json.value(true)
            }
            json.key("recurringPrice")
            json.raw(#"{"currencyCode":"EUR","units":"9","nanos":990000000}"#)
            json.endObject()
        }
        json.key("offerDetails")
        json.beginObject()
        text("basePlanId", plan)
        json.endObject()
        if let replacement {
            json.key("deferredItemReplacement")
            json.beginObject()
            text("productId", replacement)
            json.endObject()
        }
        json.endObject()
    }

    private mutating func account(_ purchase: GooglePlayPurchase) {
        let account = purchase.acknowledgedAccount ?? purchase.scenario.account
        guard account != nil || purchase.scenario.profile != nil else { return }
        json.key("externalAccountIdentifiers")
        json.beginObject()
        if let account, !account.isEmpty { text("obfuscatedExternalAccountId", account) }
        if let profile = purchase.scenario.profile { text("obfuscatedExternalProfileId", profile) }
        json.endObject()
    }

    private mutating func context(_ standing: GooglePlayPurchase.Standing, isPrepaid: Bool) {
        switch standing {
        case .takenBack: nested("canceledStateContext", "systemInitiatedCancellation")
        case .replaced: nested("canceledStateContext", "replacementCancellation")
        case .told(.canceled), .told(.canceledPast), .told(.expired):
            if !isPrepaid {
                nested("canceledStateContext", "userInitiatedCancellation", cancelTime: nowMs - 86_400_000)
            }
        case .told(.paused):
            json.key("pausedStateContext")
            json.beginObject()
            time("autoResumeTime", nowMs + 14 * TimeText.day)
            json.endObject()
        case .told(.onHold): nested("onHoldStateContext", "renewalDeclined")
        case .told(.grace): nested("inGracePeriodStateContext", "renewalDeclined")
        case .told: break
        }
    }

    // MARK: One-time purchases

    mutating func product(_ purchase: GooglePlayPurchase, _ standing: GooglePlayPurchase.Standing) -> Reply {
        let scenario = purchase.scenario
        digits = scenario.fractionDigits
        let state = Self.productState(standing)
        json.beginObject()
        text("kind", "androidpublisher#productPurchaseV2")
        text("regionCode", "DE")
        text("orderId", purchase.orderID)
        json.key("purchaseStateContext")
        json.beginObject()
        text("purchaseState", state)
        json.endObject()
        text("acknowledgementState", Self.word(isAcknowledged: purchase.isAcknowledged))
        if state != "PENDING" { time("purchaseCompletionTime", purchase.startedMs) }
        if let account = scenario.account, !account.isEmpty { text("obfuscatedExternalAccountId", account) }
        if let profile = scenario.profile { text("obfuscatedExternalProfileId", profile) }
        if scenario.test {
            json.key("testPurchaseContext")
            json.raw(#"{"fopType":"TEST"}"#)
        }
        json.key("productLineItem")
        json.beginArray()
        for product in [scenario.product] + scenario.addons.map(\.product) {
            json.beginObject()
            text("productId", product)
            json.key("productOfferDetails")
            json.beginObject()
            text(
                "consumptionState",
                scenario.consumed ? "CONSUMPTION_STATE_CONSUMED" : "CONSUMPTION_STATE_YET_TO_BE_CONSUMED"
            )
            json.key("quantity")
            json.value(1)
            json.endObject()
            json.endObject()
        }
        json.endArray()
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }

    // MARK: Orders

    mutating func order(_ id: String, of purchase: GooglePlayPurchase) -> Reply {
        digits = purchase.scenario.fractionDigits
        json.beginObject()
        text("orderId", id)
        text("purchaseToken", purchase.scenario.token)
        text("state", purchase.voidedMs == nil ? "PROCESSED" : "REFUNDED")
        time("createTime", purchase.startedMs)
        time("lastEventTime", purchase.voidedMs ?? purchase.startedMs)
        json.key("lineItems")
        json.beginArray()
        json.beginObject()
        text("productId", purchase.scenario.product)
        if purchase.scenario.kind == .subscription {
            json.key("subscriptionDetails")
            json.beginObject()
            text("basePlanId", purchase.scenario.plan)
            json.endObject()
        } else {
            empty("oneTimePurchaseDetails")
        }
        json.endObject()
        json.endArray()
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }

    // MARK: Parts

    private static func word(isAcknowledged: Bool) -> String {
        isAcknowledged ? "ACKNOWLEDGEMENT_STATE_ACKNOWLEDGED" : "ACKNOWLEDGEMENT_STATE_PENDING"
    }

    private mutating func text(_ name: StaticString, _ value: String) {
        json.key(name)
        json.value(value)
    }

    private mutating func time(_ name: StaticString, _ milliseconds: Int64) {
        text(name, RFC3339Text.write(milliseconds, digits: digits))
    }

    private mutating func empty(_ name: StaticString) {
        json.key(name)
        json.raw("{}")
    }

    private mutating func nested(_ name: StaticString, _ inner: StaticString, cancelTime: Int64? = nil) {
        json.key(name)
        json.beginObject()
        json.key(inner)
        json.beginObject()
        if let cancelTime { time("cancelTime", cancelTime) }
        json.endObject()
        json.endObject()
    }
}

/// Times as RFC 3339 writes them.
enum RFC3339Text {
    /// Writes a time in UTC.
    ///
    /// - Parameters:
    ///   - milliseconds: since 1970.
    ///   - digits: of the fraction; 0 leaves it out.
    /// - Returns: such as `2026-03-01T08:00:00.123Z`.
    static func write(_ milliseconds: Int64, digits: Int) -> String {
        let seconds = ResponseHead.floorDivide(milliseconds, 1000)
        let days = ResponseHead.floorDivide(seconds, 86_400)
        let (year, month, day) = ResponseHead.civil(days: days)
        let ofDay = seconds - days * 86_400
        func padded(_ number: Int64, _ width: Int) -> String {
            let text = "\(number)"
            return String(repeating: "0", count: max(0, width - text.utf8.count)) + text
        }
        let date = "\(padded(year, 4))-\(padded(month, 2))-\(padded(day, 2))"
        let time = "\(padded(ofDay / 3600, 2)):\(padded(ofDay / 60 % 60, 2)):\(padded(ofDay % 60, 2))"
        let fraction = padded(milliseconds - seconds * 1000, 3) + String(repeating: "0", count: max(0, digits - 3))
        return "\(date)T\(time)\(digits == 0 ? "" : ".\(fraction)")Z"
    }
}
