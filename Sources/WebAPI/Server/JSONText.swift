import Foundation
import HTTPTypes
import Hummingbird
import NIOCore

/// JSON as it is sent: keys in order, so that equal answers are equal bytes.
enum JSONText {
    /// Encodes a value.
    static func buffer(_ value: some Encodable) -> ByteBuffer {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Our own answers hold texts and finite numbers alone: nothing that can't be written.
        guard let data = try? encoder.encode(value) else { return ByteBuffer(string: "{}") }
        return ByteBuffer(bytes: data)
    }

    /// An answer.
    static func response(_ status: HTTPResponse.Status, _ value: some Encodable, headers: HTTPFields = [:]) -> Response
    {
        var headers = headers
        headers[.contentType] = "application/json"
        return Response(status: status, headers: headers, body: .init(byteBuffer: buffer(value)))
    }
}
