import Configuring
import Migrations
import Postgres
import Queue
import Synchronization

/// Which app each database belongs to: two apps on one database would each read its users with stores of their own.
final class DatabaseOwners: Sendable {
    private let owners = Mutex<[DatabaseIdentity: String]>([:])

    /// Takes a database for an app.
    ///
    /// - Returns: whose it is, where that is another app that is still there.
    func take(_ database: DatabaseIdentity, for app: String) -> String? {
        owners.withLock { owners in
            if let owner = owners[database], owner != app { return owner }
            owners[database] = app
            return nil
        }
    }

    /// Frees what an app has, once nothing of it runs there any more.
    func release(_ app: String) { owners.withLock { $0 = $0.filter { $0.value != app } } }
}

/// The database of an app is another app's.
struct SharedDatabase: Error, CustomStringConvertible {
    let owner: String

    var description: String {
        "the database is that of the app \(owner); set the app's own DATABASE_URL, or remove one of the two files"
    }
}

extension AppInstance {
    /// Takes the app's database, or raises an alarm there that two apps reach it.
    ///
    /// - Throws: `SharedDatabase`; `ConfigurationFaults` where another address of the app leads to another database.
    func claim(_ owners: DatabaseOwners, for name: String) async throws {
        let identity = try await DatabaseIdentity(in: pool)
        try await checkAddresses(identity)
        guard let owner = owners.take(identity, for: name) else { return }
        // The API's role may raise none; the log has it all the same.
        try? await Alarms.raise(
            "database_shared",
            "the apps \(owner) and \(name) reach this database; \(name) is not served",
            in: pool
        )
        throw SharedDatabase(owner: owner)
    }

    /// Another app's console would decide this app's tickets, and another app's notifications would wake nothing here.
    private func checkAddresses(_ identity: DatabaseIdentity) async throws {
        let database = runtime.config.database
        let others: [(Variable, Secret?)] = [
            (.databaseDirectURL, database.directURL), (.consoleDatabaseURL, database.consoleURL),
            (.reportDatabaseURL, database.reportURL),
        ]
        for case (let variable, let url?) in others {
            let configuration = runtime.postgres(connections: 1, direct: true, url: url)
            // One that can't be asked now is none that leads elsewhere.
            let found = try? await runtime.withPool(configuration, checkingSchema: false) {
                try await DatabaseIdentity(in: $0)
            }
            guard let found, found != identity else { continue }
            throw ConfigurationFaults(
                faults: [
                    .init(
                        variable: variable.rawValue,
                        problem: "leads to another database than DATABASE_URL",
                        fix: "Set an address of the same database"
                    )
                ]
            )
        }
    }
}
