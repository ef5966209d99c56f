package import Entitlements
package import FoundationEssentials
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

/// A job's id as a person reads it out: thirty of its random bits as six signs, without I, L, O and U.
package enum JobReference {
    private static let signs = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ".utf8)

    /// Spells a reference, the same as `reference_of('R', id)` in the database, where it costs more than the read.
    package static func text(of id: UUID) -> String {
        let bytes = id.uuid
        let bits = [bytes.12, bytes.13, bytes.14, bytes.15].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        let spelled = (0..<6).map { signs[Int(bits >> (5 * (5 - $0)) & 31)] }
        return "R-" + String(decoding: spelled[..<4], as: UTF8.self) + "-"
            + String(decoding: spelled[4...], as: UTF8.self)
    }
}
