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
                    .run(adapterPath: adapter ?? directory + "/host/adapter.sql", dryRun: dryRun)
                await pool.close()
                for name in report.applied { Output.line("\(dryRun ? "would apply" : "applied") \(name)") }
                Output.line(
                    dryRun
                        ? "would install the host adapter"
                        : "schema at version \(report.version), host adapter installed"
                )
            } catch {
                await pool.close()
                throw error
            }
            return .done
        }
    }
}
