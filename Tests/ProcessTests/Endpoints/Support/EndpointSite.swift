import Foundation
import HTTPTypes
import Logging
import Postgres
import TestSupport
import Testing
import Transport

/// A site that serves users' apps and all stores' webhooks, before simulated stores that are all on.
///
/// Nobody's requests are counted, unless a test's settings say so.
struct EndpointSite: Sendable {
    let site: Site
    let simulator: Simulator
    let transport: HTTPTransport
    /// The folder with what operators and devices would have.
    let files: String
    /// Proofs as devices would have them, by kind and by what they are about.
    private let proofs: [String: String]

    /// Makes one, lets the test act on it, and takes it down.
    ///
    /// - Parameters:
    ///   - template: what the database begins with.
    ///   - server: where it is; the shared server by default.
    ///   - address: of a database that there is already, in place of both.
    ///   - scenario: what the stores hold.
    ///   - users: the host's users, all free.
    ///   - settings: further settings.
    ///   - body: the test.
    /// - Throws: what the test threw, or why there is no such site.
    static func with(
        _ template: DatabaseTemplate = .selling,
        on server: PrivatePostgres? = nil,
        at address: String? = nil,
        scenario: String,
        users: [String] = [],
        settings: [String: String] = [:],
        _ body: @Sendable (EndpointSite) async throws -> Void
    ) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let simulator = try await Simulator(scenario: scenario, files: folder)
        let transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(maxConnectionsPerHost: 256),
            logger: .silent
        )
        try await run {
            let proofs = try proofs(in: folder)
            var all = [
                "HTTP_PORT": "0", "ADMIN_PORT": "0", "LOG_FORMAT": "json", "HTTP_REQUESTS_PER_MINUTE_PER_USER": "0",
                "HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS": "0",
            ]
            all.merge(try variables(in: folder)) { $1 }
            all.merge(settings) { $1 }
            let act: @Sendable (Site) async throws -> Void = { site in
                try await site.execute(products)
                try await site.pool.query("INSERT INTO users (id) SELECT unnest(\(users)::text[])")
                try await body(
                    EndpointSite(site: site, simulator: simulator, transport: transport, files: folder, proofs: proofs)
                )
            }
            if let address {
                try await Site.with(nil, at: address, store: simulator.url, settings: all, act)
            } else {
                try await Site.with(template, on: server, store: simulator.url, settings: all, act)
            }
        } finally: {
            await transport.shutdown()
        }
    }

    /// What means access beside RevenueCat's entitlement.
    static let products = """
        INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
        VALUES ('app_store', 'premium_monthly', 'premium', true), ('google_play', 'pro', 'premium', true),
               ('onside', 'premium_monthly', 'premium', true);
        """

    private static func variables(in folder: String) throws -> [String: String] {
        var variables: [String: String] = [:]
        for line in try Paths.text(folder + "/stores.env").split(separator: "\n") {
            let sides = line.split(separator: "=", maxSplits: 1)
            variables[String(sides[0])] = sides.count > 1 ? String(sides[1]) : ""
        }
        return variables
    }

    private static func proofs(in folder: String) throws -> [String: String] {
        var proofs: [String: String] = [:]
        for line in try Paths.text(folder + "/proofs.tsv").split(separator: "\n") {
            let parts = line.split(separator: "\t")
            proofs["\(parts[0]) \(parts[1])"] = String(parts[2])
        }
        return proofs
    }

    // MARK: Processes

    /// Starts a process that serves the API, and waits until it listens.
    ///
    /// - Parameters:
    ///   - role: `run` or `serve`.
    ///   - settings: further settings.
    /// - Returns: the endpoint.
    /// - Throws: when it does not start.
    func open(_ role: String = "run", settings: [String: String] = [:]) async throws -> Endpoint {
        let program = try await Program(
            [Paths.program, role],
            environment: Site.environment(site.settings.merging(settings) { $1 })
        )
        return try await Endpoint(program, over: transport)
    }

    /// Runs a test at a process that serves and does not work, which has to live on and to have failed at nothing.
    static func serving(_ body: @Sendable (EndpointSite, Endpoint, Caller) async throws -> Void) async throws {
        try await with(scenario: "customers: [{id: ann, state: active}]\n", users: ["ann"]) { endpoints in
            let endpoint = try await endpoints.open("serve")
            let ann = try await endpoints.caller("ann", at: endpoint)
            try await body(endpoints, endpoint, ann)
            let health = try await endpoint.ask(.get, "/health/ready")
            #expect(health.status == 200, "\(health)")
            let failures = try endpoint.log.filter { $0["level"] == "error" || $0["level"] == "critical" }
            #expect(failures == [])
            try await endpoint.close()
        }
    }

    /// How many jobs are on record.
    func jobs() async throws -> Int64 {
        try await site.number("SELECT count(*) FROM entitlement_sync.job_status")
    }

    // MARK: What others would bring

    /// The body of a restore that shows a signed transaction of the App Store.
    func showing(transaction: String) throws -> String {
        let proof = try #require(proofs["storekit_jws \(transaction)"], "\(transaction)")
        return #"{"proofs": [{"store": "app_store", "kind": "storekit_jws", "value": "\#(proof)"}]}"#
    }

    /// The body of a restore on a device that is signed in to an account of the App Store, with the transactions that it shows.
    func showing(account: String, transactions: [String] = []) throws -> String {
        let device = [("app_transaction", try #require(proofs["app_transaction \(account)"], "\(account)"))]
        let shown = try transactions.map { ("storekit_jws", try #require(proofs["storekit_jws \($0)"], "\($0)")) }
        let list = (device + shown).map { #"{"store": "app_store", "kind": "\#($0)", "value": "\#($1)"}"# }
        return #"{"proofs": [\#(list.joined(separator: ", "))]}"#
    }

    /// Somebody who calls with a user's own token.
    func caller(_ user: String, at endpoint: Endpoint) async throws -> Caller {
        Caller(endpoint: endpoint, token: try await token(#"{"sub": "\#(user)"}"#))
    }

    /// An ID token.
    ///
    /// - Parameter claims: what it says and how it is signed, as the simulator's control endpoint takes it.
    /// - Returns: the token.
    /// - Throws: when the simulator does not make it.
    func token(_ claims: String) async throws -> String {
        try await minted("/control/identity/firebase-token", claims)
    }

    /// The token of a push, likewise.
    func pushToken(_ claims: String) async throws -> String {
        try await minted("/control/identity/push-token", claims)
    }

    private func minted(_ path: String, _ claims: String) async throws -> String {
        struct Minted: Decodable { var token: String }
        let minted: Minted = try await control(path, claims).decode()
        return minted.token
    }

    /// A webhook, ready to be posted.
    ///
    /// - Parameters:
    ///   - store: as it stands in the webhook's path.
    ///   - request: what it says, as the simulator's control endpoint takes it.
    /// - Returns: the webhook.
    /// - Throws: when the simulator does not make it.
    func webhook(_ store: String, _ request: String) async throws -> Webhook {
        try await control("/control/webhooks/\(store)", request).decode()
    }

    /// Tells the simulator something.
    @discardableResult
    func control(_ path: String, _ json: String, by method: HTTPRequest.Method = .post) async throws -> HTTPAnswer {
        let answer = try await transport.ask(method, path, at: simulator.port, body: json)
        try #require(answer.status == 200, "\(path): \(answer)")
        return answer
    }
}
