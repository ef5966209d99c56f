import Composition
import Foundation

/// A proof or claim as it is written on the command line: `[STORE:]KIND=VALUE` or `[STORE:]KIND=@FILE`.
struct ProofArgument: Encodable {
    var store: String
    var kind: String
    var value: String

    private static let stores = [
        "storekit_jws": "app_store", "app_receipt": "app_store", "transaction_id": "app_store",
        "purchase_token": "google_play", "order_id": "google_play", "onside_history": "onside",
        "onside_order_id": "onside",
    ]

    /// Reads one.
    ///
    /// - Parameters:
    ///   - argument: what was written.
    ///   - name: what faults call it.
    /// - Throws: `CommandFailure` that names the argument.
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
        guard let data = FileManager.default.contents(atPath: String(value.dropFirst())),
            let text = String(data: data, encoding: .utf8)
        else { throw CommandFailure(.data, "\(name): the file can't be read as UTF-8 text: \(value.dropFirst())") }
        value = text.trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Turns arguments into the JSON that `request_restore` takes.
    ///
    /// - Throws: `CommandFailure` that names the argument by its place.
    static func json(_ arguments: [String]) throws -> String {
        let proofs = try arguments.enumerated().map { index, argument in
            try ProofArgument(argument, name: "--proof \(index + 1)")
        }
        return String(decoding: try JSONEncoder().encode(proofs), as: UTF8.self)
    }
}
