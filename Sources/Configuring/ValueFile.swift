import Glibc

/// Reads files that hold one value: those that `NAME_FILE` variables and options of commands name.
///
/// Blocks: it is used at start-up, and on a thread that may wait.
package enum ValueFile {
    /// The largest file that is read, in bytes; a connection string or a key is far smaller.
    package static let limit = 65_536

    /// Why a file gave no value.
    ///
    /// Says nothing of the path, which may be a secret that was put into the wrong variable.
    package struct Failure: Error {
        package let problem: String
    }

    /// Reads a file's text, which is never empty, without the line ends at its end.
    ///
    /// - Throws: `Failure` when it cannot be read, is empty, is larger than `limit` bytes, or is not UTF-8.
    package static func read(_ path: String, upTo limit: Int = Self.limit) throws(Failure) -> String {
        var bytes = try contents(of: path, upTo: limit)
        while let last = bytes.last, last == 0x0A || last == 0x0D { bytes.removeLast() }
        guard !bytes.isEmpty else { throw Failure(problem: "the file is empty") }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw Failure(problem: "the file is not UTF-8 text")
        }
        return text
    }

    private static func contents(of path: String, upTo limit: Int) throws(Failure) -> [UInt8] {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw failure(errno) }
        defer { close(descriptor) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw failure(errno) }
            guard count > 0 else { return bytes }
            bytes += chunk[..<count]
            guard bytes.count <= limit else { throw Failure(problem: "the file is larger than \(limit >> 10) KiB") }
        }
    }

    private static func failure(_ code: CInt) -> Failure {
        switch code {
        case ENOENT, ENOTDIR: Failure(problem: "the file does not exist")
        case EACCES, EPERM: Failure(problem: "the file may not be read by this user")
        case EISDIR: Failure(problem: "the path names a directory")
        default: Failure(problem: "the file cannot be read (errno \(code))")
        }
    }
}
