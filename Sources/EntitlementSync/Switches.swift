import ArgumentParser
import Logging
import Storage

/// What can be paused.
enum Switch: String, ExpressibleByArgument, CaseIterable {
    case demotions, transfers, all
}

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Stops demotions, transfers or every write, on all workers, within one batch."
    )

    @Argument(help: "demotions, transfers or all.") var what: Switch

    func run() async throws {
        try await reporting {
            try await Runtime(level: .warning).withPool { pool in
                try await Controls(pool: pool).set(what.rawValue, paused: true)
                Output.line("\(what.rawValue) paused")
                return .done
            }
        }
    }
}

struct Resume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Lets demotions, transfers or every write go on.")

    @Argument(help: "demotions, transfers or all.") var what: Switch

    func run() async throws {
        try await reporting {
            try await Runtime(level: .warning).withPool { pool in
                try await Controls(pool: pool).set(what.rawValue, paused: false)
                Output.line("\(what.rawValue) resumed")
                return .done
            }
        }
    }
}
