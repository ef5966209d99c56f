import Foundation
import HTTPTypes
import Hummingbird
import NIOCore

/// A JSON body of a few fields.
enum SmallBody {
    /// The longest body that is taken, in bytes: 2000 characters, each escaped.
    static let maximumBytes = 32 << 10

    /// Reads a body.
    ///
    /// - Parameters:
    ///   - request: of which.
    ///   - userID: whose.
    ///   - bodies: whose memory it takes.
    ///   - context: names the request.
    ///   - fix: what to send instead of what is no such body.
    /// - Returns: what was sent.
    /// - Throws: `Problem` that names the field; whatever keeps the body from being read.
    static func read<Body: Decodable & Sendable>(
        _ request: Request,
        of userID: String,
        within bodies: BodyBudget,
        _ context: APIContext,
        fix: String
    ) async throws -> Body {
        try AppHeaders.checkType(request)
        let body = try await bodies.read(request, upTo: maximumBytes, from: .user(userID), context)
        defer { body.giveBack() }
        do { return try BodyFault.decode(Data(body.bytes.readableBytesView)) } catch {
            var problem = BodyFault.problem(error)
            if problem.kind == .malformedBody { problem.fix = fix }
            throw problem
        }
    }

    /// Checks texts by their fields' names: PostgreSQL does not hold every character that JSON does.
    static func check(_ texts: KeyValuePairs<String, String?>) throws(Problem) {
        for (field, text) in texts where text?.utf8.contains(0) == true {
            throw Problem(.invalidField, "\(field): holds the character U+0000", field: field)
        }
    }
}
