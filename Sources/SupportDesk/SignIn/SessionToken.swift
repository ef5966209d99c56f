import Crypto
import Foundation

/// What an operator shows after signing in; the database holds its hash alone.
package typealias SessionToken = ShownToken<SessionMark>
/// What a browser or a terminal shows of earlier sign-ins, so that others who fail in its operator's name do not keep it out.
package typealias ClientToken = ShownToken<ClientMark>

/// Tells the kind of secret to people and to scanners of leaked ones.
package protocol TokenMark: Sendable { static var prefix: String { get } }
package enum SessionMark: TokenMark { package static let prefix = "esop_" }
package enum ClientMark: TokenMark { package static let prefix = "escl_" }

/// A random secret that is shown, and found by its hash.
package struct ShownToken<Mark: TokenMark>: Hashable, Sendable {
    private static var byteCount: Int { 32 }

    private let bytes: [UInt8]

    /// Makes a new one, which can't be guessed.
    package init() {
        bytes = SymmetricKey(size: .init(bitCount: Self.byteCount * 8)).withUnsafeBytes { Array($0) }
    }

    /// Reads one that was shown; `nil`: it has another form.
    package init?(_ text: String) {
        guard text.utf8.count == Mark.prefix.utf8.count + Self.byteCount * 2, text.hasPrefix(Mark.prefix) else {
            return nil
        }
        var bytes: [UInt8] = []
        var digits = text.utf8.dropFirst(Mark.prefix.utf8.count).makeIterator()
        while let high = digits.next(), let low = digits.next() {
            guard let high = Self.value(high), let low = Self.value(low) else { return nil }
            bytes.append(high << 4 | low)
        }
        self.bytes = bytes
    }

    /// The form that the operator's browser or terminal keeps.
    package var text: String { Mark.prefix + Self.hexadecimal(bytes) }

    /// By what the database finds the session: of no use to a reader of the table.
    package var digest: [UInt8] { Array(SHA256.hash(data: bytes)) }

    private static func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
        bytes.map { byte in
            let text = String(byte, radix: 16)
            return byte < 16 ? "0" + text : text
        }.joined()
    }

    private static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case 0x30...0x39: digit - 0x30
        case 0x61...0x66: digit - 0x61 + 10
        default: nil
        }
    }
}

extension ShownToken: CustomStringConvertible, CustomReflectable {
    /// Nothing of the token.
    package var description: String { "\(Self.self)(redacted)" }
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
