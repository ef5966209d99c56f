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
        router.get("/health/live") { _, _ in HealthAnswer.live }
        router.get("/health/ready") { _, _ in await isReady() ? HealthAnswer.ready : HealthAnswer.notReady }
        return router
    }
}
