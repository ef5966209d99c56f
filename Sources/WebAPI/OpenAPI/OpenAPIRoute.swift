import HTTPTypes
import Hummingbird
import NIOCore

/// `GET /openapi.json`: what every route takes and answers, for those who write apps and for their tools.
enum OpenAPIRoute {
    private static let document = ByteBuffer(bytes: PackageResources.openapi_json)

    /// The document as it is shipped.
    static var answer: Response {
        Response(
            status: .ok,
            headers: [.contentType: "application/json", .cacheControl: "public, max-age=3600"],
            body: .init(byteBuffer: document)
        )
    }
}
