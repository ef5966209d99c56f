import Crypto
import Foundation

/// The second factor: six digits that change every half minute.
///
/// - SeeAlso: RFC 6238, RFC 4226; https://github.com/google/google-authenticator/wiki/Key-Uri-Format
package struct OneTimeCode: Sendable {
    /// Seconds that a code holds.
    private static let period: Int64 = 30
    private static let digits = 6
    /// How many periods a device's clock may be off, either way.
    private static let drift: Int64 = 1
    private static let secretBytes = 20
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")

    private let secret: [UInt8]

    /// Makes a new secret.
    package init() {
        secret = SymmetricKey(size: .init(bitCount: Self.secretBytes * 8)).withUnsafeBytes { Array($0) }
    }

    /// Takes a stored secret; `nil`: too short to be one.
    package init?(secret: [UInt8]) {
        guard secret.count >= 16 else { return nil }
        self.secret = secret
    }

    /// The bytes to store.
    package var stored: [UInt8] { secret }

    /// The secret as people type it into their device: base32 in groups of four.
    package var spelled: String {
        let text = Self.base32(secret)
        return stride(from: 0, to: text.count, by: 4).map { start in
            String(text.dropFirst(start).prefix(4))
        }.joined(separator: " ")
    }

    /// The address that an authenticator app reads from a picture.
    ///
    /// - Parameters:
    ///   - issuer: who asks for codes, such as `entitlement-sync`.
    ///   - account: whose they are.
    /// - Returns: a URI with the secret in it.
    package func address(issuer: String, account: String) -> String {
        let allowed = CharacterSet.alphanumerics.union(CharacterSet(charactersIn: "-._~"))
        func encoded(_ text: String) -> String { text.addingPercentEncoding(withAllowedCharacters: allowed) ?? "" }
        return "otpauth://totp/\(encoded(issuer)):\(encoded(account))?secret=\(Self.base32(secret))"
            + "&issuer=\(encoded(issuer))&algorithm=SHA1&digits=\(Self.digits)&period=\(Self.period)"
    }

    /// Finds the period that a code belongs to.
    ///
    /// Whoever takes the code stores the period, and takes none of that period or an earlier one again.
    ///
    /// - Parameters:
    ///   - code: as typed; spaces do not count.
    ///   - seconds: the moment, in seconds since 1970.
    ///   - last: the period of the last code that was taken.
    /// - Returns: `nil`: it is no code of this moment, or was used.
    package func period(of code: String, at seconds: Int64, after last: Int64?) -> Int64? {
        let typed = code.filter { !$0.isWhitespace }
        guard typed.utf8.count == Self.digits, typed.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        let now = seconds / Self.period
        var found: Int64?
        // All are compared, each in constant time: how long it takes tells nothing.
        for period in (now - Self.drift)...(now + Self.drift) {
            let isThis = SymmetricKey(data: Data(typed.utf8)) == SymmetricKey(data: Data(self.code(period).utf8))
            if isThis, period > last ?? .min { found = found ?? period }
        }
        return found
    }

    /// The code of a period.
    package func code(_ period: Int64) -> String {
        let counter = withUnsafeBytes(of: period.bigEndian) { Data($0) }
        let mac = Array(
            HMAC<Insecure.SHA1>.authenticationCode(for: counter, using: SymmetricKey(data: secret))
        )
        let offset = Int(mac[mac.count - 1] & 0x0F)
        let number = mac[offset..<offset + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) } & 0x7FFF_FFFF
        let text = String(number % 1_000_000)
        return String(repeating: "0", count: Self.digits - text.count) + text
    }

    private static func base32(_ bytes: [UInt8]) -> String {
        var text = ""
        var (bits, count) = (UInt32(0), 0)
        for byte in bytes {
            bits = bits << 8 | UInt32(byte)
            count += 8
            while count >= 5 {
                count -= 5
                text.append(alphabet[Int(bits >> UInt32(count)) & 31])
            }
            bits &= (1 << UInt32(count)) - 1
        }
        if count > 0 { text.append(alphabet[Int(bits << UInt32(5 - count)) & 31]) }
        return text
    }
}

extension OneTimeCode: CustomStringConvertible, CustomReflectable {
    /// Nothing of the secret.
    package var description: String { "OneTimeCode(redacted)" }
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
