import Foundation
import TestSupport
import Testing

/// What an attacker tries, again and again: tokens, other users' ids, odd requests, webhooks, the console, SQL.
///
/// Stores that are hostile are not among it; tests of the stores' clients play those.
struct AttemptTests {
    /// A line of the script's output.
    private struct Report: Decodable {
        var what: String
        var attempts: Int
        var accepted: Int
        /// What was accepted; where nothing was, two of those that were refused.
        var examples: [String]?
        /// What a standard lets the server refuse and does no harm.
        var lenient: [String]?
        /// Why the attempts of a category show nothing.
        var error: String?
    }

    private static let scenario = """
        customers:
          - {id: ann, state: active}
          - {id: bob, state: active}
          - {id: owner, subscriptions: [{state: active, store_subscription_identifier: "200000070000001"}]}
          - {id: claimant, state: none}
        app_store:
          customers:
            - id: apple
              transactions: [{original: "2000000900001", transaction: "2000000900001", product: premium_monthly, expires: +20d}]
        google_play:
          purchases: [{token: tok-a, state: active}]

        """

    /// How many attempts there are of each kind, so that doing nothing is no success.
    private static let counts = [
        "ID tokens": 212, "another user's restores, cases and purchases": 112, "idempotency keys": 78,
        "HTTP/1.1 framing": 156, "JSON": 152, "webhooks": 205, "console": 180, "what each role may at the desk": 458,
        "SQL by each database role": 892, "limits": 186, "stored text": 63,
    ]

    @Test(.full)
    func `Nothing of what an attacker tries is accepted`() async throws {
        // Limits are of a minute, within which hundreds of requests have to come.
        try await Turnstile.shared.pass(alone: true) { try await Self.attempt() }
    }

    private static func attempt() async throws {
        try await EndpointSite.with(
            .staffed,
            scenario: scenario,
            users: ["ann", "bob", "owner", "claimant"]
        ) { endpoints in
            let staff = try await Staff(at: endpoints.site)
            defer { staff.leave() }
            let endpoint = try await endpoints.open()
            let limited = try await endpoints.open(
                "serve",
                settings: ["HTTP_REQUESTS_PER_MINUTE_PER_USER": "20", "HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS": "40"]
            )
            let admin = try await endpoint.adminPort
            let script = try await Program(
                ["/usr/bin/env", "python3", Paths.fixtures + "/attempts"],
                environment: Site.environment(
                    endpoints.site.settings.merging([
                        "ATTEMPTS_API_PORT": "\(endpoint.port)", "ATTEMPTS_ADMIN_PORT": "\(admin)",
                        "ATTEMPTS_LIMITED_PORT": "\(limited.port)",
                        "ATTEMPTS_SIMULATOR_PORT": "\(endpoints.simulator.port)", "ATTEMPTS_KEYS": Paths.keys,
                        "ATTEMPTS_FILES": endpoints.files, "ATTEMPTS_STAFF": staff.folder,
                        "ATTEMPTS_PROGRAM": Paths.program, "ATTEMPTS_DATABASE": try endpoints.site.database.tcpURL,
                        "PYTHONDONTWRITEBYTECODE": "1",
                    ]) { $1 }
                )
            )
            let ending = try await script.ending(within: .seconds(900))
            try expect(ending)
            try await limited.close()
            try await endpoint.close()
        }
    }

    private static func expect(_ ending: Program.Ending) throws {
        var reports = try ending.out.split(separator: "\n").map {
            try JSONDecoder().decode(Report.self, from: Data($0.utf8))
        }
        let last = reports.popLast()
        let total = try #require(last, "\(ending)")
        report(table(reports + [total]))
        for category in reports {
            #expect(category.error == nil, "\(category.what)")
            #expect(category.accepted == 0, "\(category.what): \(category.examples ?? [])")
        }
        for (what, count) in counts {
            let attempts = reports.first { $0.what == what }?.attempts ?? 0
            #expect(attempts >= count, "\(what)")
        }
        #expect(total.what == "all" && total.accepted == 0 && ending.code == 0, "\(ending)")
    }

    private static func table(_ reports: [Report]) -> String {
        let width = reports.map(\.what.count).max() ?? 0
        func right(_ number: Int) -> String {
            let text = "\(number)"
            return String(repeating: " ", count: max(0, 10 - text.count)) + text
        }
        return reports.map { category in
            let name = category.what.padding(toLength: width, withPad: " ", startingAt: 0)
            let row = "\(name)\(right(category.attempts)) attempts\(right(category.accepted)) accepted"
            return ([row] + (category.lenient ?? []).map { "    lenient: \($0)" }).joined(separator: "\n    ")
        }.joined(separator: "\n    ")
    }
}
