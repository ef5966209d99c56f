import ArgumentParser
import Composition
import Queue
import Reports

/// What can be paused.
enum Switch: String, ExpressibleByArgument, CaseIterable {
    case demotions, transfers, all
}

struct Pause: DatabaseCommand {
    static let configuration = CommandConfiguration(
        abstract: "Stops demotions, transfers or every write, on all workers, within one batch.",
        json: "one object: switch, paused",
        examples: ["pause demotions", "pause all"]
    )

    @Argument(help: "demotions, transfers or all.") var what: Switch
    @OptionGroup var options: OutputOptions

    func answer(_ database: Database) async throws -> Answer {
        try await Controls(pool: database.pool).set(what.rawValue, paused: true)
        return Answer("\(what.rawValue) paused", json: ["switch": what.rawValue, "paused": true])
    }
}

struct Resume: DatabaseCommand {
    static let configuration = CommandConfiguration(
        abstract: "Lets demotions, transfers or every write go on.",
        json: "one object: switch, paused",
        examples: ["resume demotions", "resume all --output json"]
    )

    @Argument(help: "demotions, transfers or all.") var what: Switch
    @OptionGroup var options: OutputOptions

    func answer(_ database: Database) async throws -> Answer {
        let controls = Controls(pool: database.pool)
        try await controls.set(what.rawValue, paused: false)
        // Each switch is by itself: that of everything says nothing of the others.
        let left = try await controls.paused()
        let note = left.isEmpty ? "" : "; still paused: \(left.joined(separator: ", "))"
        return Answer("\(what.rawValue) resumed\(note)", json: ["switch": what.rawValue, "paused": false])
    }
}
