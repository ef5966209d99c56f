import Foundation
import Testing

@testable import StoreSimulator

@Suite("Scenario files")
struct ScenarioTests {
    @Test(
        "A fault in a scenario names the key and the fix",
        arguments: [
            ("customer: []", "customer is no known key; use one of api_keys"),
            ("customers: [{state: active}]", "customers[0].id is missing; add it"),
            ("customers: [{id: a}, {id: b, aliases: [a]}]", "customers[1] uses the id \"a\" of customers[0]"),
            ("customers: [{id: a, state: actve}]", "customers[0].state is \"actve\"; use one of active, trial"),
            (
                "customers: [{id: a, subscriptions: [{ends: soon}]}]",
                "customers[0].subscriptions[0].ends is no moment; write +12d"
            ),
            (
                "customers: [{id: a, subscriptions: [{gives_access: perhaps}]}]",
                "customers[0].subscriptions[0].gives_access has the wrong type; give it true or false"
            ),
            (
                "customers: [{id: a, subscriptions: [lifetime]}]",
                "customers[0].subscriptions[0] is \"lifetime\", which describes no subscription"
            ),
            (
                "customers: [{id: a, purchases: [{state: active}]}]",
                "customers[0].purchases[0].state describes no purchase"
            ),
            ("customers: [{id: a, aliases: a2}]", "customers[0].aliases has the wrong type; give it a list"),
            ("rate_limit_per_minute: -1", "rate_limit_per_minute is -1; use 0 to"),
            ("rate_limit_per_minute: many", "rate_limit_per_minute has the wrong type; give it a whole number"),
            ("paging: {end: nil}", "paging.end is \"nil\"; use one of null, absent"),
            ("generate: [{id: user}]", "generate[0].id has no {n}"),
            ("generate: [{count: 3}]", "generate[0].id is missing; add it"),
            ("generate: [{id: \"u{n}\", mix: {actve: 1}}]", "generate[0].mix has \"actve: 1\"; use a share"),
            ("generate: [{id: \"u{n}\", state: active, mix: {trial: 1}}]", "generate[0].mix stands next to `state`"),
            ("default_customer: {aliases: [x]}", "default_customer.aliases names \"x\""),
            ("faults: [{}]", "faults[0] does nothing; add latency"),
            ("faults: [{latency: 50}, {latency: 5 ms}]", "faults[1].latency is no length of time"),
            ("faults: [{latency: 50ms, latency_max: 5ms}]", "faults[0].latency_max is below `latency`"),
            ("faults: [{endpoint: subs, status: 500}]", "faults[0].endpoint is \"subs\"; use one of subscriptions"),
            ("faults: [{status: 42}]", "faults[0].status is 42; use 200 to 599"),
            ("a: [", "line"),
            ("- a", "wrong type"),
        ]
    )
    func fault(yaml: String, message: String) {
        let error = #expect(throws: ScenarioError.self) { try Scenario(yaml: yaml) }
        #expect(error?.description.contains(message) == true, "\(error?.description ?? "")")
    }

    @Test("JSON and YAML files say the same")
    func files() throws {
        let folder = FileManager.default.temporaryDirectory.appending(path: "simulator-\(UUID())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let yaml = folder.appending(path: "a.yaml")
        let json = folder.appending(path: "a.json")
        try Data("project: p9\ncustomers: [{id: a, subscriptions: [{state: paused, ends: null}]}]".utf8).write(to: yaml)
        try Data(#"{"project":"p9","customers":[{"id":"a","subscriptions":[{"state":"paused","ends":null}]}]}"#.utf8)
            .write(to: json)
        let first = try Scenario.load(fileAt: yaml.path)
        let second = try Scenario.load(fileAt: json.path)
        #expect(first.project == "p9")
        #expect(first.customers == second.customers)
        #expect(first.customers.first?.subscriptions.first?.ends == .null)
        #expect(throws: ScenarioError.self) { try Scenario.load(fileAt: folder.appending(path: "none.yaml").path) }
    }

    @Test("The example that ships with the program is a valid scenario")
    func example() async throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let scenario = try Scenario.load(fileAt: root.appending(path: "deploy/simulator.example.yaml").path)
        #expect(scenario.customers.count == 13)
        _ = try StoreSimulator(scenario: scenario, logger: Probe.quiet)
    }

    @Test("An empty file is an empty project with the store's own limits")
    func empty() throws {
        let scenario = try Scenario(yaml: " \n")
        #expect(scenario.rateLimitPerMinute == 480)
        #expect(scenario.projectRateLimitPerMinute == 60)
        #expect(scenario.customers.isEmpty)
        #expect(try Scenario(yaml: "rate_limit_per_minute: 0").projectRateLimitPerMinute == 0)
    }

    @Test("What is encoded is decoded again")
    func roundTrip() throws {
        let yaml = """
            project: p1
            api_keys: [sk_one, {key: sk_two, write: false}]
            paging: {link: relative, end: absent}
            customers:
              - id: a
                last_seen: null
                subscriptions: [{state: paused, ends: null, starts: -3h, entitlements: []}, active]
                purchases: [{purchased_at: 1790000000000, quantity: 2}]
            generate: [{id: "u{n:4}", count: 5, mix: {active: 2, expired: 1}, spread: 30d}]
            default_customer: {state: trial}
            faults: [{customer: a, latency: 10ms, date_skew: -45s}]
            """
        let scenario = try Scenario(yaml: yaml)
        let again = try Scenario.decode(json: JSONEncoder().encode(scenario))
        #expect(again.customers == scenario.customers)
        #expect(again.generate == scenario.generate)
        #expect(again.faults == scenario.faults)
        #expect(again.apiKeys == scenario.apiKeys)
        #expect(again.paging == scenario.paging)
        #expect(again.defaultCustomer == scenario.defaultCustomer)
    }

    @Test(
        "Moments are relative, absolute or now",
        arguments: [
            ("+12d", 1_000_000 + 12 * 86_400_000), ("-3h", 1_000_000 - 10_800_000), ("now", 1_000_000),
            ("+1d12h30m", 1_000_000 + 131_400_000), ("+250ms", 1_000_250), ("1790000000000", 1_790_000_000_000),
            ("-1w", 1_000_000 - 604_800_000),
        ] as [(String, Int64)]
    )
    func moments(text: String, expected: Int64) throws {
        let customer = try Scenario(yaml: "customers: [{id: a, first_seen: \(text)}]").customers.first
        #expect(customer?.firstSeen?.milliseconds(from: 1_000_000) == expected)
    }

    @Test(
        "A malformed length of time is none",
        arguments: ["", "d", "1", "1x", "1d2", "-1d", "1 d", "99999999999999999999d", "9999999y", "1.5h"]
    )
    func malformedSpans(text: String) {
        #expect(TimeText.milliseconds(text[...]) == nil)
    }
}
