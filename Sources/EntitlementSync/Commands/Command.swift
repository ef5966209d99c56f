import ArgumentParser
import Composition
import Configuring
import Logging
import Postgres
import Reports
import SupportDesk

/// A command on the database, in the one shape of all: check what was typed, open, authorize, run, print.
///
/// Errors become one line on stderr and the right exit code.
protocol Command: AsyncParsableCommand {
    associatedtype Input
    var options: OutputOptions { get }

    /// Checks what was typed, and reads files, before the database is opened.
    func prepare() throws -> Input

    /// Does what the command is for.
    func answer(_ input: Input, _ database: Database) async throws -> Answer

    /// Whether it only reads what may be read from a standby (REPORT_DATABASE_URL).
    static var isReport: Bool { get }
}

extension Command {
    static var isReport: Bool { false }

    func run() async throws {
        try await reporting {
            let input = try prepare()
            let runtime = try Runtime(level: .warning)
            let work: (PostgresPool) async throws -> ExitStatus = { pool in
                try await answer(input, Database(pool: pool, config: runtime.config)).print(as: options.output)
            }
            return try await Self.isReport ? runtime.withReportPool(work) : runtime.withPool { try await work($0) }
        }
    }
}

/// A command with nothing to check before the database is opened.
protocol DatabaseCommand: Command where Input == Void {
    func answer(_ database: Database) async throws -> Answer
}

extension DatabaseCommand {
    func prepare() {}

    func answer(_: Void, _ database: Database) async throws -> Answer { try await answer(database) }
}

/// A command in the name of the operator who is signed in at this terminal.
protocol SignedInCommand: Command where Input == SessionToken {
    var session: SessionOptions { get }
}

extension SignedInCommand {
    func prepare() throws -> SessionToken { try session.signedIn() }
}

/// A process that goes on until it is stopped.
protocol RoleCommand: AsyncParsableCommand {
    var process: RoleProcess { get }
}

extension RoleCommand {
    func run() async throws {
        try await reporting {
            try await process.run()
            return .done
        }
    }
}

/// What a command works with once the database is open.
struct Database {
    let pool: PostgresPool
    let config: Config
}

/// What a command prints, for people or for programs, and how it ends.
struct Answer {
    private enum Text {
        case lines([String])
        case table([String], [[String]])
    }

    private let text: Text
    private let documents: [any Encodable]
    private let status: ExitStatus

    /// The command has printed by itself.
    static var printed: Answer { printed(.done) }

    /// The command has printed by itself.
    static func printed(_ status: ExitStatus) -> Answer { Answer(text: .lines([]), documents: [], status: status) }

    /// One sentence, or one JSON document.
    init(_ sentence: String, json document: JSONObject) {
        self.init([sentence], document: document)
    }

    /// Lines, or one JSON document.
    init(_ lines: [String], document: any Encodable, status: ExitStatus = .done) {
        self.init(text: .lines(lines), documents: [document], status: status)
    }

    /// A table, or one JSON document.
    init(_ head: [String], _ rows: [[String]], document: any Encodable) {
        self.init(text: .table(head, rows), documents: [document])
    }

    /// A table, or one JSON document a row.
    init(_ head: [String], _ rows: [[String]], documents: [any Encodable]) {
        self.init(text: .table(head, rows), documents: documents)
    }

    private init(text: Text, documents: [any Encodable], status: ExitStatus = .done) {
        self.text = text
        self.documents = documents
        self.status = status
    }

    /// - Returns: how the command ends.
    func print(as format: OutputFormat) throws -> ExitStatus {
        switch (format, text) {
        case (.json, _): for document in documents { try Output.json(document) }
        case (.text, .lines(let lines)): for line in lines { Output.line(line) }
        case (.text, .table(let head, let rows)): Output.table(head, rows)
        }
        return status
    }
}
