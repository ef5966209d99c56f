import Crypto
import Foundation

/// One numbered file of `sql/migrations`.
package struct MigrationFile: Sendable, Hashable {
    package var version: Int32
    package var name: String
    package var sql: String
    /// SHA-256 of the text, in hex.
    package var checksum: String
    /// The oldest schema version whose workers still work beside this one.
    package var compatibleFrom: Int32

    /// Reads `NNNN_name.sql` files in order.
    ///
    /// - Throws: `MigrationError` when the folder can't be read, or numbers are missing or twice there.
    package static func load(directory: String) throws -> [MigrationFile] {
        let names: [String]
        do {
            names = try FileManager.default.contentsOfDirectory(atPath: directory).filter { $0.hasSuffix(".sql") }
                .sorted()
        } catch {
            throw MigrationError(.missing, "the folder sql/migrations can't be read; set ENTITLEMENT_SYNC_SQL_DIR")
        }
        var files: [MigrationFile] = []
        for name in names {
            guard let version = Int32(name.prefix(4)), name.dropFirst(4).first == "_" else {
                throw MigrationError(.missing, "\(name) is not named NNNN_name.sql")
            }
            guard version == Int32(files.count + 1) else {
                throw MigrationError(.missing, "migration \(files.count + 1) is missing or there twice (found \(name))")
            }
            let sql = try String(contentsOfFile: directory + "/" + name, encoding: .utf8)
            let digest = SHA256.hash(data: Data(sql.utf8)).map { byte in
                let text = String(byte, radix: 16)
                return text.count == 1 ? "0" + text : text
            }
            let marker = "-- compatible_from:"
            let stated = sql.split(separator: "\n").first { $0.hasPrefix(marker) }
                .flatMap { Int32($0.dropFirst(marker.count).trimmingCharacters(in: .whitespaces)) }
            files.append(
                MigrationFile(
                    version: version,
                    name: String(name.dropLast(4)),
                    sql: sql,
                    checksum: digest.joined(),
                    compatibleFrom: stated ?? 1
                )
            )
        }
        guard !files.isEmpty else {
            throw MigrationError(.missing, "no migrations were found; set ENTITLEMENT_SYNC_SQL_DIR to the sql folder")
        }
        return files
    }
}

/// Why the schema can't be brought up to date, or can't be worked with.
package struct MigrationError: Error, Sendable, CustomStringConvertible {
    package enum Code: String, Sendable, CaseIterable {
        case missing, edited, unmigrated, incompatible, locked, adapter, refused
    }

    package var code: Code
    package var description: String

    package init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}
