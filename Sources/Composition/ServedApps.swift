import HTTPServing
import Hummingbird
import Queue
import Synchronization
import Telemetry

/// The apps of a process, and how each of them stands.
final class ServedApps: Sendable {
    /// How an app stands.
    enum State: Sendable {
        /// It is being connected with its database.
        case starting
        case running(AppInstance)
        /// Why it can't be served, in words that name nothing secret.
        case down(String)
    }

    private let states = Mutex<[String: State]>([:])

    /// Their names, in order.
    var names: [String] { states.withLock { $0.keys.sorted() } }

    subscript(_ name: String) -> State? {
        get { states.withLock { $0[name] } }
        set { states.withLock { $0[name] = newValue } }
    }

    private var running: [(name: String, instance: AppInstance)] {
        states.withLock { states in
            states.compactMap { name, state in if case .running(let instance) = state { (name, instance) } else { nil }
            }
        }
    }

    /// What answers the pages of an app's console; `nil`: it can't be served now.
    @Sendable func console(of name: String) -> (any HTTPResponder<AdminContext>)? {
        if case .running(let instance)? = self[name] { instance.consoleResponder } else { nil }
    }

    /// Reads the figures of every app, a few at a time; one whose database does not answer in time keeps its figures.
    @Sendable func refreshGauges() async {
        await withTaskGroup(of: Void.self) { group in
            for (place, (name, instance)) in running.enumerated() {
                if place >= 8 { await group.next() }
                group.addTask {
                    await AppScope.$name.withValue(name) {
                        _ = await finishing(within: .seconds(3)) { await instance.refreshGauges() }
                    }
                }
            }
        }
    }

    /// Closes connections that nothing uses: an app at rest keeps the one that it listens on.
    func closeIdleConnections() async {
        for (_, instance) in running {
            let rest = instance.scope.restingPulse == nil ? Duration.seconds(5) : .milliseconds(300)
            await instance.closeIdleConnections(since: .now - rest)
        }
    }

    /// Which apps can be served.
    @Sendable func readiness() async -> Readiness {
        let states = states.withLock { $0 }
        return await withTaskGroup(of: Readiness.App.self) { group in
            for (name, state) in states { group.addTask { await Self.readiness(of: name, state) } }
            var apps: [Readiness.App] = []
            for await app in group { apps.append(app) }
            return .apps(apps.sorted { $0.name < $1.name })
        }
    }

    private static func readiness(of name: String, _ state: State) async -> Readiness.App {
        switch state {
        case .starting: return .init(name: name, trouble: "starting", isServed: false)
        case .down(let trouble): return .init(name: name, trouble: trouble, isServed: false)
        case .running(let instance):
            let readiness = await finishing(within: .seconds(1)) { await instance.readiness.readiness() }
            switch readiness {
            case .ready: return .init(name: name, trouble: nil, isServed: true)
            case .waiting, nil: return .init(name: name, trouble: "waiting for the database", isServed: true)
            case .notReady, .apps: return .init(name: name, trouble: "not ready", isServed: false)
            }
        }
    }
}

/// Does something, and cancels it after a while; `nil`: it was cancelled.
private func finishing<Value: Sendable>(
    within limit: Duration,
    _ work: @escaping @Sendable () async -> Value
) async -> Value? {
    await withTaskGroup(of: Value?.self) { group in
        group.addTask { await work() }
        group.addTask {
            try? await Task.sleep(for: limit)
            return nil
        }
        defer { group.cancelAll() }
        return await group.next() ?? nil
    }
}
