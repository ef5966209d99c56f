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
            // An app has one database; the one it had before is free.
            owners = owners.filter { $0.value != app }
            owners[database] = app
            return nil
        }
    }

    /// Frees the databases of all other apps.
    func keep(_ apps: Set<String>) { owners.withLock { $0 = $0.filter { apps.contains($0.value) } } }
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
    /// - Throws: `SharedDatabase`.
    func claim(_ owners: DatabaseOwners, for name: String) async throws {
        guard let owner = owners.take(try await DatabaseIdentity(in: pool), for: name) else { return }
        // The API's role may raise none; the log has it all the same.
        try? await Alarms.raise(
            "database_shared",
            "the apps \(owner) and \(name) reach this database; \(name) is not served",
            in: pool
        )
        throw SharedDatabase(owner: owner)
    }
}
