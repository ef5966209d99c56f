import Foundation
import Postgres
import ArgumentParser
import Composition
import Logging
import Migrations
import Reports

struct Migrate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Creates or updates the schema, then the host adapter.",
        json: "one object: release, applied [name], objects [{kind, name, reason}], dry_run, missing_roles [name]",
        examples: ["migrate --dry-run", "migrate --adapter our-adapter.sql"]
    )

    @Flag(help: "Say what would be applied, and write nothing.")
    var dryRun = false

    @Option(help: "The host adapter for tables of other names; the default is sql/host/adapter.sql.")
    var adapter: String?

    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            let runtime = try Runtime(level: .warning)
            let directory = try runtime.sqlDirectory()
            let source = try SchemaSource.load(directory: directory)
            var configuration = runtime.postgres(connections: 1, direct: true)
            configuration.statementTimeout = nil
            configuration.sessionSettings = [:]
            let report = try await runtime.withPool(configuration, checkingSchema: false) { pool in
                try await Migrator(pool: pool, source: source)
                    .run(adapterPath: adapter ?? directory + "/host/adapter.sql", isOwn: adapter != nil, dryRun: dryRun)
            }
            Self.warn(of: report)
            return try answer(report).print(as: options.output)
        }
    }

    private func answer(_ report: Migrator.Report) -> Answer {
        let lines = Self.lines(report.changes, verb: dryRun ? "would apply" : "applied")
        let isKept = report.adapter == nil
        let end =
            dryRun
            ? "would \(isKept ? "keep your" : "install the") host adapter"
            : "schema at release \(report.release), host adapter \(isKept ? "kept: it is yours" : "installed")"
        let objects = report.changes.filter { $0.kind != "migration" }.map {
            ["kind": $0.kind, "name": $0.name, "reason": $0.reason.rawValue]
        }
        return Answer(
            (lines + [end]).joined(separator: "\n"),
            json: [
                "release": Int(report.release),
                "applied": report.changes.filter { $0.kind == "migration" }.map(\.name),
                "objects": objects,
                "dry_run": dryRun,
                "missing_roles": report.missingRoles,
            ]
        )
    }

    /// A line for each change with its reason; what comes in numbers, as with an empty database, is counted.
    private static func lines(_ changes: [SchemaPlan.Change], verb: String) -> [String] {
        var lines: [String] = []
        var rest = changes[...]
        while let first = rest.first {
            let run = rest.prefix { $0.kind == first.kind && $0.reason == first.reason }
            rest = rest.dropFirst(run.count)
            if first.kind == "migration" {
                lines += run.map { "\(verb) \($0.name)" }
            } else if first.kind == "privileges" {
                lines.append("\(verb) privileges (\(first.reason.rawValue))")
            } else if run.count > 4 {
                lines.append("\(verb) \(run.count) \(first.kind)s (\(first.reason.rawValue))")
            } else {
                lines += run.map { "\(verb) \($0.kind) \($0.name) (\($0.reason.rawValue))" }
            }
        }
        return lines
    }

    /// Says what works for the schema's owner alone until a user with more rights has acted.
    private static func warn(of report: Migrator.Report) {
        if !report.missingRoles.isEmpty {
            // A user without CREATEROLE grants a role to others only with the role's admin option.
            let lines = report.missingRoles.map {
                "  CREATE ROLE \($0) NOLOGIN; GRANT \($0) TO \(report.user) WITH ADMIN OPTION;\n"
            }.joined()
            Output.write(
                "entitlement-sync: database roles are missing, and this user may not create them. Have a superuser, or a user with"
                    + " CREATEROLE, run\n\(lines)and run entitlement-sync migrate again, which gives them their privileges;"
                    + " then this user may give them to your own users (GRANT … TO …).\n",
                to: .standardError
            )
        }
        if !report.adapterFaults.isEmpty {
            Output.write(
                "entitlement-sync: the host adapter returns unreadable values:"
                    + " \(report.adapterFaults.joined(separator: "; ")); correct its functions and run migrate --adapter FILE.\n",
                to: .standardError
            )
        }
    }
}
