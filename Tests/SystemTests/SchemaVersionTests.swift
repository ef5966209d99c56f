import Foundation
import Migrations
import Testing

/// The schema that a build was written for.
struct SchemaVersionTests {
    @Test func `A build asks for the schema of its newest migration`() throws {
        let package = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let files = try MigrationFile.load(directory: package.appendingPathComponent("sql/migrations").path)
        #expect(files.last?.version == Migrator.version)
        #expect(files.allSatisfy { $0.compatibleFrom <= $0.version })
    }
}
