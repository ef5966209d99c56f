import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
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

    /// Reads a request of the user that its token names; the body may be empty, as an app that has no proof sends it.
    ///
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
        let texts: [(field: String, text: String?)] =
            [("client_error", body.clientError), ("origin", body.origin)]
            + (body.productIDs ?? []).enumerated().map { ("product_ids[\($0)]", $1) }
            + (body.proofs ?? []).enumerated().flatMap { number, proof in
                [("store", proof.store), ("kind", proof.kind), ("value", proof.value)].map {
                    ("proofs[\(number)].\($0)", $1)
                }
            }
        try BodyFault.check(texts)
        return body
    }

    private static func json(_ proofs: [Proof]?) throws -> String {
        guard let proofs, !proofs.isEmpty else { return "[]" }
        let encoder = JSONEncoder()
        encoder.outputFormatting = .withoutEscapingSlashes
        return String(decoding: try encoder.encode(proofs), as: UTF8.self)
    }
}
