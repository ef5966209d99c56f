// The list of voided purchases: those of the scenario, and those that were not acknowledged in time.
extension GooglePlaySimulation {
    private struct Voided {
        var purchase: GooglePlayPurchase
        var atMs: Int64
        var reason: Int
    }

    /// Answers `voidedpurchases.list`.
    func voided(_ query: Substring, nowMs: Int64) throws(GooglePlayFailure) -> Reply {
        func number(_ key: String) -> Int64? { PercentCoding.value(of: key, in: query).flatMap { Int64($0) } }
        let start = number("startTime") ?? nowMs - 30 * TimeText.day
        let end = number("endTime") ?? nowMs
        let size = Int(number("maxResults") ?? 1_000)
        guard (1...1_000).contains(size), start >= nowMs - 30 * TimeText.day || number("token") != nil else {
            throw .badToken
        }
        var from = 0
        var window = start...max(start, end)
        if let token = PercentCoding.value(of: "token", in: query) {
            // A page token carries the times of the first request along.
            let parts = token.split(separator: ".").compactMap { Int64($0) }
            guard parts.count == 3, parts[1] <= parts[2] else { throw .badToken }
            from = Int(parts[0])
            window = parts[1]...parts[2]
        }
        let withSubscriptions = number("type") == 1
        let all = allVoided(nowMs: nowMs).filter { voided in
            window.contains(voided.atMs) && (withSubscriptions || voided.purchase.scenario.kind == .oneTime)
        }
        var json = JSONBytes()
        json.beginObject()
        if from + size < all.count {
            json.key("tokenPagination")
            json.beginObject()
            json.key("nextPageToken")
            json.value("\(from + size).\(window.lowerBound).\(window.upperBound)")
            json.endObject()
        }
        if !all.isEmpty {
            json.key("voidedPurchases")
            json.beginArray()
            for voided in all.dropFirst(from).prefix(size) { write(voided, nowMs: nowMs, to: &json) }
            json.endArray()
        }
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }

    private func allVoided(nowMs: Int64) -> [Voided] {
        let all = purchases.values.compactMap { purchase -> Voided? in
            if let atMs = purchase.voidedMs {
                return Voided(purchase: purchase, atMs: atMs, reason: purchase.scenario.voidedReason)
            }
            guard case .takenBack = standing(purchase, nowMs: nowMs) else { return nil }
            let deadline = purchase.deadlineMs(within: settings.acknowledgeWithin.milliseconds)
            return Voided(purchase: purchase, atMs: deadline ?? nowMs, reason: 8)
        }
        return all.sorted { ($0.atMs, $0.purchase.scenario.token) < ($1.atMs, $1.purchase.scenario.token) }
    }

    private func write(_ voided: Voided, nowMs: Int64, to json: inout JSONBytes) {
        json.beginObject()
        json.key("kind")
        json.literal("androidpublisher#voidedPurchase")
        json.key("purchaseToken")
        json.value(voided.purchase.scenario.token)
        json.key("orderId")
        json.value(voided.purchase.latestOrderID(at: nowMs))
        json.key("purchaseTimeMillis")
        json.value("\(voided.purchase.startedMs)")
        json.key("voidedTimeMillis")
        json.value("\(voided.atMs)")
        json.key("voidedSource")
        json.value(voided.reason == 8 ? 2 : 0)
        json.key("voidedReason")
        json.value(voided.reason)
        json.endObject()
    }
}
