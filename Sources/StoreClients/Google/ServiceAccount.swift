import CryptoExtras
import Foundation
import TextFormats

/// The account in whose name we ask, as its key file describes it.
struct ServiceAccount: Sendable {
    /// Where tokens really come from, wherever we ask for them.
    static let audience = "https://oauth2.googleapis.com/token"
    /// The longest life that an assertion may have, in seconds.
    static let lifetime: Int64 = 3_600

    enum Fault: Error, Sendable {
        /// No JSON object of a service account, or one of its members is missing.
        case malformed
        /// The private key is no RSA key of at least 2048 bits in PEM.
        case privateKey
    }

    let email: String
    let keyID: String
    let tokenURI: String
    /// The project that the account is of; `nil`: the file does not say.
    let projectID: String?
    private let key: _RSA.Signing.PrivateKey

    private enum Field: String, CaseIterable {
        case type
        case keyID = "private_key_id"
        case key = "private_key"
        case email = "client_email"
        case tokenURI = "token_uri"
        case projectID = "project_id"
    }

    private static let fields = JSONFields<Field>()
    private static let maximumKeyBytes = 16 << 10

    /// Reads a key file.
    init(_ text: String) throws(Fault) {
        var texts: [Field: String] = [:]
        do throws(JSONFault) {
            try JSONReader.readObject(in: Array(text.utf8), Self.fields) { reader, field throws(JSONFault) in
                texts[field] = try reader.readString(upTo: Self.maximumKeyBytes)
            }
        } catch { throw .malformed }
        guard texts[.type] == "service_account", let email = texts[.email], !email.isEmpty,
            let keyID = texts[.keyID], !keyID.isEmpty, let pem = texts[.key]
        else { throw .malformed }
        guard let key = try? _RSA.Signing.PrivateKey(pemRepresentation: pem) else { throw .privateKey }
        self.email = email
        self.keyID = keyID
        self.key = key
        tokenURI = texts[.tokenURI] ?? ""
        projectID = texts[.projectID]
    }

    /// Writes and signs what an access token for a scope is given for, at some second since 1970: a compact JWS.
    func assertion(for scope: String, at seconds: Int64) throws -> String {
        let header = try Self.json(["alg": "RS256", "typ": "JWT", "kid": keyID])
        let claims = try Self.json([
            "iss": email,
            "scope": scope,
            "aud": Self.audience,
            "iat": seconds,
            "exp": seconds + Self.lifetime,
        ])
        let signed = Base64.encode(header, .url) + "." + Base64.encode(claims, .url)
        let signature = try key.signature(for: Data(signed.utf8), padding: .insecurePKCS1v1_5)
        return signed + "." + Base64.encode(signature.rawRepresentation, .url)
    }

    private static func json(_ members: [String: any Sendable]) throws -> Data {
        try JSONSerialization.data(withJSONObject: members, options: [.sortedKeys, .withoutEscapingSlashes])
    }
}
