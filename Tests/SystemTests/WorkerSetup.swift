import Entitlements
import Foundation
import HTTPTypes
import Jobs
import Logging
import Postgres
import Storage
import StoreClients
import SyncWorker
import TestSupport
import Testing
import Transport

/// How the worker of a test is configured; as the program, but with short waits.
struct WorkerSetup: Sendable {
    var decision = DecisionSettings()
    var brake = DemotionBrake(percent: 0.5, minimum: 100)
    var retry = RetryPolicy(
        maxAttempts: 8,
        backoffBase: .milliseconds(10),
        backoffCap: .milliseconds(50),
        maxAge: .seconds(86_400)
    )
    var lease = Duration.seconds(10)
    var drain = Duration.seconds(6)
    var untilIdle = true
    var assetBatch = 1000
}

struct WorkerTookTooLong: Error {}

extension World {
    /// Runs one worker, composed as the program composes it, until nothing is left to do.
    ///
    /// - Throws: `WorkerTookTooLong` when it has not ended after 20 s.
    func work(_ setup: WorkerSetup = WorkerSetup()) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await runWorker(setup) }
            group.addTask {
                try await Task.sleep(for: .seconds(60))
                throw WorkerTookTooLong()
            }
            try await group.next()
            group.cancelAll()
        }
    }

    /// Runs a worker that is not told when to stop until the body has returned; then it is cancelled.
    func working(_ setup: WorkerSetup = WorkerSetup(), while body: @Sendable () async throws -> Void) async throws {
        var setup = setup
        setup.untilIdle = false
        try await withThrowingTaskGroup(of: Void.self) { [setup] group in
            group.addTask { try await runWorker(setup) }
            try await body()
            group.cancelAll()
        }
    }

    /// Waits until a query's only number is not 0.
    ///
    /// The database tells nobody what a worker did, so this asks again and again, for a minute at most.
    func until(_ query: PostgresQuery, comment: Comment? = nil) async throws {
        let deadline = ContinuousClock.now + .seconds(60)
        while try await number(query) == 0 {
            try #require(ContinuousClock.now < deadline, comment ?? "waited in vain")
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    private func runWorker(_ setup: WorkerSetup) async throws {
        let configuration = PostgresConfiguration(
            connectionString: database.url,
            maxConnections: 8,
            maxWaiters: 4096,
            sessionSettings: SessionSettings.worker
        )
        let pool = PostgresPool(configuration: configuration, logger: .quiet)
        let transport = HTTPTransport(
            configuration: HTTPTransportConfiguration(maxConnectionsPerHost: 64),
            logger: .quiet
        )
        let result: Result<Void, any Error>
        do {
            result = .success(try await worker(setup, pool, transport, configuration).run())
        } catch {
            result = .failure(error)
        }
        await transport.shutdown()
        await pool.close()
        try result.get()
    }

    private func worker(
        _ setup: WorkerSetup,
        _ pool: PostgresPool,
        _ transport: HTTPTransport,
        _ configuration: PostgresConfiguration
    ) throws -> Worker {
        let budget = RateBudget(
            pool: pool,
            credential: "revenuecat",
            perMinute: 0,
            restoreReservePercent: 25,
            supportReservePercent: 5
        )
        let gate = StoreGate(budget: budget, logger: .quiet)
        let health = StoreHealth(pool: pool)
        let client = RevenueCatClient(
            configuration: try RevenueCatConfiguration(
                apiKey: "sk_test",
                projectID: "proj0a1b2c3d",
                baseURL: storeURL
            ),
            http: StoreHTTP(transport: transport),
            gate: gate.gate,
            logger: .quiet
        )
        return Worker(
            pool: pool,
            reader: RevenueCatReader(client: client, lookups: UserLookups(pool: pool), logger: .quiet).reader,
            apply: Apply(
                pool: pool,
                settings: ApplySettings(
                    decision: setup.decision,
                    brake: setup.brake,
                    retry: setup.retry,
                    assetBatch: setup.assetBatch,
                    // All tests at once leave little time to each.
                    countLimit: .seconds(20)
                ),
                logger: .quiet
            ),
            assets: AssetRuns(pool: pool, mode: setup.decision.mode, logger: .quiet),
            listener: PostgresListener(configuration: configuration, logger: .quiet),
            exchange: { await gate.exchange(with: health) },
            settings: WorkerSettings(
                concurrency: 64,
                batch: 100,
                lease: setup.lease,
                drain: setup.drain,
                untilIdle: setup.untilIdle,
                host: "test",
                pid: ProcessInfo.processInfo.processIdentifier,
                version: "test"
            ),
            ignoresPause: setup.decision.mode == .observe,
            logger: .quiet
        )
    }
}

extension StoreHTTP {
    /// Sends through the transport, as the program does.
    fileprivate init(transport: HTTPTransport) {
        self.init { request, body throws(StoreHTTPFailure) in
            do throws(TransportError) {
                let exchange = try await transport.send(
                    request,
                    body: body,
                    timeout: .seconds(20),
                    maxResponseBytes: 4 << 20
                )
                return StoreHTTPResponse(
                    status: exchange.response.status.code,
                    headers: exchange.response.headerFields,
                    body: exchange.body
                )
            } catch {
                let code: StoreHTTPFailure.Code =
                    switch error.code {
                    case .timeout, .connectTimeout: .timeout
                    case .tooLarge: .tooLarge
                    case .cancelled: .cancelled
                    default: .unavailable
                    }
                throw StoreHTTPFailure(code)
            }
        }
    }
}
