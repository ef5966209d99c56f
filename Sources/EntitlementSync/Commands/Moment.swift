import Composition
import Entitlements
import Foundation
import Postgres
import Queue

/// An instant as it is typed: ISO 8601 with or without a time; a day alone means its beginning in UTC.
struct Moment {
    var text: String
    var timestamp: PostgresTimestamp

    /// The last instant that is written alike: what is shown to the millisecond was some microseconds later.
    var last: PostgresTimestamp {
        guard let digits = text.firstMatch(of: /\.([0-9]+)/)?.1.count, digits < 6 else { return timestamp }
        let unit = (digits..<6).reduce(Int64(1)) { unit, _ in unit * 10 }
        return (Instant(timestamp) + .microseconds(unit - 1)).timestamp
    }

    /// - Throws: `CommandFailure` that names the argument.
    init(argument: String, name: String) throws {
        let full = argument.count == 10 ? argument + "T00:00:00Z" : argument
        let fractional = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
        guard let date = (try? Date(full, strategy: .iso8601)) ?? (try? Date(full, strategy: fractional)) else {
            throw CommandFailure(.data, "\(name): write an instant such as 2027-01-31 or 2027-01-31T12:00:00Z")
        }
        text = full
        timestamp = PostgresTimestamp(date)
    }
}
