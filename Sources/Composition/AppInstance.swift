import Configuring
import FaultPoints
import Diagnostics
import HTTPServing
import Hummingbird
import Migrations
import Outbox
import Postgres
import Queue
import RateLimits
import Reconciliation
import ServiceLifecycle
import StoreClients
import SupportConsole
import Transport
import WebAPI

/// One app in a process: what works, answers and is shown for it.
struct AppInstance {
    let runtime: Runtime
    let api: APIComposition?
    let console: SupportConsole?
    private let listener: AppListener
    /// Answers requests for the console's pages, for an address that serves those of several apps.
    let consoleResponder: (any HTTPResponder<AdminContext>)?
    let readiness: ReadinessProbe
    let pool: PostgresPool
    private let pools: [PostgresPool]
    private let restingTurn = Throttle(every: pulse)
    /// What its services share.
    let scope: ServiceScope
    private let work: WorkerComposition?
    private let schedule: ScheduleComposition?
    private let runGauges: RunGauges?

    /// How far apart the steps of an app are where nothing happens, when there are others beside it.
    private static let pulse = Duration.seconds(90)

    /// Connects, puts an app together, and hands it over; closes its connections after that.
    ///
    /// `isAmongOthers`: other apps run beside it, so it rests where nothing happens.
    ///
    /// - Throws: what is wrong with the settings or the database; what the body throws.
    static func with(
        _ process: RoleProcess,
        _ runtime: Runtime,
        transport: HTTPTransport,
        isAmongOthers: Bool = false,
        _ body: (AppInstance) async throws -> Void
    ) async throws {
        let roles = process.roles
        let stores = roles.contains(.work) ? try StoreSettings(runtime.config) : nil
        let endpoints = roles.contains(.serve) ? try EndpointSettings(runtime.config) : nil
        let configuration = runtime.postgres(connections: Int(OwnValue.connections.number(else: 8)))
        let pool = PostgresPool(configuration: configuration, logger: runtime.logger)
        // A pool of its own, so that requests don't wait for the worker's connections; and what a session has planned is used again.
        let apiPool =
            roles.contains(.serve) && roles.count > 1
            ? PostgresPool(configuration: configuration, logger: runtime.logger) : pool
        var pools = apiPool === pool ? [pool] : [pool, apiPool]
        // At rest nothing waits for more than what a moment's work needs.
        let scope = ServiceScope(
            pulse: isAmongOthers && !process.untilIdle ? pulse : nil,
            settling: OwnValue.settling.time(else: .seconds(10))
        ) { rests in
            for pool in [pool, apiPool] { pool.limit(to: rests ? 2 : configuration.maxConnections) }
        }
        try await cleaningUp({ for pool in pools { await pool.close() } }) {
            let sender = stores == nil ? nil : try sender(runtime.config, transport)
            let accounts = stores == nil ? nil : try FirebaseAccounts(runtime.config, transport)
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
                    accounts: accounts,
                    watch: statusHub,
                    untilIdle: process.untilIdle,
                    scope: scope,
                    share: BackgroundShare(among: process.restores)
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
            try await body(
                AppInstance(
                    runtime: runtime,
                    api: api,
                    console: desk?.console,
                    listener: AppListener(
                        runtime.listener(),
                        dequeue: work?.dequeue,
                        statusHub: statusHub,
                        console: desk?.console,
                        scope: scope,
                        logger: runtime.logger
                    ),
                    consoleResponder: isAmongOthers ? desk?.console.responder : nil,
                    readiness: ReadinessProbe(
                        databaseWait: roles.contains(.serve) ? runtime.config.api.databaseWait : .zero,
                        wasReady: work == nil
                    ) {
                        guard work?.worker.isLeased != false else { return false }
                        // Where nothing happens, the connection that listens says enough.
                        if scope.wantedPulse != nil { return true }
                        return (try? await pool.query("SELECT 1")) != nil
                    },
                    pool: pool,
                    pools: pools,
                    scope: scope,
                    work: work,
                    schedule: roles.contains(.schedule) ? ScheduleComposition(runtime, pool: pool) : nil,
                    runGauges: roles == [.serve] ? nil : ScheduleComposition(runtime, pool: pool).gauges
                )
            )
        }
    }

    /// Whether its worker, if it has one, holds its lease.
    var isAtWork: Bool { work?.worker.isLeased ?? true }

    /// What runs for the app, in the order in which it begins; it ends from the last to the first.
    var services: [Part] {
        // A worker of the same process plans already.
        let schedules = (schedule?.services(plans: work == nil) ?? []).map { Part.vital($0) }
        return [
            Part.beside(listener), Part.beside(console), Part.beside(api?.services.statusHub),
            Part.beside(api?.services.events),
            Part.beside(api?.services.restores), work.map { Part.endsAll($0.worker) },
        ].compactMap(\.self) + schedules.compactMap(\.self)
    }

    /// Closes connections that have rested for a while.
    func closeIdleConnections(since moment: ContinuousClock.Instant) async {
        for pool in pools { await pool.closeIdle(since: moment) }
    }

    /// Reads the figures that are true at this moment.
    func refreshGauges() async {
        // Where nothing happens, nothing has changed.
        guard scope.restingPulse == nil || restingTurn.isDue() else { return }
        await work?.gauges.refresh()
        await runGauges?.refresh()
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
}

extension FirebaseAccounts {
    /// The accounts whose custom claims are kept, where that is configured.
    ///
    /// - Throws: `ConfigurationFaults`.
    init?(_ config: Config, _ transport: HTTPTransport) throws {
        guard let settings = config.firebaseClaims else { return nil }
        let configuration = try configured { () throws(SettingFaults<FirebaseConfiguration.Fault>) in
            try FirebaseConfiguration(
                serviceAccount: settings.serviceAccount.reveal(),
                projectID: settings.projectID,
                baseURL: settings.baseURL ?? "https://identitytoolkit.googleapis.com",
                oauthBaseURL: settings.oauthBaseURL
            )
        }
        self.init(configuration: configuration, http: HTTPClient(transport: transport, target: "firebase"))
    }
}

typealias Part = ServiceGroupConfiguration.ServiceConfiguration

extension Part {
    /// A service whose normal end is ignored.
    static func beside(_ service: (any Service)?) -> Part? {
        service.map { Part(service: NamedService($0), successTerminationBehavior: .ignore) }
    }

    /// A service whose failure ends all others in good order.
    static func vital(_ service: (any Service)?) -> Part? {
        service.map { Part(service: NamedService($0), failureTerminationBehavior: .gracefullyShutdownGroup) }
    }

    /// A service whose end ends all others in good order.
    static func endsAll(_ service: any Service) -> Part {
        Part(
            service: NamedService(service),
            successTerminationBehavior: .gracefullyShutdownGroup,
            failureTerminationBehavior: .gracefullyShutdownGroup
        )
    }
}
