import Glibc

/// The apps of a folder: one file `NAME.env` each, with its own database and stores.
///
/// The environment gives defaults; what belongs to one app alone is refused there (``VariableScope``).
package struct AppsFolder: Sendable {
    package static let mostApps = 1_000
    /// The app that is meant where none is named.
    package static let defaultName = "default"

    /// One app, whose file may be broken.
    package struct App: Sendable {
        package var name: String
        /// Its variables with the environment's defaults; unknown names of the file among them.
        package var environment: [String: String]
        /// Why its file can't be read; `nil`: it can.
        package var fault: ConfigurationFaults?
        /// Variables of the file that belong to the process, and have no effect here.
        package var ignored: [String] = []
        /// Changes whenever anything does that it is made of, the files with its secrets included.
        package var fingerprint: [String: String]
    }

    /// In the order of their names; at least one.
    package var apps: [App]

    /// The folder that the environment names; `nil`: the process serves one app.
    package static func path(in environment: [String: String]) -> String? {
        environment[Variable.appsDirectory.rawValue].flatMap { $0.isEmpty ? nil : $0 }
    }

    /// Reads all files; blocks meanwhile.
    ///
    /// - Throws: `ConfigurationFaults` where it is not known which apps there are. A file that is broken by itself is its
    ///   app's fault alone.
    package static func read(_ path: String, environment: [String: String]) throws(ConfigurationFaults) -> AppsFolder {
        let misplaced = Variable.allCases.filter { $0.scope == .app }.flatMap { [$0.rawValue, $0.fileVariable] }
            .filter { environment[$0]?.isEmpty == false }
        guard misplaced.isEmpty else {
            throw ConfigurationFaults(
                faults: misplaced.map {
                    .init(
                        variable: $0,
                        problem: "is set, and \(Variable.appsDirectory.rawValue) is set too",
                        fix: "Unset it, and set it in the file of the app that it belongs to"
                    )
                }
            )
        }
        let names = try names(in: path)
        let known = Set(Variable.allCases.flatMap { [$0.rawValue, $0.fileVariable] })
        let defaults = environment.filter { name, _ in known.contains(name) && name != Variable.appsDirectory.rawValue }
        return AppsFolder(apps: names.map { app($0, at: "\(path)/\($0).env", defaults) })
    }

    /// The app of a name; without one the only app, or the one called `default`.
    package subscript(_ name: String?) -> App? {
        guard let name else { return apps.count == 1 ? apps.first : self[Self.defaultName] }
        return apps.first { $0.name == name }
    }

    /// The names of the files, without `.env`; hidden files and those with other endings are none of ours.
    private static func names(in path: String) throws(ConfigurationFaults) -> [String] {
        guard let entries = entries(of: path) else {
            throw fault("the folder can't be read", fix: "Set the path of a folder with one NAME.env for each app")
        }
        let names = entries.filter { $0.hasSuffix(".env") && !$0.hasPrefix(".") }.map { String($0.dropLast(4)) }
            .sorted()
        guard !names.isEmpty else {
            throw fault("there is no app in the folder", fix: "Put a file NAME.env for each app into it")
        }
        guard names.count <= mostApps else {
            throw fault(
                "there are more than \(mostApps) apps in the folder",
                fix: "Divide them among several installations"
            )
        }
        if let bad = names.first(where: { !isName($0) }) {
            let shown = String(
                bad.unicodeScalars.prefix(40).map { (0x21...0x7E).contains($0.value) ? Character($0) : "?" }
            )
            throw fault(
                "\"\(shown).env\" is no app's file",
                fix: "Name it with 1 to 32 small letters, digits and hyphens before .env"
            )
        }
        return names
    }

    private static func fault(_ problem: String, fix: String) -> ConfigurationFaults {
        ConfigurationFaults(faults: [.init(variable: Variable.appsDirectory.rawValue, problem: problem, fix: fix)])
    }

    /// Whether an app may be called so.
    package static func isName(_ text: String) -> Bool {
        (1...32).contains(text.utf8.count)
            && text.utf8.allSatisfy { (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2D }
    }

    private static func entries(of path: String) -> [String]? {
        guard let folder = opendir(path) else { return nil }
        defer { closedir(folder) }
        var names: [String] = []
        while let entry = readdir(folder) {
            names.append(
                withUnsafePointer(to: &entry.pointee.d_name) {
                    $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
                }
            )
        }
        return names
    }

    private static func app(_ name: String, at path: String, _ defaults: [String: String]) -> App {
        var environment = defaults
        var file: [String: String] = [:]
        do throws(ConfigurationFaults) {
            file = try EnvironmentFile.read(path)
        } catch {
            return App(name: name, environment: defaults, fault: error, fingerprint: ["": "\(error)"])
        }
        // Unknown names are kept: one may be a misspelt variable.
        environment.merge(file) { $1 }
        var ignored: [String] = []
        for variable in Variable.allCases {
            let (own, ownFile) = (variable.rawValue, variable.fileVariable)
            guard file[own] != nil || file[ownFile] != nil else { continue }
            if variable.scope == .process {
                ignored += [own, ownFile].filter { file[$0] != nil }
                (environment[own], environment[ownFile]) = (defaults[own], defaults[ownFile])
            } else {
                // The one form takes the place of the other.
                (environment[own], environment[ownFile]) = (file[own], file[ownFile])
            }
        }
        return App(
            name: name,
            environment: environment,
            ignored: ignored,
            fingerprint: fingerprint(environment.merging(file) { $1 })
        )
    }

    /// The variables, with what stands in the files that they name.
    private static func fingerprint(_ environment: [String: String]) -> [String: String] {
        var marks = environment
        func add(_ name: String, contentOf path: String?) {
            if let path { marks["content of \(name)"] = (try? ValueFile.read(path, upTo: StoreAppsFile.limit)) ?? "" }
        }
        for variable in Variable.allCases { add(variable.rawValue, contentOf: environment[variable.fileVariable]) }
        let name = Variable.storeApps.rawValue
        if let own = environment[name] {
            if own.contains("\n") { marks["content of \(name)"] = own } else { add(name, contentOf: own) }
        }
        guard let text = marks["content of \(name)"] else { return marks }
        for (list, entries) in StoreAppsFile(text).lists {
            for entry in entries {
                for (key, path) in entry.values where key.hasSuffix("_FILE") {
                    add("\(list.rawValue) \(entry.number) \(key)", contentOf: path)
                }
            }
        }
        return marks
    }
}

extension AppsFolder.App {
    /// What it is set up with; parsed at each call, as a folder is read far more often than an app begins.
    ///
    /// - Throws: everything that is wrong.
    package func config() throws(ConfigurationFaults) -> Config {
        if let fault { throw fault }
        let config = try Config.load(environment: environment)
        guard config.database.url != nil else {
            // What libpq takes by itself would be the same database for every app.
            throw ConfigurationFaults(
                faults: [
                    .init(
                        variable: Variable.databaseURL.rawValue,
                        problem: "is not set in the app's file",
                        fix: "Set postgres://user@host/database or libpq's \"host=... dbname=...\""
                    )
                ]
            )
        }
        return config
    }
}
