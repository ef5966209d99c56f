import Composition
import Foundation
import Glibc

/// A file that holds users' ids: no other account reads it, and nothing is overwritten.
struct PrivateFile {
    private let handle: FileHandle
    private let option: String

    /// Makes it, or takes an empty one that an earlier try has left.
    ///
    /// `option`: what names the file on the command line.
    ///
    /// - Throws: `CommandFailure` where it can't be made, or something stands in it.
    init(path: String, option: String) throws {
        self.option = option
        let file = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
        guard file >= 0 else {
            throw CommandFailure(.data, "\(option): the file can't be made; name one that does not exist")
        }
        handle = FileHandle(fileDescriptor: file, closeOnDealloc: true)
        let attributes = try? FileManager.default.attributesOfItem(atPath: path)
        guard attributes?[.type] as? FileAttributeType == .typeRegular, attributes?[.size] as? Int == 0,
            fchmod(file, 0o600) == 0
        else { throw CommandFailure(.data, "\(option): the file is not empty; name one that does not exist") }
    }

    func write(_ text: String) throws {
        do { try handle.write(contentsOf: Data(text.utf8)) } catch {
            throw CommandFailure(.data, "\(option): the file can't be written")
        }
    }
}
