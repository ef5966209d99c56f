package import ArgumentParser
import Composition
import Foundation
import Logging
import ServiceLifecycle
import StoreSimulator
import Telemetry
import UnixSignals

/// The commands that only development needs: stores that answer as a scenario says, and benchmarks.
package let developmentCommands: [any ParsableCommand.Type] = [Simulate.self, BenchCommand.self]

struct Simulate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Runs an HTTP double of the stores for demos and tests.",
        examples: [
            "simulate --scenario deploy/simulator.example.yaml --port 9000",
            "simulate --scenario deploy/simulator.example.yaml --files simulated",
        ]
    )

    @Option(help: "The port to listen on; 0 takes a free one.")
    var port = 0

    @Option(help: "The scenario file, YAML or JSON.")
    var scenario: String

    @Option(
        help: """
            A folder that is given the stores' variables (stores.env), the keys and roots that they name, the proofs that \
            devices would have (proofs.tsv) and the ID tokens of users (tokens.tsv).
            """
    )
    var files: String?

    @Option(
        help: """
            A folder that keeps the simulator's keys: one that is started later signs with the same, and starts sooner. \
            Only simulators and tests may trust them.
            """
    )
    var keys: String?

    @Option(help: "The address to listen on.")
    var host = "127.0.0.1"

    func validate() throws {
        guard (0...65_535).contains(port) else { throw ValidationError("--port: give 0 to 65535") }
    }

    func run() async throws {
        try await reporting {
            LineLogHandler.bootstrap(format: .text, level: .warning)
            let logger = Logger(label: "entitlement-sync")
            let loaded: Scenario
            do { loaded = try Scenario.load(fileAt: scenario) } catch { throw CommandFailure(.data, "\(error)") }
            do { if let keys { try KeyRing.keep(in: keys) } } catch {
                let text = "--keys: \(keys ?? "") can't be made, or holds what is no key; name a folder"
                throw CommandFailure(.data, text)
            }
            do {
                if let files {
                    try FileManager.default.createDirectory(atPath: files, withIntermediateDirectories: true)
                }
            } catch { throw CommandFailure(.data, "--files: \(files ?? "") can't be made; name a folder") }
            let simulator = try StoreSimulator(
                scenario: loaded,
                configuration: SimulatorConfiguration(host: host, port: port),
                logger: logger
            )
            let group = ServiceGroup(
                services: [Simulation(simulator: simulator, files: files)],
                gracefulShutdownSignals: [.sigterm, .sigint],
                logger: logger
            )
            do { try await group.run() } catch let error as SimulatorError {
                throw CommandFailure(.unavailable, "\(error)")
            }
            return .done
        }
    }

    private struct Simulation: Service {
        var simulator: StoreSimulator
        var files: String?

        func run() async throws {
            try await cancelWhenGracefulShutdown {
                try await simulator.run { port in
                    do { if let files { try simulator.writeFiles(to: files, port: port) } } catch {
                        let text = "--files: \(files ?? "") can't be written to\n"
                        Output.write(text, to: .standardError)
                    }
                    Output.line("listening on port \(port)")
                }
            }
        }
    }
}
