import Entitlements
import HTTPServing
import HTTPTypes
import Hummingbird
import Logging
import SignedTokens
package import StoreEvents

/// Whose webhooks are taken, and how their senders show who they are.
package struct WebhookSenders: Sendable {
    /// One for each project.
    package var revenueCat: [RevenueCatWebhooks]
    package var appStore: AppStoreNotifications?
    /// One for each way in which a token shows its sender, with the packages whose notifications come by it.
    package var googlePlay: [(tokens: PushTokens, packages: Set<String>)] = []

    package init(revenueCat: [RevenueCatWebhooks] = [], appStore: AppStoreNotifications? = nil) {
        self.revenueCat = revenueCat
        self.appStore = appStore
    }
}

/// What the stores send.
///
/// Every answer but 200 makes a store send again: 401 for a sender that is not verified, 400 for what no store sends,
/// 503 where an event can't be kept.
struct WebhookRoutes: Sendable {
    /// The longest body that is taken, in bytes, of a sender that was verified before it.
    static let maximumBytes = 1 << 20
    /// The longest body that is taken of a sender that only the body verifies; a notification has a few thousand bytes.
    static let maximumUnknownBytes = 128 << 10

    let senders: WebhookSenders
    let events: EventIntake
    let perAddress: AddressLimit
    let bodies: BodyBudget
    let security: SecurityLog

    func revenueCat(_ request: Request, _ context: APIContext) async throws -> Response {
        guard !senders.revenueCat.isEmpty else { throw Problem(.notFound) }
        do {
            let candidates = try senders.revenueCat.candidates(request.headers)
            let taken = try await body(of: request, isStrangers: !candidates.areShownByHeaders, context)
            defer { taken.giveBack() }
            let body = Array(taken.bytes.readableBytesView)
            try candidates.check(body)
            return try await keep(RevenueCatEvent.read(body), taken, context)
        } catch let refusal as WebhookRefusal {
            throw await refuse("revenuecat", refusal.rawValue, request, context)
        }
    }

    func appStore(_ request: Request, _ context: APIContext) async throws -> Response {
        guard let sender = senders.appStore else { throw Problem(.notFound) }
        let taken = try await body(of: request, upTo: Self.maximumUnknownBytes, isStrangers: true, context)
        defer { taken.giveBack() }
        let body = Array(taken.bytes.readableBytesView)
        let event: StoreEvent
        do throws(AppStoreNotifications.Refusal) { event = try await sender.event(body) } catch {
            switch error {
            case .untrusted(let code): throw await refuse("app_store", code.rawValue, request, context)
            // It is not verified: a sender of such bodies has to wait after a few.
            case .malformed(let fault): throw await charge(request, context) ?? Problem(fault)
            }
        }
        return try await keep(event, taken, context)
    }

    func googlePlay(_ request: Request, _ context: APIContext) async throws -> Response {
        guard !senders.googlePlay.isEmpty else { throw Problem(.notFound) }
        guard let token = request.headers[.authorization].flatMap(UserAuthenticator.bearer) else {
            throw await refuse("google_play", "missing", request, context)
        }
        let packages: Set<String>
        do throws(TokenFailure) { packages = try await self.packages(shownBy: token) } catch {
            switch error {
            case .refused(let refusal): throw await refuse("google_play", refusal.rawValue, request, context)
            case .unread: throw Problem(.unavailable, retryAfterSeconds: 10)
            }
        }
        let taken = try await body(of: request, isStrangers: false, context)
        defer { taken.giveBack() }
        let body = Array(taken.bytes.readableBytesView)
        let isOnly = senders.googlePlay.map(\.packages.count).reduce(0, +) == 1
        return try await keep(PlayNotification.read(body, packages: packages, isOnly: isOnly), taken, context)
    }

    /// The packages whose notifications a token's sender brings; throws what the first sender's check found, where none is its.
    private func packages(shownBy token: String) async throws(TokenFailure) -> Set<String> {
        var failure: TokenFailure?
        for sender in senders.googlePlay {
            do throws(TokenFailure) {
                try await sender.tokens.check(token)
                return sender.packages
            } catch {
                // Without keys it is not known whose it is.
                if case .unread = error { failure = error }
                failure = failure ?? error
            }
        }
        throw failure ?? .refused(.wrongAudience)
    }

    /// Keeps an event of a store that has shown who it is.
    ///
    /// From here on it counts neither for its address nor in the body budget: what the intake holds has its own limit.
    private func keep(_ event: StoreEvent, _ taken: BodyBudget.Body, _ context: APIContext) async throws -> Response {
        let body = Array(taken.bytes.readableBytesView)
        context.place?.giveBack()
        taken.giveBack()
        guard await events.accept(event, body: body, since: context.arrival) else {
            throw Problem(.unavailable, retryAfterSeconds: 30)
        }
        APIMetrics.accept(event.source.rawValue)
        context.logger.debug("an event was accepted", metadata: ["event.source": "\(event.source.rawValue)"])
        return Response(status: .ok)
    }

    private func refuse(_ endpoint: String, _ reason: String, _ request: Request, _ context: APIContext) async
        -> Problem
    {
        security.refused(endpoint, reason, context)
        return await charge(request, context)
            ?? Problem(.unauthenticated, "the request does not show that it comes from the store")
    }

    /// Counts a request that is not a store's; stores are never counted.
    ///
    /// - Returns: what to answer where the address has used up its minute.
    private func charge(_ request: Request, _ context: APIContext) async -> Problem? {
        do throws(Problem) {
            try await perAddress.count(request, context)
            return nil
        } catch { return error }
    }

    private func body(
        of request: Request,
        upTo limit: Int = maximumBytes,
        isStrangers: Bool,
        _ context: APIContext
    ) async throws -> BodyBudget.Body {
        let sender: BodyBudget.Sender =
            isStrangers ? .stranger(perAddress.proxies.client(of: request, context)) : .store
        return try await bodies.read(request, upTo: limit, from: sender, context)
    }
}

extension Problem {
    init(_ fault: MalformedEvent) {
        self.init(.malformedBody, "the body is no event of this store's: \(fault.reason)")
    }
}
