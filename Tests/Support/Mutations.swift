import Foundation

/// What is done to the texts that the decoders read, and how much of it.
package enum Mutations {
    /// Altered inputs for each kind of decoder: eight thousand, and a million in the full profile.
    package static let count = Profile.isFull ? 1_000_000 : 8_000

    /// Altered texts whose signatures are checked, which takes as long as a hundred that are only read.
    package static let signed = Profile.isFull ? 500_000 : 1_000

    /// Where a signed text is altered: in every place in the full profile, else in every fifth, with the first and the last.
    package static func places(of text: [UInt8]) -> [Int] {
        text.indices.filter { Profile.isFull || $0 % 5 == 0 || $0 == text.count - 1 }
    }

    /// The bytes that JSON gives a meaning to, and some that are no UTF-8.
    package static let json = Array("{}[]\",:\\u0123456789-+.eEtfnTZ \n\0\u{1F}".utf8) + [0x80, 0xC2, 0xED, 0xF4, 0xFF]
    /// The bytes that a compact JWS is made of, its separators first, and some that it never holds.
    package static let jws = Array(".=-_AZaz09+/ \0".utf8) + [0xFF]

    /// Alters a text in one to five places: bits, bytes, pieces that go, come twice or change their place.
    ///
    /// - Parameters:
    ///   - seed: the text.
    ///   - interesting: bytes that are written over others or between them.
    ///   - random: where and what.
    /// - Returns: the text as altered; now and then it is the same.
    package static func alter(_ seed: [UInt8], _ interesting: [UInt8], _ random: inout SeededGenerator) -> [UInt8] {
        var bytes = seed
        for _ in 0...random.below(4) where !bytes.isEmpty {
            let index = random.below(bytes.count)
            switch random.below(9) {
            case 0, 1: bytes[index] ^= 1 << UInt8(random.below(8))
            case 2: bytes[index] = interesting[random.below(interesting.count)]
            case 3: bytes.insert(interesting[random.below(interesting.count)], at: index)
            case 4: bytes.remove(at: index)
            case 5: bytes.removeSubrange(index..<(random.oneIn(4) ? bytes.count : piece(at: index, bytes, &random)))
            case 6: bytes.insert(contentsOf: bytes[index..<piece(at: index, bytes, &random)], at: index)
            case 7:
                let copied = bytes[index..<piece(at: index, bytes, &random)]
                bytes.insert(contentsOf: copied, at: random.below(bytes.count + 1))
            default: bytes.swapAt(index, random.below(bytes.count))
            }
        }
        return bytes
    }

    /// Alters a compact JWS, again and again.
    ///
    /// - Parameters:
    ///   - genuine: the text that is signed.
    ///   - seed: what is altered, and how.
    /// - Returns: `signed` altered texts, without those that are the same.
    package static func forgeries(of genuine: String, seed: UInt64) -> some Sequence<String> {
        let text = Array(genuine.utf8)
        return sequence(state: (number: 0, random: SeededGenerator(seed: seed))) { state in
            while state.number < signed {
                state.number += 1
                let altered = alter(text, jws, &state.random)
                if altered != text { return String(decoding: altered, as: UTF8.self) }
            }
            return nil
        }
    }

    /// The end of a piece that begins at an index: mostly short, as few bytes as an element or a field has.
    private static func piece(at index: Int, _ bytes: [UInt8], _ random: inout SeededGenerator) -> Int {
        min(bytes.count, index + random.below(random.oneIn(4) ? 200 : 40))
    }

    /// Whether Foundation takes a text for JSON, but for two things that it refuses and that lose no event: halves of
    /// surrogate pairs, and numbers beyond a double.
    package static func isJSON(_ body: [UInt8]) -> Bool {
        let text = Data(mended(body))
        return (try? JSONSerialization.jsonObject(with: text, options: .fragmentsAllowed)) != nil
    }

    /// The text with a letter for each escaped half of a pair, and with one digit for each exponent.
    private static func mended(_ body: [UInt8]) -> [UInt8] {
        var mended: [UInt8] = []
        var isInString = false
        var index = 0
        while index < body.count {
            let byte = body[index]
            mended.append(byte)
            index += 1
            if isInString, byte == UInt8(ascii: "\\"), index < body.count {
                let digits = body[index...].dropFirst().prefix(4)
                let isHalf =
                    body[index] == UInt8(ascii: "u") && digits.count == 4
                    && digits.allSatisfy { Character(Unicode.Scalar($0)).isHexDigit }
                    && UInt16(String(decoding: digits, as: UTF8.self), radix: 16).map { (0xD800..<0xE000).contains($0) }
                        == true
                mended += isHalf ? Array("u0041".utf8) : [body[index]]
                index += isHalf ? 5 : 1
            } else if byte == UInt8(ascii: "\"") {
                isInString.toggle()
            } else if !isInString, byte | 0x20 == UInt8(ascii: "e") {
                if index < body.count, body[index] == UInt8(ascii: "+") || body[index] == UInt8(ascii: "-") {
                    mended.append(body[index])
                    index += 1
                }
                let count = body[index...].prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }.count
                if count > 0 { mended.append(UInt8(ascii: "1")) }
                index += count
            }
        }
        return mended
    }
}
