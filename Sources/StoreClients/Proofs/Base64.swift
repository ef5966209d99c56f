/// Base64 as RFC 4648 writes it, read strictly: one text stands for one sequence of bytes.
///
/// Foundation's decoder is not asked, because it takes texts whose last character has bits that mean nothing: a
/// signature could be altered and still be the same.
enum Base64 {
    enum Alphabet {
        /// `+` and `/`, filled up with `=`.
        case standard
        /// `-` and `_`, never filled up.
        case url
    }

    /// Decodes a text.
    ///
    /// - Returns: `nil` where a character or the length is wrong, or bits are left over.
    static func decode(_ text: some Collection<UInt8>, _ alphabet: Alphabet) -> [UInt8]? {
        var characters = Array(text)
        if alphabet == .standard {
            guard characters.count.isMultiple(of: 4) else { return nil }
            var fill = 0
            while fill < 2, characters.last == UInt8(ascii: "=") {
                characters.removeLast()
                fill += 1
            }
        }
        guard characters.count % 4 != 1 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(characters.count * 3 / 4)
        var bits: UInt32 = 0
        var count = 0
        for character in characters {
            guard let value = value(of: character, alphabet) else { return nil }
            bits = bits << 6 | value
            count += 6
            guard count >= 8 else { continue }
            count -= 8
            bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            bits &= (1 << UInt32(count)) - 1
        }
        return bits == 0 ? bytes : nil
    }

    private static func value(of character: UInt8, _ alphabet: Alphabet) -> UInt32? {
        switch character {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"): UInt32(character - UInt8(ascii: "A"))
        case UInt8(ascii: "a")...UInt8(ascii: "z"): UInt32(character - UInt8(ascii: "a")) + 26
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(character - UInt8(ascii: "0")) + 52
        case UInt8(ascii: "+") where alphabet == .standard, UInt8(ascii: "-") where alphabet == .url: 62
        case UInt8(ascii: "/") where alphabet == .standard, UInt8(ascii: "_") where alphabet == .url: 63
        default: nil
        }
    }
}
