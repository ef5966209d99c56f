import Crypto
import Foundation

/// The secret of a second factor: a device makes six digits of it that change every half minute.
///
/// The database checks them.
///
/// - SeeAlso: RFC 6238; https://github.com/google/google-authenticator/wiki/Key-Uri-Format
package struct SecondFactor: Sendable {
    private static let byteCount = 20
    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")

    /// What the database stores, and the device.
    package let bytes: [UInt8]

    /// Makes a new secret.
    package init() {
        bytes = SymmetricKey(size: .init(bitCount: Self.byteCount * 8)).withUnsafeBytes { Array($0) }
    }

    /// Reads base32, grouped or not; `nil`: it is none, or not of 20 bytes.
    package init?(spelled text: String) {
        let letters = text.uppercased().filter { !$0.isWhitespace }
        guard letters.utf8.count == Self.byteCount * 8 / 5 else { return nil }
        var bytes: [UInt8] = []
        var (bits, count) = (UInt32(0), 0)
        for letter in letters {
            guard let value = Self.alphabet.firstIndex(of: letter) else { return nil }
            bits = bits << 5 | UInt32(value)
            count += 5
            guard count >= 8 else { continue }
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
        }
        self.bytes = bytes
    }

    /// The secret as people type it into their device: base32 in groups of four.
    package var spelled: String {
        let text = base32
        return stride(from: 0, to: text.count, by: 4).map { start in
            String(text.dropFirst(start).prefix(4))
        }.joined(separator: " ")
    }

    /// The address that an authenticator app takes, typed or from a picture, with the secret in it.
    ///
    /// Algorithm, digits and period are what every app assumes.
    package func address(account: String) -> String {
        let allowed = CharacterSet.alphanumerics.union(CharacterSet(charactersIn: "-._~"))
        let name = account.addingPercentEncoding(withAllowedCharacters: allowed) ?? ""
        return "otpauth://totp/entitlement-sync:\(name)?secret=\(base32)&issuer=entitlement-sync"
    }

    /// 20 bytes are 32 letters, without a rest.
    private var base32: String {
        var letters = ""
        for start in stride(from: 0, to: bytes.count, by: 5) {
            let group = bytes[start..<start + 5].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            for shift in stride(from: 35, through: 0, by: -5) {
                letters.append(Self.alphabet[Int(group >> UInt64(shift)) & 31])
            }
        }
        return letters
    }
}

extension SecondFactor: CustomStringConvertible, CustomReflectable {
    /// Nothing of the secret.
    package var description: String { "SecondFactor(redacted)" }
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
