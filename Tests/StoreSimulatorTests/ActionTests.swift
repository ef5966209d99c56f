import HTTPTypes
import Testing

@testable import StoreSimulator

@Suite("Look-ups and actions")
struct ActionTests {
    private static let scenario = """
        project: p1
        customers:
          - id: owner
            aliases: ["$RCAnonymousID:a1"]
            subscriptions:
              - {state: active, id: sub1, store_subscription_identifier: "480001", past_identifiers: ["480000"]}
              - state: expired
                id: sub2
                app: appTwo
                store: play_store
                store_subscription_identifier: GPA.1234-5678-9012-34567
            purchases: [{state: lifetime, id: buy1, store_purchase_identifier: "490001"}]
          - {id: claimant, state: none}
        """

    @Test(
        "A store transaction finds its present owner by any identifier it ever had",
        arguments: [
            ("subscriptions?store_subscription_identifier=480001", "sub1"),
            ("subscriptions?store_subscription_identifier=480000", "sub1"),
            ("subscriptions?store_subscription_identifier=GPA.1234-5678-9012-34567", "sub2"),
            ("subscriptions?store_subscription_identifier=GPA.1234-5678-9012-34567..4", "sub2"),
            ("purchases?store_purchase_identifier=490001", "buy1"),
        ]
    )
    func find(query: String, item: String) async throws {
        try await Probe.run(Self.scenario) { probe in
            let list = try await probe.get(query).json
            #expect(list.itemIDs == [item])
            #expect(list.items.first?["customer_id"]?.text == "owner")
        }
    }

    @Test("An identifier that the store never saw finds an empty list")
    func findNothing() async throws {
        try await Probe.run(Self.scenario) { probe in
            let answer = try await probe.get("subscriptions?store_subscription_identifier=1")
            #expect(answer.status == 200)
            #expect(try answer.json.items.isEmpty)
        }
    }

    @Test("A read by an alias names the primary id")
    func alias() async throws {
        try await Probe.run(Self.scenario) { probe in
            let customer = try await probe.get("customers/%24RCAnonymousID%3Aa1").json
            #expect(customer["id"]?.text == "owner")
            let items = try await probe.get("customers/%24RCAnonymousID%3Aa1/subscriptions").json.items
            #expect(items.allSatisfy { $0["customer_id"]?.text == "owner" })
            #expect(
                try await probe.get("customers/%24RCAnonymousID%3Aa1/aliases").json.itemIDs == [
                    "owner", "$RCAnonymousID:a1",
                ]
            )
        }
    }

    @Test("Items are readable by their own id, with entitlements and transactions")
    func items() async throws {
        try await Probe.run(Self.scenario) { probe in
            #expect(try await probe.get("subscriptions/sub1").json["customer_id"]?.text == "owner")
            #expect(try await probe.get("purchases/buy1").json["object"]?.text == "purchase")
            #expect(try await probe.get("subscriptions/sub1/entitlements").json.items.count == 1)
            let transaction = try #require(try await probe.get("subscriptions/sub1/transactions").json.items.first)
            #expect(transaction["id"]?.text == "480001")
            #expect(
                transaction.keys == [
                    "object", "id", "purchased_at", "product_store_identifier", "expiration_date",
                    "effective_expiration_date",
                ]
            )
            #expect(try await probe.get("subscriptions/nope").status == 404)
        }
    }

    @Test("A transfer moves everything, keeps the first owner's name, and is told once")
    func transfer() async throws {
        try await Probe.run(Self.scenario) { probe in
            let answer = try await probe.post(
                "customers/%24RCAnonymousID%3Aa1/actions/transfer",
                #"{"target_customer_id":"claimant","app_ids":null}"#
            )
            #expect(answer.status == 200)
            #expect(try answer.json["source_customer"]?["id"]?.text == "owner")
            #expect(try answer.json["target_customer"]?["id"]?.text == "claimant")
            #expect(try answer.json["target_customer"]?["active_entitlements"] == nil)

            #expect(try await probe.get("customers/owner/subscriptions").json.items.isEmpty)
            #expect(try await probe.get("customers/owner/purchases").json.items.isEmpty)
            let moved = try await probe.get("customers/claimant/subscriptions").json.items
            #expect(moved.compactMap { $0["id"]?.text } == ["sub1", "sub2"])
            #expect(moved.allSatisfy { $0["customer_id"]?.text == "claimant" })
            #expect(moved.allSatisfy { $0["original_customer_id"]?.text == "owner" })
            #expect(try await probe.get("customers/claimant/active_entitlements").json.items.count == 1)
            let found = try await probe.get("subscriptions?store_subscription_identifier=480000").json.items.first
            #expect(found?["customer_id"]?.text == "claimant")

            let events = try #require(try await probe.control(.get, "/events").json["events"])
            let event = try #require(events[0]?["event"])
            #expect(event["type"]?.text == "TRANSFER")
            #expect(event["transferred_from"] == .array([.string("owner"), .string("$RCAnonymousID:a1")]))
            #expect(event["transferred_to"] == .array([.string("claimant")]))
            #expect(events[1] == nil)
        }
    }

    @Test("A transfer limited to apps moves only theirs")
    func transferApps() async throws {
        try await Probe.run(Self.scenario) { probe async throws in
            let body = #"{"target_customer_id":"claimant","app_ids":["appTwo"]}"#
            #expect(try await probe.post("customers/owner/actions/transfer", body).status == 200)
            #expect(try await probe.get("customers/claimant/subscriptions").json.itemIDs == ["sub2"])
            #expect(try await probe.get("customers/owner/subscriptions").json.itemIDs == ["sub1"])
            #expect(try await probe.get("customers/owner/purchases").json.itemIDs == ["buy1"])
        }
    }

    @Test("A transfer of nothing answers as the scenario chooses", arguments: [("ok", 200), ("unprocessable", 422)])
    func emptyTransfer(choice: String, status: Int) async throws {
        try await Probe.run("empty_transfer: \(choice)\n" + Self.scenario) { probe in
            let answer = try await probe.post(
                "customers/claimant/actions/transfer",
                #"{"target_customer_id":"owner"}"#
            )
            #expect(answer.status == status)
        }
    }

    @Test("A grant adds a promotional subscription until its end; revoking ends it at once")
    func grant() async throws {
        try await Probe.run(Self.scenario) { probe in
            let end = probe.nowMs + 86_400_000
            let granted = try await probe.post(
                "customers/claimant/actions/grant_entitlement",
                #"{"entitlement_id":"entl9f8e7d6c5b","expires_at":\#(end)}"#
            )
            #expect(granted.status == 201)
            #expect(try granted.json["object"]?.text == "customer")
            let item = try #require(try await probe.get("customers/claimant/subscriptions").json.items.first)
            #expect(item["store"]?.text == "promotional")
            #expect(item["environment"]?.text == "production")
            #expect(item["product_id"] == .null)
            #expect(item["ends_at"]?.integer == end)
            #expect(item["entitlements"]?.items.first?["id"]?.text == "entl9f8e7d6c5b")

            probe.simulator.shiftClock(byMilliseconds: 86_400_000)
            #expect(try await probe.get("customers/claimant/active_entitlements").json.items.isEmpty)
            probe.simulator.shiftClock(byMilliseconds: -86_400_000)
            let revoked = try await probe.post(
                "customers/claimant/actions/revoke_granted_entitlement",
                #"{"entitlement_id":"entl9f8e7d6c5b"}"#
            )
            #expect(revoked.status == 200)
            #expect(try await probe.get("customers/claimant/active_entitlements").json.items.isEmpty)
        }
    }

    @Test("A created customer exists, an existing one does not twice, a deleted one no more")
    func create() async throws {
        try await Probe.run(Self.scenario) { probe in
            let body = #"{"id":"new-1","attributes":[{"name":"$email","value":"n@example.com"}]}"#
            let created = try await probe.post("customers", body)
            #expect(created.status == 201)
            #expect(try created.json["id"]?.text == "new-1")
            #expect(try created.json["last_seen_at"] == .null)
            #expect(try await probe.post("customers", body).status == 409)
            #expect(try await probe.get("customers?search=n%40example.com").json.itemIDs == ["new-1"])
            #expect(try await probe.get("customers?limit=2").json.itemIDs == ["claimant", "new-1"])
            #expect(try await probe.send(.delete, "/v2/projects/p1/customers/new-1").status == 200)
            #expect(try await probe.get("customers/new-1").status == 404)
        }
    }

    @Test(
        "At its end a subscription stays, expires or renews",
        arguments: [
            ("{state: active, ends: +1h}", "active", true), ("{state: cancelled, ends: +1h}", "expired", false),
            ("{state: active, ends: +1h, at_end: expire}", "expired", false),
            ("{state: cancelled, ends: +1h, status: active}", "active", true),
            ("{state: active, ends: +1h, at_end: renew}", "active", true),
        ]
    )
    func end(item: String, status: String, givesAccess: Bool) async throws {
        try await Probe.run("{project: p1, customers: [{id: u, subscriptions: [\(item)]}]}") { probe in
            probe.simulator.shiftClock(byMilliseconds: 90 * 86_400_000)
            let item = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
            #expect(item["status"]?.text == status)
            #expect(item["gives_access"]?.flag == givesAccess)
        }
    }

    @Test("A renewing subscription is always within its period")
    func renewal() async throws {
        let yaml = """
            project: p1
            customers:
              - id: u
                subscriptions: [{state: active, current_period_starts_at: -1d, ends: +1d, at_end: renew}]
            """
        try await Probe.run(yaml) { probe in
            for hours in [0, 23, 24, 25, 1000] {
                probe.simulator.simulation.withState { $0.clock.shift(by: Int64(hours) * 3_600_000) }
                let item = try #require(try await probe.get("customers/u/subscriptions").json.items.first)
                let start = try #require(item["current_period_starts_at"]?.integer)
                let end = try #require(item["current_period_ends_at"]?.integer)
                #expect(start <= probe.nowMs && probe.nowMs < end)
                #expect(end - start == 2 * 86_400_000)
            }
        }
    }
}
