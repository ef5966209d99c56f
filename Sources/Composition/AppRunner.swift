import Configuring
import Logging
import Metrics
import Migrations
import Queue
import ServiceLifecycle
import Synchronization
import Telemetry
import WebAPI

/// Runs one app: again whenever its file changes, and after a while where it could not be run.
final class AppRunner: Sendable {
    private struct State {
        /// What is to run; `nil`: nothing more.
        var wanted: AppsFolder.App?
        /// What runs now.
        var group: ServiceGroup?
        /// Set once, when nothing runs any more.
        var hasEnded = false
        var failure: CommandFailure?
    }

    private static let shortestPause = Duration.milliseconds(500)
    private static let longestPause = Duration.seconds(15)

    private let name: String
    private let host: AppsHost
    private let databases: DatabaseOwners
    private let changed = Signal()
    private let state: Mutex<State>

    init(_ app: AppsFolder.App, host: AppsHost, databases: DatabaseOwners) {
        name = app.name
        self.host = host
        self.databases = databases
        state = Mutex(State(wanted: app))
    }

    /// Whether ``run()`` has nothing more to do.
    var hasEnded: Bool { state.withLock(\.hasEnded) }

    /// Why the app could not be run, where that ended it.
    var failure: CommandFailure? { state.withLock(\.failure) }

    /// Runs the app with other settings from now on, if they are others.
    ///
    /// - Returns: `false`: it has been removed meanwhile, and needs a runner of its own.
    func change(to app: AppsFolder.App) -> Bool {
        let (isKnown, group) = state.withLock { state -> (Bool, ServiceGroup?) in
            guard !state.hasEnded || host.process.untilIdle else { return (false, nil) }
            guard state.wanted?.fingerprint != app.fingerprint, !state.hasEnded else { return (true, nil) }
            state.wanted = app
            changed.raise()
            return (true, state.group)
        }
        if let group { stop(group) }
        return isKnown
    }

    /// Lets the app end in good order, for good.
    ///
    /// - Returns: whether it was to run until now.
    @discardableResult
    func end() -> Bool {
        let (wasWanted, group) = state.withLock { state in
            defer { state.wanted = nil }
            changed.raise()
            return (state.wanted != nil, state.group)
        }
        if let group { stop(group) }
        return wasWanted
    }

    private func stop(_ group: ServiceGroup) {
        host.api?.apps.close(name)
        // The call waits for the actor alone; `run()` waits for the group's end.
        Task { await group.triggerGracefulShutdown() }
    }

    /// Runs until the app is to end.
    func run() async {
        var pause = Self.shortestPause
        while true {
            guard let app = state.withLock(\.wanted) else {
                host.served[name] = nil
                host.registry.forgetGauges(of: name)
                // The app may have come back since.
                if state.withLock({ state in
                    if state.wanted == nil { state.hasEnded = true }
                    return state.hasEnded
                }) {
                    return
                }
                continue
            }
            let isUp = Gauge(label: "entitlement_sync_app_up")
            // One that is down stays so in others' eyes until it is at work.
            if host.served[name] == nil { host.served[name] = .starting }
            let began = ContinuousClock.now
            do {
                try await run(app) { isUp.record(1) }
                if host.process.untilIdle, isWanted(app) { return state.withLock { $0.hasEnded = true } }
                if .now - began > .seconds(60) { pause = Self.shortestPause }
            } catch {
                report(error)
                isUp.record(0)
                if host.process.untilIdle, isWanted(app) {
                    return state.withLock { ($0.failure, $0.hasEnded) = (CommandFailure(error), true) }
                }
            }
            host.api?.apps.close(name)
            let wanted = state.withLock(\.wanted)
            if wanted == nil { isUp.destroy() }
            guard wanted?.fingerprint == app.fingerprint else {
                // While it is only down, no other app may take its database: it would read these users with stores of its own.
                databases.release(name)
                continue
            }
            await changed.wait(upTo: pause)
            pause = min(pause * 2, Self.longestPause)
        }
    }

    private func report(_ error: any Error) {
        host.served[name] = .down(AppTrouble(error).rawValue)
        var logger = host.runtime.logger
        logger[metadataKey: "app"] = "\(name)"
        logger.error("the app can't be served", metadata: ["error.message": "\(CommandFailure(error).message)"])
    }

    private func run(_ app: AppsFolder.App, onServed: () -> Void) async throws {
        let config = try app.config()
        host.api?.apps.admit(config.api.allowedOrigins, to: name)
        let runtime = Runtime(app, config, logger: host.runtime.logger)
        warn(of: app.ignored, runtime.logger)
        await host.starts.take()
        let start = StartTurn(host.starts)
        defer { start.end() }
        guard isWanted(app) else { return }
        try await AppInstance.with(host.process, runtime, transport: host.transport, isAmongOthers: true) { instance in
            try await instance.claim(databases, for: name)
            var configuration = ServiceGroupConfiguration(services: instance.services, logger: runtime.logger)
            // Less than the nine seconds that the process has.
            configuration.maximumGracefulShutdownDuration = .seconds(8)
            configuration.maximumCancellationDuration = nil
            let group = ServiceGroup(configuration: configuration)
            state.withLock { $0.group = group }
            defer { state.withLock { $0.group = nil } }
            guard isWanted(app) else { return }
            onServed()
            if let api = instance.api { host.api?.serve(api.endpoints, as: name) }
            host.served[name] = .running(instance)
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                tasks.addTask {
                    // Others begin once this one is at work: all at once would keep the database from every one of them.
                    for _ in 0..<50 where !instance.isAtWork {
                        try? await Task.sleep(for: .milliseconds(100))
                    }
                    start.end()
                }
                try await ServiceScope.$current.withValue(instance.scope) { try await group.run() }
                tasks.cancelAll()
            }
        }
    }

    private func isWanted(_ app: AppsFolder.App) -> Bool {
        state.withLock { $0.wanted?.fingerprint == app.fingerprint }
    }

    private func warn(of ignored: [String], _ logger: Logger) {
        for variable in ignored {
            logger.warning(
                "a variable of the process has no effect in an app's file",
                metadata: ["variable": "\(variable)"]
            )
        }
    }
}

/// Why an app can't be served, in the words of a closed set: everybody may ask for them.
enum AppTrouble: String {
    case configuration = "its file is not right"
    case database = "its database can't be reached"
    case schema = "its database is not migrated"
    case shared = "its database is another app's"
    case other = "it can't be started"

    init(_ error: any Error) {
        if error is SharedDatabase {
            self = .shared
            return
        }
        switch (CommandFailure(error).status, error) {
        case (.configuration, is MigrationError): self = .schema
        case (.configuration, _): self = .configuration
        case (.unavailable, _): self = .database
        default: self = .other
        }
    }
}
