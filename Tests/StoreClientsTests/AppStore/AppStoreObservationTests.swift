import Entitlements
import HTTPTypes
@testable import StoreClients
import StoreSimulator
import Testing
import Transport

/// What a purchase of the App Store looks like to the rules.
struct AppStoreObservationTests {
    @Test(arguments: [
        ("active", "active", true), ("expired", "expired", false), ("billing_retry", "in_billing_retry", false),
        ("grace", "in_grace_period", true), ("refunded", "refunded", false), ("revoked", "refunded", false),
        ("unknown", "apple_status_9", false),
    ])
    func `a status has one word and one meaning`(state: String, word: String, givesAccess: Bool) async throws {
        let store = try SimulatedAppStore(transactions: [
            #"original: "2000000100000001", transaction: "2000000100000009", product: monthly, state: \#(state), "#
                + "purchased: 1790000000000, originally: 1780000000000, expires: 1792000000000, grace_ends: 1793000000000"
        ])
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full)
        let observation = try #require(reading.observations.first)
        #expect(reading.observations.count == 1)
        #expect(observation.source == .appStore && observation.store == "app_store")
        #expect(observation.kind == .subscription && observation.environment == "production")
        #expect(observation.status.raw == word && observation.givesAccess == givesAccess)
        #expect(observation.productID == "monthly" && observation.entitlements == ["app_store:monthly"])
        #expect(observation.periodStartsAt == Instant(milliseconds: 1_790_000_000_000))
        let end: Int64 = state == "grace" ? 1_793_000_000_000 : 1_792_000_000_000
        #expect(observation.periodEndsAt == Instant(milliseconds: end))
        #expect(observation.boughtAt == Instant(milliseconds: 1_780_000_000_000))
        #expect(observation.identifiers.map(\.value) == ["2000000100000001", "2000000100000009"])
        #expect(observation.identifiers.allSatisfy { $0.kind == "store_id" && $0.store == "app_store" })
        #expect(observation.lookupID == "2000000100000001" && observation.owner == .unnamed)
        #expect(observation.ownership == "purchased" && observation.accountID == nil)
        #expect(observation.statedAt != nil && observation.payloadHash == observation.factsHash)
    }

    @Test func `every documented status has one row`() {
        #expect(AppStoreMapping.statuses.map(\.number) == [1, 2, 3, 4, 5])
        #expect(AppStoreMapping.status(0).status == "apple_status_0" && !AppStoreMapping.status(0).givesAccess)
        // The rules know every word but the unknown one.
        for row in AppStoreMapping.statuses { #expect(StoreStatus(row.status).known != .unknown) }
    }

    @Test(arguments: [(true, "will_renew"), (false, "will_not_renew")])
    func `renewal is what the renewal info says`(flag: Bool, word: String) async throws {
        let store = try SimulatedAppStore(transactions: [
            #"original: "2000000100000001", product: monthly, auto_renew: \#(flag)"#
        ])
        #expect(try await store.read("2000000100000001").observations.map(\.renewal) == [word])
    }

    @Test func `an account token, a replaced line and a family member are told`() async throws {
        let store = try SimulatedAppStore(transactions: [
            #"original: "2000000100000001", product: monthly, account_token: 7E3FB204-2B4B-4D5A-9D4A-7F5F6D3B5C10, "#
                + #"previous_original: "2000000000000007""#,
            #"original: "2000000100000002", product: yearly, ownership: FAMILY_SHARED"#,
            #"original: "2000000100000003", product: lifetime, type: non_consumable, ownership: ASSIGNED"#,
        ])
        let observations = try await store.read("2000000100000001").observations
        #expect(observations.map(\.accountID) == ["7e3fb204-2b4b-4d5a-9d4a-7f5f6d3b5c10", nil, nil])
        #expect(observations.map(\.ownership) == ["purchased", "family_shared", "assigned"])
        #expect(observations[0].identifiers.map(\.value) == ["2000000000000007", "2000000100000001"])
        #expect(observations[1].isFamilyShared)
    }

    @Test func `what an upgrade replaced and what is used up never appear`() async throws {
        let store = try SimulatedAppStore(transactions: [
            #"original: "2000000100000001", transaction: "2000000100000008", product: monthly, upgraded: true, purchased: -1d"#,
            #"original: "2000000100000001", transaction: "2000000100000009", product: yearly, purchased: -2d"#,
            #"original: "2000000100000004", product: old, upgraded: true"#,
            #"original: "2000000100000005", product: coins, type: consumable"#,
            #"original: "2000000100000006", product: lifetime, type: non_consumable, upgraded: true"#,
        ])
        // Also where a list holds what was not asked for.
        store.alter { target, response in
            guard target.contains("/history/") else { return }
            let unfiltered = String(target.split(separator: "?")[0])
            let answer = store.simulator.answer(
                method: "GET",
                target: unfiltered,
                authorization: store.requests.last?.headerFields[.authorization]
            )
            response.body = answer.body
        }
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full && reading.passes.isEmpty)
        #expect(reading.observations.map(\.productID) == ["yearly"])
    }

    @Test func `a purchase for ever is owned or refunded, once for all its restores`() async throws {
        let store = try SimulatedAppStore(transactions: [
            #"original: "2000000100000001", product: lifetime, type: non_consumable, purchased: -90d"#,
            #"original: "2000000100000001", transaction: "2000000100000009", product: lifetime, type: non_consumable"#,
            #"original: "2000000100000002", product: other, type: non_consumable, state: refunded"#,
        ])
        let reading = try await store.read("2000000100000002")
        #expect(reading.observations.map(\.kind) == [.oneTime, .oneTime])
        #expect(reading.observations.map(\.status.raw) == ["owned", "refunded"])
        #expect(reading.observations.map(\.givesAccess) == [nil, nil])
        #expect(reading.observations.map(\.renewal) == [nil, nil])
        #expect(reading.observations.map(\.periodEndsAt) == [nil, nil])
        #expect(reading.observations[0].identifiers.map(\.value) == ["2000000100000001", "2000000100000009"])
    }

    @Test func `a pass is ours to end, and a revoked one is over`() async throws {
        let store = try SimulatedAppStore(transactions: [
            #"original: "2000000100000001", product: season, type: non_renewing, purchased: 1790000000000"#,
            #"original: "2000000100000002", product: season, type: non_renewing, state: refunded"#,
        ])
        let reading = try await store.read("2000000100000001")
        #expect(reading.coverage == .full)
        #expect(reading.passes.map(\.transactionID) == ["2000000100000001"])
        #expect(reading.observations.map(\.status.raw) == ["refunded"])
        #expect(reading.observations.map(\.givesAccess) == [false])
        #expect(reading.observations.map(\.kind) == [.subscription])
        let pass = try #require(reading.passes.first)
        // Its end is the catalogue's to tell.
        let observation = Observation(pass: pass)
        #expect(observation.kind == .oneTime && observation.status.raw == "owned" && observation.isLimited)
        #expect(observation.periodStartsAt == Instant(milliseconds: 1_790_000_000_000))
        #expect(observation.periodEndsAt == nil && observation.lookupID == "2000000100000001")
        #expect(observation.source == .appStore && observation.payloadHash == observation.factsHash)
    }

    @Test func `several lines of a customer, in several groups, are told apart`() async throws {
        let store = try SimulatedAppStore(transactions: [
            #"original: "2000000100000001", product: monthly, state: expired"#,
            #"original: "2000000100000002", product: yearly"#,
            #"original: "2000000100000003", product: extra, group: "21000002", state: billing_retry"#,
        ])
        let reading = try await store.read("2000000100000003")
        #expect(reading.observations.map(\.status.raw) == ["expired", "active", "in_billing_retry"])
        #expect(Set(reading.observations.map(\.payloadHash)).count == 3)
    }
}
