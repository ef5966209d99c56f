import Composition
import Entitlements
import Foundation

/// What is found out about a proof; what it says is shown also where it does not verify.
struct Inspection: Encodable {
    /// Everything that a restore takes.
    enum Kind: String, Encodable, CaseIterable {
        case storeKit = "storekit_jws"
        case appReceipt = "app_receipt"
        case purchaseToken = "purchase_token"
        case onsideHistory = "onside_history"
        // Claims, which are no proofs.
        case onsideOrderID = "onside_order_id"
        case transactionID = "transaction_id"
        case orderID = "order_id"
    }

    var kind: Kind
    var store: String
    var verifies: Bool
    var reasons: [String]
    var facts: [String: String]

    init(_ kind: Kind, of store: String, verifies: Bool, reasons: [String], facts: [String: String?] = [:]) {
        self.kind = kind
        self.store = store
        self.verifies = verifies
        self.reasons = reasons
        self.facts = facts.compactMapValues { $0 }
    }

    func show() {
        Output.line("\(kind.rawValue) of \(store): \(verifies ? "verifies" : "does not verify")")
        for reason in reasons { Output.line("  \(reason)") }
        if !facts.isEmpty { Output.line(verifies ? "It says:" : "It says, without anybody who vouches for it:") }
        let names = facts.keys.sorted { $0.compare($1, options: .numeric) == .orderedAscending }
        for name in names { Output.line("  \(name.padded(to: 36))  \(facts[name] ?? "")") }
    }

    static func text(_ instant: Instant) -> String {
        Date(timeIntervalSince1970: Double(instant.microseconds) / 1_000_000)
            .formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }
}
