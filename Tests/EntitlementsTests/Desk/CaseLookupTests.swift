@testable import Entitlements
import Testing

/// Who is asked about an id that was named for a case, and what their answers come to.
@Suite struct CaseLookupTests {
    private static let uuid = "5b0d6f1e-2c77-4c1b-8f9a-0e6a7c1d2b33"

    static let routes: [(CaseClaim, [LookupRoute])] = [
        (CaseClaim(kind: "order_id", value: "MABCDEFGH1"), [.appStoreOrder]),
        (CaseClaim(kind: "order_id", value: "MABCDEFGH1", store: "app_store"), [.appStoreOrder]),
        // No store's transaction has letters.
        (CaseClaim(kind: "transaction_id", value: "MABCDEFGH1"), []),
        (CaseClaim(kind: "order_id", value: "200000070000001"), [.appStoreEither, .revenueCat]),
        (CaseClaim(kind: "transaction_id", value: "200000070000001"), [.appStoreTransaction, .revenueCat]),
        (CaseClaim(kind: "order_id", value: "GPA.1234-5678-9012-34567"), [.googlePlayOrder, .revenueCat]),
        (CaseClaim(kind: "order_id", value: "GPA.1234-5678-9012-34567..0"), [.googlePlayOrder, .revenueCat]),
        // As people type it.
        (CaseClaim(kind: "order_id", value: "gpa.1234-5678-9012-34567"), [.googlePlayOrder, .revenueCat]),
        (CaseClaim(kind: "order_id", value: "promo-7", store: "google_play"), [.googlePlayOrder, .revenueCat]),
        (CaseClaim(kind: "order_id", value: uuid), [.onsideOrder]),
        (CaseClaim(kind: "onside_order_id", value: uuid.uppercased(), store: "onside"), [.onsideOrder]),
        (CaseClaim(kind: "onside_order_id", value: "none", store: "onside"), []),
        (CaseClaim(kind: "order_id", value: "a mail of mine"), []),
        (CaseClaim(kind: "order_id", value: "GPA.1 2"), []),
        (CaseClaim(kind: "order_id", value: ""), []),
        (CaseClaim(kind: "order_id", value: String(repeating: "7", count: 33)), []),
    ]

    @Test(arguments: routes)
    func `An id is looked up with whoever may know it, by what it looks like`(
        _ claim: CaseClaim,
        _ routes: [LookupRoute]
    ) {
        #expect(claim.routes == routes)
    }

    @Test func `Every way of looking up is taken by some id`() {
        #expect(Set(Self.routes.flatMap(\.1)) == Set(LookupRoute.allCases))
    }

    @Test func `An order of Google's is asked for as Google writes it, and every other id as it was typed`() {
        #expect(CaseClaim(kind: "order_id", value: "gPa.1234-x").sought == "GPA.1234-X")
        for id in ["MABCDEFGH1", "mabcdefgh1", Self.uuid, "GPA", ""] {
            #expect(CaseClaim(kind: "order_id", value: id).sought == id)
        }
    }

    private static let found = StoreLookup(.appStore, .found([]))
    private static let unknown = StoreLookup(.appStore, .unknown)
    private static let unheard = StoreLookup(.revenueCat, .unknown)
    private static let outage = StoreLookup(.revenueCat, .failed(ReadFailure(.unavailable)))
    private static let off = StoreLookup(.googlePlay, .impossible(.storeOff))
    private static let sandbox = StoreLookup(.appStore, .impossible(.sandbox))
    private static let form = StoreLookup(.appStore, .impossible(.form))

    @Test(
        arguments: [
            ([unknown], true), ([unknown, unknown], true), ([unknown, off], true), ([off, unknown], true),
            ([], false), ([found], false), ([off], false), ([outage], false), ([sandbox], false), ([form], false),
            ([found, unknown], false), ([unknown, outage], false), ([sandbox, unknown], false),
            ([form, unknown], false),
            // RevenueCat hears of purchases late.
            ([unheard], false), ([off, unheard], false), ([unknown, unheard], true),
        ] as [([StoreLookup], Bool)]
    )
    func `150, 152: an id is found false where all that can be asked say so, and by no outage and no sandbox`(
        _ lookups: [StoreLookup],
        _ expected: Bool
    ) {
        #expect(isDisproven(lookups) == expected)
    }

    @Test func `The evidence says what was found, and shows no id in full`() {
        let claim = CaseClaim(kind: "order_id", value: "GPA.1234-5678-9012-34567")
        let found = CaseLookup(claim, Self.found, purchases: [9, 7], subject: 7)
        #expect(found.id == "GPA.…4567" && found.store == "app_store" && found.result == .found)
        #expect(found.purchases == [7, 9] && found.isSubject)
        #expect(!CaseLookup(claim, Self.found, purchases: [9], subject: 7).isSubject)
        #expect(!CaseLookup(claim, Self.found, purchases: [], subject: nil).isSubject)
        #expect(CaseLookup(claim, Self.unknown).result == .unknown)
        #expect(CaseLookup(claim, Self.outage).result == .unavailable)
        let sandbox = CaseLookup(claim, Self.sandbox)
        #expect(sandbox.result == .lookupImpossible && sandbox.obstacle == .sandbox)
        let nobody = CaseLookup(CaseClaim(kind: "order_id", value: "a b"), nil)
        #expect(nobody.store == nil && nobody.result == .lookupImpossible && nobody.obstacle == .form)
        #expect(nobody.id == "…b")
    }
}
