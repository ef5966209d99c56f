import Foundation
@testable import Migrations
import TestSupport
import Testing

/// The folder `sql` as it is read.
struct SchemaSourceTests {
    @Test func `A build asks for the release of the SQL that it is shipped with`() throws {
        let source = try SchemaSource.load(directory: Paths.sql)
        #expect(source.release == Migrator.release)
        #expect((1...source.release).contains(source.compatibleFrom))
    }

    @Test func `No line of the SQL is longer than 140 characters`() throws {
        let files = try #require(FileManager.default.enumerator(atPath: Paths.sql)).compactMap { $0 as? String }
        for file in files where file.hasSuffix(".sql") {
            let text = try String(contentsOfFile: "\(Paths.sql)/\(file)", encoding: .utf8)
            for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                #expect(line.count <= 140, "\(file):\(number + 1)")
            }
        }
    }

    @Test(arguments: [
        ("SELECT 1; SELECT 2;", ["SELECT 1;", "SELECT 2;"]),
        ("-- one; two\nSELECT 1;\n\n-- three\n", ["SELECT 1;"]),
        ("SELECT 'a;b', 'it''s;'; SELECT \";\";", ["SELECT 'a;b', 'it''s;';", "SELECT \";\";"]),
        ("SELECT $$a;$b$;$$; SELECT $x$;$$;$x$;", ["SELECT $$a;$b$;$$;", "SELECT $x$;$$;$x$;"]),
        ("SELECT 1 /* ; */; SELECT 2", ["SELECT 1 /* ; */;", "SELECT 2"]),
        ("SELECT 'é;';", ["SELECT 'é;';"]),
        ("SELECT $1; SELECT 'open", ["SELECT $1;", "SELECT 'open"]), ("", []), ("--", []),
    ])
    func `Text is split where statements end`(text: String, statements: [String]) {
        #expect(SQLStatements.split(text) == statements)
    }

    @Test func `An object is known by its kind and name, and what comments on it belongs to it`() throws {
        let text = """
            -- Why.
            CREATE OR REPLACE FUNCTION one(a text, b integer DEFAULT 1) RETURNS text LANGUAGE sql AS $$ SELECT a; $$;
            COMMENT ON FUNCTION one IS 'it';
            CREATE OR REPLACE TRIGGER guard BEFORE UPDATE OF state ON "grant" FOR EACH ROW EXECUTE FUNCTION one();
            CREATE OR REPLACE VIEW seen AS SELECT 1;
            """
        let objects = try SchemaObject.objects(in: text, of: "x.sql")
        #expect(
            objects.map { "\($0.id.kind) \($0.id.name)" } == ["function one", "trigger \"grant\".guard", "view seen"]
        )
        #expect(objects.first?.text.hasSuffix("COMMENT ON FUNCTION one IS 'it';") == true)
        #expect(throws: MigrationError.self) { try SchemaObject.objects(in: "DROP TABLE x;", of: "x.sql") }
        #expect(throws: MigrationError.self) {
            try SchemaObject.objects(in: "CREATE FUNCTION one() RETURNS text LANGUAGE sql AS 'SELECT 1';", of: "x.sql")
        }
    }

    @Test(
        arguments: [
            ("functions/queue.sql", "CREATE OR REPLACE FUNCTION new_one() RETURNS void LANGUAGE sql AS '';", nil),
            (
                "functions/queue.sql", "CREATE OR REPLACE FUNCTION erase_user() RETURNS void LANGUAGE sql AS '';",
                "erase_user stands twice"
            ),
            ("views.sql", "GRANT ALL ON inbox TO PUBLIC;", "views.sql has a statement"),
            ("release", "", nil), ("migrations/0003_gap.sql", "", "migration 2 is missing"),
            ("migrations/next.sql", "", "next.sql is not named NNNN_name.sql"),
        ] as [(String, String, String?)]
    )
    func `What can't be applied is refused as it is read, by the file's name`(
        file: String,
        added: String,
        fault: String?
    ) async throws {
        try await Paths.withSQLCopy { folder in
            let url = URL(fileURLWithPath: "\(folder)/\(file)")
            let text = (try? String(contentsOf: url, encoding: .utf8)) ?? ""
            try Data((text + added + "\n").utf8).write(to: url)
            do {
                _ = try SchemaSource.load(directory: folder)
                #expect(fault == nil)
            } catch let error as MigrationError {
                #expect(error.description.contains(fault ?? "no fault"), "\(error)")
            }
        }
    }
}
