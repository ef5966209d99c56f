import Crypto
import CryptoExtras
import Foundation

/// A password as it is stored: what scrypt makes of it, with all that is needed to do so again.
///
/// Text of the form `scrypt$15$8$3$salt$key`, the salt and the key in unpadded base64url: the costs stand with each
/// hash, so that they can rise without anybody having to choose a new password.
///
/// - SeeAlso: RFC 7914; https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html
package struct PasswordHash: Hashable, Sendable {
    /// What the derivation costs.
    package struct Cost: Hashable, Sendable {
        /// The binary logarithm of N; memory is 128 · N · r bytes.
        var logN: Int
        var blockSize: Int
        var parallelism: Int

        /// Names a cost.
        ///
        /// - Parameters:
        ///   - logN: 1 to 17.
        ///   - blockSize: r, 1 to 16.
        ///   - parallelism: p, 1 to 16.
        package init(logN: Int, blockSize: Int, parallelism: Int) {
            self.logN = logN
            self.blockSize = blockSize
            self.parallelism = parallelism
        }

        /// 32 MiB, about a third of a second: what OWASP asks for, and a server with little memory can spare.
        package static let usual = Cost(logN: 15, blockSize: 8, parallelism: 3)

        /// What a stored hash may ask of this process.
        fileprivate var isBearable: Bool {
            (1...17).contains(logN) && (1...16).contains(blockSize) && (1...16).contains(parallelism)
        }
    }

    /// Why a password is not taken.
    package enum Fault: String, Error, Sendable, CaseIterable {
        case short = "the password has fewer than 12 characters"
        case long = "the password has more than 256 bytes"
        case simple = "the password has fewer than 5 different characters"
        case named = "the password holds the operator's name"
    }

    private static let saltBytes = 16
    private static let keyBytes = 32
    /// Longer ones would let anybody make us work; nobody types them.
    private static let longest = 256

    private let cost: Cost
    private let salt: [UInt8]
    private let key: [UInt8]

    /// Hashes a new password, with chance of its own.
    ///
    /// CPU-heavy: a third of a second at the usual cost.
    ///
    /// - Throws: ``Fault`` where the password is not taken.
    package init(of password: String, for name: String, cost: Cost = .usual) throws {
        let text = Self.normal(password)
        guard text.utf8.count <= Self.longest else { throw Fault.long }
        guard text.count >= 12 else { throw Fault.short }
        guard Set(text).count >= 5 else { throw Fault.simple }
        guard name.isEmpty || !text.lowercased().contains(name.lowercased()) else { throw Fault.named }
        salt = SymmetricKey(size: .init(bitCount: Self.saltBytes * 8)).withUnsafeBytes { Array($0) }
        key = try Self.derive(text, salt, cost)
        self.cost = cost
    }

    /// Reads a stored hash; `nil`: it is none, or asks for more than this process gives.
    package init?(_ text: String) {
        let parts = text.split(separator: "$", omittingEmptySubsequences: false)
        guard parts.count == 6, parts[0] == "scrypt", let logN = Int(parts[1]), let blockSize = Int(parts[2]),
            let parallelism = Int(parts[3]), let salt = Self.bytes(parts[4]), let key = Self.bytes(parts[5]),
            salt.count >= 8, key.count == Self.keyBytes
        else { return nil }
        let cost = Cost(logN: logN, blockSize: blockSize, parallelism: parallelism)
        guard cost.isBearable else { return nil }
        self.cost = cost
        self.salt = salt
        self.key = key
    }

    /// The form that is stored.
    package var text: String {
        "scrypt$\(cost.logN)$\(cost.blockSize)$\(cost.parallelism)$\(Self.text(salt))$\(Self.text(key))"
    }

    /// Whether a password is the one that was hashed; the comparison takes the same time wherever they differ.
    ///
    /// CPU-heavy, as the making is.
    package func matches(_ password: String) -> Bool {
        let text = Self.normal(password)
        guard text.utf8.count <= Self.longest, let derived = try? Self.derive(text, salt, cost) else { return false }
        return SymmetricKey(data: derived) == SymmetricKey(data: key)
    }

    /// What is compared where there is no such operator: a refusal takes the time of any other.
    package static func ofNobody(at cost: Cost) -> PasswordHash {
        PasswordHash(
            cost: cost,
            salt: Array(repeating: 0, count: saltBytes),
            key: Array(repeating: 0, count: keyBytes)
        )
    }

    private init(cost: Cost, salt: [UInt8], key: [UInt8]) {
        self.cost = cost
        self.salt = salt
        self.key = key
    }

    /// The same characters are the same password, however a keyboard composes them.
    private static func normal(_ password: String) -> String { password.precomposedStringWithCompatibilityMapping }

    private static func derive(_ password: String, _ salt: [UInt8], _ cost: Cost) throws -> [UInt8] {
        try KDF.Scrypt.deriveKey(
            from: Data(password.utf8),
            salt: salt,
            outputByteCount: keyBytes,
            rounds: 1 << cost.logN,
            blockSize: cost.blockSize,
            parallelism: cost.parallelism
        ).withUnsafeBytes { Array($0) }
    }

    private static func text(_ bytes: [UInt8]) -> String {
        Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    private static func bytes(_ text: Substring) -> [UInt8]? {
        let padded =
            text.replacing("-", with: "+").replacing("_", with: "/")
            + String(repeating: "=", count: (4 - text.count % 4) % 4)
        return Data(base64Encoded: String(padded)).map(Array.init)
    }
}

extension PasswordHash: CustomStringConvertible, CustomReflectable {
    /// Nothing of the hash.
    package var description: String { "PasswordHash(redacted)" }
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
