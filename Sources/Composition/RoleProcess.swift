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

/// A process that goes on until it is stopped, in one role or in several.
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
        let endpoints = roles.contains(.serve) ? try EndpointSettings(runtime.config) : nil
        // One a role: neither waits for the other's connections, and what a session has planned it needs again.
        var pools = roles.map { _ in
            PostgresPool(configuration: runtime.postgres(connections: 8), logger: runtime.logger)
        }
        guard let pool = pools.first, let apiPool = pools.last else { return }
        let transport = HTTPTransport(configuration: Self.http(runtime.config), logger: runtime.logger)
        func closeAll() async {
            await transport.shutdown()
            for pool in pools { await pool.close() }
        }
        try await cleaningUp(closeAll) {
            let sender = stores == nil ? nil : try Self.sender(runtime.config, transport)
            try await SchemaCheck(pool: pool).verify()
            await SetupChecks(runtime: runtime)
                .announce(roles.map(\.rawValue).sorted(), decides: stores != nil, pool: pool)
            let statusHub = endpoints.map { _ in APIComposition.statusHub(runtime, pool: apiPool) }
            let work = stores.map {
                WorkerComposition(
                    runtime,
                    $0,
                    pool: pool,
                    transport: transport,
                    sender: sender,
                    watch: statusHub,
                    untilIdle: untilIdle
                )
            }
            var api: APIComposition?
            if let endpoints, let statusHub {
                api = try APIComposition(
                    runtime,
                    endpoints,
                    pool: apiPool,
                    transport: transport,
                    statusHub: statusHub,
                    dequeue: work?.dequeue
                )
            }
            let desk = try endpoints.map { try ConsoleComposition(runtime, proxies: $0.proxies, transport: transport) }
            if let desk { pools += [desk.pool] + (desk.reports.map { [$0] } ?? []) }
            let parts = ProcessParts(
                roles: roles,
                runtime: runtime,
                registry: registry,
                pool: pool,
                proxies: endpoints?.proxies ?? TrustedProxies(),
                work: work,
                api: api,
                console: desk?.console,
                schedule: roles.contains(.schedule) ? ScheduleComposition(runtime, pool: pool) : nil
            )
            try await parts.group().run()
        }
    }

    /// Sends webhooks, where that is configured.
    ///
    /// - Throws: `ConfigurationFaults`.
    private static func sender(_ config: Config, _ transport: HTTPTransport) throws -> WebhookSender? {
        guard let outbox = config.outbox else { return nil }
        return try configured { () throws(SettingFaults<WebhookSender.Fault>) in
            try WebhookSender(
                url: outbox.url,
                secret: outbox.secret.reveal(),
                http: HTTPClient(transport: transport, target: "outbox")
            )
        }
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

/// What a process is made of.
private struct ProcessParts {
    let roles: Set<RoleProcess.Role>
    let runtime: Runtime
    let registry: Registry
    let pool: PostgresPool
    let proxies: TrustedProxies
    let work: WorkerComposition?
    let api: APIComposition?
    let console: SupportConsole?
    let schedule: ScheduleComposition?

    /// What runs; it ends from the last to the first.
    func group() -> ServiceGroup {
        typealias Part = ServiceGroupConfiguration.ServiceConfiguration
        /// A service whose end is of no consequence.
        func beside(_ service: (any Service)?) -> Part? {
            service.map { Part(service: NamedService($0), successTerminationBehavior: .ignore) }
        }
        /// A service whose failure ends the process in good order.
        func vital(_ service: (any Service)?) -> Part? {
            service.map { Part(service: NamedService($0), failureTerminationBehavior: .gracefullyShutdownGroup) }
        }
        let worker = work.map {
            Part(
                service: NamedService($0.worker),
                successTerminationBehavior: .gracefullyShutdownGroup,
                failureTerminationBehavior: .gracefullyShutdownGroup
            )
        }
        // A worker of the same process plans already.
        let schedules = (schedule?.services(plans: work == nil) ?? []).map(vital)
        let parts = [
            beside(admin()),
            vital(consoleServer()),
            beside(console), beside(api?.services.statusHub), beside(api?.services.events),
            beside(api?.services.restores), worker,
        ]
        var configuration = ServiceGroupConfiguration(
            services: (parts + schedules + [vital(api?.server)]).compactMap(\.self),
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: runtime.logger
        )
        configuration.maximumGracefulShutdownDuration = .seconds(9)
        // Whatever does not even heed that is ended with the process.
        configuration.maximumCancellationDuration = .seconds(3)
        return ServiceGroup(configuration: configuration)
    }

    /// Metrics and health: where an address is set for them, and wherever the API is served.
    private func admin() -> AdminServer? {
        let config = runtime.config
        guard config.admin.isSet || roles.contains(.serve) else { return nil }
        let runGauges = roles == [.serve] ? nil : ScheduleComposition(runtime, pool: pool).gauges
        let content = AdminContent(
            metrics: { [work, registry] in
                await work?.gauges.refresh()
                await runGauges?.refresh()
                return registry.render()
            },
            metricsType: Registry.contentType,
            readiness: ReadinessProbe(
                databaseWait: roles.contains(.serve) ? config.api.databaseWait : .zero,
                wasReady: work == nil
            ) { [work, pool] in
                guard work?.worker.isLeased != false else { return false }
                return (try? await pool.query("SELECT 1")) != nil
            }.readiness,
            more: config.console.address == nil ? console?.routes : nil
        )
        return AdminServer(
            host: config.admin.address.host,
            port: config.admin.address.port,
            names: names,
            proxies: proxies,
            // A usual port that is taken by another process of ours stops no process.
            isVital: config.admin.isSet && roles.contains(.serve),
            content: content,
            logger: runtime.logger
        )
    }

    /// The console, where it has an address of its own.
    private func consoleServer() -> AdminServer? {
        guard let console, let address = runtime.config.console.address else { return nil }
        return AdminServer(
            what: "the console",
            host: address.host,
            port: address.port,
            names: names,
            proxies: proxies,
            isVital: true,
            content: AdminContent(routes: console.routes),
            logger: runtime.logger
        )
    }

    /// The names under which operators reach the pages, those of the console's own address among them.
    private var names: [String] {
        let host = runtime.config.console.url?.split(separator: "/").last?.split(separator: ":")[0]
        return runtime.config.admin.names + (host.map { [String($0)] } ?? [])
    }
}
