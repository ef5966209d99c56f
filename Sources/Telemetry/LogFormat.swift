/// How a line of the log is written.
package enum LogFormat: String, Sendable, CaseIterable {
    /// `2026-11-21T02:03:04.567Z info message key=value`, for people.
    case text
    /// One JSON object, for machines.
    case json
}
