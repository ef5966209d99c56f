/// A QR code as ISO/IEC 18004 has it, of the one size that sign-in needs: version 6, error correction L, mask 0.
package struct QRCode {
    /// Modules on a side.
    package static let size = 41
    private static let mostBytes = 134
    private static let blocks = 2
    private static let dataOfBlock = 68
    private static let correctionOfBlock = 18
    /// Error correction L and mask 0, with their own check bits.
    private static let format = 0b111_0111_1100_0100

    /// Row by row, whether each module is dark.
    package private(set) var dark = Array(repeating: Array(repeating: false, count: size), count: size)
    private var isPattern = Array(repeating: Array(repeating: false, count: size), count: size)

    /// - Returns: `nil` for a text of more than 134 bytes.
    package init?(_ text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count <= Self.mostBytes else { return nil }
        drawPatterns()
        drawData(Self.codewords(bytes))
    }

    /// A path of SVG, a unit a module.
    package var path: String {
        var path = ""
        for (y, row) in dark.enumerated() {
            for (x, isDark) in row.enumerated() where isDark { path += "M\(x) \(y)h1v1h-1z" }
        }
        return path
    }

    // MARK: Codewords

    /// The text's bytes with their head and padding in two blocks, each with its correction, interleaved.
    private static func codewords(_ bytes: [UInt8]) -> [UInt8] {
        // Four bits say that bytes follow, eight how many.
        var data: [UInt8] = [0x40 | UInt8(bytes.count >> 4)]
        var carried = UInt8(bytes.count & 0x0F)
        for byte in bytes {
            data.append(carried << 4 | byte >> 4)
            carried = byte & 0x0F
        }
        data.append(carried << 4)
        for padding in [UInt8](repeating: 0xEC, count: blocks * dataOfBlock - data.count).enumerated() {
            data.append(padding.offset.isMultiple(of: 2) ? padding.element : 0x11)
        }
        let parts = (0..<blocks).map { Array(data[$0 * dataOfBlock..<($0 + 1) * dataOfBlock]) }
        let corrections = parts.map(correction)
        return (0..<dataOfBlock).flatMap { place in parts.map { $0[place] } }
            + (0..<correctionOfBlock).flatMap { place in corrections.map { $0[place] } }
    }

    /// The rest of a block's division by the generator polynomial (Reed-Solomon).
    private static func correction(_ block: [UInt8]) -> [UInt8] {
        var generator = [UInt8](repeating: 0, count: correctionOfBlock - 1) + [1]
        var root: UInt8 = 1
        for _ in 0..<correctionOfBlock {
            for place in generator.indices {
                generator[place] = product(generator[place], root)
                if place + 1 < generator.count { generator[place] ^= generator[place + 1] }
            }
            root = product(root, 2)
        }
        var rest = [UInt8](repeating: 0, count: correctionOfBlock)
        for byte in block {
            let factor = byte ^ rest.removeFirst()
            rest.append(0)
            for place in rest.indices { rest[place] ^= product(generator[place], factor) }
        }
        return rest
    }

    /// In the field of 256 elements that QR codes use.
    private static func product(_ one: UInt8, _ other: UInt8) -> UInt8 {
        (0..<8).reversed().reduce(0 as Int) { sum, bit in
            let doubled = sum << 1 ^ (sum >> 7) * 0x11D
            return doubled ^ (Int(other) >> bit & 1) * Int(one)
        }.lowByte
    }

    // MARK: Drawing

    private mutating func draw(_ x: Int, _ y: Int, _ isDark: Bool) {
        dark[y][x] = isDark
        isPattern[y][x] = true
    }

    private mutating func drawPatterns() {
        for place in 0..<Self.size {
            draw(6, place, place.isMultiple(of: 2))
            draw(place, 6, place.isMultiple(of: 2))
        }
        for (x, y) in [(3, 3), (Self.size - 4, 3), (3, Self.size - 4)] {
            for dx in -4...4 {
                for dy in -4...4 where dark.indices.contains(x + dx) && dark.indices.contains(y + dy) {
                    let distance = max(abs(dx), abs(dy))
                    draw(x + dx, y + dy, distance != 2 && distance != 4)
                }
            }
        }
        for dx in -2...2 {
            for dy in -2...2 { draw(Self.size - 7 + dx, Self.size - 7 + dy, max(abs(dx), abs(dy)) != 1) }
        }
        for bit in 0..<15 {
            let isDark = Self.format >> bit & 1 == 1
            switch bit {
            case 0..<6: draw(8, bit, isDark)
            case 6, 7: draw(8, bit + 1, isDark)
            case 8: draw(7, 8, isDark)
            default: draw(14 - bit, 8, isDark)
            }
            if bit < 8 { draw(Self.size - 1 - bit, 8, isDark) } else { draw(8, Self.size - 15 + bit, isDark) }
        }
        draw(8, Self.size - 8, true)
    }

    /// Two columns at a time from the right, up and down in turns, around the patterns; every second module is inverted.
    private mutating func drawData(_ codewords: [UInt8]) {
        var bit = 0
        for column in stride(from: Self.size - 1, to: 0, by: -2).map({ $0 <= 6 ? $0 - 1 : $0 }) {
            for step in 0..<Self.size {
                let y = (column + 1) & 2 == 0 ? Self.size - 1 - step : step
                for x in [column, column - 1] where !isPattern[y][x] {
                    let isSet = bit < codewords.count * 8 && codewords[bit >> 3] >> (7 - bit & 7) & 1 == 1
                    dark[y][x] = isSet != (x + y).isMultiple(of: 2)
                    bit += 1
                }
            }
        }
    }
}

extension Int {
    fileprivate var lowByte: UInt8 { UInt8(truncatingIfNeeded: self) }
}
