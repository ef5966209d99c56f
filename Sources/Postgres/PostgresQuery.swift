/// A statement with its parameters.
///
/// ```swift
/// try await pool.query("SELECT type FROM users WHERE id = ANY (\(ids))")
/// ```
///
/// Whatever is interpolated becomes a parameter (`$1`), never SQL text; only `\(rawSQL:)` splices text, and only
/// trusted text may go there. The statement is prepared and remembered by its text, so text that changes with every
/// call is a waste.
package struct PostgresQuery: ExpressibleByStringInterpolation, Sendable {
    /// The statement, with `$n` for parameters.
    package let sql: String
    /// The parameters, `$1` first.
    package let binds: [PostgresBind]

    /// Takes a statement that is complete text.
    package init(stringLiteral value: String) {
        sql = value
        binds = []
    }

    package init(stringInterpolation: StringInterpolation) {
        sql = stringInterpolation.sql
        binds = stringInterpolation.binds
    }

    /// Takes statement text from elsewhere, such as a file, with `$n` where the parameters go.
    package init(rawSQL: String, binds: [PostgresBind] = []) {
        sql = rawSQL
        self.binds = binds
    }

    /// Collects text and parameters.
    package struct StringInterpolation: StringInterpolationProtocol {
        fileprivate var sql = ""
        fileprivate var binds: [PostgresBind] = []

        package init(literalCapacity: Int, interpolationCount: Int) {
            sql.reserveCapacity(literalCapacity + interpolationCount * 4)
            binds.reserveCapacity(interpolationCount)
        }

        package mutating func appendLiteral(_ literal: String) { sql += literal }

        /// Adds a parameter.
        package mutating func appendInterpolation(_ value: some PostgresEncodable) {
            binds.append(PostgresBind(value))
            sql += "$\(binds.count)"
        }

        /// Adds a value, or NULL, as the next parameter.
        package mutating func appendInterpolation<Value: PostgresEncodable>(_ value: Value?) {
            binds.append(PostgresBind(value))
            sql += "$\(binds.count)"
        }

        /// Splices trusted SQL text.
        package mutating func appendInterpolation(rawSQL text: String) { sql += text }
    }
}

extension PostgresQuery: CustomStringConvertible, CustomDebugStringConvertible {
    package var description: String { sql }
    package var debugDescription: String { "\(sql) \(binds)" }
}
