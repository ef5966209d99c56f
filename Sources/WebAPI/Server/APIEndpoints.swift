package import HTTPServing
import HTTPTypes
import Hummingbird
package import Logging
import NIOCore
package import SignedTokens
package import StoreEvents
import TextFormats
package import UserRequests

/// What the endpoints rely on that runs beside the server, and has to end after it.
package struct APIServices: Sendable {
    let requests: AppRequests
    package let statusHub: StatusHub
    package let restores: RestoreIntake
    package let events: EventIntake
}

extension APIServices {
    /// `databaseWait` is how long webhooks and restores wait for a database that is unavailable.
    ///
    /// `onArrivals` is called once restores have been queued, and where it is unknown whether they were.
    package init(
        requests: AppRequests,
        statusHub: StatusHub,
        inbox: Inbox,
        databaseWait: Duration = .zero,
        logger: Logger,
        onArrivals: @escaping @Sendable () -> Void
    ) {
        self.init(
            requests: requests,
            statusHub: statusHub,
            restores: RestoreIntake(requests: requests, databaseWait: databaseWait, onArrivals: onArrivals),
            events: EventIntake(inbox: inbox, databaseWait: databaseWait, logger: logger)
        )
    }

    /// Answers requests that wait for a restore's end or for the database.
    func stopWaiting() {
        statusHub.stop()
        restores.stopWaiting()
        events.stopWaiting()
    }
}

/// The API's endpoints; what is not configured is not there.
package struct APIEndpoints: Sendable {
    let services: APIServices
    let security = SecurityLog()
    private let tokens: AppTokens?
    private let messages: Messages
    private let senders: WebhookSenders
    private let perUser: RequestLimit?
    private let perAddress: RequestLimit?
    private let origins: [String]
    private let readiness: @Sendable () async -> Readiness
    private let logger: Logger

    /// Puts them together.
    ///
    /// Without `tokens` there are no endpoints for apps; `perUser` and `perAddress` are `nil` for no limit; `readiness`
    /// says whether requests can be served now; pages of `origins` may call what is for apps.
    package init(
        services: APIServices,
        tokens: AppTokens?,
        messages: Messages,
        senders: WebhookSenders,
        perUser: RequestLimit?,
        perAddress: RequestLimit?,
        origins: [String] = [],
        readiness: @escaping @Sendable () async -> Readiness,
        logger: Logger
    ) {
        self.services = services
        self.tokens = tokens
        self.messages = messages
        self.senders = senders
        self.perUser = perUser
        self.perAddress = perAddress
        self.origins = origins
        self.readiness = readiness
        self.logger = logger
    }

    /// The routes of what is configured.
    func router(within limits: APILimits) -> APIRouter {
        let perAddress = AddressLimit(limit: perAddress, proxies: limits.proxies)
        return APIRouter(
            routes: ProcessRoutes(readiness: readiness).all + app(limits.bodies) + webhooks(limits.bodies, perAddress),
            frame: RequestFrame(log: logger),
            inFlight: limits.inFlight,
            perAddress: perAddress,
            crossOrigin: CrossOrigin(origins: Set(origins))
        )
    }

    private func app(_ bodies: BodyBudget) -> [APIRouter.Route] {
        guard let tokens else { return [] }
        let users = UserAuthenticator(tokens: tokens, perUser: perUser, security: security)
        let requests = services.requests
        let restores = RestoreRoutes(
            users: users,
            services: services,
            messages: messages,
            security: security,
            bodies: bodies
        )
        let cases = CaseRoutes(users: users, requests: requests, messages: messages, bodies: bodies)
        let entitlement = EntitlementRoute(users: users, requests: requests, messages: messages)
        return [
            .init(method: .post, path: "/v1/restores", answer: restores.accept),
            .init(method: .get, path: "/v1/restores/{id}", answer: restores.status),
            .init(method: .get, path: "/v1/restores/{id}/events", answer: restores.events),
            .init(method: .get, path: "/v1/entitlement", answer: entitlement.show),
            .init(method: .get, path: "/v1/tickets", answer: cases.list),
            .init(method: .post, path: "/v1/tickets/{id}/replies", answer: cases.reply),
            .init(method: .post, path: "/v1/releases", answer: cases.release),
        ]
    }

    private func webhooks(_ bodies: BodyBudget, _ perAddress: AddressLimit) -> [APIRouter.Route] {
        let routes = WebhookRoutes(
            senders: senders,
            events: services.events,
            perAddress: perAddress,
            bodies: bodies,
            security: security
        )
        return [
            .init(method: .post, path: "/v1/webhooks/revenuecat", answer: routes.revenueCat),
            .init(method: .post, path: "/v1/webhooks/app-store", answer: routes.appStore),
            .init(method: .post, path: "/v1/webhooks/google-play", answer: routes.googlePlay),
        ]
    }
}

/// What one process has for all of its apps together.
struct APILimits: Sendable {
    let proxies: TrustedProxies
    let security: SecurityLog
    let bodies: BodyBudget
    let inFlight: InFlightLimit

    /// `most`: how many requests of one address may be under way at once.
    init(inFlight most: Int, proxies: TrustedProxies) {
        self.proxies = proxies
        security = SecurityLog()
        bodies = BodyBudget(security: security)
        inFlight = InFlightLimit(proxies: proxies, security: security, counts: ClientCounts(most: most))
    }
}

/// What a process answers whatever the app.
struct ProcessRoutes: Sendable {
    let readiness: @Sendable () async -> Readiness

    var all: [APIRouter.Route] {
        [
            .init(method: .get, path: "/openapi.json") { _, _ in OpenAPIRoute.answer },
            .init(method: .get, path: "/health/live") { _, _ in HealthAnswer.live },
            .init(method: .get, path: "/health/ready") { [readiness] _, _ in await readiness().answer },
        ]
    }
}

/// `GET /openapi.json`: what every route takes and answers, for those who write apps and for their tools.
enum OpenAPIRoute {
    private static let document = ByteBuffer(bytes: EmbeddedFiles.content("WebAPI/OpenAPI/openapi.json"))

    static var answer: Response {
        Response(
            status: .ok,
            headers: [.contentType: "application/json", .cacheControl: "public, max-age=3600"],
            body: .init(byteBuffer: document)
        )
    }
}
