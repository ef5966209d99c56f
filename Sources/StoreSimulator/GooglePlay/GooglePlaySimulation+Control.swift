extension GooglePlaySimulation {
    mutating func control(_ request: StoreRequest, _ path: Substring, nowMs: Int64) throws -> Reply? {
        switch (request.method, path) {
        case ("GET", "service-account.json"):
            return Reply(status: 200, body: Array(GoogleServiceAccount.shared.keyFile.utf8))
        case ("DELETE", "access-tokens"):
            revokeAccessTokens()
            return .done
        default: break
        }
        let prefix = "purchases/"
        guard path.hasPrefix(prefix), let token = PercentCoding.decode(path.dropFirst(prefix.count)), !token.isEmpty
        else { return nil }
        switch request.method {
        case "PUT": put(try request.decoded(named: token, \.token, "token"), nowMs: nowMs)
        case "GET": break
        default: return nil
        }
        return report(token, nowMs: nowMs).map { report in
            .object { json in
                json.member("acknowledged", report.isAcknowledged)
                json.member("acknowledge_calls", report.acknowledgeCalls)
                json.member("state", report.state)
            }
        }
    }
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// What was done to a purchase of Google Play so far; `nil` where there is no such token.
    package func googlePlayPurchase(_ token: String) -> GooglePlayPurchaseReport? {
        simulation.withState { $0.googlePlay.report(token, nowMs: $0.clock.nowMs) }
    }
}
