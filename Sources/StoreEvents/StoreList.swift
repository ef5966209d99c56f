package import Entitlements
package import Logging
import SignedTokens
package import StoreClients

/// What a store can list of what it sent, or would have.
package struct StoreList: Sendable {
    /// As runs' records have it.
    package var name: String
    package var source: Store
    /// How far back it goes.
    package var reach: Duration
    /// What is listed at a time, and not again once it was listed to its end; `nil`: all of it.
    package var window: Duration?
    /// Nothing is kept of purchases without a known owner.
    package var isOwned: Bool
    /// Reads what was sent between two instants, page by page, in the lane of sweeps.
    package var read: @Sendable (Instant, Instant, _ each: (Listings.Page) async throws -> Void) async throws -> Void

    package init(
        name: String,
        source: Store,
        reach: Duration,
        window: Duration? = nil,
        isOwned: Bool = false,
        read:
            @escaping @Sendable (Instant, Instant, _ each: (Listings.Page) async throws -> Void) async throws -> Void
    ) {
        self.name = name
        self.source = source
        self.reach = reach
        self.window = window
        self.isOwned = isOwned
        self.read = read
    }
}

extension StoreList {
    /// The App Store's notifications.
    ///
    /// - Parameters:
    ///   - client: asks for them.
    ///   - notifications: verifies them as those that are delivered.
    ///   - environment: whose.
    ///   - logger: hears of those that don't verify, by their fault alone.
    /// - Returns: a list of days.
    package static func notifications(
        _ client: AppStoreClient,
        understood notifications: AppStoreNotifications,
        in environment: AppStoreEnvironment,
        logger: Logger
    ) -> StoreList {
        let name = Store.appStore.rawValue + (environment == .production ? "" : "_" + environment.ledgerName)
        return StoreList(
            name: name,
            source: .appStore,
            reach: environment.notificationReach,
            window: .seconds(86_400)
        ) { start, end, each in
            try await client.notifications(
                // What ends a window begins the next, whether or not the App Store counts its edges in.
                from: start + .milliseconds(-1),
                until: end,
                onlyFailures: false,
                in: environment,
                lane: .sweep
            ) { texts in
                var page = Listings.Page(events: [])
                var codes: Set<ProofRefusal.Code> = []
                for text in texts {
                    do throws(ProofRefusal) {
                        let event = try await notifications.event(signed: text)
                        page.events.append(Inbox.Event(event, body: AppStoreNotifications.body(of: text)))
                    } catch {
                        page.refused += 1
                        codes.insert(error.code)
                    }
                }
                if page.refused > 0 {
                    logger.warning(
                        "listed notifications do not show that they are the store's",
                        metadata: [
                            "run.list": "\(name)", "event.count": "\(page.refused)",
                            "error.code": "\(codes.map(\.rawValue).sorted().joined(separator: ", "))",
                        ]
                    )
                }
                try await each(page)
            }
        }
    }

    /// Google Play's voided purchases, up to the moment of the asking.
    ///
    /// - Parameter client: asks for them.
    /// - Returns: a list that is read at once.
    package static func voided(_ client: GooglePlayClient) -> StoreList {
        StoreList(
            name: Store.googlePlay.rawValue,
            source: .googlePlay,
            reach: GooglePlayClient.voidedReach,
            isOwned: true
        ) { start, _, each in
            try await client.voided(since: start, lane: .sweep) { items in
                try await each(.init(events: items.map { Inbox.Event($0.event, body: $0.body) }))
            }
        }
    }
}

extension Inbox.Event {
    /// An event as the API keeps it.
    fileprivate init(_ event: StoreEvent, body: [UInt8]) {
        self.init(
            id: event.id,
            kind: event.kind,
            occurredAt: event.occurredAt,
            announcesAccess: event.announcesAccess,
            users: event.users,
            about: event.about,
            body: body
        )
    }
}
