import Composition
import Foundation
import Postgres
import Queue

/// How long it takes until all assets of a user who has many are unfrozen, and how long that keeps others waiting.
struct BenchAssets {
    let database: BenchDatabase
    /// Runs a worker until it is idle.
    let work: @Sendable () async throws -> Void

    private static let assets = 100_000
    private static let user = "many-1"

    func measure() async throws -> [BenchMeasurement] {
        try await database.load(1, prefix: "many-", assets: Self.assets)
        let waiting = Task { try await longestWait() }
        let elapsed = try await cleaningUp({ waiting.cancel() }) {
            try await ContinuousClock().measure { try await work() }
        }
        let (waited, reads) = try await waiting.value
        let frozen = try await database.number(
            "SELECT count(*) FROM assets AS a WHERE a.user_id = \(Self.user) AND a.frozen_reasons <> '{}'"
        )
        guard frozen == 0, reads > 10 else {
            throw CommandFailure(.software, "\(frozen) assets are frozen still, after \(reads) reads")
        }
        return [
            BenchMeasurement("assets_100k_unfrozen", elapsed.milliseconds / 1000, "s", below: 60),
            BenchMeasurement("assets_lock_held", waited, "ms", below: 50),
        ]
    }

    /// The longest wait of another session for the user's row, or for the assets that change just now, in milliseconds.
    private func longestWait() async throws -> (Double, reads: Int) {
        let clock = ContinuousClock()
        var (longest, reads) = (0.0, 0)
        // Batches go by id: what lies before is done, and a scan of it would be counted as waiting.
        var last: Int64 = 0
        while !Task.isCancelled {
            let started = clock.now
            // All locks that a batch may hold: the host's own writes wait for them.
            do {
                last = try await database.pool.withTransaction { [last] connection in
                    // Ten of many by their order, or the query itself would take long.
                    try await connection.query("SET LOCAL enable_sort = off")
                    try await connection.query("SET LOCAL enable_bitmapscan = off")
                    return try await connection.query(
                        """
                        WITH one AS MATERIALIZED (SELECT u.id FROM users AS u WHERE u.id = \(Self.user) FOR NO KEY UPDATE),
                             held AS MATERIALIZED (
                                SELECT a.id FROM assets AS a
                                 WHERE a.id > \(last) AND a.user_id = (SELECT one.id FROM one) AND a.frozen_reasons <> '{}'
                                 ORDER BY a.user_id, a.id LIMIT 10 FOR UPDATE)
                        SELECT min(h.id) - 1 FROM held AS h
                        """
                    ).first?.decode(Int64?.self, at: 0) ?? last
                }
            } catch let error as PostgresError where error.code == .cancelled { break }
            longest = max(longest, (clock.now - started).milliseconds)
            reads += 1
            try? await Task.sleep(for: .milliseconds(2))
        }
        return (longest, reads)
    }
}
