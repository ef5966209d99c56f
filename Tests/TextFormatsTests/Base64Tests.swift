import Foundation
import Testing
@testable import TextFormats

/// Base64, of which one text stands for one sequence of bytes.
struct Base64Tests {
    /// Foundation's decoder, asked whether it would have written the text so.
    private static func model(_ text: [UInt8], _ alphabet: Base64.Alphabet) -> [UInt8]? {
        var written = String(decoding: text, as: UTF8.self)
        if alphabet == .url {
            guard !written.contains(where: { "+/=".contains($0) }) else { return nil }
            written = written.replacing("-", with: "+").replacing("_", with: "/")
            written += String(repeating: "=", count: (4 - text.count % 4) % 4)
        }
        guard let data = Data(base64Encoded: written), data.base64EncodedString() == written else { return nil }
        return Array(data)
    }

    private static let alphabets = [Base64.Alphabet.standard, .url]

    @Test(arguments: alphabets)
    func `what is written is read`(alphabet: Base64.Alphabet) {
        var random = SystemRandomNumberGenerator()
        for count in 0...300 {
            let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
            let text = Array(Base64.encode(bytes, alphabet).utf8)
            #expect(Base64.decode(text, alphabet) == bytes)
            // In whatever way the bytes of the text are kept.
            #expect(Base64.decode(([0, 0] + text)[2...], alphabet) == bytes)
            #expect(Base64.decode(AnyCollection(text), alphabet) == bytes)
        }
    }

    @Test(arguments: alphabets)
    func `altered texts are taken where Foundation would have written them, and only there`(
        alphabet: Base64.Alphabet
    ) {
        let odd = Array("+/-_=AQgwz09 \n\r\t.,\0\u{7F}".utf8) + [0x80, 0xC3, 0xFF]
        var taken = 0
        for _ in 0..<20_000 {
            let bytes = (0..<Int.random(in: 0...12)).map { _ in UInt8.random(in: 0...255) }
            var text = Array(Base64.encode(bytes, alphabet).utf8)
            for _ in 0..<Int.random(in: 1...2) {
                let byte = odd.randomElement() ?? 0
                switch Int.random(in: 0..<4) {
                case 0: text.append(byte)
                case 1: if !text.isEmpty { text.removeLast() }
                case 2: text.insert(byte, at: Int.random(in: 0...text.count))
                default: if !text.isEmpty { text[Int.random(in: 0..<text.count)] = byte }
                }
            }
            let decoded = Base64.decode(text, alphabet)
            #expect(decoded == Self.model(text, alphabet), "\(text)")
            if decoded != nil { taken += 1 }
        }
        #expect(taken > 500 && taken < 19_000, "both happen")
    }

    @Test func `every text of up to three characters, and every end of four, is taken or refused rightly`() {
        let characters = Array("AQgwB/_+-=9 \n".utf8)
        var texts: [[UInt8]] = [[]]
        for length in 0..<4 {
            for text in texts where text.count == length { texts += characters.map { text + [$0] } }
        }
        for alphabet in Self.alphabets {
            for text in texts {
                #expect(Base64.decode(text, alphabet) == Self.model(text, alphabet), "\(text)")
                let longer = Array("QUJD".utf8) + text
                #expect(Base64.decode(longer, alphabet) == Self.model(longer, alphabet), "\(longer)")
            }
        }
    }

    @Test(arguments: [
        "QQ", "QUI", "Q===", "QR==", "QUJ=", "QQ==QQ==", "QQ==\n", "QU\nI=", " QQ==", "Q", "QUJD=", "====", "=", "QUI_",
        "QUI-",
    ])
    func `the padded alphabet is strict`(text: String) { #expect(Base64.decode(text.utf8, .standard) == nil) }

    @Test(arguments: ["QQ==", "QR", "QUJ", "Q", "QUI=", "QUI+", "QUI/", "QUJD\n", "QUJDQ", "QUJDRR"])
    func `the alphabet without padding is strict`(text: String) { #expect(Base64.decode(text.utf8, .url) == nil) }
}
