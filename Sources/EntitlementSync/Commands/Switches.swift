import ArgumentParser
import Composition
import Logging
import Queue

/// What can be paused.
enum Switch: String, ExpressibleByArgument, CaseIterable {
    case demotions, transfers, all
}

struct Pause: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Stops demotions, transfers or every write, on all workers, within one batch."
    )

    @Argument(help: "demotions, transfers or all.") var what: Switch
    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            try await Runtime(level: .warning).withPool { pool in
                try await Controls(pool: pool).set(what.rawValue, paused: true)
                try options.print("\(what.rawValue) paused", json: Switched(name: what.rawValue, paused: true))
                return .done
            }
        }
    }
}

struct Resume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Lets demotions, transfers or every write go on.")

    @Argument(help: "demotions, transfers or all.") var what: Switch
    @OptionGroup var options: OutputOptions

    func run() async throws {
        try await reporting {
            try await Runtime(level: .warning).withPool { pool in
                let controls = Controls(pool: pool)
                try await controls.set(what.rawValue, paused: false)
                // Each switch is by itself: that of everything says nothing of the others.
                let left = try await controls.paused()
                let note = left.isEmpty ? "" : "; still paused: \(left.joined(separator: ", "))"
                try options.print("\(what.rawValue) resumed\(note)", json: Switched(name: what.rawValue, paused: false))
                return .done
            }
        }
    }
}

/// What a switch stands at now, as JSON has it.
private struct Switched: Encodable {
    var name: String
    var paused: Bool

    enum CodingKeys: String, CodingKey {
        case name = "switch"
        case paused
    }
}
