internal import Foundation

/// The state of Onside.
struct OnsideSimulation: SimulatedStore {
    static let endpoints = ["onside.history", "onside.keys"]
    static let guide = """
        ONSIDE (onside: in a scenario)

        The merchant API answers below /onside: use http://HOST:PORT/onside as the base URL.
          merchant_id: merchant-demo   secret: onside-demo-secret   key_id: key-demo   bundle_id: com.example.app
          sign_with: rs256             or hs256_public_key, none, other_key, unknown_kid
          fetched: -1d                 when answers say they were made; without it: the moment of the request
          orders: [{order: UUID, expires: +20d}]
        Fields of an order: order original product account holder bought purchased expires revoked type subscription
          reason revocation_reason visible_after_requests (404 before) foreign (403) bundle
        Orders with one original are one line. A token has to be signed with the secret, live 30 s at most, be valid by
        the simulated clock and be new; else: 401.
        Endpoints: onside.history onside.keys

          PUT    /control/onside/orders/ID   an order as in a scenario; DELETE removes it
          POST   /control/onside/rotate      {"keep_old": true}: a new key signs, the set shows both, or only the new
          PUT    /control/onside/signing     {"sign_with": "none", "fetched": "-1d"}
          GET    /control/onside/history     ?account=UID: the signed history that this account's device would send
        """

    private static let historyPath: Substring = "/onside/merchant-api/v1/purchases/in-app/history/"
    private static let keysPath: Substring = "/onside/.well-known/jwks.json"

    private let scenario: OnsideScenario
    var orders: [String: OnsideOrder] = [:]
    var keys = RotatingKeys("onside")
    var signing: OnsideSigning
    private var tokens = OnsideTokens()

    init(_ scenario: OnsideScenario, nowMs: Int64) throws {
        self.scenario = scenario
        signing = scenario.signing
        for (index, order) in scenario.orders.enumerated() {
            let placed = try OnsideOrder(order, at: "onside.orders[\(index)].", nowMs: nowMs)
            guard orders.updateValue(placed, forKey: placed.id) == nil else {
                throw ScenarioError(keyPath: "onside.orders[\(index)].order", message: "is there twice")
            }
        }
    }

    func route(_ request: StoreRequest) -> StoreRoute? {
        let path = request.path
        if path == Self.keysPath {
            return StoreRoute(endpoint: "onside.keys", template: "\(request.method) \(Self.keysPath)")
        }
        guard path.hasPrefix(Self.historyPath), let id = PercentCoding.decode(path.dropFirst(Self.historyPath.count))
        else { return nil }
        return StoreRoute(
            endpoint: "onside.history",
            template: "\(request.method) \(Self.historyPath){order}",
            subjects: [id.lowercased()]
        )
    }

    mutating func answer(_ request: StoreRequest, route: StoreRoute, nowMs: Int64) -> Reply {
        guard request.method == "GET" else { return .error(405, "method not allowed") }
        guard let id = route.subjects.first else {
            guard let set = try? keys.set() else { return .error(500, "no keys") }
            return Reply(status: 200, body: set)
        }
        if let fault = tokens.take(request.bearer, scenario, nowMs: nowMs) { return .error(401, fault) }
        let line = orders.values.filter { $0.id == id || $0.originalID == id }.sorted {
            $0.purchasedMs < $1.purchasedMs
        }
        guard let named = line.first(where: { $0.id == id }) ?? line.first else {
            return .error(404, "order not found")
        }
        orders[named.id]?.requests += 1
        guard !named.scenario.isForeign else { return .error(403, "not allowed") }
        guard named.requests >= named.scenario.visibleAfterRequests else { return .error(404, "order not found") }
        let all = orders.values.filter { $0.originalID == named.originalID }
        guard let text = try? sign(all, nowMs: nowMs) else { return .error(500, "no keys") }
        return .text(text, "application/jose")
    }

    /// The history that a device sends whose Onside account is that of one of our users.
    func history(account: String, nowMs: Int64) throws -> String {
        try sign(orders.values.filter { $0.scenario.shownBy == account }, nowMs: nowMs)
    }

    private func sign(_ orders: [OnsideOrder], nowMs: Int64) throws -> String {
        let fetchedMs = signing.fetched?.milliseconds(from: nowMs) ?? nowMs
        let payload = JSONBytes.object { json in
            json.array("transactions") { json in
                for order in orders.sorted(by: { ($0.purchasedMs, $0.id) < ($1.purchasedMs, $1.id) }) {
                    order.write(to: &json, bundleID: scenario.bundleID, fetchedMs: fetchedMs)
                }
            }
        }
        return try keys.sign(payload, signing.with)
    }

    /// The form of Onside's errors is not documented.
    func failure(status: Int, effect: FaultRule, nowMs: Int64) -> Reply {
        Reply.error(status, "injected").waiting(effect.backoffMs)
    }
}
