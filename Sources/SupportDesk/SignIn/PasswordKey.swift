import Crypto
import CryptoExtras
import Foundation
import TextFormats

/// What scrypt makes of a password: what an operator shows in its place.
///
/// The database keeps a hash of it.
///
/// - SeeAlso: RFC 7914; https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html
package struct PasswordKey: Sendable {
    /// What the derivation costs; stands beside each password, so that new ones can cost more than old ones.
    package struct Cost: Hashable, Sendable {
        /// The binary logarithm of N; memory is 128 · N · r bytes.
        private var logN: Int
        private var blockSize: Int
        private var parallelism: Int

        /// 32 MiB, about a third of a second: what OWASP asks for, and a server with little memory can spare.
        package static let usual = Cost(logN: 15, blockSize: 8, parallelism: 3)
        /// For tests: no password that matters may cost so little.
        package static let least = Cost(logN: 4, blockSize: 1, parallelism: 1)

        /// The form that is stored.
        package var text: String { "scrypt$\(logN)$\(blockSize)$\(parallelism)" }

        fileprivate func derive(_ password: String, _ salt: [UInt8]) throws -> [UInt8] {
            try KDF.Scrypt.deriveKey(
                from: Data(password.utf8),
                salt: salt,
                outputByteCount: keyBytes,
                rounds: 1 << logN,
                blockSize: blockSize,
                parallelism: parallelism
            ).withUnsafeBytes { Array($0) }
        }
    }

    /// Why a password is not taken.
    package enum Fault: String, Error, Sendable, CaseIterable {
        case short = "the password has fewer than 12 characters"
        case long = "the password has more than 256 bytes"
        case simple = "the password has fewer than 5 different characters"
        case named = "the password holds the operator's name"
        case common = "the password is one of those that are tried first, or such a word among digits"
        case same = "the password is the one that it is to replace"
    }

    private static let saltBytes = 16
    private static let keyBytes = 32
    /// Longer ones would let any caller make us work; no operator types them.
    private static let longest = 256

    package let cost: Cost
    package let salt: [UInt8]
    /// What is shown to the database.
    package let bytes: [UInt8]

    /// Derives what a password shows; a third of a second of one core at the usual cost.
    ///
    /// - Throws: ``Fault/long``; the library's error where the memory can't be had.
    package init(of password: String, salt: [UInt8], cost: Cost) throws {
        bytes = try cost.derive(try Self.normal(password), salt)
        self.salt = salt
        self.cost = cost
    }

    /// Derives what a new password will show, with a salt of its own.
    ///
    /// `name`: the operator's, which may not stand in it. `old`: the password that it replaces.
    /// Throws a ``Fault`` where the password is not taken.
    package init(new password: String, for name: String, replacing old: String? = nil, cost: Cost = .usual) throws {
        let text = try Self.normal(password)
        guard text.count >= 12 else { throw Fault.short }
        guard Set(text).count >= 5 else { throw Fault.simple }
        guard !CommonPasswords.contains(text) else { throw Fault.common }
        guard name.isEmpty || !text.lowercased().contains(name.lowercased()) else { throw Fault.named }
        if let old { guard try text != Self.normal(old) else { throw Fault.same } }
        let salt = SymmetricKey(size: .init(bitCount: Self.saltBytes * 8)).withUnsafeBytes { Array($0) }
        try self.init(of: text, salt: salt, cost: cost)
    }

    /// The same characters are the same password, however a keyboard composes them.
    private static func normal(_ password: String) throws -> String {
        // Composing is work too.
        guard password.utf8.count <= longest else { throw Fault.long }
        let text = password.precomposedStringWithCompatibilityMapping
        guard text.utf8.count <= longest else { throw Fault.long }
        return text
    }
}

extension PasswordKey: CustomStringConvertible, CustomReflectable {
    /// Nothing of the key.
    package var description: String { "PasswordKey(redacted)" }
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}

extension PasswordKey.Cost {
    /// Reads a stored cost, such as `scrypt$15$8$3`; `nil`: it is none, or asks for more than this process gives.
    package init?(_ text: String) {
        let parts = text.split(separator: "$", omittingEmptySubsequences: false)
        guard parts.count == 4, parts[0] == "scrypt", let logN = Int(parts[1]), let blockSize = Int(parts[2]),
            let parallelism = Int(parts[3]), (1...18).contains(logN), (1...16).contains(blockSize),
            (1...16).contains(parallelism), blockSize << logN <= 1 << 19,
            (blockSize * parallelism) << logN <= 1 << 21
        else { return nil }
        self.init(logN: logN, blockSize: blockSize, parallelism: parallelism)
    }
}

/// Passwords that are tried first, from the frequency list of the zxcvbn estimator (MIT licence): its first 12,000
/// without the digits and signs around them, and all of twelve characters and more.
enum CommonPasswords {
    private static let words = Set(
        String(decoding: EmbeddedFiles.content("SupportDesk/SignIn/common-passwords.txt"), as: UTF8.self)
            .split(separator: "\n").map(String.init)
    )

    /// Whether a password is such a word, alone or between digits and signs, or digits alone.
    static func contains(_ password: String) -> Bool {
        let text = password.lowercased()
        let isSign = { (character: Character) in !character.isLetter }
        let core = String(text.drop(while: isSign).reversed().drop(while: isSign).reversed())
        return words.contains(text) || words.contains(core) || text.allSatisfy { $0.isNumber || $0.isWhitespace }
    }
}
