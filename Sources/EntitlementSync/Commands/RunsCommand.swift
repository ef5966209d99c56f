import ArgumentParser
import Composition
import Foundation
import Logging
import Reports
import Runs

struct RunsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "runs",
        abstract: "Shows reconciliations of many users, ends them, and has their reviewed changes written.",
        examples: ["runs", "runs show 12"],
        subcommands: [List.self, Show.self, Report.self, Cancel.self, Release.self],
        defaultSubcommand: List.self
    )

    struct List: DatabaseCommand {
        static let isReport = true
        static let configuration = CommandConfiguration(
            abstract: "Lists runs, the newest first.",
            json:
                "a line for each run: run, scope, state, dry_run, asked_by, asked_at, started_at, ended_at, predicted_end, users, total, skipped, outcomes, rules, errors, listed, held_demotions, demotion_limit, hash",
            examples: ["runs list", "runs list --output json"]
        )

        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let runs = try await RunRecords(pool: database.pool).list()
            return Answer(
                ["run", "scope", "dry", "state", "users", "of", "asked", "ended"],
                runs.map {
                    [
                        "\($0.id)", $0.scopeName, $0.isDry ? "yes" : "no", $0.state.rawValue, "\($0.ended)",
                        $0.total.map { "\($0)" } ?? "?", $0.askedAt.formatted(.iso8601),
                        $0.endedAt?.formatted(.iso8601) ?? "-",
                    ]
                },
                documents: runs.map { $0.summary() }
            )
        }
    }

    struct Show: DatabaseCommand {
        static let isReport = true
        static let configuration = CommandConfiguration(
            abstract: "Shows a run with every user that it changes.",
            json:
                "a line for each change: user_id, outcome, rule, state, announced, type_before, type_after, assets, explanation; then {\"summary\": what runs list prints, and unread [{user_id, error}], the first 200}",
            examples: ["runs show 12", "runs show 12 --csv >changes.csv"]
        )

        @Argument(help: "The run's number.") var id: Int64
        @Flag(help: "Print all changes as CSV.") var csv = false
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let runs = RunRecords(pool: database.pool)
            let run = try await runs.known(id)
            if csv {
                try await RunReporting(runs: runs).csv(of: run) { Output.write($0, to: .standardOutput) }
            } else {
                try await RunChanges(runs: runs).print(run, as: options.output)
            }
            return .printed
        }
    }

    struct Report: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Writes a run's report: JSON, or one page with charts that needs nothing beside it.",
            examples: ["runs report 12 --html report.html", "runs report 12 --html report.html --masked"]
        )

        @Argument(help: "The run's number.") var id: Int64
        @Option(help: "A new file for the page; without it the report is printed as JSON.") var html: String?
        @Flag(help: "Mask users' ids on the page.") var masked = false
        @OptionGroup var choice: AppOption

        func validate() throws {
            guard !masked || html != nil else { throw ValidationError("--masked: with --html, whose page it is about") }
        }

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withReportPool { pool in
                    let runs = RunRecords(pool: pool)
                    let report = try await RunReporting(runs: runs).report(of: try await runs.known(id))
                    guard let html else {
                        Output.line(try report.json())
                        return .done
                    }
                    try PrivateFile(path: html, option: "--html").write(report.html(showsUsers: !masked))
                    return .done
                }
            }
        }
    }

    struct Cancel: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Ends a run: what it has queued is still read, and demotes no user.",
            json: "one object: run",
            examples: ["runs cancel 12", "runs cancel 12 --output json"]
        )

        @Argument(help: "The run's number.") var id: Int64
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let runs = RunRecords(pool: database.pool)
            _ = try await runs.known(id)
            guard try await runs.cancel(id) else {
                throw CommandFailure(.data, "ID: no run of this number goes on; see entitlement-sync runs")
            }
            return Answer("canceled", json: ["run": id])
        }
    }

    struct Release: Command {
        static let configuration = CommandConfiguration(
            abstract: "Has a run's reviewed changes written, whatever the limit; each user is read again.",
            json: "one object: run",
            examples: ["runs release 12 --hash 3f9a1c0b77de", "runs release 12 --hash 3f9a1c0b77de --yes"]
        )

        @Argument(help: "The run's number: one that was stopped, or a dry run.") var id: Int64
        @Option(help: "The changes' hash as entitlement-sync runs show prints it, or at least its first 12 characters.")
        var hash: String
        @OptionGroup var confirmation: Confirmation
        @OptionGroup var options: OutputOptions

        func prepare() throws -> ReviewedHash {
            try ReviewedHash(hash, printedBy: "entitlement-sync runs show")
        }

        func answer(_ reviewed: ReviewedHash, _ database: Database) async throws -> Answer {
            let runs = RunRecords(pool: database.pool)
            let known = try await runs.known(id)
            try await confirmation.confirm("The changes of run \(id) are written, whatever the limit on demotions.")
            do {
                let run = try await runs.release(id, hash: reviewed.whole(of: known.hash), by: Asker.name)
                return Answer(
                    "run \(run) writes the changes; see entitlement-sync runs show \(run)",
                    json: ["run": run]
                )
            } catch RunRecords.Refusal.otherHash {
                throw CommandFailure(.data, "--hash: it is not that of this run's changes; review them again")
            } catch RunRecords.Refusal.tooOld {
                throw CommandFailure(.data, "ID: its users were read more than 72 hours ago; ask for a new run")
            } catch RunRecords.Refusal.nothingToRelease {
                throw CommandFailure(
                    .data,
                    "ID: this run was not stopped, is no dry run that has ended, or was released before"
                )
            }
        }
    }
}

extension RunRecords {
    /// - Throws: `CommandFailure` where there is no such run.
    fileprivate func known(_ id: Int64) async throws -> RunRecord {
        guard let run = try await run(id) else {
            throw CommandFailure(.data, "ID: there is no run of this number; see entitlement-sync runs")
        }
        return run
    }
}

/// Who asks at a terminal, for the record.
enum Asker {
    static var name: String {
        let environment = ProcessInfo.processInfo.environment
        let user = environment["SUDO_USER"] ?? environment["USER"] ?? environment["LOGNAME"] ?? "unknown"
        return "\(user)@\(ProcessInfo.processInfo.hostName)"
    }
}
