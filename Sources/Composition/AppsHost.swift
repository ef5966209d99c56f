import Configuring
import Dispatch
import Logging
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
    let registry: Registry
    /// `nil`: this process answers no requests.
    let api: APIServer?
    /// At most eight apps start at a time.
    let starts = StartTurns(8)

    /// Runs until a graceful shutdown, or, where the process ends once it is idle, until every app's worker has ended.
    ///
    /// - Throws: in the latter case, why an app could not be run.
    func run() async throws {
        let changed = Signal()
        let isStopping = Atomic(false)
        try await withGracefulShutdownHandler {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask {
                    for await _ in await UnixSignalsSequence(trapping: .sighup) { changed.raise() }
                }
                group.addTask {
                    while !Task.isCancelled {
                        await served.closeIdleConnections()
                        try? await Task.sleep(for: .milliseconds(250))
                    }
                }
                defer { group.cancelAll() }
                try await runApps(until: { isStopping.load(ordering: .acquiring) }, wokenBy: changed)
            }
        } onGracefulShutdown: {
            isStopping.store(true, ordering: .releasing)
            changed.raise()
        }
    }

    private func runApps(until isOver: () -> Bool, wokenBy changed: Signal) async throws {
        let databases = DatabaseOwners()
        var runners: [String: AppRunner] = [:]
        await withDiscardingTaskGroup { group in
            var current: AppsFolder? = apps
            var complaint: ConfigurationFaults?
            while !isOver() {
                if let folder = current { follow(folder, &runners, databases, &group) }
                if process.untilIdle, runners.values.allSatisfy(\.hasEnded) { break }
                await changed.wait(upTo: process.untilIdle ? .milliseconds(200) : Self.pause)
                switch await read() {
                case .success(let folder):
                    if complaint != nil { runtime.logger.notice("it is known again which apps there are") }
                    (current, complaint) = (folder, nil)
                case .failure(let faults):
                    // It can't be said which apps there are: those that are known go on.
                    current = nil
                    if faults != complaint { complain(of: faults) }
                    complaint = faults
                }
            }
            for runner in runners.values { runner.end() }
        }
        if let failure = runners.values.lazy.compactMap(\.failure).first { throw failure }
    }

    private func complain(of faults: ConfigurationFaults) {
        runtime.logger.error(
            "it is not known which apps there are; all go on as they are",
            metadata: ["error.message": "\(faults)"]
        )
    }

    /// Reads the folder on a thread that may block: a thousand apps have thousands of files.
    private func read() async -> Result<AppsFolder, ConfigurationFaults> {
        await withCheckedContinuation { continuation in
            DispatchQueue.global(qos: .utility).async {
                let read = Result { () throws(ConfigurationFaults) in
                    try AppsFolder.read(folder, environment: environment)
                }
                continuation.resume(returning: read)
            }
        }
    }

    private func follow(
        _ folder: AppsFolder,
        _ runners: inout [String: AppRunner],
        _ databases: DatabaseOwners,
        _ group: inout DiscardingTaskGroup
    ) {
        let names = folder.apps.map(\.name)
        for (name, runner) in runners where !names.contains(name) && runner.end() {
            runtime.logger.notice("the app is removed", metadata: ["app": "\(name)"])
        }
        for app in folder.apps where runners[app.name]?.change(to: app) != true {
            let runner = AppRunner(app, host: self, databases: databases)
            runners[app.name] = runner
            group.addTask { await AppScope.$name.withValue(app.name) { await runner.run() } }
        }
        api?.apps.know(names, unnamed: folder[nil]?.name)
    }
}
