/// An answer, read from the bytes of a connection.
struct RawAnswer: Sendable {
    var status: Int
    /// By names in lower case.
    var headers: [String: String]
    var body: [UInt8]

    var text: String { String(decoding: body, as: UTF8.self) }

    private static let headEnd = Array("\r\n\r\n".utf8)
    private static let lineEnd = Array("\r\n".utf8)

    /// Reads all answers that are whole.
    ///
    /// - Parameters:
    ///   - bytes: what came, from an answer's beginning.
    ///   - hasEnded: the connection is closed, so that an answer without a length is whole.
    /// - Returns: the answers, and whether they are all that came.
    static func all(in bytes: [UInt8], hasEnded: Bool) -> (answers: [RawAnswer], isAll: Bool) {
        var answers: [RawAnswer] = []
        var left = bytes[...]
        while let end = left.firstRange(of: headEnd) {
            guard var answer = head(left[..<end.lowerBound]) else { return (answers, false) }
            left = left[end.upperBound...]
            if answer.headers["transfer-encoding"]?.lowercased() == "chunked" {
                guard let rest = unchunked(left, into: &answer.body) else { return (answers, false) }
                left = rest
            } else if let length = answer.headers["content-length"].flatMap({ Int($0) }) {
                guard left.count >= length else { return (answers, false) }
                answer.body = Array(left.prefix(length))
                left = left.dropFirst(length)
            } else if answer.status != 204 {
                guard hasEnded else { return (answers, false) }
                answer.body = Array(left)
                left = []
            }
            answers.append(answer)
        }
        return (answers, left.isEmpty)
    }

    /// Reads an answer's first lines; `nil` where they are none.
    static func head(_ bytes: ArraySlice<UInt8>) -> RawAnswer? {
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\r\n")
        guard let first = lines.first, first.hasPrefix("HTTP/1.1 "), let status = Int(first.dropFirst(9).prefix(3))
        else { return nil }
        var headers: [String: String] = [:]
        for line in lines.dropFirst() {
            let sides = line.split(separator: ":", maxSplits: 1)
            guard sides.count == 2 else { return nil }
            headers[sides[0].lowercased()] = String(sides[1].drop { $0 == " " })
        }
        return RawAnswer(status: status, headers: headers, body: [])
    }

    /// Reads a body that comes in chunks.
    ///
    /// - Parameters:
    ///   - bytes: from the body's beginning.
    ///   - content: is given what the chunks hold, of the last one as much as there is.
    /// - Returns: what follows the body; `nil`: it is not whole.
    static func unchunked(_ bytes: ArraySlice<UInt8>, into content: inout [UInt8]) -> ArraySlice<UInt8>? {
        var left = bytes
        while let line = left.firstRange(of: lineEnd) {
            guard let size = Int(String(decoding: left[..<line.lowerBound], as: UTF8.self), radix: 16), size >= 0
            else { return nil }
            let chunk = left[line.upperBound...]
            content += chunk.prefix(size)
            guard chunk.count >= size + lineEnd.count else { return nil }
            left = chunk.dropFirst(size + lineEnd.count)
            if size == 0 { return left }
        }
        return nil
    }
}
