import Foundation
import Postgres
import TestSupport
import Testing

/// The webhooks, and the start, of a deployment with several apps of each store.
struct StoreAppEndpointTests {
    private static let scenario = """
        customers: [{id: ann, state: active}]
        app_store:
          bundle_id: com.example.second
          customers:
            - id: ann
              transactions:
                - {original: "2000000700000001", transaction: "2000000700000001", product: premium_monthly, expires: +20d}
        google_play:
          package: com.example.second
          purchases:
            - {token: tok-ann, state: active}

        """

    /// The variables that name one app, unset.
    private static let unset = Dictionary(
        uniqueKeysWithValues: [
            "REVENUECAT_API_KEY", "REVENUECAT_PROJECT_ID", "REVENUECAT_WEBHOOK_AUTHORIZATION",
            "REVENUECAT_WEBHOOK_SECRET", "APP_STORE_ISSUER_ID", "APP_STORE_KEY_ID", "APP_STORE_PRIVATE_KEY_FILE",
            "APP_STORE_BUNDLE_ID", "GOOGLE_PLAY_SERVICE_ACCOUNT_FILE", "GOOGLE_PLAY_PACKAGE_NAME", "PUBSUB_AUDIENCE",
            "PUBSUB_SERVICE_ACCOUNT",
        ].map { ($0, "") }
    )

    private static let first = [
        "app_store": "{app_store_bundle_id: com.example.first, app_store_app_id: 7}",
        "google_play":
            "{google_play_package_name: com.example.first, pubsub_audience: first, pubsub_service_account: a@b.example.com}",
        "revenuecat":
            "{revenuecat_project_id: proj1, revenuecat_api_key: sk_one, revenuecat_webhook_secret: hush-first}",
    ]

    private static func second(_ settings: [String: String]) -> [String: String] {
        let setting = { (name: String) in settings[name] ?? "" }
        return [
            "app_store": "{app_store_bundle_id: com.example.second}",
            "google_play":
                "{google_play_package_name: com.example.second, pubsub_audience: \"\(setting("PUBSUB_AUDIENCE"))\","
                + " pubsub_service_account: \(setting("PUBSUB_SERVICE_ACCOUNT"))}",
            "revenuecat":
                "{revenuecat_project_id: proj2, revenuecat_api_key: sk_two,"
                + " revenuecat_webhook_secret: \(setting("REVENUECAT_WEBHOOK_SECRET"))}",
        ]
    }

    /// Writes the lists, and says where.
    private static func write(_ entries: [[String: String]], in folder: String) throws -> [String: String] {
        let lists = ["app_store", "google_play", "revenuecat"].map { list in
            "\(list):\n" + entries.compactMap { $0[list] }.map { "  - \($0)\n" }.joined()
        }
        let path = "\(folder)/store-apps-\(entries.count).yaml"
        try lists.joined().write(toFile: path, atomically: true, encoding: .utf8)
        return unset.merging(["STORE_APPS": path]) { $1 }
    }

    private static func webhooks(_ endpoints: EndpointSite) async throws -> [String: Webhook] {
        [
            "revenuecat": try await endpoints.webhook("revenuecat", #"{"event": \#(AccessScene.event)}"#),
            "app-store": try await endpoints.webhook(
                "app-store",
                #"{"type": "DID_RENEW", "transaction": "2000000700000001"}"#
            ),
            "google-play": try await endpoints.webhook(
                "google-play",
                #"{"subscription": {"notificationType": 4, "purchaseToken": "tok-ann"}}"#
            ),
        ]
    }

    @Test func `Webhooks of every store app are taken, and those of another app are refused`() async throws {
        try await EndpointSite.with(scenario: Self.scenario, users: ["ann"]) { endpoints in
            let second = Self.second(endpoints.site.settings)
            let webhooks = try await Self.webhooks(endpoints)

            let foreign = try await endpoints.open("serve", settings: try Self.write([Self.first], in: endpoints.files))
            for (store, webhook) in webhooks {
                let answer = try await foreign.post(webhook, to: store)
                #expect(answer.status == 401, "\(store): \(answer)")
            }
            try await foreign.close()

            let settings = try Self.write([Self.first, second], in: endpoints.files)
            let endpoint = try await endpoints.open("serve", settings: settings)
            for (store, webhook) in webhooks {
                let answer = try await endpoint.post(webhook, to: store)
                #expect(answer.status == 200, "\(store): \(answer)")
            }
            let kept = try await endpoints.site.texts(
                """
                SELECT concat_ws(' ', i.source, i.kind, i.about -> 'purchases' -> 0 ->> 'app')
                  FROM entitlement_sync.inbox AS i ORDER BY 1
                """
            )
            #expect(
                kept == [
                    "app_store DID_RENEW com.example.second", "google_play subscription.4 com.example.second",
                    "revenuecat RENEWAL",
                ]
            )
            try await endpoint.close()
        }
    }

    @Test func `The start line and doctor name the store apps, and what is wrong with a list ends the start with 78`()
        async throws
    {
        try await EndpointSite.with(scenario: Self.scenario) { endpoints in
            let lists = [Self.first, Self.second(endpoints.site.settings)]
            let settings = try Self.write(lists, in: endpoints.files)
            let endpoint = try await endpoints.open("serve", settings: settings)
            let line = try #require(try endpoint.log.first { $0["message"] == "starting" })
            let apps = "app_store com.example.first, app_store com.example.second, google_play com.example.first"
            #expect(line["store.apps"]?.hasPrefix(apps) == true, "\(line)")
            try await endpoint.close()
            let doctor = try await Site.run(["doctor"], settings: endpoints.site.settings.merging(settings) { $1 })
            #expect(doctor.out.contains("ok  store_apps: \(apps)"), "\(doctor)")
            #expect(doctor.out.contains("revenuecat proj1, revenuecat proj2"), "\(doctor)")

            var twice = lists
            twice[1]["revenuecat"] = "{revenuecat_project_id: proj1, revenuecat_api_key: sk_hunter2}"
            let wrong = try Self.write(twice, in: endpoints.files)
                .merging(["APP_STORE_KEY_ID": "KEY", "MODE": "sideways"]) { $1 }
            let ending = try await Site.run(["serve"], settings: endpoints.site.settings.merging(wrong) { $1 })
            #expect(ending.code == 78, "\(ending)")
            for words in [
                "STORE_APPS (revenuecat, entry 2, revenuecat_project_id): is also that of entry 1", "MODE: ",
                "APP_STORE_KEY_ID: is set, and STORE_APPS has the list app_store",
            ] { #expect(ending.err.contains(words), "\(ending)") }
            #expect(!ending.err.contains("hunter2"))
        }
    }
}
