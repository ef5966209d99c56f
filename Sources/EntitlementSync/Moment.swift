import Foundation
import Postgres

/// An instant as it is typed: ISO 8601 with or without a time; a day alone means its beginning in UTC.
struct Moment {
    var text: String
    var timestamp: PostgresTimestamp

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
