import HTTPTypes
package import Hummingbird
import Logging
package import NIOCore
import Telemetry

/// What the admin address serves.
package struct AdminContent: Sendable {
    private let routes: @Sendable (Router<AdminContext>) -> Void

    /// Content with metrics and readiness, which are asked for at every request; `more` adds routes of others.
    package init(
        metrics: @escaping @Sendable () async -> String,
        metricsType: String,
        readiness: @escaping @Sendable () async -> Readiness,
        more: (@Sendable (Router<AdminContext>) -> Void)? = nil
    ) {
        routes = { router in
            router.get("/metrics") { _, _ in
                Response(
                    status: .ok,
                    headers: [.contentType: metricsType, .cacheControl: "no-store"],
                    body: .init(byteBuffer: .init(string: await metrics()))
                )
            }
            router.get("/health/ready") { _, _ in await readiness().answer }
            more?(router)
        }
    }

    /// An address that serves routes of others, and no metrics.
    package init(routes: @escaping @Sendable (Router<AdminContext>) -> Void) { self.routes = routes }

    func router(_ hosts: AdminHosts, _ security: SecurityLog, _ logger: Logger) -> Router<AdminContext> {
        let router = Router(context: AdminContext.self, options: .autoGenerateHeadEndpoints)
        router.add(middleware: AdminHostCheck(hosts: hosts, security: security, logger: logger))
        router.get("/health/live") { _, _ in HealthAnswer.live }
        routes(router)
        return router
    }
}

/// What is known of a request to the admin address beside what it says.
package struct AdminContext: RequestContext {
    package var coreContext: CoreRequestContextStorage
    /// The address at the other end of the connection.
    package let peer: SocketAddress?

    package init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        peer = source.channel.remoteAddress
    }
}

/// What a process says of its health, on either address.
package enum HealthAnswer {
    package static var live: Response { .health("live", .ok) }
}

/// Whether requests can be served.
package enum Readiness: Sendable {
    case ready
    /// The database does not answer, and requests wait for it: the answer is 200, so that a load balancer keeps this instance.
    case waiting
    case notReady

    package var answer: Response {
        switch self {
        case .ready: .health("ready", .ok)
        case .waiting: .health("ready", .ok, "waiting for the database\n")
        case .notReady: .health("not ready", .serviceUnavailable)
        }
    }
}

extension Response {
    /// A word on the first line, the program's version on the second, then what else there is to say.
    fileprivate static func health(_ word: String, _ status: HTTPResponse.Status, _ more: String = "") -> Response {
        plainText("\(word)\nversion \(Build.version)\n\(more)", status)
    }

    static func plainText(_ body: String, _ status: HTTPResponse.Status) -> Response {
        Response(
            status: status,
            headers: [.contentType: "text/plain; charset=utf-8", .cacheControl: "no-store"],
            body: .init(byteBuffer: .init(string: body))
        )
    }
}
