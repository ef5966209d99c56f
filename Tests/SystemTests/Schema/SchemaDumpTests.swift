import Crypto
import Foundation
import Postgres
import TestSupport
import Testing

/// The schema that the SQL makes, compared with the one that is kept beside this file: a change of either shows in the other's diff.
///
/// `ENTITLEMENT_SYNC_RECORD_SCHEMA=1` writes the kept one anew.
struct SchemaDumpTests {
    private static let kept = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("schema.txt")

    @Test func `The schema is the one that is kept, but for order`() async throws {
        let server = try await PrivatePostgres.shared
        let database = try await server.database(.migrated)
        let text = try await server.dump(
            database,
            schema: "entitlement_sync",
            without: ["job_history", "job_request", "decision", "observation"].flatMap { table in
                ["2*", "before", "after"].map { "entitlement_sync.\(table)_\($0)" }
            }
        )
        try await server.drop(database)
        let made = Self.sorted(text)
        if ProcessInfo.processInfo.environment["ENTITLEMENT_SYNC_RECORD_SCHEMA"] != nil {
            try Data((made.joined(separator: "\n\n") + "\n").utf8).write(to: Self.kept)
        }
        let kept = try String(contentsOf: Self.kept, encoding: .utf8).dropLast().components(separatedBy: "\n\n")
        // Another major version of PostgreSQL writes the same schema in other words.
        guard kept.first == made.first else { return }
        #expect(Set(made).subtracting(kept).sorted() == [], "made, and not kept")
        #expect(Set(kept).subtracting(made).sorted() == [], "kept, and not made")
    }

    /// The statements of a dump in an order of their own, with sorted columns, and a digest for each function's body.
    private static func sorted(_ dump: String) -> [String] {
        var parts: [String] = []
        var version = ""
        for part in dump.components(separatedBy: "\n--\n-- ") {
            if let line = part.split(separator: "\n").first(where: { $0.hasPrefix("-- Dumped by pg_dump version") }) {
                version = String(line.prefix { $0 != "." && $0 != "(" })
            }
            guard part.hasPrefix("Name: "), let end = part.range(of: "\n--\n") else { continue }
            let text = withDigest(withSortedColumns(part[end.upperBound...].trimmingCharacters(in: .newlines)))
            parts.append(
                text.split(separator: "\n").filter { !$0.isEmpty && !$0.hasPrefix("SET default_") }.joined(
                    separator: "\n"
                )
            )
        }
        return [version] + parts.sorted()
    }

    private static func withSortedColumns(_ text: String) -> String {
        guard text.hasPrefix("CREATE TABLE") || text.hasPrefix("CREATE UNLOGGED TABLE"),
            let start = text.range(of: " (\n"), let end = text.range(of: "\n)", options: .backwards)
        else { return text }
        let columns = text[start.upperBound..<end.lowerBound].components(separatedBy: ",\n").sorted()
        return text[..<start.upperBound] + columns.joined(separator: ",\n") + text[end.lowerBound...]
    }

    private static func withDigest(_ text: String) -> String {
        guard text.hasPrefix("CREATE FUNCTION"), let start = text.range(of: "    AS $"),
            let end = text.range(of: "$;", options: .backwards)
        else { return text }
        let digest = SHA256.hash(data: Data(text[start.upperBound..<end.upperBound].utf8))
        return text[..<start.lowerBound] + "    AS "
            + digest.prefix(8).map { String($0, radix: 16) }.joined(separator: ":")
            + text[end.upperBound...]
    }
}
