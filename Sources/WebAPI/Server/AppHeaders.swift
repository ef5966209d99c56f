import Foundation
import HTTPTypes
import Hummingbird

/// Headers that apps send with what they ask for.
enum AppHeaders {
    /// An idempotency key in characters.
    static let longestKey = 255

    /// Checks that a body, if it says what it is, is JSON.
    static func checkType(_ request: Request) throws(Problem) {
        guard let type = request.headers[.contentType] else { return }
        let essence = type.prefix { $0 != ";" }.trimmingCharacters(in: .whitespaces).lowercased()
        guard essence == "application/json" else {
            throw Problem(.unsupportedMediaType, field: "Content-Type", fix: "Send application/json.")
        }
    }

    /// The request's key, where there is one.
    static func idempotencyKey(_ request: Request) throws(Problem) -> String? {
        guard let name = HTTPField.Name("Idempotency-Key"), let key = request.headers[name] else { return nil }
        guard (1...longestKey).contains(key.utf8.count), key.utf8.allSatisfy({ (0x20...0x7E).contains($0) }) else {
            throw Problem(
                .invalidField,
                "Idempotency-Key: must have 1 to \(longestKey) printable ASCII characters",
                field: "Idempotency-Key",
                fix: "Use a random id, such as a UUID."
            )
        }
        return key
    }
}
