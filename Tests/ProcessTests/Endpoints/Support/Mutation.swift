import TestSupport

/// What becomes of a request on a bad way, or in bad hands.
enum Mutation {
    /// Bytes that HTTP, URLs or JSON give a meaning to, and some that none of them takes.
    private static let meaningful =
        Array("{}[]\",:\\u0123456789-+.eEtfn \r\n\t\0\u{1F}\u{7F}/?&%=;".utf8) + [0x80, 0xFF]

    /// Alters bytes in one to four places: bits, bytes, pieces that go and pieces that come twice.
    ///
    /// - Parameters:
    ///   - seed: what is altered.
    ///   - random: where and how.
    /// - Returns: the bytes as altered; now and then they are the same.
    static func alter(_ seed: [UInt8], _ random: inout SeededGenerator) -> [UInt8] {
        var bytes = seed
        for _ in 0...random.below(4) where !bytes.isEmpty {
            let index = random.below(bytes.count)
            let end = min(bytes.count, index + random.below(40))
            switch random.below(7) {
            case 0, 1: bytes[index] ^= 1 << UInt8(random.below(8))
            case 2: bytes[index] = meaningful[random.below(meaningful.count)]
            case 3: bytes.insert(meaningful[random.below(meaningful.count)], at: index)
            case 4: bytes.remove(at: index)
            case 5: bytes.removeSubrange(index..<end)
            default: bytes.insert(contentsOf: bytes[index..<end], at: index)
            }
        }
        return bytes
    }
}
