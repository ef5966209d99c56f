import Foundation
import Postgres
import TestSupport
import Testing

/// A site whose console is served, with a case on the desk, two admins and two who may approve.
struct ConsoleSite: Sendable {
    private static let scenario = """
        api_keys: [sk_move, {key: sk_process_tests, write: false}]
        customers:
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "200000070000001"}]}
          - {id: claimant, state: none}
        """
    private static let proof = "transaction_id=200000070000001"

    let site: Site
    let program: Program
    /// Of the address with the console.
    let port: Int
    let root: Operator
    let bea: Operator
    let cid: Operator

    /// Makes all of it, lets the test act, and takes it down; the program has to stop in good order.
    ///
    /// - Parameters:
    ///   - servers: a primary of the test's own, and its standby for reports.
    ///   - settings: further settings.
    ///   - body: the test.
    /// - Throws: what the test threw, or why there is no such site.
    static func with(
        on servers: (primary: PrivatePostgres, standby: PrivatePostgres)? = nil,
        settings: [String: String] = [:],
        _ body: @Sendable (ConsoleSite) async throws -> Void
    ) async throws {
        let simulator = try await Simulator(scenario: scenario)
        try await Site.with(
            .staffed,
            on: servers?.primary,
            store: simulator.url,
            settings: [
                "REVENUECAT_TRANSFER_API_KEY": "sk_move", "TRANSFER_OWNER_HOURS": "0", "HTTP_PORT": "0",
                "ADMIN_PORT": "0",
                "REVENUECAT_WEBHOOK_SECRET": "0123456789abcdef0123456789abcdef",
            ].merging(settings) { $1 }
        ) { site in
            var site = site
            if let servers {
                site.settings["REPORT_DATABASE_URL"] = servers.standby.url(
                    database: try site.database.name,
                    overTCP: true
                )
            }
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('owner'), ('claimant');
                INSERT INTO assets (user_id, frozen_reasons) VALUES ('owner', '{}'), ('claimant', '{subscription_lapsed}')
                """
            )
            let staff = try await Staff(at: site)
            defer { staff.leave() }
            let program = try await site.start("run")
            let console = ConsoleSite(
                site: site,
                program: program,
                port: try await Self.port(of: program),
                root: staff.root,
                bea: staff.bea,
                cid: staff.cid
            )
            try await body(console)
            let ending = try await program.stop()
            for secret in ["200000070000001", Operator.password, "esop_"] {
                #expect(!ending.err.contains(secret), "\(secret) in the log")
            }
        }
    }

    private static func port(of program: Program) async throws -> Int {
        try await program.find("the console's port") {
            program.log.first { $0.contains("serving metrics") }?.split(separator: "=").last.flatMap { Int($0) }
        }
    }

    /// An address of a page.
    func url(_ path: String) -> String { "http://127.0.0.1:\(port)\(path)" }

    /// Has the claimant show a proof of the owner's purchase, and waits until the evidence is there.
    func makeCase() async throws {
        _ = try await site.run("reconcile", "owner", "--wait", "20")
        _ = try await site.run("restore", "claimant", "--proof", Self.proof, "--client-error", "7", "--wait", "20")
        try await site.execute("SELECT entitlement_sync.request_evidence(t.id) FROM entitlement_sync.ticket AS t")
        try await site.waitUntil(
            """
            SELECT count(*) FROM entitlement_sync.ticket AS t
             WHERE t.evidence_id IS NOT NULL AND t.purchase_id IS NOT NULL
               AND EXISTS (SELECT 1 FROM entitlement_sync.evidence_request AS r WHERE r.ticket_id = t.id AND r.due_at IS NULL)
            """,
            comment: "no evidence was collected"
        )
    }

    /// Signs an operator in with the code of the next half minute: that of the last sign-in has been used.
    func signIn(_ person: Operator, in browser: Browser, at path: String = "/console") async throws {
        try await browser.open(url(path))
        try await browser.type("#name", person.name)
        try await browser.type("#password", Operator.password)
        try await browser.type("#code", person.code(later: 1))
        try await browser.submit("main form")
    }

    /// Waits until the transfer is done for both.
    func awaitTransfer() async throws {
        try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
        try await site.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
        try await site.waitUntil("SELECT count(*) FROM assets WHERE user_id = 'claimant' AND frozen_reasons = '{}'")
        try await site.waitUntil(
            "SELECT count(*) FROM assets WHERE user_id = 'owner' AND frozen_reasons @> '{subscription_lapsed}'"
        )
        try await site.waitUntil("SELECT count(*) FROM entitlement_sync.ticket AS t WHERE t.state = 'transferred'")
    }
}
