import Crypto
import Foundation
package import HTTPTypes
import TextFormats

/// Why a request is no webhook of RevenueCat's; for security logs, never for the sender.
package enum WebhookRefusal: String, Error, Sendable, CaseIterable {
    /// What has to be there is not.
    case missing
    /// The signature's header does not read as one.
    case malformed
    case wrongAuthorization = "wrong_authorization"
    case wrongSignature = "wrong_signature"
    /// Signed longer ago, or further ahead, than clocks and retries explain.
    case notNow = "not_now"
}

/// Checks that webhooks are RevenueCat's.
///
/// Each of the two ways that are set up has to hold. RevenueCat signs each attempt by itself, retries included.
///
/// - SeeAlso: https://www.revenuecat.com/docs/integrations/webhooks
package struct RevenueCatWebhooks: Sendable {
    /// How old a signature may be, in seconds, and how far ahead.
    private static let tolerance: Int64 = 300
    /// The most signatures of one request that are compared: while a secret is changed there are two.
    private static let maximumSignatures = 8
    private static let signatureName = HTTPField.Name("X-RevenueCat-Webhook-Signature")

    private let authorization: SHA256Digest?
    private let secret: SymmetricKey?
    private let systemSeconds: @Sendable () -> Int64

    /// Makes a check; `nil` where neither way is set up, for then anybody could send anything.
    ///
    /// `authorization` is the whole value of the `Authorization` header, `secret` the integration's signing secret, whose UTF-8
    /// bytes are the key, and `systemSeconds` the system's clock, in seconds since 1970.
    package init?(
        authorization: String?,
        secret: String?,
        systemSeconds: @escaping @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970) }
    ) {
        guard authorization?.isEmpty == false || secret?.isEmpty == false else { return nil }
        self.authorization = authorization.flatMap { $0.isEmpty ? nil : SHA256.hash(data: Data($0.utf8)) }
        self.secret = secret.flatMap { $0.isEmpty ? nil : SymmetricKey(data: Data($0.utf8)) }
        self.systemSeconds = systemSeconds
    }

    /// Whether the headers alone show who sends; a signature shows it with the body.
    package var isShownByHeaders: Bool { authorization != nil }

    /// Makes sure that a request, with its body's bytes as they came, is RevenueCat's and of now.
    package func check(_ headers: HTTPFields, body: [UInt8]) throws(WebhookRefusal) {
        try check(try check(headers), body: body)
    }

    /// Checks what can be checked before anything of the body is read: a sender without the secret costs nothing more.
    ///
    /// Returns what the body has to agree with; `nil` where it is not signed.
    package func check(_ headers: HTTPFields) throws(WebhookRefusal) -> Signature? {
        if let authorization {
            guard let sent = headers[.authorization] else { throw .missing }
            // Digests are compared in constant time, and are of one length whatever was sent.
            guard SHA256.hash(data: Data(sent.utf8)) == authorization else { throw .wrongAuthorization }
        }
        guard secret != nil else { return nil }
        guard let name = Self.signatureName, let written = headers[name] else { throw .missing }
        guard let signature = Signature(written) else { throw .malformed }
        guard abs(systemSeconds() - signature.seconds) <= Self.tolerance else { throw .notNow }
        return signature
    }

    /// Checks that a body's bytes, as they came, are what was signed.
    package func check(_ signature: Signature?, body: [UInt8]) throws(WebhookRefusal) {
        guard let secret else { return }
        guard let signature else { throw .missing }
        var signed = HMAC<SHA256>(key: secret)
        signed.update(data: Array("\(signature.time).".utf8))
        signed.update(data: body)
        let expected = signed.finalize()
        var isValid = false
        // The code's own comparison takes the same time whatever differs.
        for code in signature.codes.prefix(Self.maximumSignatures) where expected == Data(code) { isValid = true }
        guard isValid else { throw .wrongSignature }
    }

    /// What the header holds: `t=SECONDS,v1=HEX`, with several `v1` while a secret is changed, and parts of no meaning.
    package struct Signature: Sendable {
        /// As it was written, which is how it was signed.
        fileprivate var time: Substring
        fileprivate var seconds: Int64
        fileprivate var codes: [[UInt8]]

        fileprivate init?(_ text: String) {
            guard text.utf8.count <= 4_096 else { return nil }
            var times: [Substring] = []
            var codes: [[UInt8]] = []
            for part in text.split(separator: ",") {
                let sides = part.drop { $0 == " " }.split(
                    separator: "=",
                    maxSplits: 1,
                    omittingEmptySubsequences: false
                )
                guard sides.count == 2 else { continue }
                switch sides[0] {
                case "t": times.append(sides[1])
                case "v1": if let code = Self.bytes(sides[1]) { codes.append(code) }
                default: continue
                }
            }
            guard let time = times.first, times.count == 1, !codes.isEmpty, (1...12).contains(time.utf8.count),
                time.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let seconds = Int64(time)
            else { return nil }
            self.time = time
            self.seconds = seconds
            self.codes = codes
        }

        /// The 32 bytes behind 64 digits, which are written in lower case.
        private static func bytes(_ text: Substring) -> [UInt8]? {
            let values = text.utf8.compactMap { (0x41...0x46).contains($0) ? nil : Hex.value(of: $0) }
            guard text.utf8.count == 64, values.count == 64 else { return nil }
            return stride(from: 0, to: 64, by: 2).map { values[$0] << 4 | values[$0 + 1] }
        }
    }
}

extension [RevenueCatWebhooks] {
    /// The projects whose webhook a request may be by its headers alone.
    package struct Candidates: Sendable {
        fileprivate var of: [(sender: RevenueCatWebhooks, signature: RevenueCatWebhooks.Signature?)]

        /// Whether the headers alone show who sends, whichever of them it is.
        package var areShownByHeaders: Bool { of.allSatisfy(\.sender.isShownByHeaders) }

        /// Makes sure that a body's bytes, as they came, are what one of the projects signed.
        package func check(_ body: [UInt8]) throws(WebhookRefusal) {
            var refusal: WebhookRefusal?
            for (sender, signature) in of {
                do throws(WebhookRefusal) { return try sender.check(signature, body: body) } catch {
                    refusal = refusal ?? error
                }
            }
            throw refusal ?? .missing
        }
    }

    /// Checks what can be checked before anything of the body is read; throws the first project's refusal, where none takes it.
    package func candidates(_ headers: HTTPFields) throws(WebhookRefusal) -> Candidates {
        var candidates = Candidates(of: [])
        var refusal: WebhookRefusal?
        for sender in self {
            do throws(WebhookRefusal) { candidates.of.append((sender, try sender.check(headers))) } catch {
                refusal = refusal ?? error
            }
        }
        guard !candidates.of.isEmpty else { throw refusal ?? .missing }
        return candidates
    }
}
