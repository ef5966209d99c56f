package import Entitlements
package import FoundationEssentials
package import Postgres
import Queue

/// An import, and how far it is.
package struct ImportRecord: Sendable, Hashable {
    package enum State: String, Sendable, CaseIterable {
        /// Workers ask the stores about its lines.
        case asking
        /// Every line has its answer, and nothing is written before an operator has approved it.
        case ready
        /// What was planned is asked again, and written.
        case applying
        case done, canceled

        /// Whether workers are at it.
        package var isOpen: Bool { self == .asking || self == .applying }
    }

    package var id: Int64
    package var state: State
    package var isDry: Bool
    package var lines: Int32
    /// The operator who requested the import, or the person at the terminal as the system names them.
    package var askedBy: String
    /// When it was requested.
    package var askedAt: Date
    package var approvedBy: String?
    package var endedAt: Date?
    /// What an operator approves, in hexadecimal digits.
    package var hash: String?
    /// How many lines have which result; lines that wait are left out.
    package var results: [ImportResult: Int64] = [:]
    /// How many of the lines that are planned or imported mean access now.
    package var accesses: Int64 = 0

    /// How many lines still wait: for their answers, or to be written.
    package var left: Int64 {
        state == .applying ? results[.planned] ?? 0 : Int64(lines) - results.values.reduce(0, +)
    }

    package var conflicts: Int64 { results.filter { $0.key.isConflict }.values.reduce(0, +) }
}

/// Imports as operators request and read them.
package struct ImportRecords: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    /// Lines that are sent to the database at once.
    private static let chunk = 5_000

    /// Begins the import of a file, or goes on with the one that was begun with the same file.
    ///
    /// `session`: the digest of the operator's session; `nil`: the schema's owner imports, or it is a dry run. Throws
    /// `PostgresError`, SQLSTATE `ES009` where that is not allowed.
    package func ask(
        _ file: ImportFile,
        isDry: Bool,
        session: [UInt8]?,
        by asker: String
    ) async throws -> (id: Int64, isNew: Bool) {
        try await pool.withTransaction { connection in
            let (id, isNew) = try await connection.query(
                """
                SELECT a.id, a.is_new
                  FROM entitlement_sync.ask_import(\(session.map(PostgresBytes.init)), \(PostgresBytes(file.digest)),
                                                   \(isDry), \(asker)) AS a
                """
            ).one.decode(Int64.self, Bool.self)
            guard isNew else { return (id, false) }
            var file = file
            while case let lines = file.lines(upTo: Self.chunk), !lines.isEmpty {
                try await connection.query(
                    """
                    SELECT entitlement_sync.add_import_lines(
                               \(id), \(lines.map(\.number)), \(lines.map(\.userID)), \(lines.map(\.store)),
                               \(lines.map(\.kind)), \(lines.map(\.value)),
                               \(lines.map(\.ended?.rawValue)), \(lines.map { $0.fault?.rawValue ?? $0.first.map(String.init) }))
                    """
                )
            }
            return (id, true)
        }
    }

    /// Has what was planned written, by its hash.
    ///
    /// - Returns: `false`: there is no import of this number that is ready.
    /// - Throws: `PostgresError`: SQLSTATE `ES009` where the operator may not, `ES007` where the sign-in is too old, `22023` where the
    ///   hash differs or the answers are too old.
    package func release(_ id: Int64, hash: String, session: [UInt8]?, by asker: String) async throws -> Bool {
        try await pool.query(
            """
            SELECT entitlement_sync.approve_import(\(session.map(PostgresBytes.init)), \(id), decode(\(hash), 'hex'), \(asker))
            """
        ).one.decode(Bool.self)
    }

    /// Ends an import: what is written stays.
    ///
    /// Returns `false` if it has ended.
    package func cancel(_ id: Int64) async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.cancel_import(\(id))").one.decode(Bool.self)
    }

    private static let columns = """
        i.id, i.state, i.is_dry, i.lines, i.asked_by, i.asked_at, i.approved_by, i.ended_at, encode(i.hash, 'hex') AS hash
        """

    /// The newest imports first.
    package func list(limit: Int32 = 50) async throws -> [ImportRecord] {
        let rows = try await pool.query(
            "SELECT \(rawSQL: Self.columns) FROM entitlement_sync.import AS i ORDER BY i.id DESC LIMIT \(limit)"
        )
        var records: [ImportRecord] = []
        for row in rows { records.append(try await counted(try Self.record(row))) }
        return records
    }

    /// One import.
    package func record(_ id: Int64) async throws -> ImportRecord? {
        let row = try await pool.query(
            "SELECT \(rawSQL: Self.columns) FROM entitlement_sync.import AS i WHERE i.id = \(id)"
        ).first
        guard let row else { return nil }
        return try await counted(try Self.record(row))
    }

    private static func record(_ row: PostgresRow) throws -> ImportRecord {
        guard let state = ImportRecord.State(rawValue: try row["state"]) else {
            throw PostgresError(.decoding, message: "an import in a state that this version does not know")
        }
        var record = try ImportRecord(
            id: row["id"],
            state: state,
            isDry: row["is_dry"],
            lines: row["lines"],
            askedBy: row["asked_by"],
            askedAt: row["asked_at"]
        )
        record.approvedBy = try row["approved_by"]
        record.endedAt = try row["ended_at"]
        record.hash = try row["hash"]
        return record
    }

    private func counted(_ record: ImportRecord) async throws -> ImportRecord {
        var record = record
        for row in try await pool.query(
            """
            SELECT l.result, count(*), count(*) FILTER (WHERE l.gives_access AND l.result IN ('planned', 'imported'))
              FROM entitlement_sync.import_line AS l WHERE l.import_id = \(record.id) AND l.result IS NOT NULL GROUP BY 1
            """
        ) {
            let (word, count, accesses) = try row.decode(String.self, Int64.self, Int64.self)
            guard let result = ImportResult(rawValue: word) else { continue }
            record.results[result] = count
            record.accesses += accesses
        }
        return record
    }

    /// A line and what became of it; its value stands in the file alone.
    package struct Line: Sendable, Hashable {
        package var number: Int32
        /// `nil`: it could not be read, or the account was erased since.
        package var userID: String?
        package var store: String?
        package var kind: String?
        /// `nil`: it waits.
        package var result: String?
        package var detail: String?
        package var givesAccess: Bool?
    }

    /// Hands out all lines of an import in the file's order, a few thousand at a time.
    package func eachLine(of id: Int64, _ body: ([Line]) throws -> Void) async throws {
        var last: Int32 = 0
        while true {
            let lines = try await pool.query(
                """
                SELECT l.number, coalesce(l.user_id, u.user_id), l.store, l.kind, l.result, l.detail, l.gives_access
                  FROM entitlement_sync.import_line AS l
                  LEFT JOIN entitlement_sync.user_sync AS u ON u.user_key = l.user_key
                 WHERE l.import_id = \(id) AND l.number > \(last) ORDER BY l.number LIMIT \(Int32(Self.chunk))
                """
            ).map { try $0.decode(into: Line.init(number:userID:store:kind:result:detail:givesAccess:)) }
            guard let next = lines.last?.number else { return }
            try body(lines)
            last = next
        }
    }
}

extension ImportFile.Line {
    /// The result that it has without a store's answer.
    fileprivate var ended: ImportResult? { fault != nil ? .malformed : first != nil ? .repeated : nil }
}
