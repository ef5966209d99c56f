/// What this build is called.
package enum Build {
    /// The program's version; deploy/CHANGELOG.md and the API's description have the same.
    package static let version = "0.1.0"
}
