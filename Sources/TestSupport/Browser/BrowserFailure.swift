/// Why a browser could not be had, or did not do what a test asked of it.
package struct BrowserFailure: Error, Sendable, CustomStringConvertible {
    /// What was asked, what came instead, and what the page showed then.
    package var description: String

    init(_ description: String) { self.description = description }
}
