import HTTPTypes

/// Reads the status line and header fields that libcurl delivered, once, on the caller's side.
enum ResponseHead {
    /// Turns one header block, from status line to empty line, into a response; its reason phrase is empty over HTTP/2.
    ///
    /// libcurl has checked the framing; lines that are no field are skipped, folded lines are joined by a space.
    static func parse(status: Int, block: [UInt8]) throws(TransportError) -> HTTPResponse {
        guard (100...999).contains(status) else {
            throw TransportError(.protocol_, "the status is not three digits", requestSent: true)
        }
        let (reason, fields) = block.withUnsafeBufferPointer(parse(block:))
        return HTTPResponse(status: .init(code: status, reasonPhrase: reason), headerFields: fields)
    }

    private typealias Bytes = UnsafeBufferPointer<UInt8>

    private static func parse(block: Bytes) -> (reason: String, fields: HTTPFields) {
        var fields = HTTPFields()
        var pending: (name: HTTPField.Name, value: Range<Int>)?
        var folded: [UInt8] = []

        func finishPending() {
            guard let (name, value) = pending else { return }
            pending = nil
            if folded.isEmpty {
                fields.append(HTTPField(name: name, value: Bytes(rebasing: block[value])))
            } else {
                fields.append(HTTPField(name: name, value: Array(block[value]) + folded))
                folded.removeAll()
            }
        }

        var start = endOfLine(in: block, from: 0)
        let reason = reasonPhrase(in: Bytes(rebasing: block[0..<start]))
        while start < block.count {
            let end = endOfLine(in: block, from: start)
            let line = trimmed(block, start..<end)
            if isBlank(block[start]) {
                if pending != nil, !line.isEmpty { folded += [UInt8(ascii: " ")] + block[line] }
            } else {
                finishPending()
                if let colon = block[line].firstIndex(of: UInt8(ascii: ":")),
                    let name = HTTPField.Name(String(decoding: block[line.lowerBound..<colon], as: UTF8.self))
                {
                    pending = (name, trimmed(block, colon + 1..<line.upperBound))
                }
            }
            start = end
        }
        finishPending()
        return (reason, fields)
    }

    /// The text after the status code, made harmless by the status type itself; HTTP/2 has none.
    private static func reasonPhrase(in line: Bytes) -> String {
        let words = line[trimmed(line, 0..<line.count)].split(separator: UInt8(ascii: " "), maxSplits: 2)
        return words.count == 3 ? String(decoding: words[2], as: UTF8.self) : ""
    }

    private static func endOfLine(in block: Bytes, from start: Int) -> Int {
        (block[start...].firstIndex(of: UInt8(ascii: "\n")) ?? block.count - 1) + 1
    }

    private static func trimmed(_ block: Bytes, _ range: Range<Int>) -> Range<Int> {
        var (lower, upper) = (range.lowerBound, range.upperBound)
        while lower < upper, isBlank(block[lower]) { lower += 1 }
        while lower < upper, isBlank(block[upper - 1]) || isBreak(block[upper - 1]) { upper -= 1 }
        return lower..<upper
    }

    private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
    private static func isBreak(_ byte: UInt8) -> Bool { byte == 0x0d || byte == 0x0a }
}
