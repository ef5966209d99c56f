import HTTPTypes
package import Hummingbird

/// What a process says of its health, on either address.
package enum HealthAnswer {
    package static var live: Response { text("live\n", .ok) }
    package static var ready: Response { text("ready\n", .ok) }
    package static var notReady: Response { text("not ready\n", .serviceUnavailable) }

    private static func text(_ body: String, _ status: HTTPResponse.Status) -> Response {
        Response(
            status: status,
            headers: [.contentType: "text/plain; charset=utf-8", .cacheControl: "no-store"],
            body: .init(byteBuffer: .init(string: body))
        )
    }
}
