import Crypto
import Foundation
import TextFormats

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
        guard let bytes = Hex.decode(text.dropFirst(Mark.prefix.count).utf8), bytes.count == Self.byteCount else {
            return nil
        }
        self.bytes = bytes
        guard self.text == text else { return nil }
    }

    /// The form that the operator's browser or terminal keeps.
    package var text: String { Mark.prefix + Hex.encode(bytes) }

    /// By what the database finds the session: of no use to a reader of the table.
    package var digest: [UInt8] { Array(SHA256.hash(data: bytes)) }
}

extension ShownToken: CustomStringConvertible, CustomReflectable {
    /// Nothing of the token.
    package var description: String { "\(Self.self)(redacted)" }
    package var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
