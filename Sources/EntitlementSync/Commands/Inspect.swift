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
            """,
        json: "one object: kind, store, verifies, reasons [text], facts {name: value}",
        examples: ["inspect storekit_jws=@transaction.jws", "inspect app_receipt=@receipt.txt --output json"]
    )

    @Argument(
        help: """
            The proof: KIND=VALUE or KIND=@FILE; KIND is storekit_jws, app_receipt, app_transaction, purchase_token, \
            onside_history, or one of the claims transaction_id, order_id, onside_order_id.
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
                case .appTransaction: try await Inspection(appTransaction: argument.value, runtime.config.appStore)
                case .appReceipt: try await Inspection(appReceipt: argument.value, runtime.config.appStore)
                case .onsideHistory:
                    Inspection(
                        onsideHistory: argument.value,
                        keySet: try keys.map { try textOfFile($0, of: "--keys") },
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
}
