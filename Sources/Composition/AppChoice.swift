import Configuring

/// Which of several apps a command is for.
package struct AppChoice {
    /// `nil`: there is one app, which has no name.
    let app: AppsFolder.App?

    /// The app that `--app` or its variable names.
    static func givenName(in environment: [String: String]) -> String? {
        environment[Variable.app.rawValue].flatMap { $0.isEmpty ? nil : $0 }
    }

    /// The name of the app that a command is for; `nil` also where that is not known.
    package static func resolvedName(in environment: [String: String]) -> String? {
        givenName(in: environment) ?? (try? AppChoice(in: environment))?.app?.name
    }

    /// Takes the app that is named, else the only one, else `default`.
    ///
    /// - Throws: `ConfigurationFaults`; `CommandFailure` where it is not known which app is meant.
    init(in environment: [String: String]) throws {
        let name = Self.givenName(in: environment)
        guard let path = AppsFolder.path(in: environment) else {
            guard name == nil else {
                throw CommandFailure(
                    .configuration,
                    "--app, or \(Variable.app.rawValue): there is one app here, without a name; leave it out, or set APPS_DIR"
                )
            }
            app = nil
            return
        }
        let folder = try AppsFolder.read(path, environment: environment)
        guard let found = folder[name] else {
            let known = folder.apps.prefix(20).map(\.name).joined(separator: ", ")
            let all = folder.apps.count > 20 ? "\(known) and \(folder.apps.count - 20) more" : known
            guard name != nil else { throw CommandFailure(.usage, "--app: there are several apps; name one of \(all)") }
            throw CommandFailure(.data, "--app: there is no such app; name one of \(all)")
        }
        app = found
    }
}
