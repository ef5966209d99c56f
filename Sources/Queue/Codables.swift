package import Entitlements
package import Postgres

extension Instant {
    /// The instant as a `timestamptz` parameter.
    package var timestamp: PostgresTimestamp { PostgresTimestamp(microsecondsSinceUnixEpoch: microseconds) }

    package init(_ timestamp: PostgresTimestamp) { self.init(microseconds: timestamp.microsecondsSinceUnixEpoch) }
}

extension Instant: PostgresDecodable {
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        self.init(try PostgresTimestamp(postgresBytes: postgresBytes, type: type))
    }
}

extension Duration {
    /// Whole microseconds.
    package var microseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds * 1_000_000 + attoseconds / 1_000_000_000_000
    }
}
