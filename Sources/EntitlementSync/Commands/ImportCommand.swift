import ArgumentParser
import Composition
import Entitlements
import Foundation
import Reports
import Runs
import SupportDesk

struct ImportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract:
            "Imports which user owns which purchase, from a file; the stores are asked, and an operator approves.",
        discussion: """
            The file is CSV with the header user_id,store,kind,value. Store and kind: app_store with original_transaction_id or order_id,
            google_play with purchase_token or order_id, onside with order_id.
            """,
        examples: ["import list", "import show 3"],
        subcommands: [Compute.self, List.self, Show.self, Release.self, Cancel.self],
        defaultSubcommand: Compute.self
    )

    static let summaryKeys =
        "import, state, dry_run, lines, results {result: lines}, conflicts, gives_access, left, hash, asked_by, asked_at, approved_by, ended_at"

    struct Compute: Command {
        static let configuration = CommandConfiguration(
            abstract: "Asks the stores about every line of a file, and writes nothing yet.",
            discussion: "The word compute may be left out. The same file again goes on with the import that it began.",
            json: "one object: \(ImportCommand.summaryKeys)",
            examples: [
                "import compute --file purchases.csv",
                "import compute --file purchases.csv --dry-run --result answers.csv",
            ]
        )

        @Option(help: "The CSV file: at most 1,000,000 lines, 64 MiB, and 4 KiB a line.") var file: String
        @Flag(help: "Only compute: it can't be approved.") var dryRun = false
        @Option(help: "A new file for the result: a line with its reason for each line of the file.") var result:
            String?
        @Option(help: "Seconds to wait for the stores' answers (by default a week).") var wait = 604_800
        @OptionGroup var session: SessionOptions
        @OptionGroup var options: OutputOptions

        func validate() throws {
            guard (0...604_800).contains(wait) else { throw ValidationError("--wait: give seconds from 0 to 604800") }
        }

        func prepare() throws -> ImportFile { try ImportFile(path: file) }

        func answer(_ file: ImportFile, _ database: Database) async throws -> Answer {
            let imports = ImportRecords(pool: database.pool)
            let output = try result.map { try PrivateFile(path: $0, option: "--result") }
            let token = dryRun ? nil : try session.token()?.digest
            let (id, isNew) = try await imports.ask(file, isDry: dryRun, session: token, by: Asker.name)
            if !isNew { Output.note("import \(id) was begun with this file; going on with it") }
            return try await ImportFollowing(imports: imports).answer(id, within: .seconds(wait), result: output)
        }
    }

    struct List: DatabaseCommand {
        static let isReport = true
        static let configuration = CommandConfiguration(
            abstract: "Lists imports, the newest first.",
            json: "a line for each import: \(ImportCommand.summaryKeys)",
            examples: ["import list", "import list --output json"]
        )

        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let records = try await ImportRecords(pool: database.pool).list()
            return Answer(
                ["import", "dry", "state", "lines", "left", "conflicts", "asked by", "asked"],
                records.map {
                    [
                        "\($0.id)", $0.isDry ? "yes" : "no", $0.state.rawValue, "\($0.lines)", "\($0.left)",
                        "\($0.conflicts)", $0.askedBy, $0.askedAt.formatted(.iso8601),
                    ]
                },
                documents: records.map(\.summary)
            )
        }
    }

    struct Show: DatabaseCommand {
        static let isReport = true
        static let configuration = CommandConfiguration(
            abstract: "Shows an import: how many lines have which result, and its hash.",
            json: "one object: \(ImportCommand.summaryKeys)",
            examples: ["import show 3", "import show 3 --result answers.csv"]
        )

        @Argument(help: "The import's number.") var id: Int64
        @Option(help: "A new file for the result: a line with its reason for each line of the file.") var result:
            String?
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let imports = ImportRecords(pool: database.pool)
            _ = try await imports.known(id)
            return try await ImportFollowing(imports: imports)
                .answer(id, within: .zero, result: result.map { try PrivateFile(path: $0, option: "--result") })
        }
    }

    struct Release: Command {
        static let configuration = CommandConfiguration(
            abstract: "Has the planned lines of an import written; each is asked of its store again.",
            discussion:
                "By an operator other than the one who imports, or by the schema's owner without a session. Conflicts stay in the result:"
                + " no owner is replaced, and no ticket is opened.",
            json: "one object: \(ImportCommand.summaryKeys)",
            examples: ["import release 3 --hash 3f9a1c0b77de", "import release 3 --hash 3f9a1c0b77de --yes --wait 0"]
        )

        @Argument(help: "The import's number.") var id: Int64
        @Option(help: "The hash as entitlement-sync import show prints it, or at least its first 12 characters.")
        var hash: String
        @Option(help: "A new file for the result: a line with its reason for each line of the file.") var result:
            String?
        @Option(help: "Seconds to wait until it is written (by default a week).") var wait = 604_800
        @OptionGroup var session: SessionOptions
        @OptionGroup var confirmation: Confirmation
        @OptionGroup var options: OutputOptions

        func validate() throws {
            guard (0...604_800).contains(wait) else { throw ValidationError("--wait: give seconds from 0 to 604800") }
        }

        func prepare() throws -> ReviewedHash {
            try ReviewedHash(hash, printedBy: "entitlement-sync import show")
        }

        func answer(_ reviewed: ReviewedHash, _ database: Database) async throws -> Answer {
            let imports = ImportRecords(pool: database.pool)
            let known = try await imports.known(id)
            let output = try result.map { try PrivateFile(path: $0, option: "--result") }
            let planned = known.results[.planned] ?? 0
            try await confirmation.confirm("\(planned) purchases of import \(id) get their owners.")
            let token = try session.token()?.digest
            guard try await imports.release(id, hash: reviewed.whole(of: known.hash), session: token, by: Asker.name)
            else {
                throw CommandFailure(
                    .data,
                    "ID: this import is \(known.isDry ? "a dry run" : known.state.rawValue), and only one that is ready can be approved"
                )
            }
            return try await ImportFollowing(imports: imports).answer(id, within: .seconds(wait), result: output)
        }
    }

    struct Cancel: DatabaseCommand {
        static let configuration = CommandConfiguration(
            abstract: "Ends an import: what is written stays, and nothing else is.",
            json: "one object: import",
            examples: ["import cancel 3", "import cancel 3 --output json"]
        )

        @Argument(help: "The import's number.") var id: Int64
        @OptionGroup var options: OutputOptions

        func answer(_ database: Database) async throws -> Answer {
            let imports = ImportRecords(pool: database.pool)
            _ = try await imports.known(id)
            guard try await imports.cancel(id) else {
                throw CommandFailure(.data, "ID: this import has ended; see entitlement-sync import list")
            }
            return Answer("canceled", json: ["import": id])
        }
    }
}

extension ImportFile {
    /// - Throws: `CommandFailure` that says why the file is not taken.
    fileprivate init(path: String) throws {
        let size = try? FileManager.default.attributesOfItem(atPath: path)[.size] as? Int
        // What is too large is not read into memory first.
        let bytes = size ?? 0 > Self.mostBytes ? [] : FileManager.default.contents(atPath: path).map(Array.init)
        guard let bytes else {
            throw CommandFailure(.data, "--file: the file can't be read: \(PlainText.harmless(path))")
        }
        do throws(Fault) {
            guard size ?? 0 <= Self.mostBytes else { throw .tooLarge }
            try self.init(bytes)
        } catch {
            let why =
                switch error {
                case .tooLarge: "more than 64 MiB; split the file"
                case .tooManyLines: "more than 1,000,000 lines; split the file"
                case .header: "line 1: the header must be \(Self.header)"
                }
            throw CommandFailure(.data, "--file: \(why)")
        }
    }
}
