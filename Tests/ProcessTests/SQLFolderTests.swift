import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

/// From where `migrate` takes the SQL that runs as the schema's owner.
struct SQLFolderTests {
    /// What is wrong with the working directory, as a shell does it.
    static let openings = [
        "chmod 777 .", "chmod 775 .", "chmod 777 sql", "chmod 777 sql/host", "chmod 666 sql/host/adapter.sql",
        "chmod 664 sql/migrations/0001_baseline.sql", "mv sql other && ln -s other sql",
        "mv sql/host/adapter.sql . && ln -s ../../adapter.sql sql/host/adapter.sql",
    ]

    private static func with(
        _ opening: String?,
        _ body: @Sendable (Program.Ending, Site) async throws -> Void
    ) async throws {
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await Site.with(.host) { site in
            let environment = Site.environment(site.settings.merging(["ENTITLEMENT_SYNC_SQL_DIR": ""]) { $1 })
            let script = "umask 022; cp -r '\(Paths.sql)' sql && chmod -R go-w . && \(opening ?? "true")"
            let made = try await Program(
                ["/usr/bin/env", "-C", folder, "sh", "-c", script],
                environment: environment
            ).ending()
            try #require(made.code == 0, "\(made)")
            let migrate = ["/usr/bin/env", "-C", folder, Paths.program, "migrate"]
            try await body(try await Program(migrate, environment: environment).ending(), site)
        }
    }

    @Test func `The working directory will do where nobody else may write, and it is said which that was`() async throws
    {
        try await Self.with(nil) { ending, _ in
            #expect(ending.code == 0, "\(ending)")
            #expect(ending.err.contains("the SQL is taken from /"), "\(ending)")
        }
    }

    @Test(arguments: openings)
    func `SQL that another user may have written is not run`(opening: String) async throws {
        try await Self.with(opening) { ending, site in
            #expect(ending.code == 78, "\(ending)")
            #expect(ending.err.contains("ENTITLEMENT_SYNC_SQL_DIR"), "\(ending)")
            let made = try await site.number("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'entitlement%'")
            #expect(made == 0)
        }
    }

    @Test(.enabled(if: geteuid() == 0, "only root gives files away"))
    func `SQL that belongs to another user is not run`() async throws {
        try await Self.with("chown 65534 sql/host/adapter.sql") { ending, _ in
            #expect(ending.code == 78, "\(ending)")
            #expect(ending.err.contains("adapter.sql belongs to another user"), "\(ending)")
        }
    }
}
