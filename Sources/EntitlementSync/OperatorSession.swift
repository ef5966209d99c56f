import ArgumentParser
import Foundation
import SupportDesk

/// Whose name a command acts in: the operator who signed in at this terminal.
struct SessionOptions: ParsableArguments {
    @Option(help: "The file that holds the operator's session (default: ~/.local/state/entitlement-sync/operator).")
    var session: String?

    /// Where the session is kept.
    var path: String {
        if let session { return session }
        let environment = ProcessInfo.processInfo.environment
        let state =
            environment["XDG_STATE_HOME"].flatMap { $0.hasPrefix("/") ? $0 : nil }
            ?? (environment["HOME"] ?? NSHomeDirectory()) + "/.local/state"
        return state + "/entitlement-sync/operator"
    }

    /// The session, if there is one.
    ///
    /// - Throws: `CommandFailure` where others may read the file, or it holds something else.
    func token() throws -> SessionToken? {
        guard FileManager.default.fileExists(atPath: path) else { return nil }
        let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int ?? 0o777
        guard mode & 0o077 == 0 else {
            throw CommandFailure(.notAllowed, "--session: others may read the file; chmod 600 it, and sign in again")
        }
        guard let data = FileManager.default.contents(atPath: path),
            let token = SessionToken(
                String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
            )
        else {
            throw CommandFailure(.data, "--session: the file holds no session; sign in again")
        }
        return token
    }

    /// The session of whoever has to be signed in.
    func signedIn() throws -> SessionToken {
        guard let token = try token() else {
            throw CommandFailure(.notAllowed, "nobody is signed in; run entitlement-sync operator login NAME")
        }
        return token
    }

    /// Keeps a session for the commands that follow; nobody else may read it.
    func keep(_ token: SessionToken) throws {
        let folder = URL(fileURLWithPath: path).deletingLastPathComponent()
        do {
            try FileManager.default.createDirectory(
                at: folder,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
            // A file of its own, never one that somebody has put there with wider rights.
            let temporary = folder.appendingPathComponent(".operator-\(UUID().uuidString)").path
            let descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
            guard descriptor >= 0 else { throw CocoaError(.fileWriteUnknown) }
            let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
            try file.write(contentsOf: Data((token.text + "\n").utf8))
            try file.close()
            guard rename(temporary, path) == 0 else {
                unlink(temporary)
                throw CocoaError(.fileWriteUnknown)
            }
        } catch {
            throw CommandFailure(.configuration, "--session: \(path) can't be written; name another file")
        }
    }

    /// Forgets the session here.
    func forget() { unlink(path) }
}

/// Asks whoever sits at the terminal.
enum Terminal {
    /// Whether somebody can be asked.
    static var isThere: Bool { isatty(STDIN_FILENO) == 1 }

    /// Asks for something that is not shown while it is typed.
    ///
    /// - Returns: `nil`: nobody answers.
    static func secret(_ question: String) -> String? {
        var before = termios()
        guard isThere, tcgetattr(STDIN_FILENO, &before) == 0 else { return nil }
        var silent = before
        silent.c_lflag &= ~tcflag_t(ECHO)
        Output.write(question, to: .standardError)
        guard tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) == 0 else { return nil }
        defer {
            tcsetattr(STDIN_FILENO, TCSAFLUSH, &before)
            Output.write("\n", to: .standardError)
        }
        return readLine(strippingNewline: true)
    }

    /// Asks for something that may be seen.
    static func answer(_ question: String) -> String? {
        guard isThere else { return nil }
        Output.write(question, to: .standardError)
        return readLine(strippingNewline: true)
    }
}
