import Foundation
import Testing

@testable import StoreSimulator

@Suite("Text on the wire")
struct WireTextTests {
    @Test(
        "Dates read as RFC 9110 spells them",
        arguments: [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"), (784_111_777_999, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400_000, "Tue, 29 Feb 2000 00:00:00 GMT"), (4_107_542_399_000, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400_000, "Mon, 01 Mar 2100 00:00:00 GMT"), (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
        ] as [(Int64, String)]
    )
    func date(milliseconds: Int64, expected: String) {
        var bytes: [UInt8] = []
        ResponseHead.writeDate(milliseconds, to: &bytes)
        #expect(String(decoding: bytes, as: UTF8.self) == expected)
    }

    @Test("Every text survives as a JSON string", arguments: ["", "plain", "é/\"\\\u{1}\n\t\u{1f}", "🎈", "\u{7f}"])
    func escaping(text: String) throws {
        var json = JSONBytes()
        json.value(text)
        #expect(try JSON(String(decoding: json.bytes, as: UTF8.self)) == .string(text))
    }

    @Test("Every number is written in full", arguments: [0, -1, 7, 10, 1_790_000_000_000, .max, .min] as [Int64])
    func decimals(number: Int64) {
        var bytes: [UInt8] = []
        bytes.append(decimal: number)
        #expect(String(decoding: bytes, as: UTF8.self) == "\(number)")
    }

    @Test("Encoding and decoding a path segment are inverse", arguments: ["a", "a/b", "$RCAnonymousID:1", "é ~", "%"])
    func percent(text: String) {
        #expect(PercentCoding.decode(PercentCoding.encode(text)[...]) == text)
    }

    @Test("A malformed escape is no text", arguments: ["%", "%4", "%zz", "%ff", "a%C3"])
    func malformedPercent(text: String) {
        #expect(PercentCoding.decode(text[...]) == nil)
    }

    @Test("A query value is found by its decoded name")
    func query() {
        #expect(PercentCoding.value(of: "a", in: "b=1&a=x%2By+z&a=2") == "x+y z")
        #expect(PercentCoding.value(of: "a", in: "a") == "")
        #expect(PercentCoding.value(of: "a", in: "aa=1") == nil)
    }
}
