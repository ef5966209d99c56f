import ArgumentParser
import Logging
import Migrations
import Postgres

struct Migrate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Creates or updates the schema, then the host adapter.")

    @Flag(help: "Say what would be applied, and write nothing.")
    var dryRun = false

    @Option(help: "The host adapter for tables of other names; the default is sql/host/adapter.sql.")
    var adapter: String?

    @OptionGroup var options: OutputOptions

    private struct Migrated: Encodable {
        var version: Int
        var applied: [String]
        var dryRun: Bool

        enum CodingKeys: String, CodingKey {
            case version, applied
            case dryRun = "dry_run"
        }
    }

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let directory = try runtime.sqlDirectory()
            let files = try MigrationFile.load(directory: directory + "/migrations")
            var configuration = runtime.postgres(connections: 1, direct: true)
            configuration.statementTimeout = nil
            configuration.sessionSettings = [:]
            let pool = PostgresPool(configuration: configuration, logger: runtime.logger)
            do {
                let report = try await Migrator(pool: pool, files: files)
                    .run(
                        adapterPath: adapter ?? directory + "/host/adapter.sql",
                        isOwn: adapter != nil,
                        dryRun: dryRun
                    )
                await pool.close()
                let names = report.applied.map { "\(dryRun ? "would apply" : "applied") \($0)" }
                let isKept = report.adapter == nil
                let end =
                    dryRun
                    ? "would \(isKept ? "keep your" : "install the") host adapter"
                    : "schema at version \(report.version), host adapter \(isKept ? "kept: it is yours" : "installed")"
                try options.print(
                    (names + [end]).joined(separator: "\n"),
                    json: Migrated(version: Int(report.version), applied: report.applied, dryRun: dryRun)
                )
            } catch {
                await pool.close()
                throw error
            }
            return .done
        }
    }
}
