import Logging
import Metrics
import MetricsTestKit
@testable import StoreClients
import Synchronization
import Testing
import Transport

@Suite struct RevenueCatConfigurationTests {
    private func base(_ url: String) throws -> BaseURL {
        try RevenueCatConfiguration(apiKey: "sk_x", projectID: "p", baseURL: url).base
    }

    @Test(
        "a base URL may or may not end in /v2",
        arguments: [
            ("https://api.revenuecat.com/v2", "https", "api.revenuecat.com", "/v2"),
            ("https://api.revenuecat.com", "https", "api.revenuecat.com", "/v2"),
            ("https://api.revenuecat.com/", "https", "api.revenuecat.com", "/v2"),
            ("HTTPS://api.revenuecat.com/v2//", "https", "api.revenuecat.com", "/v2"),
            ("https://proxy.example:8443/rc", "https", "proxy.example:8443", "/rc/v2"),
            ("http://127.0.0.1:8080/v2", "http", "127.0.0.1:8080", "/v2"),
            ("http://localhost:8080", "http", "localhost:8080", "/v2"), ("http://[::1]:9", "http", "[::1]:9", "/v2"),
        ]
    )
    func readsBase(_ url: String, _ scheme: String, _ authority: String, _ path: String) throws {
        let base = try base(url)
        #expect(base.scheme == scheme)
        #expect(base.authority == authority)
        #expect(base.path == path)
    }

    @Test(
        "what is no base URL is refused",
        arguments: [
            "", "api.revenuecat.com", "ftp://x", "https://", "https:///v2", "https://user:pw@host/", "https://h/?a=b",
            "https://h/#f", "https://h:0", "https://h:99999", "https://h:x", "https://h ost", "https://[::1",
            "https://:8",
        ]
    )
    func refusesBase(_ url: String) {
        #expect(throws: SettingFaults<RevenueCatConfiguration.Fault>(faults: [.baseURL])) { try base(url) }
    }

    @Test(
        "plain http goes to loopback hosts only",
        arguments: [
            "http://api.revenuecat.com", "http://127.0.0.1.example", "http://10.0.0.1", "http://[::2]",
            "http://127.1.1",
        ]
    )
    func refusesPlainHTTP(_ url: String) {
        #expect(throws: SettingFaults<RevenueCatConfiguration.Fault>(faults: [.insecureBaseURL])) { try base(url) }
    }

    @Test("every fault is told at once, and no setting's value")
    func collectsFaults() throws {
        let error = #expect(throws: SettingFaults<RevenueCatConfiguration.Fault>.self) {
            try RevenueCatConfiguration(apiKey: "sk secret", projectID: "", baseURL: "x", maxPages: 0)
        }
        #expect(error?.faults == [.apiKey, .projectID, .maxPages, .baseURL])
        #expect(error?.description.contains("sk secret") == false)
    }

    @Test("the key shows in no description")
    func hidesKey() throws {
        let configuration = try RevenueCatConfiguration(apiKey: "sk_secret", projectID: "p")
        var dumped = ""
        dump([configuration], to: &dumped)
        for text in ["\(configuration)", String(reflecting: configuration), "\([configuration])", dumped] {
            #expect(!text.contains("sk_secret"))
        }
    }
}

@Suite struct RevenueCatTelemetryTests {
    @Test("requests are counted by template and status class, and readings by their requests")
    func counts() async throws {
        let metrics = TestMetrics()
        let store = FakeStore()
        store.on(FakeStore.subscriptions, 200, Fixture.page([]))
        store.on(FakeStore.purchases, 503)
        _ = try await withMetricsFactory(metrics) { try await store.read() }
        let subscriptions = try metrics.expectCounter(
            "entitlement_sync_store_requests_total",
            [
                ("store", "revenuecat"), ("status", "2xx"),
                ("endpoint", "/projects/{project}/customers/{customer}/subscriptions"),
            ]
        )
        let purchases = try metrics.expectCounter(
            "entitlement_sync_store_requests_total",
            [
                ("store", "revenuecat"), ("status", "5xx"),
                ("endpoint", "/projects/{project}/customers/{customer}/purchases"),
            ]
        )
        #expect(subscriptions.totalValue == 1)
        #expect(purchases.totalValue == 1)
        #expect(metrics.counterTotal(label: "entitlement_sync_store_requests_total") == 2)
        let perRead = try metrics.expectRecorder("entitlement_sync_requests_per_read", [("store", "revenuecat")])
        #expect(perRead.values == [2])
    }

    @Test("the log names the failure, and neither ids nor keys nor bodies")
    func logsHarmlessly() async throws {
        let sink = LogSink()
        let store = FakeStore()
        let body = #"{"object":"error","type":"parameter_error","message":"bad \#(Fixture.user)","param":"x"}"#
        store.on(FakeStore.subscriptions, 400, body)
        var logger = Logger(label: "test") { _ in sink }
        logger.logLevel = .trace
        let query = CustomerQuery(userID: Fixture.user, lane: .restore, sandboxCounts: false) { _ in [] }
        _ = try await store.client(logger: logger).read(query)
        let line = try #require(sink.lines.first)
        #expect(line.contains("rejected"))
        #expect(line.contains("400"))
        for secret in [Fixture.user, "sk_secret", "bad", "proj0a1b2c3d"] { #expect(!line.contains(secret)) }
    }

    @Test("every endpoint has a template, and its path fits it")
    func fitsTemplates() throws {
        let id = try #require(PathSegment("x/y"))
        let endpoints: [RevenueCatEndpoint] = [
            .customerSubscriptions(id), .customerPurchases(id), .customerAliases(id), .subscriptionEntitlements(id),
            .purchaseEntitlements(id), .findSubscriptions(storeID: "z"), .findPurchases(storeID: "z"),
            .createCustomer, .transfer(from: id),
        ]
        #expect(Set(endpoints.map(\.index)) == Set(RevenueCatEndpoint.templates.indices))
        for endpoint in endpoints {
            let path = endpoint.target(after: nil).prefix { $0 != "?" }
            let template = RevenueCatEndpoint.templates[endpoint.index]
            let filled = template.dropFirst("/projects/{project}".count).split(separator: "/")
                .map { $0.hasPrefix("{") ? "x%2Fy" : $0 }
            #expect(path.split(separator: "/") == filled)
        }
    }
}

private final class LogSink: LogHandler {
    private let state = Mutex<[String]>([])
    var lines: [String] { state.withLock { $0 } }
    var metadata: Logger.Metadata {
        get { [:] }
        set {}
    }
    var logLevel: Logger.Level {
        get { .trace }
        set {}
    }
    subscript(metadataKey _: String) -> Logger.Metadata.Value? {
        get { nil }
        set {}
    }
    func log(event: LogEvent) {
        state.withLock { $0.append("\(event.level) \(event.message) \(event.metadata ?? [:])") }
    }
}
