import Crypto
package import Entitlements
package import SignedTokens
package import X509

/// Verifies what the App Store has signed, without a request.
///
/// A signature proves that the App Store wrote a text, not that its bearer is the buyer, nor that it still holds: a
/// transaction that was signed before a refund verifies for ever. What gives access is what the store says when asked.
package struct AppStoreProofs: Sendable {
    /// What a proof has to be about.
    package struct Expectation: Sendable {
        /// The apps; `nil` takes any, to inspect a proof without a configuration.
        package var bundleIDs: Set<String>?
        /// What the store calls its environments.
        package var environments: Set<String>

        /// Describes an app; the environments that sign on a developer's machine never count.
        package init(bundleID: String?, environments: Set<String> = ["Production", "Sandbox"]) {
            self.init(bundleIDs: bundleID.map { [$0] }, environments: environments)
        }

        /// Describes several apps over one user base; `nil` takes any.
        package init(bundleIDs: [String]?, environments: Set<String> = ["Production", "Sandbox"]) {
            self.bundleIDs = bundleIDs.map(Set.init)
            self.environments = environments.intersection(["Production", "Sandbox"])
        }

        /// Makes sure that something signed is about one of the apps.
        func check(bundleID: String) throws(ProofRefusal) {
            guard bundleIDs?.contains(bundleID) ?? true else {
                throw ProofRefusal(.wrongBundle, "It is about another app.")
            }
        }
    }

    private let chains: AppStoreChains
    private let expected: Expectation

    /// Creates a verifier; every chain has to lead to one of the roots (see `AppStoreRoots`).
    package init(roots: [Certificate], expected: Expectation) {
        chains = AppStoreChains(roots: roots)
        self.expected = expected
    }

    /// What a text in a signed transaction's form says, unverified.
    package static func unverified(_ text: String) -> SignedTransaction? {
        guard let signed = try? CompactJWS(text) else { return nil }
        return try? SignedTransaction(payload: signed.payload)
    }

    /// Verifies a signed transaction (`storekit_jws`).
    package func transaction(_ text: String) async throws(ProofRefusal) -> SignedTransaction {
        let transaction = try await verified(text, as: SignedTransaction.self)
        try expected.check(bundleID: transaction.bundleID)
        return transaction
    }

    /// What a text in a signed app transaction's form says, unverified.
    package static func unverifiedApp(_ text: String) -> SignedAppTransaction? {
        guard let signed = try? CompactJWS(text) else { return nil }
        return try? SignedAppTransaction(payload: signed.payload)
    }

    /// Verifies a signed app transaction (`app_transaction`): it names the store account of the device, and no purchase.
    package func appTransaction(_ text: String) async throws(ProofRefusal) -> SignedAppTransaction {
        let transaction = try await verified(text, as: SignedAppTransaction.self)
        try expected.check(bundleID: transaction.bundleID)
        return transaction
    }

    /// Verifies signed renewal info.
    ///
    /// It may still be about another app, whose signed texts are as genuine: it has to be compared with its
    /// transaction.
    package func renewalInfo(_ text: String) async throws(ProofRefusal) -> SignedRenewalInfo {
        try await verified(text, as: SignedRenewalInfo.self)
    }

    /// Verifies what all signed texts have in common: signature, certificates at the time of signing, environment.
    package func verified<Payload: AppStorePayload>(
        _ text: String,
        as type: Payload.Type
    ) async throws(ProofRefusal) -> Payload {
        let signed = try CompactJWS(text)
        let signer = try await chains.signer(of: signed)
        guard let signature = try? P256.Signing.ECDSASignature(rawRepresentation: signed.signature),
            signer.key.isValidSignature(signature, for: signed.signed)
        else { throw ProofRefusal(.badSignature, "The signature is not one of the signer's over this text.") }
        // Only now the payload is worth reading; its date is the one for which the chain has to be valid.
        let payload = try type.init(payload: signed.payload)
        guard signer.validFrom <= payload.signedAt else {
            throw ProofRefusal(.notYetValid, "It was signed before its certificates became valid.")
        }
        guard payload.signedAt <= signer.validUntil else {
            throw ProofRefusal(.expired, "It was signed after its certificates had expired.")
        }
        guard expected.environments.contains(payload.environment) else {
            throw ProofRefusal(.wrongEnvironment, "It is of an environment that does not count here.")
        }
        return payload
    }
}

/// What the App Store signs.
package protocol AppStorePayload: Sendable {
    /// Reads a payload; one that can't be read is `malformed`.
    init(payload: [UInt8]) throws(ProofRefusal)

    var signedAt: Instant { get }
    /// What the store calls the environment.
    var environment: String { get }
}
