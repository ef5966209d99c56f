import Crypto
import Foundation
import TextFormats

/// What a request to Onside's merchant API is authorized by: good for one request and half a minute.
struct MerchantToken: Sendable {
    var keyID: String
    var merchantID: String
    /// Seconds since 1970; `expires` is 30 later at most.
    var notBefore: Int64
    var expires: Int64
    /// Unique: Onside takes each once.
    var id: String

    /// Writes and signs it with the merchant secret, as a compact JWS of the algorithm HS256.
    ///
    /// None of its texts needs escaping, by the configuration's checks.
    func signed(with key: SymmetricKey) -> String {
        let header = #"{"alg":"HS256","kid":"\#(keyID)","typ":"JWT"}"#
        let claims =
            #"{"aud":"onside","iss":"onside","sub":"\#(merchantID)","nbf":\#(notBefore),"exp":\#(expires),"#
            + #""jti":"\#(id)"}"#
        let signed = Base64.encode(header.utf8, .url) + "." + Base64.encode(claims.utf8, .url)
        let code = HMAC<SHA256>.authenticationCode(for: Data(signed.utf8), using: key)
        return signed + "." + Base64.encode(Data(code), .url)
    }
}

extension MerchantToken {
    /// A new token, begun five seconds ago for clocks that differ a little.
    init(for configuration: OnsideConfiguration, now: Int64) {
        self.init(
            keyID: configuration.secretKeyID,
            merchantID: configuration.merchantID,
            notBefore: now - 5,
            expires: now + 20,
            id: UUID().uuidString.lowercased()
        )
    }
}
