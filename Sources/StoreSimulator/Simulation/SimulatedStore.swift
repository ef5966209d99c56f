/// A store of the simulation that is asked directly.
///
/// Its answers are pure steps that never wait; delays and broken answers are the faults' business.
protocol SimulatedStore: Sendable {
    /// Short names of its endpoints, for fault rules, each beginning with the store's name and a dot.
    static var endpoints: [String] { get }

    /// How to write its part of a scenario and how to steer it.
    static var guide: String { get }

    /// Understands a request by method and path.
    ///
    /// - Returns: `nil` where the path is none of this store's.
    func route(_ request: StoreRequest) -> StoreRoute?

    /// Answers a request.
    mutating func answer(_ request: StoreRequest, route: StoreRoute, nowMs: Int64) -> Reply

    /// The error object that the store sends with a status that a fault rule asks for.
    func failure(status: Int, effect: FaultRule, nowMs: Int64) -> Reply

    /// Answers a request below the store's part of the control endpoint; `path` is what follows that.
    ///
    /// - Returns: `nil` where there is no such path.
    /// - Throws: `ScenarioError` for a fault in the request.
    mutating func control(_ request: StoreRequest, _ path: Substring, nowMs: Int64) throws -> Reply?
}

/// A request's path, understood.
struct StoreRoute: Sendable {
    /// The endpoint's short name.
    var endpoint: String
    /// Method and path template, as `GET /control/requests` counts them.
    var template: String
    /// Ids in the path, decoded; fault rules match them as customers.
    var subjects: [String] = []
}
