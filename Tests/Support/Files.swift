import FoundationEssentials
import Glibc

package enum Files {
    static let packageFolder = #filePath.split(separator: "/").dropLast(3).reduce(into: "") { $0 += "/" + $1 }

    static func read(_ path: String) throws -> String { try String(contentsOfFile: path, encoding: .utf8) }

    static func append(_ text: String, to path: String) throws {
        try (((try? read(path)) ?? "") + text).write(toFile: path, atomically: false, encoding: .utf8)
    }

    /// Makes a private directory with a name so short that a socket in it has a legal path.
    ///
    /// Not where `TMPDIR` points: that may be long, and closed to the user that servers run as.
    package static func makeTemporaryDirectory(in parent: String = "/tmp") throws -> String {
        var template = Array("\(parent)/pgtest-XXXXXX".utf8CString)
        guard let path = mkdtemp(&template) else { throw ChildProcess.Failure(description: "mkdtemp failed: \(errno)") }
        return String(cString: path)
    }

    /// A folder in memory, where there is one with room to spare: hundreds of databases of hundreds of files each cost a
    /// disk's file system more than the server.
    static let memory: String? = {
        let (folder, least) = ("/dev/shm", UInt64(4) << 30)
        var room = statvfs()
        guard statvfs(folder, &room) == 0, UInt64(room.f_bavail) * UInt64(room.f_frsize) >= least,
            access(folder, W_OK) == 0,
            let memory = try? read("/proc/meminfo").firstMatch(of: /MemAvailable: +(\d+) kB/),
            let available = UInt64(memory.1), available << 10 >= least
        else { return nil }
        return folder
    }()

    static func remove(_ path: String) { try? FileManager.default.removeItem(atPath: path) }

    /// The names in a directory, sorted; empty when it does not exist.
    static func list(_ path: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []).sorted()
    }
}
