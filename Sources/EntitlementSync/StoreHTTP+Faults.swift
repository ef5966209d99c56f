import FaultPoints
import HTTPTypes
import StoreClients

extension StoreHTTP {
    #if FAULT_POINTS
        /// The same, with a test's faults around each request.
        var withFaults: StoreHTTP {
            StoreHTTP { request, body throws(StoreHTTPFailure) in
                guard await FaultPlan.reach(.storeBefore) == nil else { throw StoreHTTPFailure(.unavailable) }
                let response = try await send(request, body)
                guard await FaultPlan.reach(.storeAfter) == nil else { throw StoreHTTPFailure(.unavailable) }
                return response
            }
        }
    #else
        var withFaults: StoreHTTP { self }
    #endif
}
