import Testing
@testable import TextFormats

@Suite struct JSONReaderTests {
    @Test(
        "a well-formed value of any kind is skipped to its end",
        arguments: [
            "null", "true", "false", "0", "-0", "12", "-1.5", "1e9", "1E+9", "2.5e-3", "\"\"", "\"a\\u00e9\\n\"",
            "\"\\ud83d\\ude00\"", "\"é漢😀\"", "\"\u{7F}\"", "[]", "{}", "[ ]", "{ }", "[1]", "[1,2,[3,[]],{}]",
            "{\"a\":1}", "{\"a\":{\"b\":[{\"c\":null}]},\"d\":\"e\"}", " \t\r\n[ 1 , { \"a\" : [ ] } ] \n",
            "{\"a\":1,\"a\":2}", "123456789012345678901234567890", "\"\\u0000\"",
        ]
    )
    func acceptsWellFormed(_ text: String) throws {
        var reader = try JSONReader(Array(text.utf8))
        try reader.skipValue()
        try reader.finish()
    }

    @Test(
        "what is not JSON is refused",
        arguments: [
            "", " ", "nul", "nulll", "True", "01", "-", "+1", ".5", "1.", "1e", "1e+", "0x1", "NaN", "Infinity", "1 2",
            "\"",
            "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"", "\"\u{1F}\"", "\"\\ud800\"", "\"\\ud800x\"",
            "\"\\ud800\\n\"", "\"\\ud800\\u0041\"", "\"\\udc00\"", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]",
            "[1}",
            "{", "}", "{]", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "{\"a\":1,}", "{a:1}", "{\"a\" 1}",
            "{\"a\":}",
            "{1:2}", "{\"a\":1]", "[1]]", "{}{}", "'a'", "// x\n1", "\u{FEFF}1", "<html></html>", "[1]\0",
        ]
    )
    func refusesMalformed(_ text: String) {
        #expect(throws: JSONFault.self) {
            var reader = try JSONReader(Array(text.utf8))
            try reader.skipValue()
            try reader.finish()
        }
    }

    @Test(
        "bytes that are no UTF-8 are refused, in values and in names",
        arguments: [
            [0x80], [0xBF], [0xC0, 0x80], [0xC1, 0xBF], [0xC2], [0xC2, 0x41], [0xE0, 0x80, 0x80], [0xE0, 0x9F, 0xBF],
            [0xED, 0xA0, 0x80], [0xEF, 0xBF], [0xF0, 0x80, 0x80, 0x80], [0xF0, 0x8F, 0xBF, 0xBF],
            [0xF4, 0x90, 0x80, 0x80], [0xF5, 0x80, 0x80, 0x80], [0xFF], [0xE6, 0xBC, 0x41], [0xF0, 0x9F, 0x98, 0x41],
        ] as [[UInt8]]
    )
    func refusesBadUTF8(_ bytes: [UInt8]) {
        let quoted: [UInt8] = [0x22] + bytes + [0x22]
        for body in [quoted, Array("{".utf8) + quoted + Array(":1}".utf8)] {
            #expect(throws: JSONFault.self) {
                var reader = try JSONReader(body)
                try reader.skipValue()
                try reader.finish()
            }
        }
    }

    @Test(
        "numbers that a double may not hold are refused, also where nobody asked for them",
        arguments: ["1e309", "-1E+400", "1e-999", "1e99999999999999999999", String(repeating: "9", count: 301)]
    )
    func refusesHugeNumbers(_ text: String) throws {
        var reader = try JSONReader(Array(text.utf8))
        #expect(throws: JSONFault.outOfRange) { try reader.skipValue() }
    }

    @Test(
        "numbers that a double may not hold are passed over where nobody reads them",
        arguments: [
            "1e309", "-1E+400", "1e-999", "1e99999999999999999999", String(repeating: "9", count: 301),
            "-" + String(repeating: "9", count: 100_000), "0." + String(repeating: "1", count: 100_000) + "E-100000",
        ]
    )
    func passesHugeNumbers(_ text: String) throws {
        for body in [text, "[\(text)]", "{\"a\":\(text)}", "{\"a\":[{\"b\":\(text)}],\"c\":\(text)}"] {
            var reader = try JSONReader(Array(body.utf8))
            try reader.passOver()
            try reader.finish()
        }
        var reader = try JSONReader(Array(text.utf8))
        #expect(throws: JSONFault.self) { try reader.readInteger() }
    }

    @Test(
        "half of a surrogate pair is passed over where nobody reads it, in values and in names, and is never built",
        arguments: [
            #"\ud83d"#, #"Kim \ud83d"#, #"\ud83dx"#, #"\ud83d\n"#, #"\ud83d\u0041"#, #"\ude00"#, #"\ude00\ud83d"#,
            #"\ud83d\ud83d\ude00"#, #"\ud83d\""#, #"\uD800\uDBFF"#, #"\udfff \u00e9"#,
        ]
    )
    func passesHalfPairs(_ text: String) throws {
        for body in [
            "\"\(text)\"", "[\"\(text)\",1]", "{\"\(text)\":\"\(text)\"}", "{\"a\":[{\"\(text)\":1},\"\(text)\"]}",
        ] {
            var reader = try JSONReader(Array(body.utf8))
            try reader.passOver()
            try reader.finish()
        }
        var reader = try JSONReader(Array("[\"\(text)\",7]".utf8))
        var next: Int64?
        try reader.readArray { reader throws(JSONFault) in
            guard next == nil else {
                #expect(try reader.readInteger() == 7)
                return
            }
            do throws(JSONFault) {
                _ = try reader.readString()
                next = 0
            } catch {
                #expect(error == .badString)
                // The rest can be read as if it had been skipped.
                guard try reader.token() == UInt8(ascii: ",") else { throw .syntax }
                next = 7
            }
        }
        #expect(next == 7)
    }

    @Test("strings come out as they were meant")
    func readsStrings() throws {
        let text = #"["plain","a\"b\\c\/d\b\f\n\r\t","\u00e9\u6F22","\ud83d\ude00","é漢😀",""]"#
        var read: [String] = []
        var reader = try JSONReader(Array(text.utf8))
        try reader.readArray { reader throws(JSONFault) in read.append(try reader.readString()) }
        #expect(read == ["plain", "a\"b\\c/d\u{8}\u{C}\n\r\t", "é漢", "😀", "é漢😀", ""])
    }

    @Test(
        "strings that the database could not hold are out of range",
        arguments: ["a\\u0000b", String(repeating: "x", count: 2_001)]
    )
    func refusesStrings(_ content: String) throws {
        var reader = try JSONReader(Array("\"\(content)\"".utf8))
        #expect(throws: JSONFault.outOfRange) { try reader.readString() }
    }

    @Test("a string of the greatest length is read, written plainly or with escapes", arguments: ["x", "\\u0078"])
    func readsLongest(_ letter: String) throws {
        let text = "\"" + String(repeating: letter, count: 2_000) + "\""
        var reader = try JSONReader(Array(text.utf8))
        #expect(try reader.readString().utf8.count == 2_000)
    }

    @Test(
        "whole numbers are read exactly",
        arguments: [
            ("0", 0), ("-0", 0), ("7", 7), ("-7", -7), ("1788678400000", 1_788_678_400_000),
            ("9223372036854775807", .max), ("-9223372036854775808", .min),
        ] as [(String, Int64)]
    )
    func readsIntegers(_ text: String, _ value: Int64) throws {
        var reader = try JSONReader(Array(text.utf8))
        #expect(try reader.readInteger() == value)
    }

    @Test(
        "other numbers and kinds are no whole numbers",
        arguments: [
            ("1.0", .wrongType), ("1e3", .wrongType), ("\"1\"", .wrongType), ("true", .wrongType), ("null", .wrongType),
            ("[]", .wrongType), ("9223372036854775808", .outOfRange), ("-9223372036854775809", .outOfRange),
        ] as [(String, JSONFault)]
    )
    func refusesIntegers(_ text: String, _ fault: JSONFault) throws {
        var reader = try JSONReader(Array(text.utf8))
        #expect(throws: fault) { try reader.readInteger() }
    }

    private enum Field: String, CaseIterable { case id, value }

    private func read(_ text: String) throws(JSONFault) -> [String] {
        var reader = try JSONReader(Array(text.utf8))
        var read: [String] = []
        try reader.readObject(JSONFields<Field>()) { reader, field throws(JSONFault) in
            read.append("\(field)=\(try reader.readInteger())")
        }
        try reader.finish()
        return read
    }

    @Test("members that nobody asked for are passed over, and escaped names are the names they spell")
    func readsObjects() throws {
        #expect(try read(#"{"x":{"id":9},"id":1,"i":2,"idd":3,"v\u0061lue":4,"ID":5}"#) == ["id=1", "value=4"])
        #expect(try read("{}") == [])
    }

    @Test("a member that is read must not occur twice")
    func refusesDuplicates() {
        #expect(throws: JSONFault.duplicate) { try read(#"{"id":1,"\u0069d":2}"#) }
    }

    @Test("an object must be one", arguments: ["[]", "1", "null", "\"id\""])
    func refusesOtherKinds(_ text: String) {
        #expect(throws: JSONFault.wrongType) { try read(text) }
    }

    @Test("103: containers nest to the limit and no deeper, however they are read", arguments: [32, 33, 5_000])
    func limitsDepth(_ depth: Int) throws {
        let arrays = String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
        let objects = String(repeating: "{\"a\":", count: depth) + "1" + String(repeating: "}", count: depth)
        for text in [arrays, objects] {
            var skipping = try JSONReader(Array(text.utf8))
            // Inside an object that is read, one level is taken already.
            var nested = try JSONReader(Array("{\"x\":\(text.dropFirst(text == arrays ? 1 : 5).dropLast())}".utf8))
            if depth <= 32 {
                try skipping.skipValue()
                try nested.readObject(JSONFields<Field>()) { _, _ throws(JSONFault) in }
            } else {
                #expect(throws: JSONFault.tooDeep) { try skipping.skipValue() }
                #expect(throws: JSONFault.tooDeep) {
                    try nested.readObject(JSONFields<Field>()) { _, _ throws(JSONFault) in }
                }
            }
        }
    }

    @Test("103: a decoder that follows the nesting is stopped as well")
    func limitsDepthOfDecoders() throws {
        func follow(_ reader: inout JSONReader) throws(JSONFault) {
            try reader.readArray { reader throws(JSONFault) in try follow(&reader) }
        }
        var deep = try JSONReader(Array(String(repeating: "[", count: 33).utf8))
        #expect(throws: JSONFault.tooDeep) { try follow(&deep) }
    }

    @Test("103: a body beyond the size limit is not looked at")
    func limitsSize() throws {
        #expect(throws: JSONFault.tooLarge) { try JSONReader(Array(repeating: 0x20, count: (4 << 20) + 1)) }
        _ = try JSONReader(Array(repeating: 0x20, count: 4 << 20))
    }
}
