/// A purchase with its times fixed, and what happened to it since.
struct GooglePlayPurchase: Sendable {
    /// What Google Play says of a subscription at some moment.
    enum Standing: Sendable {
        case reported(GooglePlayPurchaseScenario.State)
        /// It was not acknowledged in time.
        case takenBack
        /// Another purchase stands in its place.
        case replaced
    }

    private static let month = 30 * TimeText.day

    var scenario: GooglePlayPurchaseScenario
    var startedMs: Int64
    /// The end of the first period; `nil` while it is not paid.
    var expiresMs: Int64?
    var addonsMs: [Int64]
    var voidedMs: Int64?
    var isAcknowledged: Bool
    var acknowledgeCalls = 0
    /// The account id that an acknowledgement gave.
    var acknowledgedAccount: String?

    init(_ scenario: GooglePlayPurchaseScenario, nowMs: Int64) {
        self.scenario = scenario
        isAcknowledged = scenario.acknowledged
        // What waits for its acknowledgement was bought a moment ago, or it would be taken back at once.
        let started = scenario.started ?? (scenario.acknowledged ? .days(-3) : .offset(milliseconds: -60_000))
        startedMs = started.milliseconds(from: nowMs)
        let state = scenario.state ?? .active
        let isUnpaid = state == .pending || state == .pendingCanceled
        expiresMs =
            isUnpaid && scenario.expires == nil
            ? nil : (scenario.expires ?? Self.usualEnd(state)).milliseconds(from: nowMs)
        let end = expiresMs ?? nowMs
        addonsMs = scenario.addons.map { $0.expires?.milliseconds(from: nowMs) ?? end }
        voidedMs = scenario.voided?.milliseconds(from: nowMs)
    }

    private static func usualEnd(_ state: GooglePlayPurchaseScenario.State) -> Moment {
        switch state {
        case .active, .unknown, .deferred, .pending, .pendingCanceled: .days(27)
        case .canceled: .days(12)
        case .grace: .days(1)
        case .onHold, .paused, .canceledPast: .days(-1)
        case .silentGrace: .offset(milliseconds: -6 * 3_600_000)
        case .expired, .gone: .days(-30)
        }
    }

    /// The first order's number.
    var orderID: String {
        if let orderID = scenario.orderID { return orderID }
        var hash = scenario.token.utf8.reduce(UInt64(7)) { SplitMix64.mix($0 ^ UInt64($1)) }
        var digits = ""
        while digits.utf8.count < 17 {
            digits += "\(hash % 10)"
            hash = hash / 10 == 0 ? SplitMix64.mix(hash &+ 1) : hash / 10
        }
        return Identifiers.transaction(store: "play_store", digits: digits)
    }

    var willRenew: Bool {
        guard !scenario.prepaid else { return false }
        if let chosen = scenario.autoRenew { return chosen }
        return switch scenario.state ?? .active {
        case .canceled, .canceledPast, .expired, .pendingCanceled, .gone: false
        default: true
        }
    }

    /// How often a running subscription was renewed since the scenario was applied.
    func renewals(at nowMs: Int64) -> Int64 {
        guard scenario.kind == .subscription, (scenario.state ?? .active) == .active, willRenew, let expiresMs,
            nowMs >= expiresMs
        else { return 0 }
        return (nowMs - expiresMs) / Self.month + 1
    }

    func endMs(at nowMs: Int64) -> Int64? { expiresMs.map { $0 + renewals(at: nowMs) * Self.month } }

    func latestOrderID(at nowMs: Int64) -> String {
        let count = renewals(at: nowMs)
        return count == 0
            ? scenario.orderIDs.last ?? orderID : "\(orderID)..\(Int64(scenario.orderIDs.count) + count - 1)"
    }

    /// When it is taken back; `nil` where it is acknowledged or not paid.
    func deadlineMs(within: Int64) -> Int64? {
        guard !isAcknowledged, scenario.state != .pending, scenario.state != .pendingCanceled else { return nil }
        if scenario.test { return startedMs + min(within, 180_000) }
        if scenario.prepaid, let expiresMs, expiresMs - startedMs < 7 * TimeText.day {
            return startedMs + min(within, (expiresMs - startedMs) / 2)
        }
        return startedMs + within
    }

    func standing(isReplaced: Bool, within: Int64, at nowMs: Int64) -> Standing {
        if let deadline = deadlineMs(within: within), nowMs >= deadline { return .takenBack }
        guard let state = scenario.state else {
            if isReplaced { return .replaced }
            return hasEnded(at: nowMs) ? .reported(.expired) : .reported(.active)
        }
        return (state == .active || state == .canceled) && hasEnded(at: nowMs) ? .reported(.expired) : .reported(state)
    }

    private func hasEnded(at nowMs: Int64) -> Bool {
        guard scenario.kind == .subscription, let end = endMs(at: nowMs) else { return false }
        return !willRenew && nowMs >= end
    }

    /// Whether an order number is one of its own.
    func hasOrder(_ id: String) -> Bool {
        id == orderID || scenario.orderIDs.contains(id) || id.hasPrefix(orderID + "..")
    }
}

/// What was done to a purchase so far, for tests.
package struct GooglePlayPurchaseReport: Sendable, Hashable {
    package var isAcknowledged: Bool
    /// Calls that reached the purchase, refused ones among them.
    package var acknowledgeCalls: Int
    /// What a read would tell: the raw state, or `gone`.
    package var state: String
}
