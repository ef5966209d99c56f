package import Entitlements
import FoundationEssentials
import Ledger
package import Postgres
import Queue
package import Reconciliation

/// Lines of imports, as workers take them.
package struct ImportLines: Sendable {
    private let pool: PostgresPool
    private let ignoresPause: Bool

    /// `ignoresPause`: in observe mode, which writes no users that a pause could protect.
    package init(pool: PostgresPool, ignoresPause: Bool) {
        self.pool = pool
        self.ignoresPause = ignoresPause
    }

    /// A line that was taken.
    ///
    /// `job` stands for its user in the reader and is in no queue.
    package struct Taken: Sendable {
        package var importID: Int64
        package var number: Int32
        /// How often it was taken; a later turn shuts this one out.
        package var turn: Int32
        /// How often it was tried in vain: its store gave no answer, or, by `lastError`, its user's row was locked.
        package var attempt: Int
        /// The code of what its last try came to; `nil`: it is the first.
        package var lastError: String?
        /// `nil`: the store has no such kind.
        package var name: NamedPurchase?
        /// An operator has approved the import: its planned lines are written.
        package var isPlanned: Bool
        /// `nil`: the user is unknown, or was erased since.
        package var job: ClaimedJob?
        /// The user's row is in use: the line waits.
        package var isHeld = false
        /// The database refuses what the line says of its user.
        package var isRefused = false
    }

    /// The result of a line, or when it is tried next.
    package struct Kept: Sendable {
        package var line: Taken
        /// `nil`: it is tried again after `wait`.
        package var result: ImportResult?
        /// A word that tells more, such as the code of a failure.
        package var detail: String?
        package var givesAccess: Bool?
        /// What the store calls the purchase.
        package var identifiers: [PurchaseIdentifier] = []
        package var attempt: Int
        package var wait = Duration.zero

        fileprivate var spellings: String {
            identifiers.map { "\($0.store) \($0.environment) \($0.value)" }.joined(separator: "\u{1f}")
        }

        package init(_ line: Taken, _ result: ImportResult?, detail: String? = nil) {
            self.line = line
            self.result = result
            self.detail = detail
            attempt = line.attempt
        }
    }

    /// Takes lines for this worker, all of one import; makes their users known to our records.
    package func take(upTo most: Int, epoch: Int32) async throws -> [Taken] {
        let tick = ContinuousClock.now
        typealias Row = (line: Taken, userID: String?, key: Int64?)
        let rows = try await pool.query(
            """
            SELECT t.import_id, t.number, t.turn, t.attempt, t.detail, t.user_id, t.user_key, t.store, t.kind, t.value, t.is_planned
              FROM entitlement_sync.take_import_lines(\(epoch), \(Int32(most)), \(ignoresPause)) AS t ORDER BY t.number
            """
        ).map { row -> Row in
            let (store, kind, value, attempt): (String?, String?, String?, Int32) = try (
                row["store"], row["kind"], row["value"], row["attempt"]
            )
            let line = try Taken(
                importID: row["import_id"],
                number: row["number"],
                turn: row["turn"],
                attempt: Int(attempt),
                lastError: row["detail"],
                name: store.flatMap(Store.init).flatMap { store in
                    kind.flatMap(NamedPurchase.Kind.init).flatMap { kind in
                        NamedPurchase(store: store, kind: kind, value: value ?? "")
                    }
                },
                isPlanned: row["is_planned"]
            )
            return try (line, row["user_id"], row["user_key"])
        }
        guard !rows.isEmpty else { return [] }
        do {
            return try await named(rows, at: tick)
        } catch {
            try? await Task { try await giveBack(rows.map(\.line), epoch: epoch) }.value
            throw error
        }
    }

    /// Finds the users of lines; by halves, which line the database refuses.
    private func named(
        _ rows: [(line: Taken, userID: String?, key: Int64?)],
        at tick: ContinuousClock.Instant
    ) async throws -> [Taken] {
        do { return try await found(rows, at: tick) } catch let error where spoilsBatch(error) {
            guard rows.count > 1 else {
                return rows.map { row in
                    var line = row.line
                    line.isRefused = true
                    return line
                }
            }
            let middle = rows.count / 2
            let first = try await named(Array(rows[..<middle]), at: tick)
            return first + (try await named(Array(rows[middle...]), at: tick))
        }
    }

    private func found(
        _ rows: [(line: Taken, userID: String?, key: Int64?)],
        at tick: ContinuousClock.Instant
    ) async throws -> [Taken] {
        let unmet = rows.filter { $0.key == nil }.compactMap(\.userID)
        var spelled: [ExactText: String] = [:]
        if !unmet.isEmpty {
            spelled = try await UserLookups(pool: pool).spellings(unmet.sortedExactly)
            let ids = spelled.values.sortedExactly
            if !ids.isEmpty { try await pool.query("SELECT entitlement_sync.meet_free(\(ids), true)") }
        }
        let keys = rows.compactMap(\.key)
        let ids = spelled.values.map(\.self)
        let known = try await pool.query(
            """
            SELECT u.user_key, u.user_id, entitlement_sync.new_id() AS id, clock_timestamp() AS at,
                   EXISTS (SELECT 1 FROM entitlement_sync.sandbox_access AS s
                            WHERE s.user_id = u.user_id AND s.until > now()) AS sandbox
              FROM entitlement_sync.user_sync AS u
             WHERE u.user_key = ANY (\(keys)) OR u.user_id = ANY (\(ids))
            """
        ).map { row in
            let at: Instant = try row["at"]
            return ClaimedJob(
                id: try row["id"],
                kind: .reconcile,
                lane: .sweep,
                due: at,
                userKey: try row["user_key"],
                userID: try row["user_id"],
                sandboxAllowed: try row["sandbox"],
                claimedAt: at,
                claimedTick: tick
            )
        }
        let byKey = Dictionary(known.map { ($0.userKey, $0) }) { first, _ in first }
        let byID = Dictionary(known.compactMap { job in job.userID.map { (ExactText($0), job) } }) { first, _ in first }
        return rows.map { row in
            var line = row.line
            if let key = row.key {
                line.job = byKey[key].flatMap { $0.userID == nil ? nil : $0 }
            } else if let id = row.userID.flatMap({ spelled[ExactText($0)] }) {
                line.job = byID[ExactText(id)]
                line.isHeld = line.job == nil
            }
            return line
        }
    }

    /// Locks lines of one import, and the import, until the caller's transaction ends; prolongs leases that are half over.
    ///
    /// - Returns: which are still this worker's, by place; none of an import that has ended.
    package static func hold(
        _ lines: [Taken],
        epoch: Int32,
        on connection: PostgresConnection
    ) async throws -> [Bool] {
        guard let id = lines.first?.importID else { return [] }
        let held = Set(
            try await connection.query(
                """
                SELECT h.number FROM entitlement_sync.hold_import_lines(
                           \(epoch), \(id), \(lines.map(\.number)), \(lines.map(\.turn))) AS h(number)
                """
            ).map { try $0.decode(Int32.self, at: 0) }
        )
        return lines.map { held.contains($0.number) }
    }

    /// Prolongs the leases of lines that are asked about; `false`: none of them is this worker's any more.
    package func prolong(_ lines: [Taken], epoch: Int32) async throws -> Bool {
        try await pool.withTransaction { try await Self.hold(lines, epoch: epoch, on: $0) }.contains(true)
    }

    /// Records results and next tries in the caller's transaction; lines that are not this worker's any more stay.
    package static func keep(_ kept: [Kept], epoch: Int32, on connection: PostgresConnection) async throws {
        guard !kept.isEmpty else { return }
        let waits = kept.map { $0.wait / .seconds(1) }
        try await connection.query(
            """
            SELECT entitlement_sync.keep_import_lines(
                       \(epoch), \(kept.map(\.line.importID)), \(kept.map(\.line.number)), \(kept.map(\.line.turn)),
                       \(kept.map { $0.line.job?.userKey }), \(kept.map { $0.result?.rawValue }), \(kept.map(\.detail)),
                       \(kept.map(\.givesAccess)), \(kept.map(\.spellings)), \(kept.map { Int32(clamping: $0.attempt) }),
                       \(waits))
            """
        )
    }

    /// Records results and next tries.
    package func keep(_ kept: [Kept], epoch: Int32) async throws {
        try await pool.withTransaction { try await Self.keep(kept, epoch: epoch, on: $0) }
    }

    /// Gives lines back at once.
    package func giveBack(_ lines: [Taken], epoch: Int32) async throws {
        try await keep(
            lines.map { line in
                Kept(line, nil, detail: line.lastError)
            },
            epoch: epoch
        )
    }

    /// Ends the stage of each import whose lines are all done; returns how many.
    package func settle() async throws -> Int {
        Int(try await pool.query("SELECT entitlement_sync.settle_imports()").one.decode(Int32.self))
    }
}
