import ArgumentParser
import Composition
import Foundation
import Reports
import Runs
import Schedules

struct ScheduleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "schedule",
        abstract: "Starts the runs that schedules ask for, until it is stopped; or changes the schedules.",
        examples: ["schedule set nightly --cron '0 3 * * *' --scope due", "schedule list"],
        subcommands: [Follow.self, List.self, Set.self, Remove.self],
        defaultSubcommand: Follow.self
    )

    struct Follow: RoleCommand {
        static let configuration = CommandConfiguration(
            abstract: "Starts and plans runs until it is stopped. Of many such processes one leads.",
            examples: ["schedule follow", "LOG_FORMAT=json schedule follow"]
        )

        @OptionGroup var choice: AppOption

        var process: RoleProcess { RoleProcess(roles: [.schedule]) }
    }

    struct List: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Shows the schedules and when each is due next.",
            json: "a line for each schedule: name, cron, zone, scope, next and its options",
            examples: ["schedule list", "schedule list --output json"]
        )

        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let (schedules, now) = try await ScheduleStore(pool: database.pool).all()
            let next = schedules.map {
                Scheduler.schedule(of: $0)?.next(after: max(now, $0.slotAt))?.formatted(.iso8601)
            }
            return Answer(
                ["name", "cron", "zone", "scope", "dry run", "next"],
                zip(schedules, next).map { schedule, next in
                    [
                        schedule.name, schedule.cron, schedule.zone,
                        schedule.scopeName + (schedule.days.map { ", \($0) days" } ?? ""),
                        schedule.isDry ? "yes" : "no", next ?? "never",
                    ]
                },
                documents: zip(schedules, next).map { schedule, next in
                    let line: JSONObject = [
                        "name": schedule.name, "cron": schedule.cron, "zone": schedule.zone,
                        "scope": schedule.scopeName, "dry_run": schedule.isDry,
                    ]
                    return line.adding("max_demotions", schedule.maxDemotions).adding("days", schedule.days)
                        .adding("next", next).adding("waits_since", schedule.lateSince?.formatted(.iso8601))
                }
            )
        }
    }

    struct Set: Command {
        static let configuration = CommandConfiguration(
            abstract: "Adds a schedule, or replaces the one of its name.",
            json: "one object: name, next",
            examples: [
                "schedule set nightly --cron '0 3 * * *' --scope due",
                "schedule set weekly --cron '0 4 * * 7' --zone Europe/Berlin --scope all --dry-run",
            ]
        )

        @Argument(help: "Its name: small letters, digits, - and _.") var name: String
        @Option(help: "When, as in a crontab: minute hour day month weekday; or @daily and the like.") var cron: String
        @Option(help: "In which time zone: its IANA name.") var zone = "UTC"
        @Option(help: "Which users it is about: due, all, or listed, those that stores' lists lead to.") var scope =
            "due"
        @Option(help: "Of the scope listed: how many days back stores list what they sent.") var days: Int32?
        @Flag(help: "Only say what would change.") var dryRun = false
        @Option(help: "Write no demotion where there would be more than this.") var maxDemotions: Int32?
        @OptionGroup var options: OutputOptions

        func answer(_ record: ScheduleRecord, _ database: Database) async throws -> Answer {
            try await ScheduleStore(pool: database.pool).set(record)
            let next = Scheduler.schedule(of: record)?.next(after: .now)?.formatted(.iso8601)
            return Answer("schedule \(name) is set; next: \(next ?? "never")", json: ["name": name, "next": next])
        }

        func prepare() throws -> ScheduleRecord {
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

    struct Remove: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Removes a schedule; a run that it started goes on.",
            json: "one object: name",
            examples: ["schedule remove nightly", "schedule remove nightly --output json"]
        )

        @Argument(help: "Its name.") var name: String
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            guard try await ScheduleStore(pool: database.pool).remove(name) else {
                throw CommandFailure(.data, "NAME: there is no schedule of this name")
            }
            return Answer("removed", json: ["name": name])
        }
    }
}
