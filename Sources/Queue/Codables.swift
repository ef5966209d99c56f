package import Entitlements
package import Postgres

/// An instant is read from a `timestamptz`.
extension Instant: PostgresDecodable {
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        self.init(try PostgresTimestamp(postgresBytes: postgresBytes, type: type))
    }

    /// The instant as a `timestamptz` parameter.
    package var timestamp: PostgresTimestamp { PostgresTimestamp(microsecondsSinceUnixEpoch: microseconds) }

    package init(_ timestamp: PostgresTimestamp) { self.init(microseconds: timestamp.microsecondsSinceUnixEpoch) }
}

extension Duration {
    /// Whole microseconds.
    package var microseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds * 1_000_000 + attoseconds / 1_000_000_000_000
    }
}
