import ArgumentParser
import Composition
import Foundation
import Telemetry

#if DevTools
    import DevTools
#endif

@main
struct EntitlementSync: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "entitlement-sync",
        abstract: "Makes the subscription records in PostgreSQL true again, and keeps them true.",
        version: Build.version,
        groupedSubcommands: [
            CommandGroup(
                name: "Setup",
                subcommands: [Migrate.self, DoctorCommand.self, Uninstall.self, Completion.self]
            ),
            CommandGroup(
                name: "Process",
                subcommands: [WorkerCommand.self, Serve.self, ScheduleCommand.self, Run.self]
            ),
            CommandGroup(
                name: "User",
                subcommands: [
                    Restore.self, Reconcile.self, Explain.self, GrantCommand.self, Adopt.self, ImportCommand.self,
                    SandboxCommand.self, Erase.self,
                ]
            ),
            CommandGroup(
                name: "Operation",
                subcommands: [
                    QueueCommand.self, Pause.self, Resume.self, RunsCommand.self, ShadowCommand.self,
                    ReplayCommand.self,
                ]
            ),
            CommandGroup(
                name: "Support",
                subcommands: [TicketsCommand.self, TicketCommand.self, OperatorCommand.self, Inspect.self]
            ),
        ] + development
    )

    /// The commands for development: builds without the trait `DevTools`, such as the container image, leave them out.
    private static var development: [CommandGroup] {
        #if DevTools
            [CommandGroup(name: "Development", subcommands: developmentCommands)]
        #else
            []
        #endif
    }

    /// One voice for the parser's errors and the commands' own.
    static let _errorLabel = "entitlement-sync"

    static func main() async {
        // A reader that goes (`| head`) ends no command: see ``Output``.
        signal(SIGPIPE, SIG_IGN)
        var arguments = Array(CommandLine.arguments.dropFirst())
        // The former name of a command; it goes with the next version.
        if arguments.first == "score" { arguments[0] = "shadow" }
        if let message = UnknownCommand.message(for: arguments, of: Self.self) {
            Output.write("entitlement-sync: \(message)\n", to: .standardError)
            Foundation.exit(ExitCode.validationFailure.rawValue)
        }
        await main(arguments)
    }
}
