import Configuring
package import Diagnostics
import Entitlements
package import Postgres
import SignedTokens
import StoreClients
import StoreEvents
import Transport

/// Test events of the stores, from their request to our inbox: what `doctor --test-events` finds.
package struct TestEvents {
    private let runtime: Runtime
    private let pool: PostgresPool

    package init(_ runtime: Runtime, pool: PostgresPool) {
        self.runtime = runtime
        self.pool = pool
    }

    /// Asks each store that sends test events on request for one, and says how the others' are sent.
    ///
    /// - Parameter limit: how long to wait for each.
    /// - Returns: a finding for each store, and for the App Store for each environment.
    package func checks(within limit: Duration) async -> [Check] {
        var checks = await appStore(within: limit)
        if runtime.config.api.webhooks.takesRevenueCat {
            checks.append(
                .passed(
                    "test_events.revenuecat",
                    "not tested: RevenueCat sends test events from its dashboard alone (the project's Integrations, Webhooks,"
                        + " this webhook, Send test event). Then see events.revenuecat"
                )
            )
        }
        if !runtime.config.api.webhooks.push.isEmpty {
            checks.append(
                .passed(
                    "test_events.google_play",
                    "not tested: Google Play sends test events from the Play Console alone (the app's Monetization setup,"
                        + " Real-time developer notifications, Send test notification). Then see events.google_play"
                )
            )
        }
        return checks.isEmpty ? [.passed("test_events", "no store is configured that sends events")] : checks
    }

    private func appStore(within limit: Duration) async -> [Check] {
        let config = runtime.config
        guard config.appStore.isAsked, let settings = try? StoreSettings(config) else { return [] }
        let apps = config.appStore.apps
        let proofs = AppStoreProofs(
            roots: settings.transactionRoots,
            expected: AppStoreProofs.Expectation(bundleIDs: apps.map(\.bundleID))
        )
        let understood = AppStoreNotifications(
            proofs: proofs,
            apps: apps.map { .init(bundleID: $0.bundleID, appID: $0.appID) }
        )
        let transport = HTTPTransport(configuration: HTTPTransportConfiguration(), logger: runtime.logger)
        let http = HTTPClient(transport: transport, target: Store.appStore.rawValue)
        var checks: [Check] = []
        for (configuration, app) in zip(settings.appStore, apps.filter { $0.access != nil }) {
            let client = AppStoreClient(
                configuration: configuration,
                proofs: proofs,
                http: http,
                gate: { _, _ in .open },
                logger: runtime.logger
            )
            for environment in AppStoreEnvironment.allCases {
                let name =
                    "test_events.app_store" + (environment == .sandbox ? "_sandbox" : "")
                    + (apps.count > 1 ? ".\(app.bundleID)" : "")
                let finding = await finding(client, environment, understood, within: limit)
                checks.append(Check(name: name, ok: finding.fix.isEmpty, detail: finding.detail, fix: finding.fix))
            }
        }
        await transport.shutdown()
        return checks
    }

    /// What was found; no fix: all is well.
    private typealias Finding = (detail: String, fix: String)

    private func finding(
        _ client: AppStoreClient,
        _ environment: AppStoreEnvironment,
        _ understood: AppStoreNotifications,
        within limit: Duration
    ) async -> Finding {
        let began = ContinuousClock.now
        do throws(ReadFailure) {
            guard let token = try await client.requestTest(in: environment) else { return Self.noAddress(environment) }
            return await follow(token, from: began, client, environment, understood, within: limit)
        } catch {
            if error.code == .unauthorized, environment == .production {
                return (
                    "production refuses the key (unauthorized), as it does every key before an app's first release",
                    "If the app is released: set APP_STORE_KEY_ID, APP_STORE_ISSUER_ID and APP_STORE_PRIVATE_KEY to a key that is not revoked."
                )
            }
            return ("could not be requested: \(error.code.rawValue)", "See the check credentials, and try again.")
        }
    }

    /// Waits for a test notification that was requested.
    private func follow(
        _ token: String,
        from began: ContinuousClock.Instant,
        _ client: AppStoreClient,
        _ environment: AppStoreEnvironment,
        _ understood: AppStoreNotifications,
        within limit: Duration
    ) async -> Finding {
        let clock = ContinuousClock()
        var finding: Finding = (
            "the App Store has not sent it within \(limit.components.seconds) s",
            "Try again in some minutes; entitlement-sync doctor --test-events --wait 600 waits longer."
        )
        while clock.now - began < limit {
            do throws(ReadFailure) {
                if case .sent(let signed?, let attempts) = try await client.test(token, in: environment) {
                    let event: StoreEvent
                    do { event = try await understood.event(signed: signed) } catch {
                        return (
                            "what the App Store sends does not verify here (\(error.code.rawValue))",
                            "Set APP_STORE_BUNDLE_ID and APP_STORE_APP_ID to the app's, and leave APP_STORE_ROOT_CERTIFICATES unset."
                        )
                    }
                    if try await isIn(event.id) {
                        return (
                            "came in through the webhook \((clock.now - began).components.seconds) s after it was requested",
                            ""
                        )
                    }
                    finding = Self.undelivered(attempts.last)
                    // The word is final, unless it is that all went well.
                    if let last = attempts.last, last != "SUCCESS" { break }
                }
            } catch {
                // It was requested all the same: the next poll may be answered.
                finding = (
                    "was requested, and what became of it could not be read: \(error.code.rawValue)",
                    "Try again in some minutes."
                )
            }
            do { try await clock.sleep(for: .seconds(1)) } catch { break }
        }
        return finding
    }

    private func isIn(_ event: String) async throws(ReadFailure) -> Bool {
        do {
            return try await !pool.query(
                """
                SELECT 1 FROM entitlement_sync.inbox_log AS i
                 WHERE i.source = \(Store.appStore.rawValue) AND i.event_id = \(event)
                """
            ).isEmpty
        } catch {
            throw ReadFailure(.recordsUnavailable)
        }
    }

    private static func noAddress(_ environment: AppStoreEnvironment) -> Finding {
        let place = "App Store Connect, the app, App Information, App Store Server Notifications"
        guard environment == .production else {
            // Purchases of testers are found by checks all the same.
            return ("no address is set for the sandbox (\(place)): purchases of testers send no events", "")
        }
        return (
            "no address is set for production's notifications",
            "Set it at \(place), to https://YOUR-HOST/v1/webhooks/app-store with version 2."
        )
    }

    /// Why a notification is not in the inbox, by the App Store's word on its last attempt.
    private static func undelivered(_ attempt: String?) -> Finding {
        switch attempt {
        case "SUCCESS":
            (
                "the App Store has delivered it, and it is not in this database",
                "Let the address in App Store Connect lead to this installation, with version 2 of the notifications."
            )
        case "TLS_ISSUE":
            (
                "the App Store found fault with TLS (TLS_ISSUE)",
                "Give the address a certificate of a public authority, with its whole chain."
            )
        case "UNSUCCESSFUL_HTTP_RESPONSE_CODE":
            (
                "the address answered with an error (UNSUCCESSFUL_HTTP_RESPONSE_CODE)",
                "Let it end in /v1/webhooks/app-store, let the proxy pass it on to serve, and see serve's log."
            )
        case "TIMED_OUT", "NO_RESPONSE", "SOCKET_ISSUE", "PREMATURE_CLOSE":
            (
                "the App Store could not reach the address (\(attempt ?? ""))",
                "Let the address be reached from the internet on port 443, and let a firewall pass 17.0.0.0/8."
            )
        case "CIRCULAR_REDIRECT":
            ("the address redirects in a circle (CIRCULAR_REDIRECT)", "Let it answer without a redirect.")
        default:
            (
                "the App Store could not deliver it (\(attempt ?? "no attempt yet"))",
                "Check the address in App Store Connect."
            )
        }
    }
}
