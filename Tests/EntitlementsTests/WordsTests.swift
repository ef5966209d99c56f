@testable import Entitlements
import Testing

@Suite struct ProductCatalogTests {
    static let cases: [([String], ProductCatalog.Mapping)] = [
        ([], .noAccess), (["premium"], .access), (["badge"], .noAccess), (["gold"], .unmapped),
        (["badge", "premium"], .access), (["premium", "gold"], .access), (["gold", "premium"], .access),
        (["badge", "gold"], .unmapped), (["gold", "badge"], .unmapped), (["Premium"], .unmapped), ([""], .unmapped),
    ]

    @Test func `163: a Google product maps with and without its base plan`() {
        let catalog = ProductCatalog([
            "google_play:pro": true, "google_play:pro:trial": false, "google_play:max:year": true,
        ])
        #expect(catalog.mapping(of: ["google_play:pro:monthly"]) == .access)
        #expect(catalog.mapping(of: ["google_play:pro"]) == .access)
        #expect(catalog.mapping(of: ["google_play:pro:trial"]) == .noAccess, "the plan's own row comes first")
        #expect(catalog.mapping(of: ["google_play:max:year"]) == .access)
        #expect(catalog.mapping(of: ["google_play:max"]) == .unmapped)
        #expect(catalog.mapping(of: ["google_play:max:month"]) == .unmapped)
        #expect(catalog.mapping(of: ["app_store:pro"]) == .unmapped)
    }

    @Test(arguments: cases)
    func `The most generous key of an item decides, in any order`(keys: [String], mapping: ProductCatalog.Mapping) {
        #expect(catalog.mapping(of: keys) == mapping)
        #expect(catalog.mapping(of: keys.reversed()) == mapping)
    }

    @Test func `An empty catalogue maps nothing`() {
        #expect(ProductCatalog([:]).mapping(of: ["premium"]) == .unmapped)
        #expect(ProductCatalog([:]).mapping(of: []) == .noAccess)
    }
}

@Suite struct WordsTests {
    @Test(arguments: UserStatus.allCases)
    func `Only active and onboarding users are eligible`(status: UserStatus) {
        #expect(status.isEligible == (status == .active || status == .onboarding))
    }

    @Test func `The contract's words are spelled as it spells them`() {
        #expect(UserType.allCases.map(\.rawValue) == ["free", "subscriber"])
        #expect(
            UserStatus.allCases.map(\.rawValue) == ["active", "onboarding", "banned", "banned_final", "to_be_deleted"]
        )
        #expect(
            Set(Outcome.allCases.map(\.rawValue)) == [
                "not_eligible", "restored", "already_subscriber", "store_account_mismatch", "store_unavailable",
                "nothing_to_restore", "promoted", "demoted", "unchanged", "deferred",
            ]
        )
        #expect(
            Set(MessageKey.allCases.map(\.rawValue)) == [
                "restored", "restored.assets_pending", "already_subscriber", "nothing", "nothing.expired",
                "nothing.billing_retry", "nothing.refunded", "nothing.paused", "nothing.pending_payment",
                "nothing.ended", "nothing.ended.billing_retry", "nothing.ended.paused",
                "nothing.sandbox", "nothing.other_store_account", "restore_in_app_signed_in", "sign_in_needed",
                "mismatch", "unavailable",
                "not_eligible",
                "not_eligible.deleting", "account_gone", "still_checking",
            ]
        )
    }

    @Test(arguments: TicketRequest.Kind.allCases)
    func `5: the claimant never sees the ticket behind a bare claim`(kind: TicketRequest.Kind) {
        let hidden: Set<TicketRequest.Kind> = [.needsProof, .externalTransfer]
        #expect(TicketRequest(kind: kind).isVisible == !hidden.contains(kind))
    }

    @Test func `10, 16, 17: a collision, money without access and what was told of first are looked at first`() {
        let first = TicketRequest.Kind.allCases.filter { TicketRequest(kind: $0).priority == 0 }
        #expect(Set(first) == [.paidNoAccess, .firstSeenElsewhere, .identityCollision])
    }

    @Test(arguments: [
        (Int64(-1), nil), (0, 0), (1_767_225_600_123, 1_767_225_600_123_000), (7_258_118_400_001, nil), (.max, nil),
    ])
    func `A store's milliseconds become an instant within sane years`(milliseconds: Int64, microseconds: Int64?) {
        #expect(Instant(milliseconds: milliseconds)?.microseconds == microseconds)
    }

    @Test func `Instants keep microseconds and order`() {
        #expect(noon + .microseconds(3) > noon)
        #expect((noon + .milliseconds(-1500)).microseconds == noon.microseconds - 1_500_000)
        #expect(noon - hour + hour == noon)
    }

    @Test(arguments: [(Int64(0), 5), (999, 5), (1_000, 5), (1_200, 6), (20_200, 101), (1_000_000, 5_000), (-5, 5)])
    func `164: the brake is half a percent of the subscribers, and five at least`(subscribers: Int64, limit: Int) {
        #expect(DemotionBrake(percent: 0.5, minimum: 5).limit(subscribers: subscribers) == limit)
    }

    @Test(arguments: [(Int64(0), 0), (1, 0), (1_000, 10)])
    func `164: a brake without a minimum may stop every demotion`(subscribers: Int64, limit: Int) {
        #expect(DemotionBrake(percent: 1, minimum: 0).limit(subscribers: subscribers) == limit)
    }

    @Test(arguments: [("play_store", 48), ("google_play", 48), ("app_store", 24), ("onside", 24), ("", 24)])
    func `The margin of Google Play is two days, every other store's one`(store: String, hours: Int) {
        #expect(DecisionSettings().margin(of: store) == hour * hours)
    }
}
