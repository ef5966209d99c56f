import Foundation

/// Where the package and the built program are.
enum Paths {
    /// The package's folder.
    static let package = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().path

    static let sql = package + "/sql"
    static let fixtures = package + "/Tests/ProcessTests/Fixtures"

    /// The program, which is built beside the tests.
    static let program = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        .appendingPathComponent("entitlement-sync").path

    /// Keeps simulators' keys, beside what the package builds: in a debug build, making one takes seconds.
    static let keys = package + "/.build/simulator-keys"

    static func text(_ path: String) throws -> String { try String(contentsOfFile: path, encoding: .utf8) }

    /// Writes a file that lives as long as the system keeps temporary files; named by its content's purpose.
    static func temporary(_ text: String, suffix: String) throws -> String {
        let path = FileManager.default.temporaryDirectory.path + "/process-tests-\(UUID().uuidString)\(suffix)"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }
}
