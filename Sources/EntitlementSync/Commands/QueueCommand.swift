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
        subcommands: [Stats.self, Dead.self, Retry.self, Cancel.self]
    )

    struct Stats: DatabaseCommand {
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

    struct Dead: DatabaseCommand {
        @Option(help: "How many at most.") var limit: Int32 = 100
        @OptionGroup var options: OutputOptions

        func validate() throws {
            guard (1...100_000).contains(limit) else { throw ValidationError("--limit: give 1 to 100000") }
        }

        func answer(_ database: Database) async throws -> Answer {
            let dead = try await Requests(pool: database.pool).dead(limit: limit)
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

    struct Retry: Command {
        @Argument(help: "The job's id.") var id: String
        @OptionGroup var options: OutputOptions

        func prepare() throws -> UUID { try jobID(id) }

        func answer(_ job: UUID, _ database: Database) async throws -> Answer {
            guard try await JobCommands(pool: database.pool).retry(job) else {
                throw CommandFailure(.data, "no dead job has this id, or its user has such a job queued already")
            }
            return changed(job, to: "queued", "queued again")
        }
    }

    struct Cancel: Command {
        @Argument(help: "The job's id.") var id: String
        @OptionGroup var options: OutputOptions

        func prepare() throws -> UUID { try jobID(id) }

        func answer(_ job: UUID, _ database: Database) async throws -> Answer {
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

/// Reads a job's id.
private func jobID(_ text: String) throws -> UUID {
    guard let id = UUID(uuidString: text) else {
        throw CommandFailure(.data, "ID: a job's id is a UUID, as entitlement-sync queue dead prints it")
    }
    return id
}
