import Crypto
import Foundation
import TextFormats

/// What the folder `sql` holds: migrations, each applied once, and the current text of everything that can be replaced.
package struct SchemaSource: Sendable {
    /// Rises with every change of the files below, so that a database knows the newest text that it was given.
    package var release: Int32
    /// The oldest release whose processes still work beside this one.
    package var compatibleFrom: Int32
    package var migrations: [MigrationFile]
    /// Functions, views, triggers and privileges, in the order in which they are applied.
    package var objects: [SchemaObject]

    /// SHA-256 over all of it, in hex.
    package var checksum: String {
        SHA256Text.hex((migrations.map(\.checksum) + objects.map(\.checksum)).joined(separator: "\n"))
    }

    /// Throws `.missing`, naming the file and what is wrong with it.
    package static func load(directory: String) throws(MigrationError) -> SchemaSource {
        var objects: [SchemaObject] = []
        var files: [String] = []
        for folder in ["functions", "functions/desk"] {
            files += try names(in: folder, of: directory).map { "\(folder)/\($0)" }
        }
        for file in files + ["views.sql", "triggers.sql"] {
            objects += try SchemaObject.objects(in: try text(of: file, in: directory), of: file)
        }
        if let twice = Dictionary(grouping: objects, by: \.id).first(where: { $1.count > 1 })?.key {
            throw MigrationError(.missing, "the \(twice.kind) \(twice.name) stands twice in the SQL")
        }
        let grants = try text(of: "grants.sql", in: directory)
        objects.append(SchemaObject(kind: .privileges, name: "grants", text: grants))
        let stated = try text(of: "release", in: directory)
        return SchemaSource(
            release: try number("release", in: stated),
            compatibleFrom: try number("compatible_from", in: stated),
            migrations: try MigrationFile.load(directory: directory),
            objects: objects
        )
    }

    fileprivate static func names(in folder: String, of directory: String) throws(MigrationError) -> [String] {
        do {
            return try FileManager.default.contentsOfDirectory(atPath: "\(directory)/\(folder)")
                .filter { $0.hasSuffix(".sql") }.sorted()
        } catch {
            throw MigrationError(.missing, "the folder sql/\(folder) can't be read; set ENTITLEMENT_SYNC_SQL_DIR")
        }
    }

    fileprivate static func text(of file: String, in directory: String) throws(MigrationError) -> String {
        do { return try String(contentsOfFile: "\(directory)/\(file)", encoding: .utf8) } catch {
            throw MigrationError(.missing, "sql/\(file) can't be read as UTF-8 text; set ENTITLEMENT_SYNC_SQL_DIR")
        }
    }

    private static func number(_ name: String, in text: String) throws(MigrationError) -> Int32 {
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: "=").map { $0.trimmingCharacters(in: .whitespaces) }
            if parts.count == 2, parts[0] == name, let value = Int32(parts[1]) { return value }
        }
        throw MigrationError(.missing, "sql/release has no line \(name) = NUMBER")
    }
}

/// One numbered file of `sql/migrations`.
package struct MigrationFile: Sendable, Hashable {
    package var version: Int32
    package var name: String
    package var sql: String
    package var checksum: String

    /// Reads `NNNN_name.sql` files in order; throws `.missing` where numbers are missing or twice there.
    static func load(directory: String) throws(MigrationError) -> [MigrationFile] {
        var files: [MigrationFile] = []
        for name in try SchemaSource.names(in: "migrations", of: directory) {
            guard let version = Int32(name.prefix(4)), name.dropFirst(4).first == "_" else {
                throw MigrationError(.missing, "\(name) is not named NNNN_name.sql")
            }
            guard version == Int32(files.count + 1) else {
                throw MigrationError(.missing, "migration \(files.count + 1) is missing or there twice (found \(name))")
            }
            let sql = try SchemaSource.text(of: "migrations/\(name)", in: directory)
            files.append(
                MigrationFile(version: version, name: String(name.dropLast(4)), sql: sql, checksum: SHA256Text.hex(sql))
            )
        }
        guard !files.isEmpty else {
            throw MigrationError(.missing, "no migrations were found; set ENTITLEMENT_SYNC_SQL_DIR to the sql folder")
        }
        return files
    }
}

enum SHA256Text {
    static func hex(_ text: String) -> String {
        Hex.encode(SHA256.hash(data: Data(text.utf8)))
    }
}
