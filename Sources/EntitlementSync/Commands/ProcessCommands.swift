import ArgumentParser
import Composition

struct Serve: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Serves the API to users' apps until it is told to stop."
    )

    func run() async throws {
        try await reporting {
            try await RoleProcess(roles: [.serve]).run()
            return .done
        }
    }
}

struct Run: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract:
            "Serves the API, works off the queue and follows the schedules in one process, until it is told to stop."
    )

    func run() async throws {
        try await reporting {
            try await RoleProcess(roles: [.work, .serve, .schedule]).run()
            return .done
        }
    }
}

struct WorkerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "worker",
        abstract: "Works off the queue until it is told to stop."
    )

    @Flag(help: "End once nothing is queued, running, delayed or unfinished in the database.")
    var untilIdle = false

    func run() async throws {
        try await reporting {
            try await RoleProcess(roles: [.work], untilIdle: untilIdle).run()
            return .done
        }
    }
}
