import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Paging")
struct PagingTests {
    private static func scenario(_ paging: String = "{}", count: Int = 45) -> String {
        let items = (1...count).map { "{state: active, id: sub\($0)}" }.joined(separator: ", ")
        return "{project: p1, paging: \(paging), customers: [{id: a/b, subscriptions: [\(items)]}]}"
    }

    private static let path = "/v2/projects/p1/customers/a%2Fb/subscriptions"

    @Test(
        "next_page is absolute or relative, and null or absent at the end",
        arguments: ["absolute", "relative"],
        ["\"null\"", "absent"]
    )
    func spellings(link: String, end: String) async throws {
        try await Probe.run(Self.scenario("{link: \(link), end: \(end)}")) { probe in
            let base = (link == "absolute" ? "https://api.revenuecat.com" : "") + Self.path
            let first = try await probe.get("customers/a%2Fb/subscriptions").json
            #expect(first["object"]?.text == "list")
            #expect(first["url"]?.text == base)
            #expect(first.items.count == 20)
            #expect(first["next_page"]?.text == base + "?limit=20&starting_after=sub20")
            let last = try await probe.get("customers/a%2Fb/subscriptions?starting_after=sub40").json
            #expect(last.itemIDs == ["sub41", "sub42", "sub43", "sub44", "sub45"])
            #expect(last["next_page"] == (end == "absent" ? nil : .null))
        }
    }

    @Test("Following the cursor shows every item once")
    func walk() async throws {
        try await Probe.run(Self.scenario("{link: relative, default_limit: 7}")) { probe in
            var seen: [String] = []
            var target: String? = Self.path
            while let next = target, seen.count <= 45 {
                let page = try await probe.send(.get, next).json
                seen += page.itemIDs
                target = page["next_page"]?.text
            }
            #expect(seen == (1...45).map { "sub\($0)" })
        }
    }

    @Test(
        "A limit outside 1 to 100 is clamped",
        arguments: [("0", 1), ("-5", 1), ("1", 1), ("100", 100), ("1000", 100)]
    )
    func clamp(limit: String, expected: Int) async throws {
        try await Probe.run(Self.scenario(count: 120)) { probe in
            let page = try await probe.get("customers/a%2Fb/subscriptions?limit=\(limit)").json
            #expect(page.items.count == expected)
        }
    }

    @Test(
        "A query that cannot be understood is a parameter error",
        arguments: [
            ("limit=ten", "limit"), ("starting_after=nobody", "starting_after"), ("environment=x", "environment"),
        ]
    )
    func badQuery(query: String, param: String) async throws {
        try await Probe.run(Self.scenario()) { probe in
            let answer = try await probe.get("customers/a%2Fb/subscriptions?\(query)")
            #expect(answer.status == 400)
            #expect(try answer.json["type"]?.text == "parameter_error")
            #expect(try answer.json["param"]?.text == param)
        }
    }

    @Test("The environment filter keeps only that environment, also in next_page")
    func environment() async throws {
        let yaml = """
            project: p1
            customers:
              - id: u
                subscriptions: [active, sandbox, active]
                purchases: [sandbox, lifetime]
            """
        try await Probe.run(yaml) { probe in
            let production = try await probe.get("customers/u/subscriptions?environment=production&limit=1").json
            #expect(production.items.count == 1)
            #expect(production["next_page"]?.text?.hasSuffix("&environment=production") == true)
            let sandbox = try await probe.get("customers/u/subscriptions?environment=sandbox").json
            #expect(sandbox.items.compactMap { $0["environment"]?.text } == ["sandbox"])
            let purchases = try await probe.get("customers/u/purchases?environment=production").json
            #expect(purchases.items.count == 1)
        }
    }

    @Test("A nested entitlement list is cut as well, and its own endpoint goes on from there")
    func nested() async throws {
        let yaml = """
            project: p1
            paging: {nested_limit: 2, link: relative}
            customers: [{id: u, subscriptions: [{id: sub1, entitlements: [a, b, c]}]}]
            """
        try await Probe.run(yaml) { probe in
            let item = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            let nested = try #require(item["entitlements"])
            #expect(nested.items.count == 2)
            let next = try #require(nested["next_page"]?.text)
            let rest = try await probe.send(.get, next).json
            #expect(rest.items.compactMap { $0["lookup_key"]?.text } == ["c"])
            #expect(rest["next_page"] == .null)
        }
    }

    @Test("A repeated cursor never ends")
    func repeatedCursor() async throws {
        let yaml = """
            project: p1
            customers: [{id: u, subscriptions: [{id: sub1}, {id: sub2}]}]
            faults: [{endpoint: subscriptions, repeat_cursor: true}]
            """
        try await Probe.run(yaml) { probe in
            let first = try await probe.get("customers/u/subscriptions").json
            #expect(first["next_page"]?.text?.hasSuffix("starting_after=sub2") == true)
            let second = try await probe.get("customers/u/subscriptions?starting_after=sub2").json
            #expect(second["next_page"] == first["next_page"])
            #expect(second.items.count == 2)
        }
    }
}
