extension OnsideSimulation {
    mutating func control(
        _ request: StoreRequest,
        _ path: Substring,
        _ query: Substring,
        nowMs: Int64
    ) throws -> Reply? {
        let rest = path.dropFirst("/control/onside/".count)
        if rest.hasPrefix("orders/"), let id = PercentCoding.decode(rest.dropFirst("orders/".count)) {
            return try control(order: id.lowercased(), request, nowMs: nowMs)
        }
        switch (request.method, rest) {
        case ("POST", "rotate"):
            let rotation: OnsideRotation = try request.decoded()
            keys.rotate(keepOld: rotation.keepsOld)
        case ("PUT", "signing"): signing = try request.decoded()
        case ("GET", "history"):
            guard let account = PercentCoding.value(of: "account", in: query) else {
                throw ScenarioError(keyPath: "account", message: "is missing; ask for history?account=UID")
            }
            var reply = Reply(status: 200, body: Array(try history(account: account, nowMs: nowMs).utf8))
            reply.contentType = "application/jose"
            return reply
        default: return nil
        }
        return Self.done
    }

    private mutating func control(order id: String, _ request: StoreRequest, nowMs: Int64) throws -> Reply? {
        switch request.method {
        case "PUT":
            var order: OnsideOrderScenario = try request.decoded()
            guard order.order.isEmpty || order.order.lowercased() == id else {
                throw ScenarioError(keyPath: "order", message: "differs from the path; leave it out")
            }
            order.order = id
            try put(order, nowMs: nowMs)
        case "DELETE":
            guard orders.removeValue(forKey: id) != nil else { return Self.failure(404, "no such order") }
        default: return Self.failure(405, "use PUT or DELETE")
        }
        return Self.done
    }

    /// Stores an order in place of the one with the same id.
    mutating func put(_ order: OnsideOrderScenario, nowMs: Int64) throws {
        let placed = try OnsideOrder(order, at: "", nowMs: nowMs)
        orders[placed.id] = placed
    }

    private static let done = Reply(status: 200, body: Array("{}".utf8))
}

/// The body of `POST /control/onside/rotate`.
private struct OnsideRotation: Decodable {
    var keepsOld: Bool

    enum CodingKeys: String, CodingKey, CaseIterable { case keepsOld = "keep_old" }

    init(from decoder: any Decoder) throws {
        keepsOld = try StrictFields<CodingKeys>(decoder).optional(.keepsOld) ?? true
    }
}

// The control endpoint without HTTP, for tests in the same process.
extension StoreSimulator {
    /// Stores an order of Onside in place of the one with the same id.
    ///
    /// - Throws: `ScenarioError` when an id is no UUID.
    package func put(_ order: OnsideOrderScenario) throws {
        try simulation.withState { try $0.onside.put(order, nowMs: $0.clock.nowMs) }
    }

    /// Puts a new key of Onside in the place of the one that signs.
    package func rotateOnsideKeys(keepOld: Bool) {
        simulation.withState { $0.onside.keys.rotate(keepOld: keepOld) }
    }

    /// Changes how Onside's answers are signed.
    package func signOnside(_ signing: OnsideSigning) {
        simulation.withState { $0.onside.signing = signing }
    }

    /// The signed history that a device would send whose Onside account holds the orders of one of our users.
    package func onsideHistory(account: String) throws -> String {
        try simulation.withState { try $0.onside.history(account: account, nowMs: $0.clock.nowMs) }
    }

    /// Onside's key set, as JSON.
    package func onsideKeySet() throws -> String {
        String(decoding: try simulation.withState { try $0.onside.keys.set() }, as: UTF8.self)
    }
}
