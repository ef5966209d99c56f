/// The states a scenario can name; each expands to a full, faithful object whose fields may then be overridden.
enum LifeState: String, ScenarioWord {
    /// Paid period running, will renew.
    case active
    /// Free trial running, will renew.
    case trial
    /// Auto-renewal off, paid period still running.
    case cancelled
    /// Renewal charge failed, access kept.
    case grace
    /// Renewal charge failed, access suspended.
    case billingRetry = "billing_retry"
    /// Pause announced; access until the period ends.
    case pauseScheduled = "pause_scheduled"
    /// Paused; the period's end is the date of resumption (null: no date known).
    case paused
    /// Over.
    case expired
    /// Money returned: a subscription that ended early, or a purchase with status `refunded`.
    case refunded
    /// A non-consumable purchase, owned for ever.
    case lifetime
    /// A non-consumable purchase that was refunded.
    case lifetimeRefunded = "lifetime_refunded"
    /// A purchase to which no entitlement is attached.
    case consumable
    /// Granted by RevenueCat's customer support or API; no product, store `promotional`.
    case promotional
    /// Shared by a family member.
    case familyShared = "family_shared"
    /// Active, but bought in a store's sandbox.
    case sandbox
    /// Bad billing data or payment pending; no access.
    case incomplete
    /// A status RevenueCat cannot name, while access is given.
    case unknown
    /// Active, but for an entitlement that is not mapped (lookup key `unmapped`).
    case unmapped
    /// A price increase awaits consent; access until the period ends.
    case priceIncrease = "price_increase"
    /// Another product follows when the period ends.
    case productChange = "product_change"
    /// A customer without any subscription or purchase.
    case none
}

/// What happens to a subscription when the simulated time reaches its end.
enum EndBehaviour: String, ScenarioWord {
    /// Nothing: the scenario's words stand until someone changes them.
    case stay
    /// Status becomes `expired`, access ends.
    case expire
    /// A new period of the same length begins, as often as needed.
    case renew
}

/// The usual values of a subscription in some state.
struct SubscriptionShape {
    var status = "active"
    var givesAccess = true
    var renewal = "will_renew"
    var pendingPayment = false
    var starts = Moment.days(-48)
    var periodStarts = Moment.days(-18)
    var periodEnds = Moment.days(12)
    var environment = "production"
    var store = "app_store"
    var ownership = "purchased"
    var entitlement = "premium"
    var hasProduct = true
    var gross = 19.98
    var pendingProduct: String?
    var atEnd = EndBehaviour.stay
}

/// The usual values of a one-time purchase in some state.
struct PurchaseShape {
    var status = "owned"
    var purchasedAt = Moment.days(-100)
    var environment = "production"
    var ownership = "purchased"
    var entitlement: String? = "premium"
    var gross = 49.99
}

extension LifeState {
    /// The subscription this state describes, or nil where it is about purchases only.
    var subscription: SubscriptionShape? {
        var shape = SubscriptionShape()
        switch self {
        case .active: break
        case .trial:
            (shape.status, shape.gross) = ("trialing", 0)
            (shape.starts, shape.periodStarts, shape.periodEnds) = (.days(-2), .days(-2), .days(5))
        case .cancelled: (shape.renewal, shape.atEnd) = ("will_not_renew", .expire)
        case .grace:
            (shape.status, shape.periodStarts, shape.periodEnds) = ("in_grace_period", .days(-31), .days(-1))
        case .billingRetry:
            (shape.status, shape.givesAccess) = ("in_billing_retry", false)
            (shape.periodStarts, shape.periodEnds) = (.days(-32), .days(-2))
        case .pauseScheduled: shape.renewal = "will_pause"
        case .paused: (shape.status, shape.givesAccess, shape.periodEnds) = ("paused", false, .days(20))
        case .expired:
            (shape.status, shape.givesAccess, shape.renewal) = ("expired", false, "will_not_renew")
            (shape.starts, shape.periodStarts, shape.periodEnds) = (.days(-90), .days(-60), .days(-30))
        case .refunded:
            (shape.status, shape.givesAccess, shape.renewal) = ("expired", false, "will_not_renew")
            (shape.periodEnds, shape.gross) = (.days(-1), 0)
        case .promotional:
            (shape.renewal, shape.atEnd, shape.gross) = ("will_not_renew", .expire, 0)
            (shape.store, shape.hasProduct) = ("promotional", false)
            (shape.starts, shape.periodStarts, shape.periodEnds) = (.days(-5), .days(-5), .days(25))
        case .familyShared: (shape.ownership, shape.gross) = ("family_shared", 0)
        case .sandbox: (shape.environment, shape.gross) = ("sandbox", 0)
        case .incomplete:
            (shape.status, shape.givesAccess, shape.pendingPayment, shape.gross) = ("incomplete", false, true, 0)
        case .unknown: shape.status = "unknown"
        case .unmapped: shape.entitlement = "unmapped"
        case .priceIncrease: shape.renewal = "requires_price_increase_consent"
        case .productChange: (shape.renewal, shape.pendingProduct) = ("will_change_product", "prod5566778899")
        case .lifetime, .lifetimeRefunded, .consumable, .none: return nil
        }
        return shape
    }

    /// The purchase this state describes, or nil where it is about subscriptions only.
    var purchase: PurchaseShape? {
        var shape = PurchaseShape()
        switch self {
        case .lifetime: break
        case .refunded, .lifetimeRefunded: (shape.status, shape.gross) = ("refunded", 0)
        case .consumable: (shape.entitlement, shape.gross) = (nil, 4.99)
        case .familyShared: (shape.ownership, shape.gross) = ("family_shared", 0)
        case .sandbox: (shape.environment, shape.gross) = ("sandbox", 0)
        case .unmapped: shape.entitlement = "unmapped"
        default: return nil
        }
        return shape
    }
}

extension LifeState {
    /// The state, where a list names it without any field; nil where a map follows.
    static func bare(_ decoder: any Decoder, where suits: (LifeState) -> Bool, kind: String) throws -> LifeState? {
        guard let container = try? decoder.singleValueContainer(), (try? container.decode(String.self)) != nil else {
            return nil
        }
        let state = try container.decode(LifeState.self)
        guard suits(state) else {
            let names = allCases.filter(suits).map(\.rawValue).joined(separator: ", ")
            throw DecodingError.dataCorruptedError(
                in: container,
                debugDescription: "is \"\(state.rawValue)\", which describes no \(kind); use one of \(names)"
            )
        }
        return state
    }
}
