package import FoundationEssentials

/// A `timestamptz` from 4713 BC to the year 294246; the server's later ones are a decoding error.
package struct PostgresTimestamp: Hashable, Comparable, Sendable, PostgresEncodable, PostgresDecodable {
    package var microsecondsSinceUnixEpoch: Int64

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
            // Only moments long before 4713 BC overflow; the server refuses the neighbour of -infinity by name.
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

extension Date: PostgresDecodable {
    /// Reads a `timestamptz`.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        self = try PostgresTimestamp(postgresBytes: postgresBytes, type: type).date
    }
}
