import FaultPoints
package import Postgres
package import Transport

extension HTTPClient {
    #if FAULT_POINTS
        /// This client, with a test's faults around each request.
        package var withFaults: HTTPClient {
            HTTPClient { request, body throws(HTTPClientFailure) in
                guard await FaultPlan.reach(.storeBefore) == nil else { throw HTTPClientFailure(.unavailable) }
                let response = try await send(request, body)
                guard await FaultPlan.reach(.storeAfter) == nil else { throw HTTPClientFailure(.unavailable) }
                return response
            }
        }
    #else
        package var withFaults: HTTPClient { self }
    #endif
}

extension PostgresConfiguration {
    #if FAULT_POINTS
        /// This configuration, with a test's faults in each session.
        package var withFaults: PostgresConfiguration {
            var configuration = self
            configuration.hook = { moment in
                switch await FaultPlan.reach(FaultPoint(moment)) {
                case .drop: .drop
                case .error: .refuse
                case nil: nil
                }
            }
            return configuration
        }
    #else
        package var withFaults: PostgresConfiguration { self }
    #endif
}

#if FAULT_POINTS
    extension FaultPoint {
        fileprivate init(_ moment: SessionMoment) {
            self =
                switch moment {
                case .statementBefore: .statementBefore
                case .statementAfter: .statementAfter
                case .commitBefore: .commitBefore
                case .commitLostAnswer: .commitLostAnswer
                case .commitAfter: .commitAfter
                }
        }
    }
#endif
