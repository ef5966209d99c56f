import Entitlements
@testable import StoreClients
import Telemetry
import Testing

@Suite struct LogThrottleTests {
    @Test func `One line a second for each kind of failure, with a count of the rest`() {
        let throttle = LogThrottle<ReadFailure.Code>()
        let start = ContinuousClock.now
        #expect(throttle.leave(for: .unauthorized, at: start) == 0)
        #expect(throttle.leave(for: .malformed, at: start) == 0)
        for _ in 1...5 { #expect(throttle.leave(for: .unauthorized, at: start + .milliseconds(999)) == nil) }
        #expect(throttle.leave(for: .unauthorized, at: start + .seconds(1)) == 5)
        #expect(throttle.leave(for: .unauthorized, at: start + .seconds(2)) == 0)
    }
}
