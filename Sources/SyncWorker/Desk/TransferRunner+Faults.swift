import FaultPoints

extension TransferRunner {
    #if FAULT_POINTS
        /// Lets a test's fault happen between two steps.
        func reach(_ point: FaultPoint) async { _ = await FaultPlan.reach(point) }
    #else
        @inline(__always)
        func reach(_ point: FaultPoint) async {}
    #endif
}
