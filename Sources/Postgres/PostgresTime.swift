package import FoundationEssentials

/// A moment; `timestamptz`.
///
/// Reaches from 4713 BC to the year 294246. Later years, which the server knows up to 294276, do not fit and are a
/// decoding error.
package struct PostgresTimestamp: Hashable, Comparable, Sendable, PostgresEncodable, PostgresDecodable {
    /// Microseconds since 1970-01-01 00:00 UTC.
    package var microsecondsSinceUnixEpoch: Int64

    /// Names a moment.
    package init(microsecondsSinceUnixEpoch: Int64) { self.microsecondsSinceUnixEpoch = microsecondsSinceUnixEpoch }

    /// Names a moment to the nearest microsecond; what is too far away becomes an infinity.
    package init(_ date: Date) {
        microsecondsSinceUnixEpoch =
            Int64(exactly: (date.timeIntervalSince1970 * 1_000_000).rounded())
            ?? (date.timeIntervalSince1970 < 0 ? Int64.min : Int64.max)
    }

    /// The server's `infinity`, after every moment.
    package static let infinity = PostgresTimestamp(microsecondsSinceUnixEpoch: .max)
    /// The server's `-infinity`, before every moment.
    package static let negativeInfinity = PostgresTimestamp(microsecondsSinceUnixEpoch: .min)

    /// The moment as Foundation has it; exact to the microsecond for the next centuries.
    package var date: Date { Date(timeIntervalSince1970: Double(microsecondsSinceUnixEpoch) / 1_000_000) }

    package static func < (left: Self, right: Self) -> Bool {
        left.microsecondsSinceUnixEpoch < right.microsecondsSinceUnixEpoch
    }

    package static var postgresType: PostgresType { .timestamptz }

    /// Microseconds from the Unix epoch to the server's, 2000-01-01.
    private static let epochDistance: Int64 = 946_684_800_000_000

    package func encode(into bytes: inout [UInt8]) {
        switch self {
        case .infinity, .negativeInfinity:
            bytes.appendBigEndian(microsecondsSinceUnixEpoch)
        default:
            let (value, overflow) = microsecondsSinceUnixEpoch.subtractingReportingOverflow(Self.epochDistance)
            // Only moments ages before 4713 BC overflow; the neighbour of -infinity makes the server refuse them by
            // name.
            bytes.appendBigEndian(overflow ? Int64.min + 1 : value)
        }
    }

    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard type == .timestamptz, let value = postgresBytes.whole(Int64.self) else {
            throw Self.mismatch(type, postgresBytes)
        }
        guard value != .max, value != .min else {
            microsecondsSinceUnixEpoch = value
            return
        }
        let (unix, overflow) = value.addingReportingOverflow(Self.epochDistance)
        guard !overflow else { throw PostgresError(.decoding, message: "the moment is after the year 294246") }
        microsecondsSinceUnixEpoch = unix
    }
}

/// A fixed span of time; `interval` without months.
package struct PostgresInterval: Hashable, Sendable, PostgresEncodable, PostgresDecodable {
    /// The length in microseconds.
    package var microseconds: Int64

    /// Names a span by its length.
    package init(microseconds: Int64) { self.microseconds = microseconds }

    /// Names a span, cut to whole microseconds.
    package init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        microseconds = seconds * 1_000_000 + attoseconds / 1_000_000_000_000
    }

    package static var postgresType: PostgresType { .interval }

    package func encode(into bytes: inout [UInt8]) {
        bytes.appendBigEndian(microseconds)
        bytes.appendBigEndian(Int32(0))
        bytes.appendBigEndian(Int32(0))
    }

    /// Reads an interval, counting its days as 24 hours; one with months has no fixed length and is a decoding error.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard type == .interval, postgresBytes.count == 16 else { throw Self.mismatch(type, postgresBytes) }
        guard postgresBytes.bigEndian(at: 12, as: Int32.self) == 0 else {
            throw PostgresError(.decoding, message: "an interval with months has no fixed length")
        }
        let days = Int64(postgresBytes.bigEndian(at: 8, as: Int32.self))
        let (total, overflow) = postgresBytes.bigEndian(at: 0, as: Int64.self)
            .addingReportingOverflow(days * 86_400_000_000)
        guard !overflow else { throw PostgresError(.decoding, message: "the interval is too long") }
        microseconds = total
    }
}
