import FoundationEssentials

/// Pieces of JSON.
package enum JSONText {
    /// A text as JSON has it.
    package static func quoted(_ text: String) -> String {
        let isPlain = text.utf8.allSatisfy { $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }
        guard !isPlain else { return "\"\(text)\"" }
        // A text alone: there is nothing that can't be written.
        return (try? JSONEncoder().encode(text)).map { String(decoding: $0, as: UTF8.self) } ?? "null"
    }
}
