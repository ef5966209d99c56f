internal import CryptoExtras
internal import Foundation
internal import Glibc
internal import Synchronization

/// The simulator's RSA keys, in their stores' places: only the simulator and tests trust them.
///
/// Making one takes a while: each is made on its first use, stays for the whole process, and where a folder keeps the
/// keys, for those that come later.
package enum KeyRing {
    private struct State {
        var folder: String?
        var keys: [String: _RSA.Signing.PrivateKey] = [:]
    }

    private static let state = Mutex(State())

    /// Keeps keys in a folder from now on, and takes those that it holds.
    ///
    /// The folder is made where it is missing; its files are readable by their owner alone.
    package static func keep(in folder: String) throws {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        state.withLock { $0.folder = folder }
        // What can't be written or read is found out now, and not in the middle of a request.
        close(try lock("\(folder)/.lock"))
        for file in try FileManager.default.contentsOfDirectory(atPath: folder) where file.hasSuffix(".pem") {
            _ = try key(String(file.dropLast(4)))
        }
    }

    /// The key with a name, the same each time; the name may be part of a file's.
    static func key(_ name: String) throws -> _RSA.Signing.PrivateKey {
        try state.withLock { state in
            if let key = state.keys[name] { return key }
            let key = try state.folder.map { try kept("\($0)/\(name).pem") } ?? make()
            state.keys[name] = key
            return key
        }
    }

    private static func make() throws -> _RSA.Signing.PrivateKey { try _RSA.Signing.PrivateKey(keySize: .bits2048) }

    /// Waits for the others who lock a file, and locks it until it is closed.
    private static func lock(_ path: String) throws -> Int32 {
        let lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard lock >= 0 else { throw CocoaError(.fileWriteUnknown, userInfo: [NSFilePathErrorKey: path]) }
        while flock(lock, LOCK_EX) < 0, errno == EINTR {}
        return lock
    }

    /// The key in a file; made where there is none, by one process at a time.
    private static func kept(_ path: String) throws -> _RSA.Signing.PrivateKey {
        let lock = try lock(path + ".lock")
        defer { close(lock) }
        if FileManager.default.fileExists(atPath: path) {
            return try _RSA.Signing.PrivateKey(pemRepresentation: String(contentsOfFile: path, encoding: .utf8))
        }
        let key = try make()
        // Whole or not at all, whenever the process dies.
        let draft = path + ".new"
        guard
            FileManager.default.createFile(
                atPath: draft,
                contents: Data(key.pemRepresentation.utf8),
                attributes: [.posixPermissions: 0o600]
            ), rename(draft, path) == 0
        else { throw CocoaError(.fileWriteUnknown, userInfo: [NSFilePathErrorKey: path]) }
        return key
    }
}
