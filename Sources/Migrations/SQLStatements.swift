/// Splits the text of an SQL file at the semicolons that end its statements.
///
/// Knows strings, quoted names, dollar quotes and comments; not `BEGIN ATOMIC` bodies and nested comments.
struct SQLStatements {
    /// The statements in their order, each with its semicolon and without the comments and blank lines before it.
    static func split(_ text: String) -> [String] {
        var splitter = SQLStatements(bytes: Array(text.utf8))
        return splitter.statements()
    }

    private let bytes: [UInt8]
    private var position = 0

    private init(bytes: [UInt8]) { self.bytes = bytes }

    private mutating func statements() -> [String] {
        var statements: [String] = []
        var start: Int?
        while position < bytes.count {
            let byte = bytes[position]
            if isNext("--") {
                pass(through: "\n")
            } else if isNext("/*") {
                pass(through: "*/")
            } else {
                if start == nil, ![0x20, 0x0A, 0x0D, 0x09].contains(byte) { start = position }
                if byte == UInt8(ascii: "'") {
                    pass(through: "'")
                } else if byte == UInt8(ascii: "\"") {
                    pass(through: "\"")
                } else if let tag = dollarTag() {
                    pass(through: tag)
                } else {
                    position += 1
                    if byte == UInt8(ascii: ";"), let first = start {
                        statements.append(String(decoding: bytes[first..<position], as: UTF8.self))
                        start = nil
                    }
                }
            }
        }
        if let start { statements.append(String(decoding: bytes[start...], as: UTF8.self)) }
        return statements
    }

    private func isNext(_ word: String) -> Bool {
        // Most bytes already differ from the first.
        word.utf8.first == bytes[position] && bytes[position...].starts(with: word.utf8)
    }

    /// Goes behind the next `end` that begins after what opened it, which has as many bytes at most.
    private mutating func pass(through end: String) {
        position += end.utf8.count
        while position < bytes.count, !isNext(end) { position += 1 }
        position = min(position + end.utf8.count, bytes.count)
    }

    /// The `$tag$` that stands here.
    private func dollarTag() -> String? {
        guard bytes[position] == UInt8(ascii: "$") else { return nil }
        let name = bytes[(position + 1)...].prefix {
            $0 == UInt8(ascii: "_") || (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0 & 0xDF)
        }
        guard name.endIndex < bytes.count, bytes[name.endIndex] == UInt8(ascii: "$") else { return nil }
        return "$" + String(decoding: name, as: UTF8.self) + "$"
    }
}
