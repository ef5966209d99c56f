import Foundation
import HTTPTypes
import TestSupport
import Testing

/// What browsers are answered that ask whether a page may call the API.
struct CrossOriginTests {
    private static let origin = "https://app.example.com"
    private static let settings = ["HTTP_ALLOWED_ORIGINS": "\(origin),http://localhost:5173"]

    private static func with(_ settings: [String: String], _ body: @Sendable (Endpoint, Caller) async throws -> Void)
        async throws
    {
        try await EndpointSite.with(
            scenario: "customers: [{id: ann, state: active}]\n",
            users: ["ann"],
            settings: settings
        ) { endpoints in
            let endpoint = try await endpoints.open("serve")
            try await body(endpoint, try await endpoints.caller("ann", at: endpoint))
            try await endpoint.close()
        }
    }

    private static func preflight(_ endpoint: Endpoint, _ path: String, from origin: String?) async throws -> HTTPAnswer
    {
        var fields = ["Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"]
        fields["Origin"] = origin
        return try await endpoint.ask(.options, path, fields)
    }

    @Test func `A page of a listed origin may call what is for apps, and read every answer`() async throws {
        try await Self.with(Self.settings) { endpoint, ann in
            for (path, methods) in [
                ("/v1/restores", "POST"), ("/v1/restores/x?wait=25", "GET"), ("/v1/restores/x/events", "GET"),
                ("/v1/entitlement", "GET"), ("/v1/tickets", "GET"), ("/v1/tickets/x/replies", "POST"),
                ("/v1/releases", "POST"),
            ] {
                let answer = try await Self.preflight(endpoint, path, from: "http://localhost:5173")
                #expect(answer.status == 204 && answer.body.isEmpty, "\(path): \(answer)")
                #expect(answer["Access-Control-Allow-Origin"] == "http://localhost:5173")
                #expect(answer["Access-Control-Allow-Methods"] == methods, "\(path)")
                #expect(
                    answer["Access-Control-Allow-Headers"]
                        == "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"
                )
                #expect(answer["Access-Control-Max-Age"] == "600" && answer["Vary"] == "Origin")
                #expect(answer["Access-Control-Allow-Credentials"] == nil)
            }
            let listed = ["Origin": Self.origin]
            let taken = try await ann.ask(.post, "/v1/restores", listed)
            let seen: SeenRestore = try taken.decode()
            for (answer, status) in [
                (taken, 202), (try await ann.ask(.get, seen.path, listed), 200),
                (try await ann.ask(.get, "/v1/entitlement", listed), 200),
                (try await ann.ask(.get, "/v1/restores/nonsense", listed), 404),
                (try await ann.ask(.get, "/v1/nowhere", listed), 404),
                (try await ann.ask(.put, "/v1/entitlement", listed), 405),
                (try await endpoint.ask(.get, "/v1/entitlement", listed), 401),
                (try await ann.ask(.post, "/v1/restores", listed, body: "{"), 400),
            ] {
                #expect(answer.status == status, "\(answer)")
                #expect(answer["Access-Control-Allow-Origin"] == Self.origin, "\(answer)")
                #expect(answer["Access-Control-Expose-Headers"] == "Location, Retry-After")
                #expect(answer["Vary"]?.hasSuffix("Origin") == true, "\(answer)")
            }
            #expect(taken["Vary"] == "Accept-Language, Origin")
        }
    }

    @Test func `No other page may, no page may call what is not for apps, and by default none may anything`()
        async throws
    {
        try await Self.with(Self.settings) { endpoint, ann in
            for origin in [
                "https://app.example.com.evil.example", "https://app.example.co", "http://app.example.com", "null",
                "https://app.example.com:443", "HTTPS://APP.EXAMPLE.COM",
                "https://app.example.com, http://localhost:5173",
                "*",
            ] {
                let asked = try await Self.preflight(endpoint, "/v1/entitlement", from: origin)
                #expect(asked.status == 405 && asked["Access-Control-Allow-Origin"] == nil, "\(origin): \(asked)")
                let read = try await ann.ask(.get, "/v1/entitlement", ["Origin": origin])
                #expect(read.status == 200 && read["Access-Control-Allow-Origin"] == nil, "\(origin)")
                #expect(read["Vary"]?.hasSuffix("Origin") == true, "a cache must not give it to a listed page")
            }
            for path in [
                "/v1/webhooks/revenuecat", "/v1/webhooks/app-store", "/health/live", "/health/ready", "/openapi.json",
            ] {
                let asked = try await Self.preflight(endpoint, path, from: Self.origin)
                #expect(asked.status == 405 || asked.status == 404, "\(path): \(asked)")
                #expect(asked["Access-Control-Allow-Origin"] == nil && asked["Vary"] == nil, "\(path)")
            }
            let plain = try await endpoint.ask(.options, "/v1/entitlement", ["Origin": Self.origin])
            #expect(plain.status == 405, "it asks for no method")
        }
        try await Self.with([:]) { endpoint, ann in
            let asked = try await Self.preflight(endpoint, "/v1/entitlement", from: Self.origin)
            let read = try await ann.ask(.get, "/v1/entitlement", ["Origin": Self.origin])
            #expect(asked.status == 405 && read.status == 200)
            for answer in [asked, read] {
                #expect(answer["Access-Control-Allow-Origin"] == nil && answer["Access-Control-Expose-Headers"] == nil)
            }
            #expect(asked["Vary"] == nil)
        }
    }

    @Test func `Each app of several has origins of its own`() async throws {
        try await AppsSite.with(["default", "games"]) { site in
            for (name, origin) in [("default", Self.origin), ("games", "https://games.example.com")] {
                try site.write(name, changing: ["HTTP_ALLOWED_ORIGINS": origin])
            }
            let endpoint = try await site.open("serve")
            try await site.untilAllReady(endpoint)
            for (path, origin, status) in [
                ("/v1/entitlement", Self.origin, 204), ("/v1/apps/default/entitlement", Self.origin, 204),
                ("/v1/apps/games/entitlement", Self.origin, 405), ("/v1/entitlement", "https://games.example.com", 405),
                ("/v1/apps/games/entitlement", "https://games.example.com", 204),
            ] {
                let asked = try await Self.preflight(endpoint, path, from: origin)
                #expect(asked.status == status, "\(path) from \(origin): \(asked)")
                #expect(asked["Access-Control-Allow-Origin"] == (status == 204 ? origin : nil))
            }
            try await endpoint.close()
        }
    }

    @Test func `A page may read that its app can't be served now`() async throws {
        try await AppsSite.with(["default", "games"]) { site in
            let origins = ["HTTP_ALLOWED_ORIGINS": Self.origin]
            try site.write("games", changing: origins)
            let endpoint = try await site.open("serve")
            try await site.untilAllReady(endpoint)
            try site.write("games", changing: origins.merging(["MODE": "sometimes"]) { $1 })
            endpoint.program.signal(SIGHUP)
            let path = "/v1/apps/games/entitlement"
            let down = try await endpoint.program.find("that the app is down") {
                let answer = try await endpoint.ask(.get, path, ["Origin": Self.origin])
                return answer.status == 503 ? answer : nil
            }
            #expect(down["Access-Control-Allow-Origin"] == Self.origin, "\(down)")
            #expect(down["Access-Control-Expose-Headers"] == "Location, Retry-After" && down["Retry-After"] != nil)
            #expect(down["Vary"]?.hasSuffix("Origin") == true, "\(down)")
            let asked = try await Self.preflight(endpoint, "/v1/apps/games/restores", from: Self.origin)
            #expect(asked.status == 204 && asked["Access-Control-Allow-Origin"] == Self.origin, "\(asked)")
            #expect(asked["Access-Control-Allow-Methods"]?.contains("POST") == true, "\(asked)")
            let other = try await Self.preflight(endpoint, path, from: "https://games.example.com")
            #expect(other.status == 503 && other["Access-Control-Allow-Origin"] == nil, "\(other)")
            try await endpoint.close()
        }
    }

    @Test func `A page in a browser restores with the TypeScript client, from a listed origin alone`() async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let client = try await AppClient.typescript.product
        try FileManager.default.copyItem(atPath: client, toPath: folder + "/client.js")
        let server = try await Program(
            ["/usr/bin/env", "python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", folder],
            environment: Site.environment([:])
        )
        let port = try await server.find("its port") { server.out.firstMatch(of: /port (\d+)/)?.1 }
        try await EndpointSite.with(scenario: "customers: [{id: ann, state: active}]\n", users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open(settings: ["HTTP_ALLOWED_ORIGINS": "http://localhost:\(port)"])
            let token = try await endpoints.token(#"{"sub": "ann"}"#)
            let page = """
                <!doctype html><title>App</title><p>Wait</p><script type="module">
                import { Entitlements } from "./client.js"
                const token = async () => "\(token)"
                const pause = async () => {}
                const client = new Entitlements(
                    { api: "http://127.0.0.1:\(endpoint.port)/v1", user: "ann", token, disk: localStorage, pause })
                const shown = await client.restore([])
                const access = await client.lastAnswer()
                document.querySelector("p").textContent =
                    `Shown: ${shown.ending}, ${shown.restore?.message}, ${access?.type}`
                </script>
                """
            try page.write(toFile: folder + "/index.html", atomically: true, encoding: .utf8)
            try await Browser.with { browser in
                try await browser.open("http://localhost:\(port)/")
                try await browser.wait(forText: "Shown: unlocked, Your subscription is active again., subscriber")
                try await browser.open("http://127.0.0.1:\(port)/")
                try await browser.wait(forText: "Shown: tryAgain, undefined, undefined")
            }
            try await endpoint.close()
        }
    }
}
