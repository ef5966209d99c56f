package import HTTPTypes
import TextFormats

/// How long an answer may be kept.
package enum CacheLifetime {
    private static let least: Int64 = 60
    private static let most: Int64 = 86_400

    /// What an answer's headers say: `max-age` less `Age`, at least a minute and at most a day.
    ///
    /// A minute where they say nothing that can be read.
    ///
    /// - SeeAlso: RFC 9111, sections 4.2.3 and 5.2.2.1
    package static func lifetime(_ headers: HTTPFields) -> Duration {
        var seconds: Int64?
        for directive in (headers[.cacheControl] ?? "").split(separator: ",") {
            let sides = directive.split(separator: "=", maxSplits: 1).map { trimmed($0) }
            guard sides.count == 2, sides[0].lowercased() == "max-age", let written = number(sides[1]) else { continue }
            // Said twice, the shorter one counts.
            seconds = min(seconds ?? written, written)
        }
        let age = headers[.age].flatMap { number(trimmed($0[...])) } ?? 0
        return .seconds(min(most, max(least, (seconds ?? 0) - age)))
    }

    private static func trimmed(_ text: Substring) -> Substring {
        var text = text
        while text.first == " " || text.first == "\t" { text.removeFirst() }
        while text.last == " " || text.last == "\t" { text.removeLast() }
        return text
    }

    private static func number(_ text: Substring) -> Int64? {
        text.utf8.count <= 12 && text.utf8.allSatisfy(\.isDigit) ? Int64(text) : nil
    }
}
