import FaultPoints

extension PostgresConnection {
    #if FAULT_POINTS
        /// Lets a test's fault happen to this session.
        func reach(_ point: FaultPoint) async throws(PostgresError) {
            switch await FaultPlan.reach(point) {
            case nil: return
            case .drop:
                handle.close()
                throw PostgresError(.connectionLost, message: "a test tore the connection")
            case .error:
                throw PostgresError(.serverError, sqlState: "53000", message: "a test refuses this")
            }
        }
    #else
        @inline(__always)
        func reach(_ point: FaultPoint) async throws(PostgresError) {}
    #endif
}
