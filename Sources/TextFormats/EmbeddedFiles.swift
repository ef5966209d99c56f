import CEmbeddedFiles

/// Files of `Sources` that are part of the program: texts, pages, and the description of its HTTP API.
package enum EmbeddedFiles {
    private static let contents: [String: [UInt8]] = {
        let files = (0..<embedded_file_count()).map { embedded_file_at($0) }
        return Dictionary(
            uniqueKeysWithValues: files.map {
                (String(cString: $0.path), [UInt8](UnsafeBufferPointer(start: $0.bytes, count: $0.count)))
            }
        )
    }()

    /// Returns what is in a file, by its path below `Sources`, which `files.c` lists.
    package static func content(_ path: String) -> [UInt8] {
        guard let content = contents[path] else { preconditionFailure("\(path) is not embedded") }
        return content
    }

    /// Returns the files of a folder by their names without the ending.
    package static func contents(of folder: String) -> [String: [UInt8]] {
        let inside = contents.filter { $0.key.hasPrefix(folder + "/") }
        return Dictionary(
            uniqueKeysWithValues: inside.map { path, content in
                (String(path.dropFirst(folder.count + 1).prefix { $0 != "." }), content)
            }
        )
    }
}
