import Testing

/// Runs the tests of all targets, in place of the entry point that the package manager would write: to look for tests of XCTest,
/// of which there are none, that one needs an index of every module, which is a fifth of the time to build.
@main struct AllTests {
    static func main() async { await Testing.__swiftPMEntryPoint() as Never }
}
