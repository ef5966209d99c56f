package import Hummingbird
import Logging

/// What the admin address serves.
package struct AdminContent: Sendable {
    /// The metrics as text, and its media type.
    private let metrics: @Sendable () async -> String
    private let metricsType: String
    /// Whether the process can do its work now.
    private let isReady: @Sendable () async -> Bool
    private let more: (@Sendable (Router<AdminContext>) -> Void)?

    /// Describes the content.
    ///
    /// - Parameters:
    ///   - metrics: the metrics in the Prometheus text format; asked for at every request.
    ///   - metricsType: the media type of `metrics`.
    ///   - isReady: whether the process can do its work now; asked for at every request.
    ///   - more: adds routes of others.
    package init(
        metrics: @escaping @Sendable () async -> String,
        metricsType: String,
        isReady: @escaping @Sendable () async -> Bool,
        more: (@Sendable (Router<AdminContext>) -> Void)? = nil
    ) {
        self.metrics = metrics
        self.metricsType = metricsType
        self.isReady = isReady
        self.more = more
    }

    func router(_ hosts: AdminHosts, _ security: SecurityLog, _ logger: Logger) -> Router<AdminContext> {
        let router = Router(context: AdminContext.self)
        router.add(middleware: AdminHostCheck(hosts: hosts, security: security, logger: logger))
        router.get("/metrics") { _, _ in
            Response(
                status: .ok,
                headers: [.contentType: metricsType, .cacheControl: "no-store"],
                body: .init(byteBuffer: .init(string: await metrics()))
            )
        }
        router.get("/health/live") { _, _ in HealthAnswer.live }
        router.get("/health/ready") { _, _ in await isReady() ? HealthAnswer.ready : HealthAnswer.notReady }
        more?(router)
        return router
    }
}
