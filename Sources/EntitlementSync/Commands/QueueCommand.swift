import ArgumentParser
import Composition
import Configuring
import Foundation
import Outbox
import Queue
import Reports
import UserRequests

struct QueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue",
        abstract: "Shows the queue, and retries or cancels jobs.",
        examples: ["queue list", "queue retry --error unavailable"],
        subcommands: [Stats.self, List.self, Dead.self, Retry.self, Cancel.self]
    )

    struct Stats: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Counts jobs by state, with the age of the oldest.",
            json: "one object: queued, running, delayed, dead, oldest_seconds",
            examples: ["queue stats", "queue stats --output json"]
        )

        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let stats = try await JobCommands(pool: database.pool).stats()
            let row = [
                "\(stats.queued)", "\(stats.running)", "\(stats.delayed)", "\(stats.dead)",
                "\(Int(stats.oldestSeconds)) s",
            ]
            return Answer(["queued", "running", "delayed", "dead", "oldest"], [row], document: stats)
        }
    }

    struct List: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract:
                "Lists jobs that run or wait: those that are due first, restores before events and background jobs.",
            json:
                "one array of {id, reference, created_at, kind, user_id, lane, state, wait_seconds, attempt, last_error}",
            examples: ["queue list", "queue list --limit 1000 --output json"]
        )

        @OptionGroup var most: JobLimit
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let jobs = try await JobCommands(pool: database.pool).list(limit: most.limit)
            return Answer(
                ["reference", "kind", "user", "lane", "state", "waits", "attempts", "error"],
                jobs.map {
                    [
                        $0.reference, $0.kind, $0.userID ?? "-", $0.lane, $0.state,
                        $0.waitSeconds.map { "\(Int($0.rounded(.up))) s" } ?? "-", "\($0.attempt)", $0.lastError ?? "-",
                    ]
                },
                document: jobs
            )
        }
    }

    struct Dead: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lists dead jobs, the newest first.",
            json: "one array of rows of job_status",
            examples: ["queue dead", "queue dead --error unavailable --limit 1000"]
        )

        @Option(help: "Only those of this error, such as unavailable.") var error: String?
        @OptionGroup var most: JobLimit
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let dead = try await Requests(pool: database.pool).dead(error: error, limit: most.limit)
            return Answer(
                ["job", "reference", "kind", "user", "attempts", "error"],
                dead.map {
                    [
                        $0.id.uuidString.lowercased(), $0.reference, $0.kind, $0.userID ?? "-", "\($0.attempt)",
                        $0.lastError ?? "-",
                    ]
                },
                document: dead
            )
        }
    }

    struct Retry: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Queues a dead job again, or all dead jobs of one error.",
            json: "one object: id, state; with --error: error, retried",
            examples: ["queue retry R-7K3Q-92", "queue retry --error unavailable"]
        )

        @Argument(help: "The job: its reference, such as R-7K3Q-92, or its id.") var job: String?
        @Option(help: "All dead jobs of this error, such as unavailable.") var error: String?
        @OptionGroup var options: OutputOptions

        func validate() throws {
            guard (job == nil) != (error == nil) else { throw ValidationError("name a job, or an error with --error") }
        }

        func answer(_ database: Database) async throws -> Answer {
            let commands = JobCommands(pool: database.pool)
            if let error {
                let retried = try await commands.retryAll(error: error)
                return Answer(
                    "\(retried) job\(retried == 1 ? " is" : "s are") queued again",
                    json: ["error": error, "retried": retried]
                )
            }
            let id = try await jobID(job ?? "", database)
            guard try await commands.retry(id) else {
                throw CommandFailure(.data, "JOB: it is not dead, or its user has such a job queued already")
            }
            return changed(id, to: "queued", "queued again")
        }
    }

    struct Cancel: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Cancels a queued job; a running one ends before its effects are written.",
            json: "one object: id, state",
            examples: ["queue cancel R-7K3Q-92", "queue cancel 01a20318-8fce-7afc-adbe-f6d044db1d3c"]
        )

        @Argument(help: "The job: its reference, such as R-7K3Q-92, or its id.") var job: String
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let job = try await jobID(job, database)
            let publishes = database.config.outbox != nil
            switch try await JobCommands(pool: database.pool).cancel(
                job,
                publish: { publishes ? OutboxWrites.insert([.restoreFinished($0)]) : [] }
            ) {
            case .canceled: return changed(job, to: "canceled", "canceled")
            case .asked: return changed(job, to: "running", "it is running; it ends before its effects are written")
            case .notFound: throw CommandFailure(.data, "no queued or running job has this id")
            }
        }
    }
}

/// Where a job stands after a command.
private func changed(_ job: UUID, to state: String, _ sentence: String) -> Answer {
    Answer(sentence, json: ["id": job.uuidString.lowercased(), "state": state])
}

/// How many jobs are listed.
struct JobLimit: ParsableArguments {
    @Option(help: "How many at most.") var limit: Int32 = 100

    func validate() throws {
        guard (1...100_000).contains(limit) else { throw ValidationError("--limit: give 1 to 100000") }
    }
}

/// Finds a job by its id or reference.
///
/// - Throws: `CommandFailure` that names the argument.
private func jobID(_ text: String, _ database: Database) async throws -> UUID {
    if let id = UUID(uuidString: text) { return id }
    guard text.uppercased().hasPrefix("R-") else {
        throw CommandFailure(
            .data,
            "JOB: give a reference such as R-7K3Q-92, or an id as queue dead --output json has it"
        )
    }
    let found = try await Requests(pool: database.pool).jobs(reference: text.uppercased())
    guard found.count < 2 else {
        let ids = found.map { $0.uuidString.lowercased() }.joined(separator: ", ")
        throw CommandFailure(.data, "JOB: several have this reference; name one by its id: \(ids)")
    }
    guard let id = found.first else { throw CommandFailure(.data, "JOB: there is none with this reference") }
    return id
}
