import Foundation
import Glibc
import TestSupport
import Testing

/// A small file system in memory, which a test fills up and frees again; root alone may mount one.
final class SmallDisk: Sendable {
    static let isAvailable = getuid() == 0 && canMount

    /// Where it is mounted; the database server's.
    let folder: String
    private var filler: String { folder + "/filler" }

    init(megabytes: Int) throws {
        let base = try Self.makeFolder()
        try #require(
            mount("tmpfs", base, "tmpfs", 0, "size=\(megabytes)m,mode=0711") == 0,
            "a file system can't be mounted: \(errno)"
        )
        folder = base + "/data"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
        try PrivatePostgres.giveToServerUser(folder)
    }

    /// Leaves no byte of it.
    func fill() throws {
        let file = open(filler, O_WRONLY | O_CREAT | O_APPEND, 0o600)
        defer { close(file) }
        let bytes = [UInt8](repeating: 1, count: 1 << 20)
        while write(file, bytes, bytes.count) > 0 {}
        try #require(errno == ENOSPC)
    }

    /// Gives all of it back.
    func free() { unlink(filler) }

    func remove() {
        let base = String(folder.dropLast("/data".count))
        // Whoever still has a file open there keeps it until then.
        umount2(base, Int32(MNT_DETACH))
        rmdir(base)
    }

    private static func makeFolder() throws -> String {
        let path = try Files.makeTemporaryDirectory()
        chmod(path, 0o711)
        return path
    }

    private static let canMount: Bool = {
        guard let base = try? makeFolder() else { return false }
        defer { rmdir(base) }
        guard mount("tmpfs", base, "tmpfs", 0, "size=1m") == 0 else { return false }
        return umount2(base, 0) == 0
    }()
}
