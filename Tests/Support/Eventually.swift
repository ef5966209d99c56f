package import Testing

/// Waits until something is so, for what nothing signals; fails the test once the time is over.
///
/// `saying` adds to that failure: a log, or what a program printed.
package func eventually(
    _ comment: Comment = "waited too long",
    within limit: Duration = .seconds(60),
    sourceLocation: SourceLocation = #_sourceLocation,
    _ isSo: () async throws -> Bool,
    saying: () async -> String = { "" }
) async throws {
    let deadline = ContinuousClock.now + limit
    while try await !isSo() {
        if ContinuousClock.now >= deadline {
            let more = await saying()
            try #require(Bool(false), "\(comment) \(more)", sourceLocation: sourceLocation)
        }
        try await Task.sleep(for: .milliseconds(5))
    }
}

/// The same for a value, which is there as soon as it is not nil; `failure` is thrown once the time is over.
func eventually<Value>(
    within limit: Duration,
    _ attempt: () async throws -> Value?,
    otherwise failure: () async -> any Error
) async throws -> Value {
    let deadline = ContinuousClock.now + limit
    while true {
        if let value = try await attempt() { return value }
        guard ContinuousClock.now < deadline else { throw await failure() }
        try await Task.sleep(for: .milliseconds(20))
    }
}
