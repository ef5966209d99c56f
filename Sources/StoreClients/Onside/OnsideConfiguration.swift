import Crypto
import Foundation
import TextFormats
package import Transport

/// Where Onside is, and with which secret we ask it.
package struct OnsideConfiguration: Sendable {
    package let merchantID: String
    package let secretKeyID: String
    /// The app whose orders count.
    package let bundleID: String
    /// The merchant secret, which is never described.
    let key: SymmetricKey
    let base: BaseURL

    /// Checks and keeps the settings; throws every fault at once.
    ///
    /// The key is the UTF-8 of the merchant secret, or what that is the base64 of. Plain http is taken for loopback
    /// hosts only.
    package init(
        merchantID: String,
        merchantSecret: String,
        secretKeyID: String,
        bundleID: String,
        baseURL: String = "https://onside.io",
        secretIsBase64: Bool = false
    ) throws(SettingFaults<Fault>) {
        var faults: [Fault] = []
        if !Self.isPlain(merchantID) { faults.append(.merchantID) }
        let secret = secretIsBase64 ? Base64.decode(merchantSecret.utf8, .standard) : Array(merchantSecret.utf8)
        if secret?.isEmpty != false { faults.append(secretIsBase64 ? .encodedSecret : .merchantSecret) }
        if !Self.isPlain(secretKeyID) { faults.append(.secretKeyID) }
        if bundleID.isEmpty { faults.append(.bundleID) }
        let base = BaseURL.read(baseURL, malformed: .baseURL, insecure: .insecureBaseURL, &faults)
        guard let base, let secret, faults.isEmpty else { throw SettingFaults(faults: faults) }
        self.merchantID = merchantID
        self.secretKeyID = secretKeyID
        self.bundleID = bundleID
        self.base = base
        key = SymmetricKey(data: secret)
    }

    /// Whether a text can stand in a JSON string as it is.
    private static func isPlain(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }
    }
}

extension OnsideConfiguration: RedactedSettings {
    /// The settings without the secret.
    package var description: String {
        "OnsideConfiguration(\(base.text), \(bundleID), secret redacted)"
    }
}

extension OnsideConfiguration {
    /// What may be wrong with the settings.
    package enum Fault: String, Sendable, CaseIterable {
        case merchantID = "the merchant id is empty or holds quotes, backslashes or other than visible ASCII"
        case merchantSecret = "the merchant secret is empty"
        case encodedSecret = "the merchant secret is empty or no base64"
        case secretKeyID = "the secret key id is empty or holds quotes, backslashes or other than visible ASCII"
        case bundleID = "the bundle id is empty"
        case baseURL = "the base URL is not of the form https://host[:port][/path]"
        case insecureBaseURL = "the base URL is plain http to a host other than loopback"
    }
}
