import ArgumentParser
import Composition
import Migrations
import Postgres
import Reports

struct Uninstall: DatabaseCommand {
    static let configuration = CommandConfiguration(
        abstract: "Prints the SQL that removes the schema, and counts what would stay frozen in the host's tables.",
        discussion:
            "Nothing is written. Stop all processes, make a backup, read the script, and run it as the schema's owner.",
        json: "one object: frozen_users, frozen_assets, roles [name], script [text]",
        examples: ["uninstall --dry-run", "uninstall --dry-run >uninstall.sql"]
    )

    @Flag(help: "Has to be given: there is no way to remove the records without reading the script.") var dryRun = false
    @OptionGroup var options: OutputOptions

    func validate() throws {
        guard dryRun else { throw ValidationError("--dry-run: give it; the script that it prints is run with psql") }
    }

    func answer(_ database: Database) async throws -> Answer {
        let found = try await Uninstallation.read(database.pool)
        let document: JSONObject = [
            "frozen_users": found.eligible.users, "frozen_assets": found.eligible.assets, "roles": found.roles,
            "script": found.script,
        ]
        return Answer(found.script, document: document)
    }
}
