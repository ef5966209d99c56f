internal import Foundation
internal import NIOCore

extension StoreRequest {
    /// The body of a control request; an empty one counts as an object without members.
    ///
    /// - Throws: `ScenarioError` that names the key at fault.
    func decoded<Body: Decodable>() throws -> Body {
        let bytes = Data(body.readableBytesView)
        do {
            return try JSONDecoder().decode(Body.self, from: bytes.isEmpty ? Data("{}".utf8) : bytes)
        } catch let error as DecodingError {
            throw ScenarioError(error)
        }
    }
}
