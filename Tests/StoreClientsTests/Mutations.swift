import Foundation
import TestSupport

/// What is done to the texts that the decoders read, and how much of it.
enum Mutations {
    /// Altered inputs for each kind of decoder: a hundred thousand, and a million in the long profile.
    static let count = isFull ? 1_000_000 : 100_000

    /// Altered texts whose signatures are looked at, which takes as long as a hundred that are only read.
    static let signed = isFull ? 500_000 : 10_000

    static let isFull = ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_TEST_PROFILE"] == "full"

    /// Where a signed text is altered: in every place in the long profile, else in each fifth, with the first and the last.
    static func places(of text: [UInt8]) -> [Int] {
        text.indices.filter { isFull || $0 % 5 == 0 || $0 == text.count - 1 }
    }

    /// The bytes that JSON gives a meaning to, and some that are no UTF-8.
    static let json = Array("{}[]\",:\\u0123456789-+.eEtfnTZ \n\0\u{1F}".utf8) + [0x80, 0xC2, 0xED, 0xF4, 0xFF]
    /// The bytes that a compact JWS is made of, its separators first, and some that it never holds.
    static let jws = Array(".=-_AZaz09+/ \0".utf8) + [0xFF]

    /// Alters a text in one to five places: bits, bytes, pieces that go, come twice or change their place.
    ///
    /// - Parameters:
    ///   - seed: the text.
    ///   - interesting: bytes that are written over others or between them.
    ///   - random: where and what.
    /// - Returns: the text as altered; now and then it is the same.
    static func alter(_ seed: [UInt8], _ interesting: [UInt8], _ random: inout SeededGenerator) -> [UInt8] {
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

    /// The end of a piece that begins at an index: mostly short, as few bytes as an element or a field has.
    private static func piece(at index: Int, _ bytes: [UInt8], _ random: inout SeededGenerator) -> Int {
        min(bytes.count, index + random.below(random.oneIn(4) ? 200 : 40))
    }
}
