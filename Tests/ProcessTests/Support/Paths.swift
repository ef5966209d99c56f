import Foundation
import TestSupport

extension Paths {
    static let fixtures = folder + "/Tests/ProcessTests/Fixtures"

    /// The program, which is built beside the tests.
    static let program = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        .appendingPathComponent("entitlement-sync").path

    /// Keeps simulators' keys, beside what the package builds: in a debug build, making one takes seconds.
    static let keys = folder + "/.build/simulator-keys"

    static func text(_ path: String) throws -> String { try String(contentsOfFile: path, encoding: .utf8) }

    /// Writes a file that lives as long as the system keeps temporary files; named by its content's purpose.
    static func temporary(_ text: String, suffix: String) throws -> String {
        let path = FileManager.default.temporaryDirectory.path + "/process-tests-\(UUID().uuidString)\(suffix)"
        try text.write(toFile: path, atomically: true, encoding: .utf8)
        return path
    }
}
