import FoundationEssentials
import Glibc

/// The few file operations that test servers need.
package enum Files {
    /// The package's own folder.
    static let packageFolder = #filePath.split(separator: "/").dropLast(3).reduce(into: "") { $0 += "/" + $1 }

    static func read(_ path: String) throws -> String { try String(contentsOfFile: path, encoding: .utf8) }

    static func append(_ text: String, to path: String) throws {
        try (((try? read(path)) ?? "") + text).write(toFile: path, atomically: false, encoding: .utf8)
    }

    /// Makes a private directory with a name so short that a socket in it has a legal path.
    ///
    /// Not where `TMPDIR` points: that may be long, and closed to the user that servers run as.
    ///
    /// - Throws: `ChildProcess.Failure`.
    package static func makeTemporaryDirectory() throws -> String {
        var template = Array("/tmp/pgtest-XXXXXX".utf8CString)
        guard let path = mkdtemp(&template) else { throw ChildProcess.Failure(description: "mkdtemp failed: \(errno)") }
        return String(cString: path)
    }

    static func remove(_ path: String) { try? FileManager.default.removeItem(atPath: path) }

    /// The names in a directory, sorted; empty when it does not exist.
    static func list(_ path: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).sorted()
    }
}
