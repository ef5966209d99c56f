import Metrics

/// What is counted of every session, made once and after the program chose where metrics go.
enum PostgresMetrics {
    /// Time of COMMIT alone: what the server's disk and its standbys cost.
    static let commitTime = Timer(label: "entitlement_sync_commit_duration_seconds")
}
