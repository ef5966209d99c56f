import Crypto
import Entitlements
import Foundation
import StoreClients
import TextFormats

extension GooglePlayVoidedPurchase {
    /// The event of it, as a notification would have.
    ///
    /// The list gives its entries no ids: the same entry has the same at each reading, and shows nothing of the token.
    package var event: StoreEvent { event(in: nil) }

    /// The same where several apps are listed: `app` is the package that the list is of.
    package func event(in app: String?) -> StoreEvent {
        let entry = "\(purchaseToken)|\(orderID ?? "")|\(voidedAt?.microseconds ?? 0)"
        return StoreEvent(
            source: .googlePlay,
            id: "voided." + Hex.encode(SHA256.hash(data: Array(entry.utf8))),
            kind: "voidedPurchase",
            occurredAt: voidedAt,
            purchases: StoreEvent.Purchase.of(.googlePlay, app: app, names),
            chargedBackAt: isChargedBack ? voidedAt ?? Instant(microseconds: 0) : nil
        )
    }

    /// The ids by which it may be known: where RevenueCat alone was asked, those of its orders.
    private var names: [String] {
        var names = [purchaseToken]
        for id in orderID.map({ [$0, OrderNumber.base($0)] }) ?? [] where !names.contains(id) { names.append(id) }
        return names
    }

    /// Its words, as the list has them.
    package var body: [UInt8] {
        struct Entry: Encodable {
            var purchaseToken: String
            var orderId: String?
            var voidedTimeMillis: Int64?
            var voidedReason: Int64
            var voidedSource: Int64
        }
        let entry = Entry(
            purchaseToken: purchaseToken,
            orderId: orderID,
            voidedTimeMillis: voidedAt.map { $0.microseconds / 1000 },
            voidedReason: reason,
            voidedSource: source
        )
        // Texts and numbers alone: there is nothing that can't be written.
        return (try? JSONEncoder().encode(entry)).map { Array($0) } ?? []
    }
}
