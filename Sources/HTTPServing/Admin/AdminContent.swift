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
package enum Readiness: Equatable, Sendable {
    case ready
    /// The database does not answer, and requests wait for it: the answer is 200, so that a load balancer keeps this instance.
    case waiting
    case notReady
    /// Of several apps, each for itself: one that can't be served takes none of the others away.
    case apps([App])

    /// How one of several apps stands.
    package struct App: Equatable, Sendable {
        package var name: String
        /// Why it can't be served; `nil`: it can.
        package var trouble: String?
        /// Its requests wait, or are answered.
        package var isServed: Bool

        package init(name: String, trouble: String?, isServed: Bool) {
            self.name = name
            self.trouble = trouble
            self.isServed = isServed
        }
    }

    package var answer: Response {
        switch self {
        case .ready: .health("ready", .ok)
        case .waiting: .health("ready", .ok, "waiting for the database\n")
        case .notReady: .health("not ready", .serviceUnavailable)
        case .apps(let apps): Self.answer(apps)
        }
    }

    private static func answer(_ apps: [App]) -> Response {
        let troubles = apps.compactMap { app in app.trouble.map { "app \(app.name): \($0)\n" } }.joined()
        let isServed = apps.contains(where: \.isServed)
        return .health(isServed ? "ready" : "not ready", isServed ? .ok : .serviceUnavailable, troubles)
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
