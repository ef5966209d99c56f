import HTTPServing
import Hummingbird
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

    /// Reads the figures of every app, one after the other: none needs more than a connection for it.
    @Sendable func refreshGauges() async {
        for (name, instance) in running {
            await AppScope.$name.withValue(name) { await instance.refreshGauges() }
        }
    }

    /// Closes connections that have rested for a second: an app at rest keeps the one that it listens on.
    func closeIdleConnections() async {
        for (_, instance) in running { await instance.closeIdleConnections(since: .now - .seconds(1)) }
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
            switch await instance.readiness.readiness() {
            case .ready: return .init(name: name, trouble: nil, isServed: true)
            case .waiting: return .init(name: name, trouble: "waiting for the database", isServed: true)
            case .notReady, .apps: return .init(name: name, trouble: "not ready", isServed: false)
            }
        }
    }
}
