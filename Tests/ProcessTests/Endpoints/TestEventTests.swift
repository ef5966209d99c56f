import Foundation
import Postgres
import TestSupport
import Testing

/// `doctor --test-events`, from the request at the App Store to our inbox.
@Suite struct TestEventTests {
    private struct Report: Decodable {
        struct Check: Decodable {
            var name: String
            var ok: Bool
            var detail: String
            var fix: String
        }
        var checks: [Check]
    }

    /// The findings about test events, by name.
    private static func findings(_ site: Site, wait: Int = 20) async throws -> [String: Report.Check] {
        let ending = try await site.run("doctor", "--test-events", "--wait", "\(wait)", "--output", "json")
        let report = try JSONDecoder().decode(Report.self, from: Data(ending.out.utf8))
        let found = report.checks.filter { $0.name.hasPrefix("test_events") }
        return Dictionary(found.map { ($0.name, $0) }) { $1 }
    }

    @Test func `A test notification comes in through the webhook, or doctor says what keeps it`() async throws {
        try await EndpointSite.with(scenario: "customers: []\n") { endpoints in
            let site = endpoints.site
            let none = try await Self.findings(site)
            #expect(none["test_events.app_store"]?.ok == false)
            #expect(none["test_events.app_store"]?.fix.contains("/v1/webhooks/app-store") == true)
            #expect(none["test_events.app_store_sandbox"]?.ok == true, "the sandbox may do without")
            #expect(none["test_events.revenuecat"]?.detail.contains("Send test event") == true)
            #expect(none["test_events.google_play"]?.detail.contains("Send test") == true)

            let endpoint = try await endpoints.open("serve")
            let webhook = "http://127.0.0.1:\(endpoint.port)/v1/webhooks/app-store"
            try await endpoints.sendTests(to: webhook, sandbox: webhook)
            let found = try await Self.findings(site)
            for name in ["test_events.app_store", "test_events.app_store_sandbox"] {
                #expect(found[name]?.ok == true && found[name]?.detail.contains("came in") == true, "\(found)")
            }
            #expect(try await site.number("SELECT count(*) FROM entitlement_sync.inbox_log") == 2)

            // Another address of the same server, and one where no server is.
            try await endpoints.sendTests(to: "http://127.0.0.1:\(endpoint.port)/v1/webhooks/nowhere")
            let wrong = try await Self.findings(site)
            #expect(
                wrong["test_events.app_store"]?.detail.contains("UNSUCCESSFUL_HTTP_RESPONSE_CODE") == true,
                "\(wrong)"
            )
            try await endpoint.close()
            try await endpoints.sendTests(to: webhook)
            let unreached = try await Self.findings(site)
            #expect(unreached["test_events.app_store"]?.detail.contains("SOCKET_ISSUE") == true, "\(unreached)")
            try await Site.with(store: endpoints.simulator.url) { other in
                let elsewhere = try await endpoints.open(
                    "serve",
                    settings: ["DATABASE_URL": try #require(other.settings["DATABASE_URL"])]
                )
                try await endpoints.sendTests(to: "http://127.0.0.1:\(elsewhere.port)/v1/webhooks/app-store")
                let found = try await Self.findings(site, wait: 3)
                #expect(found["test_events.app_store"]?.detail.contains("is not in this database") == true, "\(found)")
                try await elsewhere.close()
            }
        }
    }
}

extension EndpointSite {
    /// Sets where the simulated App Store sends test notifications.
    fileprivate func sendTests(to production: String, sandbox: String? = nil) async throws {
        let urls = [("production", production), ("sandbox", sandbox)]
            .compactMap { name, url in url.map { "\"\(name)\":\"\($0)\"" } }.joined(separator: ",")
        _ = try await fetch("PUT", "/control/app-store/notification-urls", body: "{\(urls)}", from: simulator.port)
    }
}
