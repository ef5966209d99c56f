import ArgumentParser
import Configuring
import Entitlements
import Foundation
import Logging
import Metrics
import Postgres
import ServiceLifecycle
import UnixSignals
import Migrations
import Storage
import StoreClients
import SyncWorker
import Telemetry
import Transport
import WebAPI
import Jobs

struct WorkerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "worker",
        abstract: "Works off the queue until it is told to stop."
    )

    @Flag(help: "End once nothing is queued, running, delayed or unfinished in the database.")
    var untilIdle = false

    func run() async throws {
        try await reporting {
            let runtime = try Runtime()
            let registry = Registry()
            MetricsSystem.bootstrap(registry)
            let config = runtime.config
            let settings = try StoreSettings(config)
            let pool = PostgresPool(
                configuration: runtime.postgres(connections: 8, settings: SessionSettings.worker),
                logger: runtime.logger
            )
            do {
                try await SchemaCheck(pool: pool).verify()
            } catch {
                await pool.close()
                throw error
            }
            let transport = HTTPTransport(configuration: Self.http(config), logger: runtime.logger)
            let (worker, gauges) = Self.worker(
                runtime,
                settings,
                pool: pool,
                transport: transport,
                untilIdle: untilIdle
            )
            let working = ServiceGroupConfiguration.ServiceConfiguration(
                service: worker,
                successTerminationBehavior: .gracefullyShutdownGroup,
                failureTerminationBehavior: .gracefullyShutdownGroup
            )
            let serving = Self.admin(config, registry, worker, gauges, pool: pool, logger: runtime.logger).map {
                ServiceGroupConfiguration.ServiceConfiguration(service: $0, successTerminationBehavior: .ignore)
            }
            let group = ServiceGroup(
                configuration: .init(
                    services: [serving, working].compactMap(\.self),
                    gracefulShutdownSignals: [.sigterm, .sigint],
                    logger: runtime.logger
                )
            )
            do {
                try await group.run()
                await transport.shutdown()
                await pool.close()
            } catch {
                await transport.shutdown()
                await pool.close()
                throw error
            }
            return .done
        }
    }

    /// Metrics and health, where an address is set for them.
    private static func admin(
        _ config: Config,
        _ registry: Registry,
        _ worker: Worker,
        _ gauges: WorkerGauges,
        pool: PostgresPool,
        logger: Logger
    ) -> AdminServer? {
        guard config.admin.isSet else { return nil }
        let content = AdminContent(
            metrics: {
                await gauges.refresh()
                return registry.render()
            },
            metricsType: Registry.contentType,
            isReady: {
                guard worker.isLeased else { return false }
                return (try? await pool.query("SELECT 1")) != nil
            }
        )
        let address = AdminServer.Address(host: config.admin.address.host, port: config.admin.address.port)
        return AdminServer(address: address, isVital: false, content: content, logger: logger)
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

    /// The composition root of a worker.
    static func worker(
        _ runtime: Runtime,
        _ settings: StoreSettings,
        pool: PostgresPool,
        transport: HTTPTransport,
        untilIdle: Bool
    ) -> (Worker, WorkerGauges) {
        let config = runtime.config
        var stores = StoreComposition(
            settings,
            config: config,
            pool: pool,
            transport: transport,
            logger: runtime.logger
        )
        let reader = stores.reader()
        let gates = stores.gates
        let health = StoreHealth(pool: pool)
        let worker = Worker(
            pool: pool,
            reader: reader,
            apply: Apply(
                pool: pool,
                settings: ApplySettings(
                    decision: config.decision,
                    brake: config.brake,
                    retry: config.retry,
                    acknowledges: config.googlePlay?.acknowledges ?? false
                ),
                logger: runtime.logger
            ),
            assets: AssetRuns(pool: pool, mode: config.decision.mode, logger: runtime.logger),
            acknowledger: stores.acknowledger,
            listener: PostgresListener(
                configuration: runtime.postgres(connections: 1, direct: true),
                logger: runtime.logger
            ),
            exchange: { await gates.exchange(with: health) },
            settings: WorkerSettings(
                concurrency: config.worker.concurrency,
                batch: config.worker.batch,
                lease: config.worker.lease,
                untilIdle: untilIdle,
                host: ProcessInfo.processInfo.hostName,
                pid: ProcessInfo.processInfo.processIdentifier,
                version: Build.version
            ),
            ignoresPause: config.decision.mode == .observe,
            logger: runtime.logger
        )
        let gauges = WorkerGauges(queue: JobQueue(pool: pool), laws: LawWatch(pool: pool), gates: gates)
        return (worker, gauges)
    }
}
