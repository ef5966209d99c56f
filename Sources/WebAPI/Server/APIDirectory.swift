import Hummingbird
import HTTPTypes
import Synchronization
import Telemetry

/// The apps that an API answers for.
///
/// One app, or several by name: `/v1/apps/{name}/…` is that app's, and what stands there without a name the default app's.
package final class APIDirectory: Sendable {
    /// What answers an app's requests.
    struct Entry: Sendable {
        let responder: any HTTPResponder<APIContext>
        let services: APIServices
    }

    enum Place: Sendable {
        case open(Entry)
        /// The app is known, and can't be served now.
        case down
    }

    private struct State {
        var only: Entry?
        var apps: [String: Place] = [:]
        /// Pages that may call an app, also while it can't be served.
        var origins: [String: CrossOrigin] = [:]
        /// The one that is meant without a name.
        var unnamed: String?
        var isStopping = false
    }

    private let state = Mutex(State())

    package init() {}

    /// Serves one app, which has no name.
    func serve(_ entry: Entry) { state.withLock { $0.only = entry } }

    /// Serves an app from now on, if it is known.
    func open(_ name: String, _ entry: Entry) {
        let isServed = state.withLock { state in
            guard state.apps[name] != nil else { return false }
            state.apps[name] = .open(entry)
            return !state.isStopping
        }
        if !isServed { entry.services.stopWaiting() }
    }

    /// Answers that an app, if it is known, can't be served now, until it is opened again; requests that wait are answered.
    package func close(_ name: String) {
        let last = state.withLock { state -> Place? in
            guard let last = state.apps[name] else { return nil }
            state.apps[name] = .down
            return last
        }
        if case .open(let entry)? = last { entry.services.stopWaiting() }
    }

    /// Says which origins' pages may call an app, if it is known; also while it can't be served.
    package func admit(_ origins: [String], to name: String) {
        state.withLock { state in
            guard state.apps[name] != nil else { return }
            state.origins[name] = origins.isEmpty ? nil : CrossOrigin(origins: Set(origins))
        }
    }

    /// Says which apps there are, and which of them is meant without a name; the others are unknown from now on.
    package func know(_ names: [String], unnamed: String?) {
        let gone = state.withLock { state -> [Place] in
            let gone = state.apps.filter { !names.contains($0.key) }
            for name in gone.keys { (state.apps[name], state.origins[name]) = (nil, nil) }
            for name in names where state.apps[name] == nil { state.apps[name] = .down }
            state.unnamed = unnamed
            return Array(gone.values)
        }
        for case .open(let entry) in gone { entry.services.stopWaiting() }
    }

    /// Answers every request that waits, of all apps, now and from now on.
    func stopWaiting() {
        let entries = state.withLock { state in
            state.isStopping = true
            return state.apps.values.compactMap { if case .open(let entry) = $0 { entry } else { nil } }
                + (state.only.map { [$0] } ?? [])
        }
        for entry in entries { entry.services.stopWaiting() }
    }

    /// Which origins' pages may call an app.
    fileprivate func origins(of name: String?) -> CrossOrigin? {
        state.withLock { state in name.flatMap { state.origins[$0] } }
    }

    /// Whose a path is, and what it is there.
    fileprivate func find(_ path: String) -> (app: String?, place: Place, path: String?)? {
        state.withLock { state in
            if let only = state.only { return (nil, .open(only), nil) }
            guard path.hasPrefix(AppPath.prefix) else {
                // Health and the API's description are not one app's.
                guard path.hasPrefix("/v1/"), let name = state.unnamed, let place = state.apps[name] else { return nil }
                return (name, place, nil)
            }
            let rest = path.dropFirst(AppPath.prefix.count)
            let name = String(rest.prefix { $0 != "/" })
            guard let place = state.apps[name] else { return nil }
            return (name, place, "/v1" + rest.dropFirst(name.count))
        }
    }
}

/// Where the routes of a named app begin.
enum AppPath {
    static let prefix = "/v1/apps/"
}

/// Gives each request to the app that it is for.
struct AppsResponder: HTTPResponder, HTTPResponderBuilder {
    let directory: APIDirectory
    /// What is no app's, or not known.
    let others: any HTTPResponder<APIContext>

    func buildResponder() -> AppsResponder { self }

    func respond(to request: Request, context: APIContext) async throws -> Response {
        guard let found = directory.find(request.uri.path) else {
            return try await others.respond(to: request, context: context)
        }
        var context = context
        var request = request
        if let path = found.path, let app = found.app {
            var head = request.head
            head.path = path + (request.uri.query.map { "?\($0)" } ?? "")
            request = Request(head: head, body: request.body)
            context.root = AppPath.prefix + app
        }
        switch found.place {
        case .down:
            context.isDown = true
            guard let crossOrigin = directory.origins(of: found.app) else {
                return try await others.respond(to: request, context: context)
            }
            // Pages must read that it is to be tried later, so browsers are answered here as by the app itself.
            return try await crossOrigin.handle(request, context: context) { [others] request, context in
                if request.method == .options,
                    let answer = crossOrigin.preflight(request, path: request.uri.path, methods: "GET, POST")
                {
                    return answer
                }
                return try await others.respond(to: request, context: context)
            }
        case .open(let entry):
            guard found.app != nil else { return try await entry.responder.respond(to: request, context: context) }
            return try await AppScope.$name.withValue(found.app) { [request, context] in
                try await entry.responder.respond(to: request, context: context)
            }
        }
    }
}
