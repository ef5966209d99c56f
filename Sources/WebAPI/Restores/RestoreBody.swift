import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import TextFormats
import UserRequests

/// What an app sends with a tap on Restore Purchases.
struct RestoreBody: Decodable, Sendable {
    /// The longest body that is taken, in bytes: twenty signed transactions, or a receipt of many years.
    static let maximumBytes = 4 << 20
    /// What is read within a moment, in bytes.
    private static let momentBytes = 32 << 10

    /// Proofs as they are; what the kinds hold is checked where they are kept.
    struct Proof: Codable, Sendable {
        var store: String
        var kind: String
        var value: String
    }

    var proofs: [Proof]?
    var clientError: String?
    var productIDs: [String]?
    var origin: String?

    private enum CodingKeys: String, CodingKey {
        case proofs, origin
        case clientError = "client_error"
        case productIDs = "product_ids"
    }

    /// Reads a request.
    ///
    /// - Parameters:
    ///   - request: its body may be empty, as an app that has nothing to show sends it.
    ///   - body: the body, as it came.
    ///   - userID: whose the request is, by the token and nothing else.
    /// - Returns: what is asked for.
    /// - Throws: `Problem` that names the field.
    static func wish(in request: Request, _ body: ByteBuffer, of userID: String) async throws -> RestoreWish {
        let key = try AppHeaders.idempotencyKey(request)
        guard body.readableBytes > momentBytes else { return try wish(in: body, of: userID, key) }
        // Meanwhile the event loop is for others.
        return try await withTaskExecutorPreference(globalConcurrentExecutor) { try wish(in: body, of: userID, key) }
    }

    private static func wish(in buffer: ByteBuffer, of userID: String, _ key: String?) throws -> RestoreWish {
        let body = buffer.readableBytes == 0 ? RestoreBody() : try read(Data(buffer.readableBytesView))
        return RestoreWish(
            userID: userID,
            proofs: try json(body.proofs),
            clientError: body.clientError,
            productIDs: body.productIDs,
            idempotencyKey: key,
            origin: body.origin
        )
    }

    private init() {}

    private static func read(_ data: Data) throws(Problem) -> RestoreBody {
        let body: RestoreBody
        do { body = try BodyFault.decode(data) } catch { throw BodyFault.problem(error) }
        // PostgreSQL holds no such character; JSON does.
        let texts: [(String, String?)] =
            [("client_error", body.clientError), ("origin", body.origin)]
            + (body.productIDs ?? []).enumerated().map { ("product_ids[\($0)]", $1) }
            + (body.proofs ?? []).enumerated().flatMap { number, proof in
                [("store", proof.store), ("kind", proof.kind), ("value", proof.value)].map {
                    ("proofs[\(number)].\($0)", $1)
                }
            }
        for (field, text) in texts where text?.utf8.contains(0) == true {
            throw Problem(.invalidField, "\(field): holds the character U+0000", field: field)
        }
        return body
    }

    private static func json(_ proofs: [Proof]?) throws -> String {
        guard let proofs, !proofs.isEmpty else { return "[]" }
        let encoder = JSONEncoder()
        encoder.outputFormatting = .withoutEscapingSlashes
        return String(decoding: try encoder.encode(proofs), as: UTF8.self)
    }
}

/// Reads JSON bodies, and says which field of one is wrong.
enum BodyFault {
    /// Reads a body that every reader takes for the same thing: what stands in front of the API may have read it already.
    static func decode<Body: Decodable>(_ data: Data) throws -> Body {
        try StrictJSON.check(Array(data))
        return try JSONDecoder().decode(Body.self, from: data)
    }

    static func problem(_ error: any Error) -> Problem {
        if error as? StrictJSON.Fault == .duplicate {
            return Problem(.malformedBody, "the body has a member twice", fix: "Send each member once.")
        }
        if error is StrictJSON.Fault { return notJSON }
        guard let error = error as? DecodingError else { return Problem(.malformedBody) }
        switch error {
        case .typeMismatch(let type, let context):
            return invalid(context.codingPath, "must be \(name(of: type))")
        case .valueNotFound(let type, let context):
            return invalid(context.codingPath, "must be \(name(of: type)), not null")
        case .keyNotFound(let key, let context):
            return invalid(context.codingPath + [key], "is missing")
        case .dataCorrupted(let context) where !context.codingPath.isEmpty:
            return invalid(context.codingPath, "can't be read")
        default:
            return notJSON
        }
    }

    private static var notJSON: Problem {
        Problem(.malformedBody, "the body is not JSON", fix: "Send a JSON object, or no body at all.")
    }

    private static func invalid(_ path: [any CodingKey], _ problem: String) -> Problem {
        guard !path.isEmpty else {
            return Problem(.malformedBody, "the body \(problem)", fix: "Send a JSON object, or no body at all.")
        }
        let field = path.reduce("") { text, key in
            if let index = key.intValue { return "\(text)[\(index)]" }
            return text.isEmpty ? key.stringValue : "\(text).\(key.stringValue)"
        }
        return Problem(.invalidField, "\(field): \(problem)", field: field)
    }

    private static func name(of type: Any.Type) -> String {
        switch type {
        case is String.Type: "a string"
        case is [Any].Type, is [RestoreBody.Proof].Type, is [String].Type: "an array"
        default: "an object"
        }
    }
}
