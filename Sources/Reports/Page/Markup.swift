/// A piece of a page: what stands in the code is taken as it is, and whatever is put into it is made harmless.
///
/// The compiler makes sure of it: a piece begins as text of the code, which no value of the running program can be.
struct Markup: ExpressibleByStringInterpolation, Sendable {
    private(set) var text: String

    init(stringLiteral value: StaticString) { text = value.description }
    init(stringInterpolation: Interpolation) { text = stringInterpolation.text }

    struct Interpolation: StringInterpolationProtocol {
        fileprivate var text = ""

        init(literalCapacity: Int, interpolationCount: Int) {
            text.reserveCapacity(literalCapacity + interpolationCount * 16)
        }

        mutating func appendLiteral(_ literal: StaticString) { text += literal.description }
        mutating func appendInterpolation(_ data: String) { text += Markup.escaped(data) }
        mutating func appendInterpolation(_ number: Int64) { text += Figures.grouped(number) }
        mutating func appendInterpolation(_ markup: Markup) { text += markup.text }
        mutating func appendInterpolation(_ pieces: [Markup]) { for piece in pieces { text += piece.text } }
    }

    /// Makes text harmless between tags and in an attribute.
    ///
    /// Sign by sign, as browsers read it: what Swift calls a character may be a quotation mark with an accent above it. What
    /// XML cannot hold, and what turns the direction of writing round, is replaced.
    private static func escaped(_ data: String) -> String {
        var escaped = String.UnicodeScalarView()
        for scalar in data.unicodeScalars {
            switch scalar {
            case "&": escaped.append(contentsOf: "&amp;".unicodeScalars)
            case "<": escaped.append(contentsOf: "&lt;".unicodeScalars)
            case ">": escaped.append(contentsOf: "&gt;".unicodeScalars)
            case "\"": escaped.append(contentsOf: "&quot;".unicodeScalars)
            case "'": escaped.append(contentsOf: "&#39;".unicodeScalars)
            case "`": escaped.append(contentsOf: "&#96;".unicodeScalars)
            case "\t", "\n": escaped.append(scalar)
            case "\0"..<" ", "\u{7F}"..."\u{9F}", "\u{202A}"..."\u{202E}", "\u{2066}"..."\u{2069}":
                escaped.append("\u{FFFD}")
            default: escaped.append(scalar.isNoncharacter ? "\u{FFFD}" : scalar)
            }
        }
        return String(escaped)
    }
}

extension Unicode.Scalar {
    /// Whether it stands for no sign in any text; XML allows some of them nowhere.
    fileprivate var isNoncharacter: Bool { value & 0xFFFE == 0xFFFE || (0xFDD0...0xFDEF).contains(value) }
}
