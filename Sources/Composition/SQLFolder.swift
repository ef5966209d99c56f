import CDispatch
import CoreFoundation
import Foundation
import Glibc

/// Where the migrations and the host adapter are, which run as the schema's owner.
package enum SQLFolder {
    /// Finds the folder: the one that is set, else the one beside the binary or in the working directory, if only this user and
    /// root may write there.
    ///
    /// - Throws: `CommandFailure` where there is none that can be trusted.
    package static func find(_ configured: String?) throws -> String {
        if let configured {
            guard holdsMigrations(configured) else { throw missing }
            return configured
        }
        let binary = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        let beside = binary.appendingPathComponent("sql").path
        let here = FileManager.default.currentDirectoryPath + "/sql"
        guard let found = [beside, here].first(where: holdsMigrations) else { throw missing }
        if let open = firstOpen(found) {
            throw CommandFailure(
                .configuration,
                "\(open) belongs to another user, or others may write it: what they wrote would run as the schema's owner. Set"
                    + " ENTITLEMENT_SYNC_SQL_DIR to the folder that you trust, or take their rights away (chmod go-w)"
            )
        }
        if found == here { Output.write("entitlement-sync: the SQL is taken from \(here)\n", to: .standardError) }
        return found
    }

    private static let missing = CommandFailure(
        .configuration,
        "the folder sql with the migrations is neither beside the binary nor in the working directory; set"
            + " ENTITLEMENT_SYNC_SQL_DIR"
    )

    private static func holdsMigrations(_ path: String) -> Bool {
        FileManager.default.fileExists(atPath: path + "/migrations")
    }

    /// The first of a folder's parents, of itself and of what is in it that another user owns, may write or may replace.
    package static func firstOpen(_ folder: String) -> String? {
        let parent = URL(fileURLWithPath: folder).deletingLastPathComponent().resolvingSymlinksInPath()
        let real = parent.appendingPathComponent((folder as NSString).lastPathComponent).path
        var parents = [real]
        while let last = parents.last, last != "/" { parents.append((last as NSString).deletingLastPathComponent) }
        let inside = (FileManager.default.enumerator(atPath: real)?.compactMap { $0 as? String } ?? []).map {
            real + "/" + $0
        }
        return parents.dropFirst().reversed().first { !isOurs($0, isParent: true) }
            ?? ([real] + inside).first { !isOurs($0, isParent: false) }
    }

    /// Whether only this user and root decide what is there.
    ///
    /// A parent with the sticky bit, as `/tmp` has it, lets others add what is theirs, and replace nothing.
    private static func isOurs(_ path: String, isParent: Bool) -> Bool {
        var entry = stat()
        // A link is not followed: where it leads is its writer's choice.
        guard lstat(path, &entry) == 0, entry.st_mode & S_IFMT != S_IFLNK else { return false }
        let isSticky = isParent && entry.st_mode & S_ISVTX != 0
        return (entry.st_uid == geteuid() || entry.st_uid == 0) && (entry.st_mode & 0o022 == 0 || isSticky)
    }
}
