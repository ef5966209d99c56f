import HTTPServing
import HTTPTypes
import Hummingbird
package import Logging
package import SignedTokens
package import UserRequests

/// What stands behind the API's routes; what is not configured is not there.
package struct APIDoors: Sendable {
    let watch: RestoreWatch
    private let requests: AppRequests
    private let tokens: AppTokens?
    private let messages: Messages
    private let senders: WebhookSenders
    private let restores: RestoreIntake
    private let intake: EventIntake
    private let perUser: RequestLimit?
    private let perAddress: CallerLimit?
    private let addresses: ClientAddresses
    private let isReady: @Sendable () async -> Bool
    let security = SecurityLog()
    private let logger: Logger

    /// Puts them together.
    ///
    /// - Parameters:
    ///   - requests: the database's side of what apps ask for.
    ///   - watch: has to run beside the server, and to end after it.
    ///   - tokens: tells users by their tokens; `nil`: apps have no door here.
    ///   - messages: what people read.
    ///   - senders: the stores whose webhooks are taken.
    ///   - restores: takes what apps ask for; likewise.
    ///   - intake: keeps stores' events; has to run beside the server, and to end after it.
    ///   - perUser: the limit by user; `nil` for none.
    ///   - perAddress: the limit by address; `nil` for none.
    ///   - addresses: tells from which address a request comes.
    ///   - isReady: whether requests can be served now.
    ///   - logger: hears of requests and of who is refused.
    package init(
        requests: AppRequests,
        watch: RestoreWatch,
        tokens: AppTokens?,
        messages: Messages,
        senders: WebhookSenders,
        restores: RestoreIntake,
        intake: EventIntake,
        perUser: RequestLimit?,
        perAddress: CallerLimit?,
        addresses: ClientAddresses,
        isReady: @escaping @Sendable () async -> Bool,
        logger: Logger
    ) {
        self.logger = logger
        self.requests = requests
        self.watch = watch
        self.tokens = tokens
        self.messages = messages
        self.senders = senders
        self.restores = restores
        self.intake = intake
        self.perUser = perUser
        self.perAddress = perAddress
        self.addresses = addresses
        self.isReady = isReady
    }

    /// The routes of what is configured.
    ///
    /// - Parameter most: how many requests of one address may be under way at once.
    /// - Returns: the routes.
    func router(inFlight most: Int) -> APIRouter {
        let bodies = BodyBudget(security: security)
        return APIRouter(
            routes: health + document + app(bodies) + webhooks(bodies),
            frame: RequestFrame(log: logger),
            inFlight: InFlightLimit(most: most, addresses: addresses, security: security),
            perAddress: AddressLimit(limit: perAddress) { $0.hasPrefix("/health/") || $0.hasPrefix("/v1/webhooks/") }
        )
    }

    private func app(_ bodies: BodyBudget) -> [APIRouter.Route] {
        guard let tokens else { return [] }
        let callers = Callers(tokens: tokens, perUser: perUser, security: security)
        let restores = RestoreRoutes(
            callers: callers,
            requests: requests,
            intake: self.restores,
            watch: watch,
            messages: messages,
            security: security,
            bodies: bodies
        )
        let cases = CaseRoutes(callers: callers, requests: requests, messages: messages, bodies: bodies)
        let entitlement = EntitlementRoute(callers: callers, requests: requests, messages: messages)
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

    private func webhooks(_ bodies: BodyBudget) -> [APIRouter.Route] {
        let routes = WebhookRoutes(
            senders: senders,
            intake: intake,
            perAddress: perAddress,
            addresses: addresses,
            bodies: bodies,
            security: security
        )
        return [
            .init(method: .post, path: "/v1/webhooks/revenuecat", answer: routes.revenueCat),
            .init(method: .post, path: "/v1/webhooks/app-store", answer: routes.appStore),
            .init(method: .post, path: "/v1/webhooks/google-play", answer: routes.googlePlay),
        ]
    }

    private var document: [APIRouter.Route] {
        [.init(method: .get, path: "/openapi.json") { _, _ in OpenAPIRoute.answer }]
    }

    private var health: [APIRouter.Route] {
        [
            .init(method: .get, path: "/health/live") { _, _ in HealthAnswer.live },
            .init(method: .get, path: "/health/ready") { [isReady] _, _ in
                await isReady() ? HealthAnswer.ready : HealthAnswer.notReady
            },
        ]
    }
}
