import Testing

/// Waits for something that tells nobody when it has come.
func until(
    _ comment: Comment,
    within limit: Duration = .seconds(60),
    _ isSo: () async throws -> Bool
) async throws {
    let deadline = ContinuousClock.now + limit
    while try await !isSo() {
        try #require(ContinuousClock.now < deadline, comment)
        try await Task.sleep(for: .milliseconds(20))
    }
}
