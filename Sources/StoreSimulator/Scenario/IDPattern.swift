/// A text with one number in it, readable in both directions.
struct IDPattern: Sendable {
    private let prefix: String
    private let suffix: String
    private let width: Int

    /// Reads `user-{n}` or `user-{n:8}`; nil when there is not exactly one number.
    init?(_ text: String) {
        let parts = text.split(separator: "{n", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let brace = parts[1].firstIndex(of: "}"), !parts[1].contains("{n") else { return nil }
        let padding = parts[1][..<brace]
        if padding.isEmpty {
            width = 0
        } else {
            guard padding.first == ":", let digits = Int(padding.dropFirst()), (1...40).contains(digits) else {
                return nil
            }
            width = digits
        }
        prefix = String(parts[0])
        suffix = String(parts[1][parts[1].index(after: brace)...])
    }

    /// The text for a number.
    func text(_ number: Int) -> String {
        prefix + Identifiers.padded(Int64(number), to: width) + suffix
    }

    /// The number in a text of this pattern; nil when the text is not exactly what `text(_:)` would give.
    func number(in text: String) -> Int? {
        var text = text
        return text.withUTF8 { bytes in
            let digits = bytes.count - prefix.utf8.count - suffix.utf8.count
            guard digits > 0, bytes.starts(with: prefix.utf8),
                bytes.suffix(suffix.utf8.count).elementsEqual(suffix.utf8)
            else { return nil }
            var number = 0
            for byte in bytes[prefix.utf8.count..<(prefix.utf8.count + digits)] {
                guard byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9"), number < 100_000_000_000 else { return nil }
                number = number * 10 + Int(byte - UInt8(ascii: "0"))
            }
            return digits == max(width, "\(number)".utf8.count) ? number : nil
        }
    }
}
