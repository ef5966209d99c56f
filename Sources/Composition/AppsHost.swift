import Configuring
import Logging
import Metrics
import Migrations
import Queue
import ServiceLifecycle
import Synchronization
import Telemetry
import Transport
import UnixSignals
import WebAPI

/// Runs every app of a folder by itself, and follows what changes there: files that are added, changed and removed.
///
/// It reads the folder on SIGHUP, and every few seconds.
struct AppsHost: Service {
    private static let pause = Duration.seconds(2)

    let process: RoleProcess
    let folder: String
    /// As they were at the start.
    let apps: AppsFolder
    let environment: [String: String]
    let runtime: Runtime
    let transport: HTTPTransport
    let served: ServedApps
    /// `nil`: this process answers no requests.
    let api: APIServer?
    /// Who may begin now.
    let starts = StartTurns(8)

    /// Goes on until a graceful shutdown, or until no app's worker has anything left to do where the process is to end then.
    func run() async throws {
        let changed = Signal()
        let isStopping = Atomic(false)
        await withGracefulShutdownHandler {
            await withTaskGroup(of: Void.self) { group in
                group.addTask {
                    for await _ in await UnixSignalsSequence(trapping: .sighup) { changed.raise() }
                }
                group.addTask {
                    while !Task.isCancelled {
                        await served.closeIdleConnections()
                        try? await Task.sleep(for: .milliseconds(500))
                    }
                }
                await runApps(until: { isStopping.load(ordering: .acquiring) }, wokenBy: changed)
                group.cancelAll()
            }
        } onGracefulShutdown: {
            isStopping.store(true, ordering: .releasing)
            changed.raise()
        }
    }

    private func runApps(until isOver: () -> Bool, wokenBy changed: Signal) async {
        let databases = DatabaseOwners()
        await withDiscardingTaskGroup { group in
            var runners: [String: AppRunner] = [:]
            var current: AppsFolder? = apps
            while !isOver() {
                if let folder = current { follow(folder, &runners, databases, &group) }
                if process.untilIdle, runners.values.allSatisfy(\.hasEnded) { break }
                await changed.wait(upTo: process.untilIdle ? .milliseconds(200) : Self.pause)
                current = read()
            }
            for runner in runners.values { runner.end() }
        }
    }

    /// The folder as it is now; `nil`, and its faults logged: it can't be said which apps there are, so all go on as they are.
    private func read() -> AppsFolder? {
        do throws(ConfigurationFaults) {
            return try AppsFolder.read(folder, environment: environment)
        } catch {
            runtime.logger.error(
                "the folder of apps can't be read; all apps go on as they are",
                metadata: ["error.message": "\(error)"]
            )
            return nil
        }
    }

    private func follow(
        _ folder: AppsFolder,
        _ runners: inout [String: AppRunner],
        _ databases: DatabaseOwners,
        _ group: inout DiscardingTaskGroup
    ) {
        let names = folder.apps.map(\.name)
        for (name, runner) in runners where !names.contains(name) {
            runtime.logger.notice("the app is removed", metadata: ["app": "\(name)"])
            runner.end()
            runners[name] = nil
        }
        for app in folder.apps {
            if let runner = runners[app.name] {
                runner.change(to: app)
                continue
            }
            let runner = AppRunner(app, host: self, databases: databases)
            runners[app.name] = runner
            group.addTask { await AppScope.$name.withValue(app.name) { await runner.run() } }
        }
        databases.keep(Set(names))
        api?.apps.know(names, unnamed: folder[nil]?.name)
    }
}

/// Runs one app: again whenever its file changes, and after a while where it could not be run.
final class AppRunner: Sendable {
    private struct State {
        /// What is to run; `nil`: nothing more.
        var wanted: AppsFolder.App?
        /// What runs now.
        var group: ServiceGroup?
        var hasEnded = false
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

    /// Whether there is nothing left to do for its worker.
    var hasEnded: Bool { state.withLock(\.hasEnded) }

    /// Runs the app with other settings from now on, if they are others.
    func change(to app: AppsFolder.App) {
        let group = state.withLock { state -> ServiceGroup? in
            guard state.wanted?.fingerprint != app.fingerprint else { return nil }
            state.wanted = app
            changed.raise()
            return state.group
        }
        if let group { stop(group) }
    }

    /// Lets the app end in good order, for good.
    func end() {
        let group = state.withLock { state in
            state.wanted = nil
            changed.raise()
            return state.group
        }
        if let group { stop(group) }
    }

    /// What it runs hears of it by itself.
    private func stop(_ group: ServiceGroup) {
        host.api?.apps.close(name)
        // The group's own method waits for its turn, and there is nothing to wait for here.
        Task { await group.triggerGracefulShutdown() }
    }

    /// Runs until the app is to end.
    func run() async {
        let isUp = Gauge(label: "entitlement_sync_app_up")
        var pause = Self.shortestPause
        while let app = state.withLock(\.wanted) {
            host.served[name] = .starting
            var logger = host.runtime.logger
            logger[metadataKey: "app"] = "\(name)"
            do {
                let config = try app.config.get()
                warn(of: app.ignored, logger)
                let began = ContinuousClock.now
                try await run(app, Runtime(app, config, logger: host.runtime.logger)) { isUp.record(1) }
                if host.process.untilIdle { break }
                if .now - began > .seconds(60) { pause = Self.shortestPause }
            } catch {
                let failure = CommandFailure(error)
                host.served[name] = .down(AppTrouble(error).rawValue)
                isUp.record(0)
                logger.error("the app can't be served", metadata: ["error.message": "\(failure.message)"])
            }
            host.api?.apps.close(name)
            guard state.withLock({ $0.wanted?.fingerprint == app.fingerprint }) else { continue }
            await changed.wait(upTo: pause)
            pause = min(pause * 2, Self.longestPause)
        }
        host.served[name] = nil
        isUp.destroy()
        state.withLock { $0.hasEnded = true }
    }

    private func run(_ app: AppsFolder.App, _ runtime: Runtime, onServed: () -> Void) async throws {
        await host.starts.take()
        let start = StartTurn(host.starts)
        defer { start.end() }
        try await AppInstance.with(host.process, runtime, transport: host.transport, isAmongOthers: true) { instance in
            try await instance.claim(databases, for: name)
            var configuration = ServiceGroupConfiguration(services: instance.services, logger: runtime.logger)
            configuration.maximumGracefulShutdownDuration = .seconds(8)
            configuration.maximumCancellationDuration = nil
            let group = ServiceGroup(configuration: configuration)
            let isWanted = state.withLock { state in
                guard state.wanted?.fingerprint == app.fingerprint else { return false }
                state.group = group
                return true
            }
            guard isWanted else { return }
            defer { state.withLock { $0.group = nil } }
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
