import Entitlements
import SignedTokens
import TextFormats
import Transport

extension OnsideClient {
    func verify(_ signed: CompactJWS, lane: Lane) async throws(OnsideProofFailure) -> OnsideHistory {
        let name: String
        do throws(ProofRefusal) { name = try Self.keyName(in: signed.header()) } catch { throw .refused(error) }
        let key: VerificationKey
        do throws(KeySet.Miss) {
            key = try await keys.key(name) { () throws(ReadFailure) in try await fetchKeys(lane) }
        } catch {
            switch error {
            case .unknown: throw .refused(Self.unknownKey)
            case .unasked(let failure), .unread(let failure): throw .unread(failure)
            }
        }
        do throws(ProofRefusal) {
            return try Self.verify(signed, with: key, bundleID: configuration.bundleID)
        } catch { throw .refused(error) }
    }

    static let unknownKey = ProofRefusal(.unknownKey, "The key set has no key of the name in the header.")

    static func keyName(in header: CompactJWS.Header) throws(ProofRefusal) -> String {
        guard VerificationKey.algorithms.contains(header.algorithm) else {
            throw ProofRefusal(.wrongAlgorithm, "The header's algorithm is neither RS256 nor ES256.")
        }
        guard let name = header.keyID, (1...JSONWebKeys.maximumNameBytes).contains(name.utf8.count) else {
            throw ProofRefusal(.malformed, "The header names no key.")
        }
        return name
    }

    static func verify(
        _ signed: CompactJWS,
        with key: VerificationKey,
        bundleID: String?
    ) throws(ProofRefusal) -> OnsideHistory {
        guard try signed.header().algorithm == key.algorithm else {
            throw ProofRefusal(.wrongAlgorithm, "The header's algorithm is not the one of the key that it names.")
        }
        guard key.isValid(signed.signature, for: signed.signed) else {
            throw ProofRefusal(.badSignature, "The signature is not one of the named key's over this text.")
        }
        // Only now the payload is worth reading.
        let history = try OnsideHistory(payload: signed.payload)
        if let bundleID, !history.isAbout(bundleID) { throw ProofRefusal(.wrongBundle, "It is about another app.") }
        return history
    }

    private func fetchKeys(_ lane: Lane) async throws(ReadFailure) -> KeySet.Fetched {
        var requests = 0
        let call = call(.keys, path: "/.well-known/jwks.json", accept: "application/json", lane: lane)
        return try await requester.send(call, requests: &requests) { response throws(ReadFailure) in
            switch OnsideAnswer(status: response.status) {
            case .content: return try KeySet.Fetched(response.body)
            case .failure(let code): throw ReadFailure(code)
            // Keys are public: a refusal says nothing about our secret.
            case .unauthorized, .notOurs, .notFound: throw ReadFailure(.unavailable)
            }
        }
    }
}
