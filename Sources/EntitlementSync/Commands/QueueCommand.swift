import ArgumentParser
import Composition
import Configuring
import Foundation
import Logging
import Outbox
import Queue
import UserRequests

struct QueueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "queue",
        abstract: "Looks into the queue.",
        subcommands: [Stats.self, Dead.self, Retry.self, Cancel.self]
    )

    struct Stats: AsyncParsableCommand {
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withPool { pool in
                    let stats = try await JobCommands(pool: pool).stats()
                    switch options.output {
                    case .json: try Output.json(stats)
                    case .text:
                        Output.table(
                            ["queued", "running", "delayed", "dead", "oldest"],
                            [
                                [
                                    "\(stats.queued)", "\(stats.running)", "\(stats.delayed)", "\(stats.dead)",
                                    "\(Int(stats.oldestSeconds)) s",
                                ]
                            ]
                        )
                    }
                    return .done
                }
            }
        }
    }

    struct Dead: AsyncParsableCommand {
        @Option(help: "How many at most.") var limit: Int32 = 100
        @OptionGroup var options: OutputOptions

        func validate() throws {
            guard (1...100_000).contains(limit) else { throw ValidationError("--limit: give 1 to 100000") }
        }

        func run() async throws {
            try await reporting {
                try await Runtime(level: .warning).withPool { pool in
                    let dead = try await Requests(pool: pool).dead(limit: limit)
                    switch options.output {
                    case .json: try Output.json(dead)
                    case .text:
                        Output.table(
                            ["job", "reference", "kind", "user", "attempts", "error"],
                            dead.map {
                                [
                                    $0.id.uuidString.lowercased(), $0.reference, $0.kind, $0.userID ?? "-",
                                    "\($0.attempt)",
                                    $0.lastError ?? "-",
                                ]
                            }
                        )
                    }
                    return .done
                }
            }
        }
    }

    struct Retry: AsyncParsableCommand {
        @Argument(help: "The job's id.") var id: String
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let job = try jobID(id)
                return try await Runtime(level: .warning).withPool { pool in
                    guard try await JobCommands(pool: pool).retry(job) else {
                        throw CommandFailure(
                            .data,
                            "no dead job has this id, or its user has such a job queued already"
                        )
                    }
                    try options.print("queued again", json: Changed(job, "queued"))
                    return .done
                }
            }
        }
    }

    struct Cancel: AsyncParsableCommand {
        @Argument(help: "The job's id.") var id: String
        @OptionGroup var options: OutputOptions

        func run() async throws {
            try await reporting {
                let job = try jobID(id)
                let runtime = try Runtime(level: .warning)
                let tellsOthers = runtime.config.outbox != nil
                return try await runtime.withPool { pool in
                    switch try await JobCommands(pool: pool).cancel(
                        job,
                        publish: { tellsOthers ? OutboxWrites.insert([.restoreFinished($0)]) : [] }
                    ) {
                    case .canceled: try options.print("canceled", json: Changed(job, "canceled"))
                    case .asked:
                        try options.print(
                            "it is running; it ends before its effects are written",
                            json: Changed(job, "running")
                        )
                    case .notFound: throw CommandFailure(.data, "no queued or running job has this id")
                    }
                    return .done
                }
            }
        }
    }
}

/// Where a job stands after a command, as JSON has it.
private struct Changed: Encodable {
    var id: String
    var state: String

    init(_ id: UUID, _ state: String) {
        self.id = id.uuidString.lowercased()
        self.state = state
    }
}

/// Reads a job's id.
private func jobID(_ text: String) throws -> UUID {
    guard let id = UUID(uuidString: text) else {
        throw CommandFailure(.data, "ID: a job's id is a UUID, as entitlement-sync queue dead prints it")
    }
    return id
}
