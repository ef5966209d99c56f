import HTTPTypes
import Hummingbird

/// What the admin address serves.
package struct AdminContent: Sendable {
    /// The metrics as text, and its media type.
    private let metrics: @Sendable () async -> String
    private let metricsType: String
    /// Whether the process can do its work now.
    private let isReady: @Sendable () async -> Bool

    /// Describes the content.
    ///
    /// - Parameters:
    ///   - metrics: the metrics in the Prometheus text format; asked for at every request.
    ///   - metricsType: the media type of `metrics`.
    ///   - isReady: whether the process can do its work now; asked for at every request.
    package init(
        metrics: @escaping @Sendable () async -> String,
        metricsType: String,
        isReady: @escaping @Sendable () async -> Bool
    ) {
        self.metrics = metrics
        self.metricsType = metricsType
        self.isReady = isReady
    }

    func router() -> Router<BasicRequestContext> {
        let router = Router()
        router.get("/metrics") { _, _ in
            Response(
                status: .ok,
                headers: [.contentType: metricsType, .cacheControl: "no-store"],
                body: .init(byteBuffer: .init(string: await metrics()))
            )
        }
        router.get("/health/live") { _, _ in text("live\n", .ok) }
        router.get("/health/ready") { _, _ in
            await isReady() ? text("ready\n", .ok) : text("not ready\n", .serviceUnavailable)
        }
        return router
    }

    private func text(_ body: String, _ status: HTTPResponse.Status) -> Response {
        Response(
            status: status,
            headers: [.contentType: "text/plain; charset=utf-8", .cacheControl: "no-store"],
            body: .init(byteBuffer: .init(string: body))
        )
    }
}
