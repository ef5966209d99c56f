import Entitlements
import Foundation
import Testing

@testable import Configuring

/// Several store apps over one user base, as STORE_APPS lists them.
@Suite struct StoreAppsTests {
    private static let key = "-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----"

    private static let lists = """
        app_store:
          - {app_store_bundle_id: com.example.a, app_store_app_id: 1, app_store_issuer_id: issuer-a,
             app_store_key_id: KEYA, app_store_private_key_file: KEYFILE}
          - {app_store_bundle_id: com.example.b, app_store_issuer_id: issuer-b, app_store_key_id: KEYB,
             app_store_private_key_file: KEYFILE, app_store_base_url: "https://b.example.com",
             app_store_requests_per_minute: 7}
        google_play:
          - google_play_package_name: com.example.a
            google_play_service_account: '{"private_key": "a"}'
            pubsub_audience: audience-a
            pubsub_service_account: push@a.example.com
          - google_play_package_name: com.example.b
            google_play_service_account: '{"private_key": "b"}'
            google_play_acknowledge: false
        revenuecat:
          - {revenuecat_api_key: sk_a, revenuecat_project_id: proja, revenuecat_webhook_secret: hush-a}
          - {revenuecat_api_key: sk_b, revenuecat_project_id: projb, revenuecat_webhook_secret: hush-b,
             revenuecat_webhook_authorization: word, revenuecat_transfer_api_key: sk_move}
        """

    private static func withFile<Value>(_ contents: Data, _ body: (String) throws -> Value) throws -> Value {
        let file = FileManager.default.temporaryDirectory.appending(path: "store-apps-\(UUID().uuidString)")
        try contents.write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        return try body(file.path)
    }

    private func load(_ yaml: String, _ variables: [String: String] = [:]) throws -> Config {
        try Self.withFile(Data(Self.key.utf8)) { key in
            let text = yaml.replacing("KEYFILE", with: key)
            return try Self.withFile(Data(text.utf8)) { path in
                try Config.load(environment: variables.merging(["STORE_APPS": path]) { $1 })
            }
        }
    }

    private func faults(_ yaml: String, _ variables: [String: String] = [:]) throws -> [ConfigurationFault] {
        let error = try #require(throws: ConfigurationFaults.self) { _ = try load(yaml, variables) }
        return error.faults
    }

    @Test func `Each entry is an app of its own, and variables that all share stand for those that say nothing else`()
        throws
    {
        let config = try load(
            Self.lists,
            [
                "APP_STORE_BASE_URL": "https://all.example.com", "APP_STORE_REQUESTS_PER_MINUTE": "99",
                "REVENUECAT_REQUESTS_PER_MINUTE": "60", "ONSIDE_REQUESTS_PER_MINUTE": "9",
            ]
        )
        let apps = config.appStore.apps
        #expect(apps.map(\.bundleID) == ["com.example.a", "com.example.b"] && apps.map(\.appID) == [1, nil])
        #expect(apps.map(\.access?.keyID) == ["KEYA", "KEYB"])
        #expect(apps.map(\.access?.baseURL) == ["https://all.example.com", "https://b.example.com"])
        #expect(apps.map(\.access?.requestsPerMinute) == [99, 7])
        #expect(apps.first?.access?.privateKey.reveal() == Self.key)
        #expect(config.googlePlay.map(\.packageName) == ["com.example.a", "com.example.b"])
        #expect(config.googlePlay.map(\.acknowledges) == [true, false])
        #expect(config.revenueCat.map(\.projectID) == ["proja", "projb"])
        #expect(config.revenueCat.map(\.requestsPerMinute) == [60, 60])
        #expect(config.revenueCat.map { $0.transferKey?.reveal() } == [nil, "sk_move"])
        #expect(config.api.webhooks.revenueCat.map { $0.secret?.reveal() } == ["hush-a", "hush-b"])
        #expect(config.api.webhooks.push.map(\.packageName) == ["com.example.a"])
        #expect(config.listedStores == [.appStore, .googlePlay, .revenueCat])
    }

    @Test func `The lists of one store leave another one's variables as they are`() throws {
        let config = try load(
            "revenuecat: [{revenuecat_api_key: sk_a, revenuecat_project_id: proja}]",
            ["APP_STORE_BUNDLE_ID": "com.example.app"]
        )
        #expect(config.revenueCat.map(\.projectID) == ["proja"])
        #expect(config.appStore.apps.map(\.bundleID) == ["com.example.app"])
    }

    @Test func `The file's text may be the value, by STORE_APPS_FILE or as it is`() throws {
        let text = "revenuecat: [{revenuecat_api_key: sk_a, revenuecat_project_id: proja}]"
        #expect(try Config.load(environment: ["STORE_APPS": text]).revenueCat.map(\.projectID) == ["proja"])
        try Self.withFile(Data(text.utf8)) { path in
            let config = try Config.load(environment: ["STORE_APPS_FILE": path])
            #expect(config.revenueCat.map(\.projectID) == ["proja"])
        }
    }

    @Test(arguments: [
        ("APP_STORE_KEY_ID", "K"), ("APP_STORE_APP_ID", "1"), ("GOOGLE_PLAY_PACKAGE_NAME", "com.example.c"),
        ("PUBSUB_AUDIENCE", "audience"), ("REVENUECAT_API_KEY", "sk_c"), ("REVENUECAT_WEBHOOK_SECRET", "hush"),
    ])
    func `A single variable of the same store beside a list is a fault`(_ name: String, _ value: String) throws {
        #expect(try faults(Self.lists, [name: value]).map(\.variable) == [name])
    }

    static let wrong: [(String, String)] = [
        ("", "STORE_APPS_EMPTY"),
        ("[1, 2]", "STORE_APPS: has no lists"),
        ("app_store: {", "STORE_APPS: is no YAML"),
        ("onside: []", "STORE_APPS: has \"onside\", which is no list"),
        ("revenuecat: []", "STORE_APPS (revenuecat): is empty"),
        ("revenuecat: 7", "STORE_APPS (revenuecat): is no list"),
        ("revenuecat: [sk_hush]", "STORE_APPS (revenuecat, entry 1): has no keys"),
        (
            "revenuecat: [{revenuecat_api_key: sk_hush, revenuecat_project: x, revenuecat_project_id: p}]",
            "STORE_APPS (revenuecat, entry 1): has the unknown key \"revenuecat_project\""
        ),
        (
            "revenuecat: [{revenuecat_api_key: [sk_hush], revenuecat_project_id: p}]",
            "STORE_APPS (revenuecat, entry 1, revenuecat_api_key): is neither a text"
        ),
        (
            "revenuecat: [{revenuecat_api_key: sk_hush}]",
            "STORE_APPS (revenuecat, entry 1, revenuecat_project_id): is not set, but revenuecat_api_key is"
        ),
        (
            "google_play: [{google_play_acknowledge: true}]",
            "google_play, entry 1, google_play_package_name): is not set"
        ),
        (
            "revenuecat: [{revenuecat_api_key: a, revenuecat_project_id: p}, {revenuecat_api_key: b, revenuecat_project_id: p}]",
            "STORE_APPS (revenuecat, entry 2, revenuecat_project_id): is also that of entry 1"
        ),
        (
            "app_store: [{app_store_bundle_id: com.a}, {app_store_bundle_id: com.a}]",
            "STORE_APPS (app_store, entry 2, app_store_bundle_id): is also that of entry 1"
        ),
        (
            "app_store: [{app_store_bundle_id: com.a, app_store_private_key_file: /nowhere/key}]",
            "STORE_APPS (app_store, entry 1, app_store_private_key_file): the file does not exist"
        ),
        (
            """
            revenuecat:
              - {revenuecat_api_key: a, revenuecat_project_id: p, revenuecat_webhook_secret: sk_hush}
              - {revenuecat_api_key: b, revenuecat_project_id: q, revenuecat_webhook_secret: sk_hush}
            """,
            "STORE_APPS (revenuecat, entry 2, revenuecat_webhook_secret): is also that of entry 1"
        ),
        (
            """
            revenuecat:
              - {revenuecat_api_key: a, revenuecat_project_id: p, revenuecat_webhook_authorization: sk_hush}
              - {revenuecat_api_key: b, revenuecat_project_id: q, revenuecat_webhook_authorization: sk_hush,
                 revenuecat_webhook_secret: other}
            """,
            "STORE_APPS (revenuecat, entry 2, revenuecat_webhook_authorization): is also that of entry 1"
        ),
        (
            "google_play: [{google_play_package_name: com.a, google_play_service_account: '{\"private_key\": \"sk_hush\"}'},"
                + " {google_play_package_name: com.b, pubsub_audience: x, pubsub_service_account: a@b.c}]",
            "STORE_APPS (google_play, entry 2, google_play_service_account): is not set, but that of entry 1 is"
        ),
        (
            "revenuecat: [{revenuecat_api_key: a, revenuecat_api_key: sk_hush, revenuecat_project_id: p}]",
            "a key stands twice"
        ),
    ]

    @Test(arguments: wrong)
    func `What is wrong is named by list, entry and key, and no secret is shown`(_ yaml: String, _ words: String) throws
    {
        if yaml.isEmpty {
            #expect(try faults("").map(\.problem) == ["the file is empty"])
            return
        }
        let found = try faults(yaml).map(\.description)
        #expect(found.contains { $0.contains(words) }, "\(found)")
        #expect(!found.contains { $0.contains("sk_hush") })
    }

    @Test func `Everything is listed at once: of all lists, all entries and other variables`() throws {
        let found = try faults(
            """
            app_store: [{app_store_bundle_id: "not a bundle", app_store_app_id: x}, {app_store_bundel_id: com.b}]
            revenuecat: [{revenuecat_api_key: sk_a}]
            """,
            ["MODE": "no mode", "APP_STORE_BASE_URL": "http://example.com"]
        )
        let names = found.map(\.variable)
        #expect(names.contains("MODE"))
        #expect(names.count { $0 == "APP_STORE_BASE_URL" } == 1, "shared by two entries, wrong once")
        #expect(names.contains("STORE_APPS (app_store, entry 1, app_store_bundle_id)"))
        #expect(names.contains("STORE_APPS (app_store, entry 1, app_store_app_id)"))
        #expect(names.contains("STORE_APPS (app_store, entry 2, app_store_bundle_id)"))
        #expect(found.contains { $0.fix == "Did you mean app_store_bundle_id?" })
        #expect(names.contains("STORE_APPS (revenuecat, entry 1, revenuecat_project_id)"))
    }

    @Test func `A list, and a file, have an end`() throws {
        let entries = (0...100).map { "  - {app_store_bundle_id: com.example.a\($0)}\n" }.joined()
        #expect(try faults("app_store:\n" + entries).map(\.problem) == ["has 101 entries"])
        let long = "app_store:\n" + String(repeating: "# filler\n", count: 120_000)
        #expect(try faults(long).map(\.problem) == ["the file is larger than 1024 KiB"])
    }
}
