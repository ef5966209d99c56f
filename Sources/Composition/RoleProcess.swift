import Configuring
import HTTPServing
import Logging
import Metrics
import Reconciliation
import ServiceLifecycle
import SupportConsole
import Telemetry
import Transport
import UnixSignals
import WebAPI
import Foundation

/// A process that goes on until it is stopped, in one role or in several, for one app or for several.
package struct RoleProcess: Sendable {
    package enum Role: String, Hashable, Sendable {
        /// Works off the queue.
        case work = "worker"
        /// Answers users' apps and the stores.
        case serve
        /// Starts and plans runs.
        case schedule
    }

    package let roles: Set<Role>
    /// End once nothing is left to do.
    package var untilIdle = false
    /// Those of all apps' workers.
    let restores = BackgroundShare.Restores()

    package init(roles: Set<Role>, untilIdle: Bool = false) {
        self.roles = roles
        self.untilIdle = untilIdle
    }

    /// Runs until SIGTERM, SIGINT, or a vital part's end.
    package func run() async throws {
        let environment = ProcessInfo.processInfo.environment
        if AppChoice.givenName(in: environment) == nil, let folder = AppsFolder.path(in: environment) {
            try await serveAll(of: folder, environment)
        } else {
            try await serveOne()
        }
    }

    private func serveOne() async throws {
        let runtime = try Runtime()
        let registry = Registry()
        MetricsSystem.bootstrap(registry)
        try await AppScope.$name.withValue(runtime.app) {
            try await withTransport(runtime) { transport in
                try await AppInstance.with(self, runtime, transport: transport) { instance in
                    let proxies = try proxies(runtime)
                    let servers = ProcessServers(
                        roles: roles,
                        runtime: runtime,
                        registry: registry,
                        proxies: proxies,
                        console: instance.console?.routes
                    )
                    let api = instance.api.map { api in
                        let server = APIServer(
                            settings: APIComposition.listening(runtime, proxies: proxies),
                            logger: runtime.logger,
                            readiness: instance.readiness.readiness
                        )
                        if let name = runtime.app { server.apps.know([name], unnamed: name) }
                        server.serve(api.endpoints, as: runtime.app)
                        return server
                    }
                    let admin = servers.admin(
                        refreshing: { await instance.refreshGauges() },
                        readiness: instance.readiness.readiness
                    )
                    try await group(
                        [Part.beside(admin), Part.vital(servers.consoleServer())].compactMap(\.self)
                            + instance.services + [Part.vital(api)].compactMap(\.self),
                        runtime.logger
                    ).run()
                }
            }
        }
    }

    /// Serves every app of a folder; what is wrong with one of them stops no other.
    private func serveAll(of folder: String, _ environment: [String: String]) async throws {
        let apps = try AppsFolder.read(folder, environment: environment)
        let runtime = try Runtime(ofProcess: environment)
        let registry = Registry(maxSeries: 1_000_000)
        MetricsSystem.bootstrap(registry)
        try await AppScope.$name.withValue("") {
            try await withTransport(runtime, forSeveral: true) { transport in
                let proxies = try proxies(runtime)
                let served = ServedApps()
                let api =
                    roles.contains(.serve)
                    ? APIServer(
                        settings: APIComposition.listening(runtime, proxies: proxies),
                        logger: runtime.logger,
                        readiness: served.readiness
                    ) : nil
                let host = AppsHost(
                    process: self,
                    folder: folder,
                    apps: apps,
                    environment: environment,
                    runtime: runtime,
                    transport: transport,
                    served: served,
                    registry: registry,
                    api: api
                )
                let servers = ProcessServers(
                    roles: roles,
                    runtime: runtime,
                    registry: registry,
                    proxies: proxies,
                    console: roles.contains(.serve)
                        ? try ConsoleApps(names: { served.names }, find: served.console).routes : nil
                )
                let admin = servers.admin(refreshing: served.refreshGauges, readiness: served.readiness)
                let parts = [
                    Part.beside(admin), Part.vital(servers.consoleServer()), Part.endsAll(host), Part.vital(api),
                ]
                try await group(parts.compactMap(\.self), runtime.logger).run()
            }
        }
    }

    /// What runs until a signal; it ends from the last to the first.
    private func group(_ services: [Part], _ logger: Logger) -> ServiceGroup {
        var configuration = ServiceGroupConfiguration(
            services: services,
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger
        )
        configuration.maximumGracefulShutdownDuration = .seconds(9)
        // Whatever does not even heed that is ended with the process.
        configuration.maximumCancellationDuration = .seconds(3)
        return ServiceGroup(configuration: configuration)
    }

    private func proxies(_ runtime: Runtime) throws -> TrustedProxies {
        roles.contains(.serve) ? try EndpointSettings.proxies(runtime.config) : TrustedProxies()
    }

    /// One for all apps: stores' connections are shared, and so is the thread that drives them.
    ///
    /// `forSeveral`: an app whose store hangs has at most its own WORKER_CONCURRENCY requests under way, and takes no room from others.
    private func withTransport(
        _ runtime: Runtime,
        forSeveral: Bool = false,
        _ body: (HTTPTransport) async throws -> Void
    ) async throws {
        let most = max(256, runtime.config.worker.concurrency)
        let configuration = HTTPTransportConfiguration(
            maxConnectionsPerHost: 128,
            maxTotalConnections: forSeveral ? 1024 : 256,
            maxInFlight: forSeveral ? most * 16 : most,
            maxQueued: 10_000,
            userAgent: "entitlement-sync/\(Build.version)"
        )
        let transport = HTTPTransport(configuration: configuration, logger: runtime.logger)
        try await cleaningUp({ await transport.shutdown() }) { try await body(transport) }
    }
}
