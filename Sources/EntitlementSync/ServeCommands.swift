import ArgumentParser

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
