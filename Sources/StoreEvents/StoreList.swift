import Entitlements
package import Logging
import SignedTokens
package import StoreClients

/// What a store can list of what it sent, or would have.
package struct StoreList: Sendable {
    /// As runs' records have it.
    package var name: String
    var source: Store
    /// Whether a key that it refuses is the one for purchases that count.
    var isMain = true
    /// How far back it goes.
    var reach: Duration
    /// What is listed at a time, and not again once it was listed to its end; `nil`: all of it.
    var window: Duration?
    /// Nothing is kept of purchases without a known owner.
    var isOwned = false
    /// Reads what was sent between two instants, page by page, in the lane of sweeps.
    var read: @Sendable (Instant, Instant, _ each: (Listings.Page) async throws -> Void) async throws -> Void
}

extension StoreList {
    /// The App Store's notifications by the day, verified as those that are delivered.
    ///
    /// `suffix`: tells the lists of several apps apart; `logger`: gets the faults of those that don't verify.
    package static func notifications(
        _ client: AppStoreClient,
        understood notifications: AppStoreNotifications,
        in environment: AppStoreEnvironment,
        suffix: String = "",
        logger: Logger
    ) -> StoreList {
        let name = Store.appStore.rawValue + (environment == .production ? "" : "_" + environment.ledgerName) + suffix
        return StoreList(
            name: name,
            source: .appStore,
            // A sandbox alone may be closed to keys that are right.
            isMain: environment == .production,
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
                        page.events.append(Inbox.Event(keeping: event, body: AppStoreNotifications.body(of: text)))
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

    /// Google Play's voided purchases up to now, in one go.
    ///
    /// `suffix`: tells the lists of several apps apart.
    package static func voided(_ client: GooglePlayClient, suffix: String = "") -> StoreList {
        let app = suffix.isEmpty ? nil : client.packageName
        return StoreList(
            name: Store.googlePlay.rawValue + suffix,
            source: .googlePlay,
            reach: GooglePlayClient.voidedReach,
            isOwned: true
        ) { start, _, each in
            try await client.voided(since: start, lane: .sweep) { items in
                try await each(.init(events: items.map { Inbox.Event(keeping: $0.event(in: app), body: $0.body) }))
            }
        }
    }
}
