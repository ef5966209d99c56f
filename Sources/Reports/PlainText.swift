/// Text from outside as it may be shown.
package enum PlainText {
    /// Replaces signs of control, and those that turn the direction of writing round, by another.
    package static func harmless(_ text: String, sign: Unicode.Scalar = "\u{FFFD}") -> String {
        var scalars = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator: scalars.append(sign)
            default: scalars.append(scalar)
            }
        }
        return String(scalars)
    }

    /// Escapes the same signs in a text of JSON, where they stand within strings alone: programs read them, terminals do not.
    package static func escaped(_ json: String) -> String {
        guard json.unicodeScalars.contains(where: { !$0.isASCII || $0.value == 0x7F }) else { return json }
        var text = ""
        for scalar in json.unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator:
                for unit in String(scalar).utf16 {
                    let digits = String(unit, radix: 16)
                    text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                }
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text
    }
}
