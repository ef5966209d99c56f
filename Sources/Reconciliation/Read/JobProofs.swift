import Entitlements
import FoundationEssentials
import StoreClients

/// The proofs and claims of a request, by kind.
struct JobProofs: Sendable {
    private struct Written: Decodable {
        var store: String?
        var kind: String
        var value: String
    }

    private var all: [Written] = []

    /// Takes the JSON text that the request function has checked.
    init(_ text: String?) {
        guard let text else { return }
        all = (try? JSONDecoder().decode([Written].self, from: Data(text.utf8))) ?? []
    }

    var isEmpty: Bool { shown.isEmpty }

    /// What speaks of purchases: an app transaction names the store account of the device alone.
    private var shown: [Written] { all.filter { $0.kind != "app_transaction" } }

    /// The texts of one kind.
    func values(_ kind: String) -> [String] { all.filter { $0.kind == kind }.map(\.value) }

    /// The stores that the claimant speaks of.
    var stores: Set<Store> { Set(shown.compactMap { $0.store.flatMap(Store.init) }) }

    /// The stores whose proofs were shown; what was merely typed is none.
    var proven: Set<Store> {
        let kinds: Set = ["storekit_jws", "app_receipt", "purchase_token", "onside_history"]
        return Set(all.filter { kinds.contains($0.kind) }.compactMap { $0.store.flatMap(Store.init) })
    }

    /// The ids that were merely typed.
    var typed: [TypedID] {
        all.filter { $0.kind == "transaction_id" || $0.kind == "order_id" }
            .map { TypedID(store: $0.store, kind: $0.kind, value: $0.value) }
    }
}
