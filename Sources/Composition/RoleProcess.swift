import Configuring
import Diagnostics
import HTTPServing
import Logging
import Metrics
import Migrations
import Outbox
import Postgres
import Queue
import ServiceLifecycle
import StoreClients
import SupportConsole
import Telemetry
import Transport
import UnixSignals
import WebAPI

/// A process that goes on until it is told to stop, in one role or in several.
package struct RoleProcess {
    package enum Role: String, Hashable {
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

    package init(roles: Set<Role>, untilIdle: Bool = false) {
        self.roles = roles
        self.untilIdle = untilIdle
    }

    /// Runs until SIGTERM, SIGINT, or a vital part's end.
    package func run() async throws {
        let runtime = try Runtime()
        let registry = Registry()
        MetricsSystem.bootstrap(registry)
        let stores = roles.contains(.work) ? try StoreSettings(runtime.config) : nil
        let doors = roles.contains(.serve) ? try DoorSettings(runtime.config) : nil
        // One a role: neither waits for the other's connections, and what a session has planned it needs again.
        var pools = roles.map { _ in Self.pool(runtime) }
        guard let pool = pools.first, let doorsPool = pools.last else { return }
        let transport = HTTPTransport(configuration: Self.http(runtime.config), logger: runtime.logger)
        do {
            let sender = stores == nil ? nil : try Self.sender(runtime.config, transport)
            try await SchemaCheck(pool: pool).verify()
            await SetupChecks(runtime: runtime).announce(roles.map(\.rawValue).sorted(), pool: pool)
            let watch = doors.map { _ in APIComposition.watch(runtime, pool: doorsPool) }
            let work = stores.map {
                WorkerComposition(
                    runtime,
                    $0,
                    pool: pool,
                    transport: transport,
                    sender: sender,
                    watch: watch,
                    untilIdle: untilIdle
                )
            }
            var api: APIComposition?
            if let doors, let watch {
                api = try APIComposition(
                    runtime,
                    doors,
                    pool: doorsPool,
                    transport: transport,
                    watch: watch,
                    dequeue: work?.dequeue
                )
            }
            let desk = try doors.map { try ConsoleComposition(runtime, proxies: $0.proxies, transport: transport) }
            if let desk { pools.append(desk.pool) }
            let schedule = roles.contains(.schedule) ? ScheduleComposition(runtime, pool: pool) : nil
            try await group(runtime, registry, work, api, desk?.console, schedule, doors?.proxies ?? .init(), pool)
                .run()
            await transport.shutdown()
            for pool in pools { await pool.close() }
        } catch {
            await transport.shutdown()
            for pool in pools { await pool.close() }
            throw error
        }
    }

    private static func pool(_ runtime: Runtime) -> PostgresPool {
        PostgresPool(
            configuration: runtime.postgres(connections: 8),
            logger: runtime.logger
        )
    }

    /// What runs; it ends from the last to the first.
    private func group(
        _ runtime: Runtime,
        _ registry: Registry,
        _ work: WorkerComposition?,
        _ api: APIComposition?,
        _ console: SupportConsole?,
        _ schedule: ScheduleComposition?,
        _ proxies: TrustedProxies,
        _ pool: PostgresPool
    ) -> ServiceGroup {
        typealias Part = ServiceGroupConfiguration.ServiceConfiguration
        let admin = admin(runtime, registry, work, console, proxies, pool).map {
            Part(service: NamedService($0), successTerminationBehavior: .ignore)
        }
        let desk = console.flatMap { consoleServer(runtime, $0, proxies) }.map {
            Part(service: NamedService($0), failureTerminationBehavior: .gracefullyShutdownGroup)
        }
        let pages = console.map { Part(service: NamedService($0), successTerminationBehavior: .ignore) }
        let watch = api.map {
            Part(service: NamedService($0.watch), successTerminationBehavior: .ignore)
        }
        let intake = api.map {
            Part(service: NamedService($0.intake), successTerminationBehavior: .ignore)
        }
        let restores = api.map {
            Part(service: NamedService($0.restores), successTerminationBehavior: .ignore)
        }
        let worker = work.map {
            Part(
                service: NamedService($0.worker),
                successTerminationBehavior: .gracefullyShutdownGroup,
                failureTerminationBehavior: .gracefullyShutdownGroup
            )
        }
        let server = api.map {
            Part(service: NamedService($0.server), failureTerminationBehavior: .gracefullyShutdownGroup)
        }
        // A worker of the same process plans already.
        let schedules = (schedule?.services(plans: work == nil) ?? []).map {
            Part(service: NamedService($0), failureTerminationBehavior: .gracefullyShutdownGroup)
        }
        var configuration = ServiceGroupConfiguration(
            services: [admin, desk, pages, watch, intake, restores, worker].compactMap(\.self) + schedules
                + (server.map { [$0] } ?? []),
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: runtime.logger
        )
        configuration.maximumGracefulShutdownDuration = .seconds(9)
        // Whatever does not even heed that is ended with the process.
        configuration.maximumCancellationDuration = .seconds(3)
        return ServiceGroup(configuration: configuration)
    }

    /// Metrics and health: where an address is set for them, and wherever the API is served.
    private func admin(
        _ runtime: Runtime,
        _ registry: Registry,
        _ work: WorkerComposition?,
        _ console: SupportConsole?,
        _ proxies: TrustedProxies,
        _ pool: PostgresPool
    ) -> AdminServer? {
        let config = runtime.config
        guard config.admin.isSet || roles.contains(.serve) else { return nil }
        let runGauges = roles == [.serve] ? nil : ScheduleComposition(runtime, pool: pool).gauges
        let content = AdminContent(
            metrics: {
                await work?.gauges.refresh()
                await runGauges?.refresh()
                return registry.render()
            },
            metricsType: Registry.contentType,
            isReady: {
                guard work?.worker.isLeased != false else { return false }
                return (try? await pool.query("SELECT 1")) != nil
            },
            more: config.console.address == nil ? console?.routes : nil
        )
        return AdminServer(
            host: config.admin.address.host,
            port: config.admin.address.port,
            names: config.admin.names + consoleNames(config),
            proxies: proxies,
            // A usual port that is taken by another process of ours stops no process.
            isVital: config.admin.isSet && roles.contains(.serve),
            content: content,
            logger: runtime.logger
        )
    }

    /// The console, where it has an address of its own.
    private func consoleServer(
        _ runtime: Runtime,
        _ console: SupportConsole,
        _ proxies: TrustedProxies
    ) -> AdminServer? {
        let config = runtime.config
        guard let address = config.console.address else { return nil }
        return AdminServer(
            what: "the console",
            host: address.host,
            port: address.port,
            names: config.admin.names + consoleNames(config),
            proxies: proxies,
            isVital: true,
            content: AdminContent(routes: console.routes),
            logger: runtime.logger
        )
    }

    /// The name under which operators open the console.
    private func consoleNames(_ config: Config) -> [String] {
        (config.console.url?.split(separator: "/").last).map { [String($0.split(separator: ":")[0])] } ?? []
    }

    /// Sends webhooks, where that is configured.
    ///
    /// - Throws: `ConfigurationFaults`.
    private static func sender(_ config: Config, _ transport: HTTPTransport) throws -> WebhookSender? {
        guard let outbox = config.outbox else { return nil }
        do throws(SettingFaults<WebhookSender.Fault>) {
            return try WebhookSender(
                url: outbox.url,
                secret: outbox.secret.reveal(),
                http: HTTPClient(transport: transport, target: "outbox")
            )
        } catch { throw ConfigurationFaults(faults: error.faults.map(\.configurationFault)) }
    }

    private static func http(_ config: Config) -> HTTPTransportConfiguration {
        HTTPTransportConfiguration(
            maxConnectionsPerHost: 128,
            maxTotalConnections: 256,
            maxInFlight: max(256, config.worker.concurrency),
            maxQueued: 10_000,
            userAgent: "entitlement-sync/\(Build.version)"
        )
    }
}
