/// Why a submitted proof proves nothing.
package struct ProofRefusal: Error, Hashable, Sendable {
    package enum Code: String, Sendable, CaseIterable {
        case tooLarge = "too_large"
        case malformed
        case wrongAlgorithm = "wrong_algorithm"
        case signedAttributes = "signed_attributes"
        case wrongChainLength = "wrong_chain_length"
        case badCertificate = "bad_certificate"
        case missingLeafMarker = "missing_leaf_marker"
        case missingIntermediateMarker = "missing_intermediate_marker"
        case notYetValid = "not_yet_valid"
        case expired
        case untrustedChain = "untrusted_chain"
        case unknownKey = "unknown_key"
        case badSignature = "bad_signature"
        case wrongBundle = "wrong_bundle"
        case wrongEnvironment = "wrong_environment"
    }

    package var code: Code
    /// What exactly, without anything that the proof's maker chose.
    package var detail: String

    package init(_ code: Code, _ detail: String) {
        self.code = code
        self.detail = detail
    }
}
