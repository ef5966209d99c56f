/// A text that must never be printed: a key, a password, a connection string.
///
/// Descriptions, reflection and `dump` show `<redacted>`; only ``reveal()`` gives the text, at the one place that needs it.
package struct Secret: Sendable {
    // A closure, not a stored string: no mirror, however it is made, can walk into it.
    private let text: @Sendable () -> String

    /// Wraps a text.
    package init(_ text: String) {
        self.text = { text }
    }

    /// The text itself, for the request or connection that it opens.
    package func reveal() -> String { text() }
}

extension Secret: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    package var description: String { "<redacted>" }
    package var debugDescription: String { "<redacted>" }
    package var customMirror: Mirror { Mirror(self, children: []) }
}
