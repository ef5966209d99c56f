import Foundation
import TestSupport
import Testing

/// What of the faults is in the program.
struct FaultTraceTests {
    #if FAULT_POINTS
        private static let isExpected = true
    #else
        private static let isExpected = false
    #endif

    @Test("Fault points are in builds for tests, and no trace of them in builds for use")
    func trace() throws {
        let program = try Data(contentsOf: URL(fileURLWithPath: Paths.program), options: .alwaysMapped)
        for text in ["ENTITLEMENT_SYNC_FAULTS", "FAULT_POINT_OWN_VALUES", "commit.lost_answer", "transfer.called"] {
            #expect((program.range(of: Data(text.utf8)) != nil) == Self.isExpected, "\(text)")
        }
    }
}
