import ArgumentParser
import Composition

struct Serve: RoleCommand {
    static let configuration = CommandConfiguration(
        abstract: "Serves the API to users' apps until it is stopped.",
        examples: ["serve", "HTTP_PORT=8080 serve"]
    )

    @OptionGroup var choice: AppOption

    var process: RoleProcess { RoleProcess(roles: [.serve]) }
}

struct Run: RoleCommand {
    static let configuration = CommandConfiguration(
        abstract: "Serves the API, works off the queue and follows the schedules in one process, until it is stopped.",
        examples: ["run", "MODE=observe run"]
    )

    @OptionGroup var choice: AppOption

    var process: RoleProcess { RoleProcess(roles: [.work, .serve, .schedule]) }
}

struct WorkerCommand: RoleCommand {
    static let configuration = CommandConfiguration(
        commandName: "worker",
        abstract: "Works off the queue until it is stopped.",
        examples: ["worker", "worker --until-idle"]
    )

    @Flag(help: "End once nothing is queued, running, delayed or unfinished in the database.")
    var untilIdle = false

    @OptionGroup var choice: AppOption

    var process: RoleProcess { RoleProcess(roles: [.work], untilIdle: untilIdle) }
}
