internal import Foundation
internal import NIOCore

extension GooglePlaySimulation {
    mutating func control(_ request: StoreRequest, _ path: Substring, _ query: Substring, nowMs: Int64) throws -> Reply?
    {
        if request.method == "GET", path == "/control/google-play/service-account.json" {
            return Reply(status: 200, body: Array(GoogleServiceAccount.shared.keyFile.utf8))
        }
        if request.method == "DELETE", path == "/control/google-play/access-tokens" {
            revokeAccessTokens()
            return Reply(status: 200, body: Array("{}".utf8))
        }
        let prefix = "/control/google-play/purchases/"
        guard path.hasPrefix(prefix), let token = PercentCoding.decode(path.dropFirst(prefix.count)), !token.isEmpty
        else { return nil }
        switch request.method {
        case "PUT":
            var purchase: GooglePlayPurchaseScenario
            do {
                purchase = try JSONDecoder().decode(
                    GooglePlayPurchaseScenario.self,
                    from: Data(request.body.readableBytesView)
                )
            } catch let error as DecodingError {
                throw ScenarioError(error)
            }
            guard purchase.token.isEmpty || purchase.token == token else {
                throw ScenarioError(keyPath: "token", message: "differs from the path; leave it out")
            }
            purchase.token = token
            put(purchase, nowMs: nowMs)
        case "GET": break
        default: return nil
        }
        guard let report = report(token, nowMs: nowMs) else { return nil }
        var json = JSONBytes(capacity: 128)
        json.beginObject()
        json.key("acknowledged")
        json.value(report.isAcknowledged)
        json.key("acknowledge_calls")
        json.value(report.acknowledgeCalls)
        json.key("state")
        json.value(report.state)
        json.endObject()
        return Reply(status: 200, body: json.bytes)
    }
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// Stores a purchase of Google Play in place of the one with the same token.
    package func put(_ purchase: GooglePlayPurchaseScenario) {
        simulation.withState { $0.googlePlay.put(purchase, nowMs: $0.clock.nowMs) }
    }

    /// What was done to a purchase of Google Play so far; `nil` where there is no such token.
    package func googlePlayPurchase(_ token: String) -> GooglePlayPurchaseReport? {
        simulation.withState { $0.googlePlay.report(token, nowMs: $0.clock.nowMs) }
    }

    /// Makes every access token for Google Play that was given out worthless.
    package func revokeGoogleAccessTokens() {
        simulation.withState { $0.googlePlay.revokeAccessTokens() }
    }
}
