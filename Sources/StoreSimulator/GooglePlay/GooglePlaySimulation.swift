internal import Foundation
internal import NIOCore

/// The state of Google Play.
struct GooglePlaySimulation: SimulatedStore {
    static let endpoints = GooglePlayRoute.Endpoint.allCases.map(\.rawValue)

    static let guide = """
        GOOGLE PLAY (google_play: in a scenario)
        Set GOOGLE_PLAY_BASE_URL to http://HOST:PORT/google-play and GOOGLE_OAUTH_BASE_URL to
        http://HOST:PORT/google-oauth; the key file of the service account that is let in is at
        GET /control/google-play/service-account.json

          google_play:
            package: com.example.app       requests for another package: 404
            token_lifetime: 3599s          of access tokens, by the machine's clock
            expires_in: number             or text
            acknowledge_within: 3d         then a purchase is EXPIRED; testers have at most 3 minutes
            purchases:
              - {token: tok-a, product: pro, plan: monthly, state: active, account: "hex", profile: p}
              - {token: tok-b, state: pending, linked: tok-a}
              - {token: tok-c, kind: one_time, product: lifetime, acknowledged: false}

        States: active grace on_hold paused canceled canceled_past expired pending pending_canceled silent_grace
          unknown gone deferred; left out: active, or replaced where another purchase is linked to it
        Fields of a purchase: token product plan state kind (subscription | one_time) linked account ("": an empty
          object) profile order_id order_ids started expires acknowledged prepaid test auto_renew
          addons [{product, plan, expires}] out_of_app {expired_token, account} replacement (of deferred) consumed
          voided (when) voided_reason (number) fraction_digits (0 | 3 | 6 | 9)
        An active purchase renews every 30 days; canceled and prepaid ones expire.
        Endpoints: google_play.oauth google_play.subscription google_play.product google_play.acknowledge
          google_play.order google_play.voided; error_type is the error's reason, and one written like_this
          (invalid_grant) makes it the token endpoint's error. A fault's customer is a token or an order number.

          GET    /control/google-play/service-account.json
          PUT    /control/google-play/purchases/TOKEN   as in the scenario; GET tells acknowledged,
                                                        acknowledge_calls and state
          DELETE /control/google-play/access-tokens     no access token given out so far is good any more
        """

    let settings: GooglePlayScenario
    private(set) var purchases: [String: GooglePlayPurchase] = [:]
    /// What the request's customer has at RevenueCat.
    var shared: GooglePlayPurchase?
    /// Tokens that are replaced, and by which ones.
    private var replacements: [String: Set<String>] = [:]
    /// Until when each access token is good, in milliseconds of the machine's clock, and what for.
    private var accessTokens: [String: (endMs: Int64, scopes: [String])] = [:]
    private var tokensGiven: UInt64 = 0

    init(_ scenario: GooglePlayScenario, nowMs: Int64) throws {
        settings = scenario
        for purchase in scenario.purchases {
            guard purchases[purchase.token] == nil else {
                throw ScenarioError(
                    keyPath: "google_play.purchases",
                    message: "use the token \"\(purchase.token)\" twice; give each to one purchase"
                )
            }
            put(purchase, nowMs: nowMs)
        }
    }

    /// Stores a purchase in place of the one with the same token.
    mutating func put(_ purchase: GooglePlayPurchaseScenario, nowMs: Int64) {
        for token in replacements.keys { replacements[token]?.remove(purchase.token) }
        purchases[purchase.token] = GooglePlayPurchase(purchase, nowMs: nowMs)
        if let linked = purchase.linked, purchase.state != .pending, purchase.state != .pendingCanceled {
            replacements[linked, default: []].insert(purchase.token)
        }
    }

    func report(_ token: String, nowMs: Int64) -> GooglePlayPurchaseReport? {
        guard let purchase = purchases[token] else { return nil }
        let standing = standing(purchase, nowMs: nowMs)
        return GooglePlayPurchaseReport(
            isAcknowledged: purchase.isAcknowledged,
            acknowledgeCalls: purchase.acknowledgeCalls,
            state: purchase.scenario.kind == .subscription
                ? GooglePlayRenderer.state(standing) : GooglePlayRenderer.productState(standing)
        )
    }

    /// Makes every access token that was given out worthless.
    mutating func revokeAccessTokens() { accessTokens = [:] }

    func standing(_ purchase: GooglePlayPurchase, nowMs: Int64) -> GooglePlayPurchase.Standing {
        purchase.standing(
            isReplaced: replacements[purchase.scenario.token]?.isEmpty == false,
            within: settings.acknowledgeWithin.milliseconds,
            at: nowMs
        )
    }

    // MARK: Requests

    func route(_ request: StoreRequest) -> StoreRoute? {
        GooglePlayRoute(request)?.storeRoute
    }

    func failure(status: Int, effect: FaultRule, nowMs: Int64) -> Reply {
        GooglePlayFailure.usual(status, reason: effect.errorType, backoffMs: effect.backoffMs).reply
    }

    mutating func answer(_ request: StoreRequest, route: StoreRoute, nowMs: Int64) -> Reply {
        guard let route = GooglePlayRoute(request) else {
            return Reply(status: 404)
        }
        do throws(GooglePlayFailure) {
            return try answer(request, route, nowMs: nowMs)
        } catch {
            return error.reply
        }
    }

    private mutating func answer(
        _ request: StoreRequest,
        _ route: GooglePlayRoute,
        nowMs: Int64
    ) throws(GooglePlayFailure) -> Reply {
        if route.endpoint == .oauth { return try giveToken(request) }
        guard isLetIn(request.bearer, for: GoogleServiceAccount.androidPublisher) else { throw .noToken }
        guard route.package == nil || route.package == settings.package else { throw .noPackage }
        switch route.endpoint {
        case .oauth, nil: return Reply(status: 404)
        case .subscription:
            let purchase = try find(route.subject)
            // Strange, and so it is: a one-time purchase is said to be no longer valid.
            guard purchase.scenario.kind == .subscription else { throw .invalidToken }
            guard purchase.scenario.state != .gone else { throw .gone }
            let standing = standing(purchase, nowMs: nowMs)
            return GooglePlayRenderer(purchase: purchase, nowMs: nowMs).subscription(standing)
        case .product:
            let purchase = try find(route.subject)
            guard purchase.scenario.kind == .oneTime else { throw .unknownToken }
            guard purchase.scenario.state != .gone else { throw .invalidToken }
            return GooglePlayRenderer(purchase: purchase, nowMs: nowMs).product(standing(purchase, nowMs: nowMs))
        case .acknowledge:
            try acknowledge(route, request, nowMs: nowMs)
            return Reply(status: 200)
        case .order:
            let id = route.subject
            let shared = shared.flatMap { $0.hasOrder(id) ? $0 : nil }
            guard let purchase = purchases.values.first(where: { $0.hasOrder(id) }) ?? shared else { throw .noOrder }
            return GooglePlayRenderer(purchase: purchase, nowMs: nowMs).order(id)
        case .voided: return try voided(request.query, nowMs: nowMs)
        }
    }

    private func find(_ token: String) throws(GooglePlayFailure) -> GooglePlayPurchase {
        let isToken = token.utf8.allSatisfy { $0.isAlphanumeric || "._-".utf8.contains($0) }
        guard !token.isEmpty, isToken else { throw .badToken }
        guard let purchase = purchases[token] ?? shared.flatMap({ $0.scenario.token == token ? $0 : nil }) else {
            throw .unknownToken
        }
        return purchase
    }

    private mutating func acknowledge(
        _ route: GooglePlayRoute,
        _ request: StoreRequest,
        nowMs: Int64
    ) throws(GooglePlayFailure) {
        let (token, product) = (route.subject, route.product)
        var purchase = try find(token)
        guard purchase.scenario.state != .gone else { throw .gone }
        guard (purchase.scenario.kind == .subscription) == route.isSubscription else { throw .unknownToken }
        // What is shared was acknowledged long ago.
        guard purchases[token] != nil else { throw .wrongState }
        purchase.acknowledgeCalls += 1
        purchases[token] = purchase
        guard
            product == purchase.scenario.product || purchase.scenario.addons.contains(where: { $0.product == product })
        else { throw .wrongProduct }
        guard case .reported(let state) = standing(purchase, nowMs: nowMs), !purchase.isAcknowledged else {
            throw .wrongState
        }
        switch state {
        case .pending, .pendingCanceled, .expired, .canceledPast: throw .wrongState
        case .canceled where !route.isSubscription: throw .wrongState
        default: break
        }
        purchase.isAcknowledged = true
        // Ids are taken for what was bought in Play alone; the app's own purchases name the account from the start.
        if purchase.scenario.outOfApp != nil { purchase.acknowledgedAccount = Self.account(in: request) }
        purchases[token] = purchase
    }

    private static func account(in request: StoreRequest) -> String? {
        struct Body: Decodable {
            struct IDs: Decodable { var obfuscatedAccountId: String? }
            var externalAccountIds: IDs?
        }
        let body = try? JSONDecoder().decode(Body.self, from: Data(request.body.readableBytesView))
        return body?.externalAccountIds?.obfuscatedAccountId
    }

    // MARK: Access tokens

    func isLetIn(_ token: String?, for scope: String) -> Bool {
        guard let (endMs, scopes) = token.flatMap({ accessTokens[$0] }) else { return false }
        return SimulatedClock.machine() < endMs && scopes.contains(scope)
    }

    private mutating func giveToken(_ request: StoreRequest) throws(GooglePlayFailure) -> Reply {
        let form = String(decoding: request.body.readableBytesView, as: UTF8.self)
        guard
            PercentCoding.value(of: "grant_type", in: form[...]) == "urn:ietf:params:oauth:grant-type:jwt-bearer",
            let assertion = PercentCoding.value(of: "assertion", in: form[...])
        else { throw GooglePlayFailure(400, "unsupported_grant_type", "Invalid grant_type") }
        // The simulated time may be months away, but the client's clock signs the assertion.
        let nowMs = SimulatedClock.machine()
        let scopes = try GoogleServiceAccount.shared.check(assertion, at: nowMs / 1000)
        tokensGiven += 1
        let token = "ya29.simulated-\(tokensGiven)-\(String(SplitMix64.mix(tokensGiven), radix: 16))"
        accessTokens = accessTokens.filter { $0.value.endMs > nowMs }
        accessTokens[token] = (nowMs + settings.tokenLifetime.milliseconds, scopes)
        let seconds = settings.tokenLifetime.milliseconds / 1000
        return .object { json in
            json.member("access_token", token)
            if settings.expiresIn == .text {
                json.member("expires_in", "\(seconds)")
            } else {
                json.member("expires_in", seconds)
            }
            json.member("token_type", literal: "Bearer")
        }
    }
}
