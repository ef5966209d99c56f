import Composition

/// The hash of what an operator has reviewed, or its first twelve hexadecimal digits at least.
struct ReviewedHash {
    private let text: String

    /// Throws a `CommandFailure` where it is none; `command`: the one that prints it.
    init(_ text: String, printedBy command: String) throws {
        guard text.wholeMatch(of: /[0-9a-f]{12,64}/) != nil else {
            throw CommandFailure(.data, "--hash: give what \(command) prints, at least its first 12 hexadecimal digits")
        }
        self.text = text
    }

    /// The whole hash where this is its beginning; the database compares it.
    func whole(of known: String?) -> String { known.flatMap { $0.hasPrefix(text) ? $0 : nil } ?? text }
}
