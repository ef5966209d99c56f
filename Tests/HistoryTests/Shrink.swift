/// Leaves out steps of a failing history as long as it fails in the same way.
struct Shrink {
    let lane: Lane
    private static let tries = 150

    /// The history's shortest form, in words.
    func tell(_ history: History, _ failure: Failed) async -> String {
        var steps = history.steps
        var last = failure
        var left = Self.tries
        var size = max(1, steps.count / 2)
        while size >= 1, left > 0 {
            var place = 0
            var hasShrunk = false
            while place < steps.count, left > 0 {
                var shorter = steps
                shorter.removeSubrange(place..<min(place + size, steps.count))
                left -= 1
                let (_, failure) = await Histories.attempt(history.setup, shorter, lane)
                if let failure, failure.kind == last.kind {
                    steps = shorter
                    last = failure
                    hasShrunk = true
                } else {
                    place += size
                }
            }
            guard !hasShrunk || size > 1 else { continue }
            size /= 2
        }
        let list = steps.enumerated().map { "  \($0.offset + 1). \($0.element)" }.joined(separator: "\n")
        return "ENTITLEMENT_SYNC_TEST_SEED=\(history.seed)\n\(history.setup.description)\n\(list)\n\(last.text)"
    }
}
