import Foundation

/// Base64 as RFC 4648 writes it, read strictly: one text stands for one sequence of bytes.
enum Base64 {
    enum Alphabet {
        /// `+` and `/`, padded with `=`.
        case standard
        /// `-` and `_`, never padded.
        case url
    }

    /// Decodes a text.
    ///
    /// - Returns: `nil` where a character or the length is wrong, or the text is not the one that its bytes are written as.
    static func decode(_ text: some Collection<UInt8>, _ alphabet: Alphabet) -> [UInt8]? {
        var written = Data(text)
        if alphabet == .url {
            guard !written.contains(where: { [UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: "=")].contains($0) })
            else { return nil }
            written = Data(
                written.map {
                    $0 == UInt8(ascii: "-") ? UInt8(ascii: "+") : $0 == UInt8(ascii: "_") ? UInt8(ascii: "/") : $0
                }
            )
            written += Data(repeating: UInt8(ascii: "="), count: (4 - written.count % 4) % 4)
        }
        // Foundation takes texts whose last character has bits that mean nothing: a signature could be altered and still
        // be the same.
        guard let bytes = Data(base64Encoded: written), bytes.base64EncodedData() == written else { return nil }
        return Array(bytes)
    }

    /// Writes bytes.
    static func encode(_ bytes: some Collection<UInt8>, _ alphabet: Alphabet) -> String {
        let text = Data(bytes).base64EncodedString()
        guard alphabet == .url else { return text }
        return text.replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }
}
