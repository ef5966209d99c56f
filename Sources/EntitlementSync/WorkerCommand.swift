import ArgumentParser

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
