internal import Glibc
internal import Hummingbird
internal import HummingbirdCore
package import Logging
internal import NIOCore

/// An HTTP double of the stores: same paths, fields, errors, paging and limits, and every fault on request.
///
/// RevenueCat's REST API v2 answers below `/v2`, so a client's base URL is `http://127.0.0.1:PORT/v2`. The control
/// endpoint answers below `/control`; `GET /` prints `guide`, which describes both.
package struct StoreSimulator: Sendable {
    let simulation: Simulation
    private let configuration: SimulatorConfiguration
    private let logger: Logger

    /// Sets a scenario up, without listening yet, by a clock that gives Unix milliseconds (the machine's by default).
    ///
    /// - Throws: `ScenarioError` when two customers share an id.
    package init(
        scenario: Scenario,
        configuration: SimulatorConfiguration = SimulatorConfiguration(),
        logger: Logger,
        wall: (@Sendable () -> Int64)? = nil
    ) throws {
        simulation = try Simulation(scenario, wall: wall ?? SimulatedClock.machine)
        self.configuration = configuration
        self.logger = logger
    }

    /// Serves until the task is cancelled or a surrounding service group shuts down, then returns.
    ///
    /// Running answers are finished; answers that a fault delays are dropped.
    ///
    /// - Parameter onListening: called once, with the port, when connections are accepted.
    /// - Throws: `SimulatorError` when the address cannot be had.
    package func run(onListening: @escaping @Sendable (Int) async -> Void = { _ in }) async throws {
        do {
            try await application(onListening: onListening).run()
        } catch is CancellationError {
            return
        } catch let error as IOError {
            let address = "\(configuration.host):\(configuration.port)"
            throw SimulatorError(code: error.errnoCode == EADDRINUSE ? .addressInUse : .cannotListen, address: address)
        }
    }

    private func application(onListening: @escaping @Sendable (Int) async -> Void) -> some ApplicationProtocol {
        // The framework logs every start and stop, and calls connections that end with the process errors.
        var quiet = logger
        quiet.logLevel = .critical
        let channel = SimulatorChannel(simulation: simulation)
        return Application(
            // The channel answers by itself.
            router: Router(),
            server: HTTPServerBuilder { _ in channel },
            configuration: ApplicationConfiguration(
                address: .hostname(configuration.host, port: configuration.port),
                serverName: nil,
                backlog: 1024
            ),
            onServerRunning: { [logger] channel in
                let port = channel.localAddress?.port ?? configuration.port
                logger.info("store simulator is listening", metadata: ["port": .stringConvertible(port)])
                await onListening(port)
            },
            logger: quiet
        )
    }
}
