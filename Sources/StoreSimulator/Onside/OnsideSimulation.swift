/// The state of Onside.
struct OnsideSimulation: SimulatedStore {
    static let endpoints: [String] = []
    static let guide = """
        ONSIDE (onside: in a scenario)
        """

    init(_ scenario: OnsideScenario, nowMs: Int64) throws {}

    func route(_ request: StoreRequest) -> StoreRoute? { nil }

    mutating func answer(_ request: StoreRequest, route: StoreRoute, nowMs: Int64) -> Reply { Reply(status: 404) }

    func failure(status: Int, effect: FaultBook.Effect, nowMs: Int64) -> Reply { Reply(status: status) }

    mutating func control(_ request: StoreRequest, _ path: Substring, _ query: Substring, nowMs: Int64) throws -> Reply?
    {
        nil
    }
}
