package import SignedTokens
package import X509

/// Verifies the app receipts that the App Store signs, without a request.
///
/// What is said of `AppStoreProofs` holds here too, and more: a receipt is a snapshot, which knows neither later
/// renewals nor later refunds.
///
/// - SeeAlso: https://developer.apple.com/documentation/appstorereceipts/validating_receipts_on_the_device
package struct AppReceiptProofs: Sendable {
    private let chains: AppReceiptChains
    private let expected: AppStoreProofs.Expectation

    /// Creates a verifier; every chain has to lead to one of the roots (see `AppStoreRoots.shippedForReceipts()`).
    package init(roots: [Certificate], expected: AppStoreProofs.Expectation) {
        chains = AppReceiptChains(roots: roots)
        self.expected = expected
    }

    /// What a text in a receipt's form says, unverified.
    package static func unverified(_ text: String) -> AppReceipt? {
        guard let container = try? AppReceiptContainer(text) else { return nil }
        return try? AppReceipt(payload: container.payload)
    }

    /// Verifies a receipt (`app_receipt`), the base64 of the container.
    ///
    /// The device for which it was made is not compared: a restore need not name one.
    package func receipt(_ text: String) async throws(ProofRefusal) -> AppReceipt {
        let container = try AppReceiptContainer(text)
        let signer = try await chains.signer(of: container)
        guard container.isSigned(by: signer.key) else {
            throw ProofRefusal(.badSignature, "The signature is not one of the signer's over this receipt.")
        }
        // Only now the payload is worth reading; its date is the one for which the chain has to be valid.
        let receipt = try AppReceipt(payload: container.payload)
        guard signer.validFrom <= receipt.createdAt else {
            throw ProofRefusal(.notYetValid, "It was made before its certificates became valid.")
        }
        guard receipt.createdAt <= signer.validUntil else {
            throw ProofRefusal(.expired, "It was made after its certificates had expired.")
        }
        try expected.check(bundleID: receipt.bundleID)
        guard let environment = receipt.storeEnvironment, expected.environments.contains(environment) else {
            throw ProofRefusal(.wrongEnvironment, "It is of an environment that does not count here.")
        }
        return receipt
    }
}
