import Composition
import Entitlements
import Foundation
import Postgres
import Queue
import Reports

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

    /// The end of what does not end by itself is written `never`.
    ///
    /// - Throws: `CommandFailure` that names the argument.
    init(end argument: String, name: String) throws {
        guard argument == "never" || argument == "infinity" else {
            self = try Moment(argument: argument, name: name)
            return
        }
        text = "infinity"
        timestamp = .infinity
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

/// A proof or claim as it is written on the command line: `[STORE:]KIND=VALUE` or `[STORE:]KIND=@FILE`.
struct ProofArgument: Encodable {
    var store: String
    var kind: String
    var value: String

    private static let stores = [
        "storekit_jws": "app_store", "app_receipt": "app_store", "app_transaction": "app_store",
        "transaction_id": "app_store",
        "purchase_token": "google_play", "order_id": "google_play", "onside_history": "onside",
        "onside_order_id": "onside",
    ]

    /// - Throws: `CommandFailure` that calls the argument by its name.
    init(_ argument: String, name: String) throws {
        guard let equals = argument.firstIndex(of: "=") else {
            throw CommandFailure(.data, "\(name): write [STORE:]KIND=VALUE or [STORE:]KIND=@FILE")
        }
        let words = argument[..<equals].split(separator: ":", maxSplits: 1).map(String.init)
        kind = words.last ?? ""
        guard let usual = Self.stores[kind] else {
            throw CommandFailure(
                .data,
                "\(name): unknown kind; use \(Self.stores.keys.sorted().joined(separator: ", "))"
            )
        }
        store = words.count == 2 ? words[0] : usual
        value = String(argument[argument.index(after: equals)...])
        guard value.hasPrefix("@") else { return }
        value = try textOfFile(String(value.dropFirst()), of: name).trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Turns arguments into the JSON that `request_restore` takes.
    static func json(_ arguments: [String]) throws -> String {
        let proofs = try arguments.enumerated().map { index, argument in
            try ProofArgument(argument, name: "--proof \(index + 1)")
        }
        return String(decoding: try JSONEncoder().encode(proofs), as: UTF8.self)
    }
}

/// A file's text.
///
/// - Throws: `CommandFailure` that names the argument and says why the file can't be read.
func textOfFile(_ path: String, of argument: String) throws -> String {
    guard let data = FileManager.default.contents(atPath: path) else {
        let why =
            FileManager.default.fileExists(atPath: path) ? "it is no file that this user may read" : "there is none"
        throw CommandFailure(.data, "\(argument): the file can't be read: \(why): \(PlainText.harmless(path))")
    }
    guard let text = String(data: data, encoding: .utf8) else {
        throw CommandFailure(
            .data,
            "\(argument): the file can't be read: it is no UTF-8 text: \(PlainText.harmless(path))"
        )
    }
    return text
}
