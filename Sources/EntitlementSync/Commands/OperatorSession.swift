import ArgumentParser
import Composition
import CoreFoundation
import Foundation
import Glibc
import SupportDesk

/// Whose name a command acts in: the operator who signed in at this terminal.
struct SessionOptions: ParsableArguments {
    @Option(
        help:
            "The file that holds the operator's session (default: ~/.local/state/entitlement-sync/operator, with -NAME for one of several apps)."
    )
    var session: String?

    /// Where the session is kept.
    var path: String {
        if let session { return session }
        let environment = ProcessInfo.processInfo.environment
        let state =
            environment["XDG_STATE_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
            ?? (environment["HOME"] ?? NSHomeDirectory()) + "/.local/state"
        // Each app has operators and sessions of its own.
        return state + "/entitlement-sync/operator" + (AppChoice.resolvedName(in: environment).map { "-\($0)" } ?? "")
    }

    /// The session, if there is one.
    ///
    /// - Throws: `CommandFailure` where others may read the file, or it holds something else.
    func token() throws -> SessionToken? {
        guard let text = try text(path) else { return nil }
        guard let token = SessionToken(text) else {
            throw CommandFailure(.data, "--session: the file holds no session; sign in again")
        }
        return token
    }

    /// What shows that operators have signed in at this terminal before, if they have.
    func client() throws -> ClientToken? { try text(path + ".client").flatMap { ClientToken($0) } }

    private func text(_ path: String) throws -> String? {
        // What is checked is what is read: no link, and no other file in between.
        let descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else {
            guard errno == ENOENT else {
                throw CommandFailure(.data, "--session: \(path) can't be read (\(String(cString: strerror(errno))))")
            }
            return nil
        }
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
            status.st_mode & 0o077 == 0
        else {
            throw CommandFailure(
                .notAllowed,
                "--session: the file has to be yours, and no other user may read it; delete it, and sign in again"
            )
        }
        return String(decoding: try file.read(upToCount: 256) ?? Data(), as: UTF8.self)
            .trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// The session of the operator who has to be signed in.
    func signedIn() throws -> SessionToken {
        guard let token = try token() else {
            throw CommandFailure(.notAllowed, "no operator is signed in; run entitlement-sync operator login NAME")
        }
        return token
    }

    /// Keeps a session for the commands that follow, and what shows later that it was here; no other user may read them.
    func keep(_ token: SessionToken, _ client: ClientToken? = nil) throws {
        if let client { try write(client.text, to: path + ".client") }
        try write(token.text, to: path)
    }

    private func write(_ text: String, to path: String) throws {
        let folder = URL(fileURLWithPath: path).deletingLastPathComponent()
        do {
            try FileManager.default.createDirectory(
                at: folder,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            // A file of its own, never one that was put there with wider rights.
            let temporary = folder.appendingPathComponent(".operator-\(UUID().uuidString)").path
            let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
            guard descriptor >= 0 else { throw CocoaError(.fileWriteUnknown) }
            defer { unlink(temporary) }
            let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
            try file.write(contentsOf: Data((text + "\n").utf8))
            try file.close()
            guard rename(temporary, path) == 0 else { throw CocoaError(.fileWriteUnknown) }
        } catch {
            throw CommandFailure(.configuration, "--session: \(path) can't be written; name another file")
        }
    }

    /// Forgets the session here.
    func forget() { unlink(path) }
}
