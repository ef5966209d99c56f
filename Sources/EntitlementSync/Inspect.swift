import ArgumentParser
import Configuring
import Entitlements
import Foundation
import Logging
import StoreClients
import X509

struct Inspect: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Says offline what a proof is, whether it verifies, and why not.",
        discussion: """
            Nothing is asked of a store and of the database. A proof that verifies was written by its store; whether it
            still holds, and for whom, is what the store says when it is asked.
            """
    )

    @Argument(help: "The proof: KIND=VALUE or KIND=@FILE; KIND is storekit_jws.")
    var proof: String

    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let argument = try ProofArgument(proof, name: "PROOF")
            guard argument.kind == "storekit_jws" else {
                throw CommandFailure(.data, "PROOF: \(argument.kind) can't be read offline; use storekit_jws")
            }
            guard argument.store == "app_store" else {
                throw CommandFailure(.data, "PROOF: a storekit_jws is of app_store; leave the store out")
            }
            let inspection = try await Inspection(storeKit: argument.value, runtime.config.appStore)
            switch options.output {
            case .json: try Output.json(inspection)
            case .text: inspection.show()
            }
            return inspection.verifies ? .done : .data
        }
    }
}

/// What is found out about a proof.
private struct Inspection: Encodable {
    var kind: String
    var store: String
    var verifies: Bool
    var reasons: [String]
    var facts: [String: String]

    /// Looks at a signed transaction; what it says is shown also where nobody vouches for it.
    init(storeKit text: String, _ settings: AppStoreSettings) async throws {
        let proofs = AppStoreProofs(
            roots: try Self.roots(settings),
            expected: AppStoreProofs.Expectation(bundleID: settings.bundleID)
        )
        kind = "storekit_jws"
        store = "app_store"
        do throws(ProofRefusal) {
            _ = try await proofs.transaction(text)
            verifies = true
            reasons = [
                settings.rootCertificates == nil
                    ? "The App Store signed it." : "It was signed under a root of APP_STORE_ROOT_CERTIFICATES."
            ]
        } catch {
            verifies = false
            reasons = [error.detail]
        }
        if settings.bundleID == nil {
            reasons.append("APP_STORE_BUNDLE_ID is not set: it may be about any app.")
        }
        facts = AppStoreProofs.unverified(text).map(Self.facts) ?? [:]
    }

    private static func roots(_ settings: AppStoreSettings) throws -> [Certificate] {
        guard let path = settings.rootCertificates else { return try AppStoreRoots.shipped() }
        do {
            return try AppStoreRoots.read(pem: String(contentsOfFile: path, encoding: .utf8))
        } catch {
            throw CommandFailure(
                .configuration,
                "APP_STORE_ROOT_CERTIFICATES: no certificates can be read from the file; set the path of a PEM file"
            )
        }
    }

    private static func facts(_ transaction: SignedTransaction) -> [String: String] {
        let all: [String: String?] = [
            "transaction_id": transaction.transactionID,
            "original_transaction_id": transaction.originalTransactionID,
            "previous_original_transaction_id": transaction.previousOriginalTransactionID,
            "bundle_id": transaction.bundleID, "product_id": transaction.productID,
            "subscription_group_id": transaction.subscriptionGroupID, "type": transaction.type,
            "ownership": transaction.ownership, "app_account_token": transaction.appAccountToken,
            "environment": transaction.environment, "purchased_at": Self.text(transaction.purchasedAt),
            "expires_at": transaction.expiresAt.map(Self.text), "revoked_at": transaction.revokedAt.map(Self.text),
            "signed_at": Self.text(transaction.signedAt),
        ]
        return all.compactMapValues { $0 }
    }

    private static func text(_ instant: Instant) -> String {
        Date(timeIntervalSince1970: Double(instant.microseconds) / 1_000_000)
            .formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
    }

    func show() {
        Output.line("\(kind) of \(store): \(verifies ? "verifies" : "does not verify")")
        for reason in reasons { Output.line("  \(reason)") }
        if !facts.isEmpty { Output.line(verifies ? "It says:" : "It says, without anybody who vouches for it:") }
        for (name, value) in facts.sorted(by: { $0.key < $1.key }) { Output.line("  \(name.padded(to: 32))  \(value)") }
    }
}
