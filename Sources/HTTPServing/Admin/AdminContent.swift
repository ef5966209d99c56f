package import Hummingbird
import Logging

/// What the admin address serves.
package struct AdminContent: Sendable {
    /// What machines ask; `nil`: nothing.
    private struct Figures: Sendable {
        /// The metrics as text, and its media type.
        var metrics: @Sendable () async -> String
        var metricsType: String
        /// Whether the process can do its work now.
        var isReady: @Sendable () async -> Bool
    }

    private let figures: Figures?
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
        figures = Figures(metrics: metrics, metricsType: metricsType, isReady: isReady)
        self.more = more
    }

    /// An address that serves routes of others, and no metrics.
    package init(routes: @escaping @Sendable (Router<AdminContext>) -> Void) {
        figures = nil
        more = routes
    }

    func router(_ hosts: AdminHosts, _ security: SecurityLog, _ logger: Logger) -> Router<AdminContext> {
        let router = Router(context: AdminContext.self)
        router.add(middleware: AdminHostCheck(hosts: hosts, security: security, logger: logger))
        if let figures {
            router.get("/metrics") { _, _ in
                Response(
                    status: .ok,
                    headers: [.contentType: figures.metricsType, .cacheControl: "no-store"],
                    body: .init(byteBuffer: .init(string: await figures.metrics()))
                )
            }
            router.get("/health/ready") { _, _ in
                await figures.isReady() ? HealthAnswer.ready : HealthAnswer.notReady
            }
        }
        router.get("/health/live") { _, _ in HealthAnswer.live }
        more?(router)
        return router
    }
}
