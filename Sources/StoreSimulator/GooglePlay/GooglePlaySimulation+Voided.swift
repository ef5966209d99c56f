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
        return .object { json in
            if from + size < all.count {
                json.object("tokenPagination") { json in
                    json.member("nextPageToken", "\(from + size).\(window.lowerBound).\(window.upperBound)")
                }
            }
            guard !all.isEmpty else { return }
            json.array("voidedPurchases") { json in
                for voided in all.dropFirst(from).prefix(size) {
                    json.object { json in
                        json.member("kind", literal: "androidpublisher#voidedPurchase")
                        json.member("purchaseToken", voided.purchase.scenario.token)
                        json.member("orderId", voided.purchase.latestOrderID(at: nowMs))
                        json.member("purchaseTimeMillis", "\(voided.purchase.startedMs)")
                        json.member("voidedTimeMillis", "\(voided.atMs)")
                        json.member("voidedSource", voided.reason == 8 ? 2 : 0)
                        json.member("voidedReason", voided.reason)
                    }
                }
            }
        }
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
}
