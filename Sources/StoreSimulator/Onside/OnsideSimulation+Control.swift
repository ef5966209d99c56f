extension OnsideSimulation {
    mutating func control(_ request: StoreRequest, _ path: Substring, nowMs: Int64) throws -> Reply? {
        if path.hasPrefix("orders/"), let id = PercentCoding.decode(path.dropFirst("orders/".count)) {
            return try control(order: id.lowercased(), request, nowMs: nowMs)
        }
        switch (request.method, path) {
        case ("POST", "rotate"):
            let rotation: OnsideRotation = try request.decoded()
            keys.rotate(publishing: rotation.keepsOld ? .both : .new)
        case ("PUT", "signing"): signing = try request.decoded()
        case ("GET", "history"):
            guard let account = PercentCoding.value(of: "account", in: request.query) else {
                throw ScenarioError(keyPath: "account", message: "is missing; ask for history?account=UID")
            }
            return .text(try history(account: account, nowMs: nowMs), "application/jose")
        default: return nil
        }
        return .done
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
            guard orders.removeValue(forKey: id) != nil else { return .error(404, "no such order") }
        default: return .error(405, "use PUT or DELETE")
        }
        return .done
    }

    /// Stores an order in place of the one with the same id.
    mutating func put(_ order: OnsideOrderScenario, nowMs: Int64) throws {
        let placed = try OnsideOrder(order, at: "", nowMs: nowMs)
        orders[placed.id] = placed
    }
}

/// The body of `POST /control/onside/rotate`.
private struct OnsideRotation: ScenarioObject {
    var keepsOld = true

    static let fields: [ScenarioField<Self>] = [.value("keep_old", \.keepsOld)]
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
        simulation.withState { $0.onside.keys.rotate(publishing: keepOld ? .both : .new) }
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
