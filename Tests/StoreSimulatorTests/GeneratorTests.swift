import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Generated customers")
struct GeneratorTests {
    private static let scenario = """
        project: p1
        generate:
          - {id: "user-{n}", count: 1000000, mix: {active: 70, expired: 30}, aliases: ["$RCAnonymousID:{n:32}"]}
          - id: "{n:6}-play"
            from: 5
            count: 10
            subscriptions: [{state: active, store: play_store}, expired]
            purchases: [lifetime]
        """

    @Test(
        "Only ids of the pattern exist",
        arguments: [
            ("user-1", 200), ("user-1000000", 200), ("user-0", 404), ("user-1000001", 404), ("user-01", 404),
            ("user-", 404), ("user-x", 404), ("user--1", 404), ("user-99999999999999999999", 404),
            ("000005-play", 200), ("5-play", 404), ("000014-play", 200), ("000015-play", 404),
        ]
    )
    func ids(id: String, status: Int) async throws {
        try await Probe.run(Self.scenario) { probe async throws in
            #expect(try await probe.get("customers/\(id)").status == status)
        }
    }

    @Test("The mix holds exactly over a hundred consecutive customers")
    func mix() async throws {
        try await Probe.run(Self.scenario + "\nrate_limit_per_minute: 0") { probe in
            var statuses: [String: Int] = [:]
            for number in 501...600 {
                let item = try await probe.get("customers/user-\(number)/subscriptions").json.items.first
                statuses[item?["status"]?.text ?? "", default: 0] += 1
            }
            #expect(statuses == ["active": 70, "expired": 30])
        }
    }

    @Test("Identifiers lead back to the customer, and an alias to the primary id")
    func inverse() async throws {
        try await Probe.run(Self.scenario) { probe in
            for id in ["user-77", "user-1000000", "000007-play"] {
                let items = try await probe.get("customers/\(id)/subscriptions").json.items
                #expect(!items.isEmpty)
                for item in items {
                    let identifier = try #require(item["store_subscription_identifier"]?.text)
                    let path = "subscriptions?store_subscription_identifier=\(identifier)"
                    let found = try #require(try await probe.get(path).json.items.first)
                    #expect(found == item)
                    let itemID = try #require(item["id"]?.text)
                    #expect(try await probe.get("subscriptions/\(itemID)").json == item)
                }
                for item in try await probe.get("customers/\(id)/purchases").json.items {
                    let identifier = try #require(item["store_purchase_identifier"]?.text)
                    let found = try await probe.get("purchases?store_purchase_identifier=\(identifier)").json.items
                    #expect(found == [item])
                }
            }
            let alias = "%24RCAnonymousID%3A" + String(repeating: "0", count: 30) + "77"
            #expect(try await probe.get("customers/\(alias)").json["id"]?.text == "user-77")
        }
    }

    @Test("A changed, moved or deleted customer no longer follows the pattern")
    func changed() async throws {
        try await Probe.run(Self.scenario) { probe in
            let item = try #require(try await probe.get("customers/user-1/subscriptions").json.items.first)
            let identifier = try #require(item["store_subscription_identifier"]?.text)
            let look = "subscriptions?store_subscription_identifier=\(identifier)"
            let body = #"{"target_customer_id":"user-2"}"#
            #expect(try await probe.post("customers/user-1/actions/transfer", body).status == 200)
            #expect(try await probe.get("customers/user-1/subscriptions").json.items.isEmpty)
            #expect(try await probe.get("customers/user-2/subscriptions").json.items.count == 2)
            #expect(try await probe.get(look).json.items.first?["customer_id"]?.text == "user-2")

            #expect(try await probe.control(.delete, "/customers/user-2").status == 200)
            #expect(try await probe.get("customers/user-2").status == 404)
            #expect(try await probe.get(look).json.items.isEmpty)
            _ = try await probe.control(.put, "/customers/user-2", #"{"state":"trial"}"#)
            #expect(try await probe.get("customers/user-2").status == 200)
        }
    }

    @Test("A spread moves the ends apart, evenly over a thousand customers")
    func spread() async throws {
        let yaml = "{project: p1, generate: [{id: \"u{n}\", from: 0, count: 5000, spread: 1000s}]}"
        try await Probe.run(yaml) { probe in
            func end(_ number: Int) async throws -> Int64 {
                let item = try await probe.get("customers/u\(number)/subscriptions").json.items.first
                return try #require(item?["ends_at"]?.integer)
            }
            let first = try await end(0)
            #expect(try await end(1) == first + 1000)
            #expect(try await end(999) == first + 999_000)
            #expect(try await end(1000) == first)
        }
    }

    @Test("An unlisted id answers the default, with identifiers of its own")
    func unlisted() async throws {
        try await Probe.run("{project: p1, default_customer: {state: active}}") { probe in
            let first = try #require(try await probe.get("customers/a/subscriptions").json.items.first)
            let second = try #require(try await probe.get("customers/b/subscriptions").json.items.first)
            #expect(first["customer_id"]?.text == "a")
            #expect(first["id"] != second["id"])
            #expect(first["store_subscription_identifier"] != second["store_subscription_identifier"])
            #expect(try await probe.get("customers/a/subscriptions").json.items.first == first)
            _ = try await probe.control(.delete, "/customers/a")
            #expect(try await probe.get("customers/a").status == 404)
        }
    }
}
