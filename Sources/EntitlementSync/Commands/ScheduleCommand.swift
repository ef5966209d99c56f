import ArgumentParser
import Composition
import Foundation
import Logging
import Runs
import Schedules

struct ScheduleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "schedule",
        abstract: "Starts the runs that schedules ask for, until it is told to stop; or changes the schedules.",
        subcommands: [Follow.self, List.self, Set.self, Remove.self],
        defaultSubcommand: Follow.self
    )

    struct Follow: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Starts and plans runs until it is told to stop. Of many such processes one leads."
        )

        func run() async throws {
            try await reporting {
                try await RoleProcess(roles: [.schedule]).run()
                return .done
            }
        }
    }

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Shows the schedules and when each is due next.")

        @OptionGroup var options: OutputOptions

        private struct Line: Encodable {
            var name: String
            var cron: String
            var zone: String
            var scope: String
            var isDry: Bool
            var maxDemotions: Int32?
            var days: Int32?
            var next: String?
            var waitsSince: String?

            enum CodingKeys: String, CodingKey {
                case name, cron, zone, scope, days, next
                case isDry = "dry_run"
                case maxDemotions = "max_demotions"
                case waitsSince = "waits_since"
            }
        }

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withPool { pool in
                    let (schedules, now) = try await ScheduleStore(pool: pool).all()
                    let lines = schedules.map { record in
                        Line(
                            name: record.name,
                            cron: record.cron,
                            zone: record.zone,
                            scope: record.scopeName,
                            isDry: record.isDry,
                            maxDemotions: record.maxDemotions,
                            days: record.days,
                            next: Scheduler.schedule(of: record)?.next(after: max(now, record.slotAt))
                                .map { $0.formatted(.iso8601) },
                            waitsSince: record.lateSince.map { $0.formatted(.iso8601) }
                        )
                    }
                    switch options.output {
                    case .json: for line in lines { try Output.json(line) }
                    case .text:
                        Output.table(
                            ["name", "cron", "zone", "scope", "dry run", "next"],
                            lines.map {
                                [
                                    $0.name, $0.cron, $0.zone, $0.scope + ($0.days.map { ", \($0) days" } ?? ""),
                                    $0.isDry ? "yes" : "no", $0.next ?? "never",
                                ]
                            }
                        )
                    }
                    return .done
                }
            }
        }
    }

    struct Set: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Adds a schedule, or replaces the one of its name.")

        @Argument(help: "Its name: small letters, digits, - and _.") var name: String
        @Option(help: "When, as in a crontab: minute hour day month weekday; or @daily and the like.") var cron: String
        @Option(help: "In which time zone: its IANA name.") var zone = "UTC"
        @Option(help: "Whom it is about: due, all, or listed, whomever stores' lists lead to.") var scope = "due"
        @Option(help: "Of the scope listed: how many days back stores list what they sent.") var days: Int32?
        @Flag(help: "Only say what would change.") var dryRun = false
        @Option(help: "Write no demotion where there would be more than this.") var maxDemotions: Int32?
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let record = try record()
                return try await Runtime(level: .warning).withPool { pool in
                    try await ScheduleStore(pool: pool).set(record)
                    let next = Scheduler.schedule(of: record)?.next(after: .now).map { $0.formatted(.iso8601) }
                    try options.print(
                        "schedule \(name) is set; next: \(next ?? "never")",
                        json: ["name": name, "next": next]
                    )
                    return .done
                }
            }
        }

        private func record() throws -> ScheduleRecord {
            guard name.wholeMatch(of: /[a-z][a-z0-9_-]{0,39}/) != nil else {
                throw CommandFailure(.data, "NAME: up to 40 small letters, digits, - and _, the first one a letter")
            }
            let isListed = scope == RunRecord.listed
            guard let scope = isListed ? .since : RunRecord.Scope(rawValue: scope),
                isListed || scope == .due || scope == .all
            else { throw CommandFailure(.data, "--scope: due, all or listed") }
            guard isListed == (days != nil), days.map({ (1...180).contains($0) }) ?? true else {
                throw CommandFailure(.data, "--days: from 1 to 180 with --scope listed, and with no other")
            }
            guard !isListed || !dryRun && maxDemotions == nil else {
                throw CommandFailure(.data, "--scope: listed reads no users; leave --dry-run and --max-demotions away")
            }
            guard maxDemotions.map({ $0 >= 0 }) ?? true else {
                throw CommandFailure(.data, "--max-demotions: 0 or more")
            }
            do {
                let schedule = Schedule(try CronExpression(cron), in: try TimeZoneName(zone))
                return ScheduleRecord(
                    name: name,
                    cron: schedule.expression.description,
                    zone: schedule.zone.name,
                    scope: scope,
                    isDry: dryRun,
                    maxDemotions: maxDemotions,
                    days: days
                )
            } catch let fault as CronExpression.Fault {
                throw CommandFailure(.data, "--cron: \(fault)")
            } catch let fault as TimeZoneName.Fault {
                throw CommandFailure(.data, "--zone: \(fault)")
            }
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Removes a schedule; a run that it started goes on.")

        @Argument(help: "Its name.") var name: String
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withPool { pool in
                    guard try await ScheduleStore(pool: pool).remove(name) else {
                        throw CommandFailure(.data, "NAME: there is no schedule of this name")
                    }
                    try options.print("removed", json: ["name": name])
                    return .done
                }
            }
        }
    }
}
