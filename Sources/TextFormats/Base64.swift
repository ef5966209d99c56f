import Foundation

/// Base64 as RFC 4648 writes it, read strictly: one text stands for one sequence of bytes.
package enum Base64 {
    package enum Alphabet {
        /// `+` and `/`, padded with `=`.
        case standard
        /// `-` and `_`, never padded.
        case url

        fileprivate var values: [UInt8] { self == .standard ? Base64.standardValues : Base64.urlValues }
    }

    /// What a byte has in a table that is no character of the alphabet.
    private static let none: UInt8 = 0xFF

    private static let standardValues = values(last: "+/")
    private static let urlValues = values(last: "-_")

    /// The value of each byte as a character.
    private static func values(last: String) -> [UInt8] {
        var values = [UInt8](repeating: none, count: 256)
        let characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + last
        for (value, character) in characters.utf8.enumerated() { values[Int(character)] = UInt8(value) }
        return values
    }

    /// Decodes a text; `nil` where a character or the length is wrong, or its bytes are written in another way.
    package static func decode(_ text: some Collection<UInt8>, _ alphabet: Alphabet) -> [UInt8]? {
        let characters = Array(text)
        var count = characters.count
        if alphabet == .standard {
            guard count % 4 == 0 else { return nil }
            // Two at most.
            for _ in 0..<2 where count > 0 && characters[count - 1] == UInt8(ascii: "=") { count -= 1 }
        }
        // One character has less than a byte. Where the text is padded, the length says how many are missing.
        guard count % 4 != 1 else { return nil }
        let values = alphabet.values
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count / 4 * 3 + 2)
        var bits: UInt32 = 0
        var held = 0
        var index = 0
        // A plain loop over an array is fast without optimization as well.
        while index < count {
            let value = values[Int(characters[index])]
            index += 1
            guard value != none else { return nil }
            bits = bits << 6 | UInt32(value)
            held += 6
            guard held >= 8 else { continue }
            held -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(held)))
        }
        // Bits of the last character that mean nothing have to be zero: else an altered signature would still be the
        // same.
        guard bits & (1 << UInt32(held) - 1) == 0 else { return nil }
        return bytes
    }

    /// Writes bytes.
    package static func encode(_ bytes: some Collection<UInt8>, _ alphabet: Alphabet) -> String {
        let text = Data(bytes).base64EncodedString()
        guard alphabet == .url else { return text }
        return text.replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}
