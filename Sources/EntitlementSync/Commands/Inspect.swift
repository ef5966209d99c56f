import ArgumentParser
import Composition
import Configuring
import Entitlements
import Foundation
import Logging

struct Inspect: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Says offline what a proof is, whether it verifies, and why not.",
        discussion: """
            Nothing is asked of a store and of the database. A proof that verifies was written by its store; whether it
            still holds, and for which user, is what the store says when it is asked.
            """
    )

    @Argument(
        help: """
            The proof: KIND=VALUE or KIND=@FILE; KIND is storekit_jws, app_receipt, purchase_token, onside_history, or one \
            of the claims transaction_id, order_id, onside_order_id.
            """
    )
    var proof: String

    @Option(help: "A file with Onside's key set (JSON), for an onside_history.")
    var keys: String?

    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let argument = try ProofArgument(proof, name: "PROOF")
            guard let kind = Inspection.Kind(rawValue: argument.kind) else {
                let known = Inspection.Kind.allCases.map(\.rawValue).joined(separator: ", ")
                throw CommandFailure(.data, "PROOF: \(argument.kind) is not known; use \(known)")
            }
            let inspection =
                switch kind {
                case .storeKit: try await Inspection(storeKit: argument.value, runtime.config.appStore)
                case .appReceipt: try await Inspection(appReceipt: argument.value, runtime.config.appStore)
                case .onsideHistory:
                    Inspection(
                        onsideHistory: argument.value,
                        keySet: try keys.map(Self.read),
                        bundleID: runtime.config.onside?.bundleID
                    )
                case .purchaseToken, .onsideOrderID, .transactionID, .orderID:
                    Inspection(opaque: kind, of: argument.store, argument.value)
                }
            guard argument.store == inspection.store else {
                throw CommandFailure(.data, "PROOF: a \(kind.rawValue) is of \(inspection.store); leave the store out")
            }
            switch options.output {
            case .json: try Output.json(inspection)
            case .text: inspection.show()
            }
            return inspection.verifies ? .done : .data
        }
    }

    private static func read(_ path: String) throws -> String {
        guard let text = textOfFile(path) else {
            throw CommandFailure(.data, "--keys: \(path) can't be read as UTF-8 text; set the path of Onside's key set")
        }
        return text
    }
}

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
