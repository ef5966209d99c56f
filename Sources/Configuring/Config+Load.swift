import Entitlements
import Telemetry

extension Config {
    /// Reads the configuration from environment variables, and from the files that `NAME_FILE` variables name.
    ///
    /// An empty variable counts as not set, an empty file is a fault. Variables that are not in ``Variable`` are ignored.
    /// Blocks while files are read.
    ///
    /// - Throws: `ConfigurationFaults` with everything that is wrong, not only the first.
    package static func load(environment: [String: String]) throws(ConfigurationFaults) -> Config {
        var reader = VariableReader(environment: environment)
        let apps = reader.storeApps()
        let api = reader.api(webhooks: apps.webhooks)
        let config = Config(
            database: reader.database(),
            decision: reader.decision(),
            brake: DemotionBrake(
                percent: reader.decimal(.demotionBrakePercent, default: 0.5, in: 0...100),
                minimum: reader.number(.demotionBrakeMinimum, default: 5, in: 0...1_000_000_000)
            ),
            retry: reader.retry(),
            worker: Worker(
                concurrency: reader.number(.workerConcurrency, default: 256, in: 1...4096),
                batch: reader.number(.workerBatch, default: 500, in: 1...2000),
                lease: .seconds(reader.number(.jobLeaseSeconds, default: 10, in: 2...3600, unit: "seconds"))
            ),
            reserves: reader.reserves(),
            revenueCat: apps.revenueCat,
            appStore: apps.appStore,
            listedStores: apps.listedStores,
            googlePlay: apps.googlePlay,
            onside: reader.onside(),
            accounts: reader.accounts(),
            desk: reader.desk(),
            http: reader.listenAddress(host: .httpHost, port: .httpPort, default: 8080),
            api: api,
            admin: reader.admin(),
            console: reader.console(),
            outbox: reader.outbox(),
            firebaseClaims: reader.firebaseClaims(projectID: api.firebase?.projectID),
            retention: Retention(
                eventDays: reader.number(.eventRetentionDays, default: 30, in: 1...3650, unit: "days"),
                // Idempotency keys lead to a job for seven days.
                historyDays: reader.number(.historyRetentionDays, default: 90, in: 8...3650, unit: "days")
            ),
            supportContactURL: reader.address(
                .supportContactURL,
                fix: "Set an https:// or mailto: address",
                WebAddress.contact
            ),
            log: Log(level: reader.logLevel(), format: reader.choice(.logFormat, default: .text)),
            sqlDirectory: reader.text(.sqlDirectory)
        )
        if config.http == config.admin.address, config.http.port != 0, reader.isSound(.httpPort) {
            reader.fault(
                .adminPort,
                "metrics and the console would listen where the API listens",
                fix: "Set another port than HTTP_PORT"
            )
        }
        for (other, variable) in [(config.http, Variable.httpPort), (config.admin.address, .adminPort)]
        where config.console.address == other && other.port != 0 && reader.isSound(.consolePort) {
            reader.fault(
                .consolePort,
                "the console would listen where \(variable.rawValue) says",
                fix: "Set another port, or unset CONSOLE_HOST and CONSOLE_PORT to have the console on the admin address"
            )
        }
        guard reader.faults.isEmpty else { throw ConfigurationFaults(faults: reader.faults) }
        return config
    }
}
