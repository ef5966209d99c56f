import Entitlements
@testable import StoreClients
@testable import StoreEvents
import Testing

/// What an entry of the voided list tells.
@Suite struct VoidedEventTests {
    @Test(arguments: [
        (nil, ["token"]), ("GPA.1", ["token", "GPA.1"]), ("GPA.1..2", ["token", "GPA.1..2", "GPA.1"]),
        ("token", ["token"]),
    ])
    func `It is about every name that our records may know the purchase by`(order: String?, names: [String]) {
        let event = GooglePlayVoidedPurchase(purchaseToken: "token", orderID: order, voidedAt: nil).event
        #expect(event.purchases.map(\.value) == names)
        #expect(event.purchases.allSatisfy { $0.store == "google_play" && $0.environment == nil })
    }

    @Test(arguments: [(4, false), (5, true), (6, true), (7, true), (8, false), (0, false), (-1, false)])
    func `60: fraud, friendly fraud and chargebacks are taken back, and nothing else`(reason: Int64, isFraud: Bool) {
        let at = Instant(microseconds: 1_700_000_000_000_000)
        let entry = GooglePlayVoidedPurchase(purchaseToken: "token", orderID: nil, voidedAt: at, reason: reason)
        #expect(entry.event.chargedBackAt == (isFraud ? at : nil))
        #expect(entry.event.about?.contains("1700000000000") == isFraud)
        let timeless = GooglePlayVoidedPurchase(purchaseToken: "token", orderID: nil, voidedAt: nil, reason: reason)
        #expect(timeless.event.chargedBackAt == (isFraud ? Instant(microseconds: 0) : nil))
    }
}
