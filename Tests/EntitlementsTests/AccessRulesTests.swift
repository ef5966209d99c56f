import Entitlements
import Testing

@Suite struct AccessRulesTests {
    /// Every combination that a decoder lets through.
    static let combinations: [(Observation.Kind, StoreStatus.Known, Bool?)] = Observation.Kind.allCases.flatMap {
        kind in
        StoreStatus.Known.allCases.flatMap { status in
            (kind == .subscription ? [true, false] : [nil]).map { (kind, status, $0) }
        }
    }

    @Test func `Every combination of kind, status and access finds exactly one row`() {
        for (kind, status, access) in Self.combinations {
            let rows = accessRules.filter { $0.kind == kind && $0.status == status && $0.givesAccess == access }
            #expect(rows.count == 1, "\(kind) \(status) \(String(describing: access))")
            #expect(
                rows.first?.accessState
                    == accessState(of: kind, status: StoreStatus(status.rawValue), givesAccess: access)
            )
        }
        #expect(accessRules.count == Self.combinations.count, "a row stands for no combination")
    }

    @Test func `A subscription gives access exactly when the store says so, whatever its status`() {
        for rule in accessRules where rule.kind == .subscription {
            #expect((rule.accessState == .access) == (rule.givesAccess == true), "\(rule)")
        }
    }

    @Test func `A one-time purchase gives access exactly while it is owned`() {
        for rule in accessRules where rule.kind == .oneTime {
            #expect((rule.accessState == .access) == (rule.status == .owned), "\(rule)")
        }
    }

    @Test(arguments: ["expired", "refunded", "in_billing_retry", "paused"])
    func `The words that end access are those the design names`(word: String) {
        #expect(accessState(of: .subscription, status: StoreStatus(word), givesAccess: false) == .ended)
    }

    @Test(arguments: ["unknown", "", "Active", "revoked_by_owner", "EXPIRED", "active "])
    func `A word that was never met is unknown, keeps its text, and never ends access`(word: String) {
        let status = StoreStatus(word)
        #expect(status.known == .unknown)
        #expect(status.raw == word)
        #expect(accessState(of: .subscription, status: status, givesAccess: false) == .unknown)
        #expect(accessState(of: .subscription, status: status, givesAccess: true) == .access)
        #expect(accessState(of: .oneTime, status: status, givesAccess: nil) == .unknown)
    }

    @Test(arguments: StoreStatus.Known.allCases)
    func `A subscription without an answer about access is unknown`(status: StoreStatus.Known) {
        #expect(accessState(of: .subscription, status: StoreStatus(status.rawValue), givesAccess: nil) == .unknown)
    }

    @Test(arguments: [true, false, nil])
    func `What a store says of access to a one-time purchase does not matter`(access: Bool?) {
        #expect(accessState(of: .oneTime, status: StoreStatus("owned"), givesAccess: access) == .access)
        #expect(accessState(of: .oneTime, status: StoreStatus("refunded"), givesAccess: access) == .ended)
    }
}
