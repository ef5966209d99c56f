import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import TextFormats

/// JSON as it is sent: keys in order, so that equal answers are equal bytes.
enum JSONText {
    static func buffer(_ value: some Encodable) -> ByteBuffer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Our own answers hold texts and finite numbers alone: nothing that can't be written.
        guard let data = try? encoder.encode(value) else { return ByteBuffer(string: "{}") }
        return ByteBuffer(bytes: data)
    }

    /// An answer with texts in a language.
    static func response(
        _ status: HTTPResponse.Status,
        _ value: some Encodable,
        in language: String,
        location: String? = nil
    ) -> Response {
        var headers: HTTPFields = [
            .contentType: "application/json", .contentLanguage: language, .vary: "Accept-Language",
        ]
        headers[.location] = location
        return Response(status: status, headers: headers, body: .init(byteBuffer: buffer(value)))
    }
}

/// A member that is sent as null where nothing is known, and not left out.
@propertyWrapper struct OrNull<Value: Encodable & Sendable>: Encodable, Sendable {
    var wrappedValue: Value?

    init(wrappedValue: Value?) { self.wrappedValue = wrappedValue }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(wrappedValue)
    }
}

/// Headers that apps send with what they ask for.
enum AppHeaders {
    static let longestKey = 255

    /// Checks that a body, if it says what it is, is JSON.
    static func checkType(_ request: Request) throws(Problem) {
        guard let type = request.headers[.contentType] else { return }
        let essence = type.prefix { $0 != ";" }.trimmingCharacters(in: .whitespaces).lowercased()
        guard essence == "application/json" else {
            throw Problem(.unsupportedMediaType, field: "Content-Type", fix: "Send application/json.")
        }
    }

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

extension BodyBudget {
    /// The longest JSON object of a few fields that is taken, in bytes: 2000 characters, each escaped.
    static let fewFieldsBytes = 32 << 10

    /// Reads a user's JSON object of a few fields, of which one is `needed`.
    ///
    /// - Throws: `Problem` that names the field; what else keeps the body from being read.
    func fields<Fields: Decodable & Sendable>(
        of request: Request,
        from userID: String,
        needed: String,
        _ context: APIContext
    ) async throws -> Fields {
        try AppHeaders.checkType(request)
        let body = try await read(request, upTo: Self.fewFieldsBytes, from: .user(userID), context)
        defer { body.giveBack() }
        do { return try BodyFault.decode(Data(body.bytes.readableBytesView)) } catch {
            var problem = BodyFault.problem(error)
            if problem.kind == .malformedBody { problem.fix = "Send a JSON object with \(needed)." }
            throw problem
        }
    }
}

/// Reads JSON bodies, and says which field of one is wrong.
enum BodyFault {
    /// Reads a body that every reader takes for the same thing: what stands in front of the API may have read it already.
    static func decode<Body: Decodable>(_ data: Data) throws -> Body {
        try StrictJSON.check(Array(data))
        return try JSONDecoder().decode(Body.self, from: data)
    }

    /// Checks texts by their fields' names: PostgreSQL does not hold every character that JSON does.
    static func check(_ texts: [(field: String, text: String?)]) throws(Problem) {
        for (field, text) in texts where text?.utf8.contains(0) == true {
            throw Problem(.invalidField, "\(field): holds the character U+0000", field: field)
        }
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
