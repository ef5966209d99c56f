/// Writes a purchase as the API does: what has its type's default is left out.
struct GooglePlayRenderer {
    let purchase: GooglePlayPurchase
    let nowMs: Int64

    private var scenario: GooglePlayPurchaseScenario { purchase.scenario }

    /// The raw state of a subscription.
    static func state(_ standing: GooglePlayPurchase.Standing) -> String {
        switch standing {
        case .takenBack, .replaced: "SUBSCRIPTION_STATE_EXPIRED"
        case .reported(let state):
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
        case .reported(let state):
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

    func subscription(_ standing: GooglePlayPurchase.Standing) -> Reply {
        let isPaid = purchase.expiresMs != nil
        return .object { json in
            json.member("kind", literal: "androidpublisher#subscriptionPurchaseV2")
            json.member("regionCode", literal: "DE")
            if isPaid { json.member("startTime", time(purchase.startedMs)) }
            json.member("subscriptionState", Self.state(standing))
            json.member("acknowledgementState", acknowledgement)
            if isPaid { json.member("latestOrderId", purchase.latestOrderID(at: nowMs)) }
            json.optional("linkedPurchaseToken", scenario.linked)
            json.array("lineItems") { items(&$0, standing) }
            account(&json)
            context(&json, standing)
            if scenario.test { json.object("testPurchase") }
            if let context = scenario.outOfApp, !purchase.isAcknowledged {
                json.object("outOfAppPurchaseContext") { json in
                    json.optional("expiredPurchaseToken", context.expiredToken)
                    if let account = context.account {
                        json.object("expiredExternalAccountIdentifiers") { json in
                            json.member("obfuscatedExternalAccountId", account)
                        }
                    }
                }
            }
            if case .reported(.unknown) = standing { json.member("fieldThatIsNew", "what it means is not documented") }
            json.member("etag", literal: "simulated")
        }
    }

    private func items(_ json: inout JSONBytes, _ standing: GooglePlayPurchase.Standing) {
        let isDeferred = if case .reported(.deferred) = standing { true } else { false }
        let replacement = isDeferred ? scenario.replacement ?? scenario.product + "_next" : nil
        var end = purchase.endMs(at: nowMs)
        // What was taken back ended there and then.
        if case .takenBack = standing, let expires = end { end = min(expires, nowMs) }
        item(&json, product: scenario.product, plan: scenario.plan, end: end, replacement: replacement)
        for (addon, end) in zip(scenario.addons, purchase.addonsMs) {
            item(&json, product: addon.product, plan: addon.plan, end: end)
        }
        if let replacement { item(&json, product: replacement, plan: scenario.plan, end: nil) }
    }

    private func item(
        _ json: inout JSONBytes,
        product: String,
        plan: String,
        end: Int64?,
        replacement: String? = nil
    ) {
        json.object { json in
            json.member("productId", product)
            if let end {
                json.member("expiryTime", time(end))
                json.member("latestSuccessfulOrderId", purchase.latestOrderID(at: nowMs))
            }
            if scenario.prepaid {
                json.object("prepaidPlan")
            } else {
                json.object("autoRenewingPlan") { json in
                    if purchase.willRenew { json.member("autoRenewEnabled", true) }
                    json.member("recurringPrice", raw: #"{"currencyCode":"EUR","units":"9","nanos":990000000}"#)
                }
            }
            json.object("offerDetails") { $0.member("basePlanId", plan) }
            if let replacement { json.object("deferredItemReplacement") { $0.member("productId", replacement) } }
        }
    }

    private func account(_ json: inout JSONBytes) {
        let account = purchase.acknowledgedAccount ?? scenario.account
        guard account != nil || scenario.profile != nil else { return }
        json.object("externalAccountIdentifiers") { json in
            if let account, !account.isEmpty { json.member("obfuscatedExternalAccountId", account) }
            json.optional("obfuscatedExternalProfileId", scenario.profile)
        }
    }

    private func context(_ json: inout JSONBytes, _ standing: GooglePlayPurchase.Standing) {
        switch standing {
        case .takenBack: json.object("canceledStateContext") { $0.object("systemInitiatedCancellation") }
        case .replaced: json.object("canceledStateContext") { $0.object("replacementCancellation") }
        case .reported(.canceled), .reported(.canceledPast), .reported(.expired):
            guard !scenario.prepaid else { return }
            json.object("canceledStateContext") { json in
                json.object("userInitiatedCancellation") { $0.member("cancelTime", time(nowMs - TimeText.day)) }
            }
        case .reported(.paused):
            json.object("pausedStateContext") { $0.member("autoResumeTime", time(nowMs + 14 * TimeText.day)) }
        case .reported(.onHold): json.object("onHoldStateContext") { $0.object("renewalDeclined") }
        case .reported(.grace): json.object("inGracePeriodStateContext") { $0.object("renewalDeclined") }
        case .reported: break
        }
    }

    // MARK: One-time purchases

    func product(_ standing: GooglePlayPurchase.Standing) -> Reply {
        let state = Self.productState(standing)
        let consumption = scenario.consumed ? "CONSUMPTION_STATE_CONSUMED" : "CONSUMPTION_STATE_YET_TO_BE_CONSUMED"
        return .object { json in
            json.member("kind", literal: "androidpublisher#productPurchaseV2")
            json.member("regionCode", literal: "DE")
            json.member("orderId", purchase.orderID)
            json.object("purchaseStateContext") { $0.member("purchaseState", state) }
            json.member("acknowledgementState", acknowledgement)
            if state != "PENDING" { json.member("purchaseCompletionTime", time(purchase.startedMs)) }
            if let account = scenario.account, !account.isEmpty { json.member("obfuscatedExternalAccountId", account) }
            json.optional("obfuscatedExternalProfileId", scenario.profile)
            if scenario.test { json.member("testPurchaseContext", raw: #"{"fopType":"TEST"}"#) }
            json.array("productLineItem") { json in
                for product in [scenario.product] + scenario.addons.map(\.product) {
                    json.object { json in
                        json.member("productId", product)
                        json.object("productOfferDetails") { json in
                            json.member("consumptionState", consumption)
                            json.member("quantity", 1)
                        }
                    }
                }
            }
        }
    }

    // MARK: Orders

    func order(_ id: String) -> Reply {
        .object { json in
            json.member("orderId", id)
            json.member("purchaseToken", scenario.token)
            json.member("state", literal: purchase.voidedMs == nil ? "PROCESSED" : "REFUNDED")
            json.member("createTime", time(purchase.startedMs))
            json.member("lastEventTime", time(purchase.voidedMs ?? purchase.startedMs))
            json.array("lineItems") { json in
                json.object { json in
                    json.member("productId", scenario.product)
                    if scenario.kind == .subscription {
                        json.object("subscriptionDetails") { $0.member("basePlanId", scenario.plan) }
                    } else {
                        json.object("oneTimePurchaseDetails")
                    }
                }
            }
        }
    }

    // MARK: Parts

    private var acknowledgement: String {
        purchase.isAcknowledged ? "ACKNOWLEDGEMENT_STATE_ACKNOWLEDGED" : "ACKNOWLEDGEMENT_STATE_PENDING"
    }

    private func time(_ milliseconds: Int64) -> String {
        RFC3339Text.write(milliseconds, digits: scenario.fractionDigits)
    }
}

/// Times as RFC 3339 writes them.
enum RFC3339Text {
    /// Writes a time in UTC, such as `2026-03-01T08:00:00.123Z`; no digits leave the fraction out.
    static func write(_ milliseconds: Int64, digits: Int) -> String {
        let seconds = ResponseHead.floorDivide(milliseconds, 1000)
        let days = ResponseHead.floorDivide(seconds, 86_400)
        let (year, month, day) = ResponseHead.civil(days: days)
        let ofDay = seconds - days * 86_400
        func padded(_ number: Int64, _ width: Int) -> String { Identifiers.padded(number, to: width) }
        let date = "\(padded(year, 4))-\(padded(month, 2))-\(padded(day, 2))"
        let time = "\(padded(ofDay / 3600, 2)):\(padded(ofDay / 60 % 60, 2)):\(padded(ofDay % 60, 2))"
        let fraction = padded(milliseconds - seconds * 1000, 3) + String(repeating: "0", count: max(0, digits - 3))
        return "\(date)T\(time)\(digits == 0 ? "" : ".\(fraction)")Z"
    }
}
