import ArgumentParser
import Composition
import Foundation

#if DevTools
    import DevTools
#endif

@main
struct EntitlementSync: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "entitlement-sync",
        abstract: "Makes the subscription records in PostgreSQL true again, and keeps them true.",
        version: Build.version,
        subcommands: [
            Migrate.self, WorkerCommand.self, Serve.self, Run.self, Restore.self, Reconcile.self, Explain.self,
            ReplayCommand.self, ScoreCommand.self, GrantCommand.self, Adopt.self, SandboxCommand.self, Pause.self,
            Resume.self, QueueCommand.self, DoctorCommand.self, Inspect.self, Erase.self, TicketsCommand.self,
            TicketCommand.self, OperatorCommand.self, ScheduleCommand.self, RunsCommand.self,
        ] + development
    )

    /// The commands for development: builds without the trait `DevTools`, such as the container image, leave them out.
    private static var development: [any ParsableCommand.Type] {
        #if DevTools
            developmentCommands
        #else
            []
        #endif
    }

    static func main() async {
        // A reader that goes (`| head`) ends no command: see ``Output``.
        signal(SIGPIPE, SIG_IGN)
        await main(nil)
    }
}
