import CLibPQ
import Logging

/// Why PostgreSQL gave no usable answer.
///
/// `description` is short, bounded and free of bind values, so it may go to logs and labels. DETAIL, which quotes rows,
/// is in `debugDescription` alone.
package struct PostgresError: Error, Sendable {
    package enum Code: String, Sendable, CaseIterable {
        /// No connection came about: refused, unknown host, wrong password, too slow.
        case connectionFailed
        /// The connection broke. What a transaction did is undone; for a statement on its own see `isOutcomeUnknown`.
        case connectionLost
        /// The connection broke while COMMIT was under way; only the rows show whether the transaction happened.
        case commitUnknown
        /// No connection became free in time, or too many tasks were waiting for one.
        case poolExhausted
        /// The connection or the pool was closed by this process.
        case closed
        /// The statement ran longer than allowed and was stopped. The connection is good, unless it did not answer.
        case timeout
        /// The task was cancelled; the statement was stopped, its effects are undone.
        case cancelled
        /// The server refused the statement; `sqlState` says why.
        case serverError
        /// A prepared statement no longer fits the schema. It has been forgotten: the next attempt prepares it again.
        case staleStatement
        /// A value has another type or range than the caller asked for.
        case decoding
        /// The conversation with the server is out of step, or a statement is not supported here (COPY).
        case protocolViolation
        /// The connection string or another setting is wrong.
        case configuration
        /// The caller broke a rule, such as two statements at once on a connection, or a transaction in another.
        case misuse
    }

    package var code: Code
    /// The server's five-character SQLSTATE, when a server spoke; see `SQLState`.
    package var sqlState: String?
    /// The server's primary message, or ours; `description` leaves out those that quote bind values.
    package var message: String
    /// What the error is about, where the server named it.
    package var constraint: String?
    package var table: String?
    package var column: String?
    /// The server's advice, if it gave any.
    package var hint: String?
    /// The 1-based character of the statement where the server found the fault.
    package var position: Int?
    /// Which statement of a pipeline failed, from 0.
    package var statement: Int?
    /// Whether the work may have been committed although no answer came: true for `.commitUnknown`, and for a statement
    /// outside a transaction whose connection ended before its answer.
    package var isOutcomeUnknown = false
    /// DETAIL and context; quotes rows, so it never reaches `description`.
    package var detail: String?

    package init(_ code: Code, sqlState: String? = nil, message: String) {
        self.code = code
        self.sqlState = sqlState
        self.message = message
    }
}

extension PostgresError {
    /// Whether the whole unit of work may be run again as it is and then succeed.
    ///
    /// A statement that ran outside a transaction must be idempotent for this, see `isOutcomeUnknown`. False for
    /// `.commitUnknown`, whose work may already be done, and for `.cancelled` and `.closed`, which were asked for.
    package var isRetryable: Bool {
        switch code {
        case .connectionLost, .poolExhausted, .timeout, .staleStatement: true
        case .connectionFailed, .serverError: sqlState.map(SQLState.isTransient) ?? (code == .connectionFailed)
        case .commitUnknown, .closed, .cancelled, .decoding, .protocolViolation, .configuration, .misuse: false
        }
    }

    /// Whether a transaction failed only because of others running beside it, or because of a schema change.
    package var isTransactionConflict: Bool {
        switch code {
        case .staleStatement: true
        case .serverError: sqlState == SQLState.serializationFailure || sqlState == SQLState.deadlockDetected
        default: false
        }
    }

    /// Whether the connection is at fault, or the server is another than expected; not the statement.
    package var isConnectionFailure: Bool {
        switch code {
        case .connectionFailed, .connectionLost, .commitUnknown: true
        default: sqlState.map { SQLState.endsSession($0) || $0 == SQLState.tooManyConnections } ?? false
        }
    }
}

extension PostgresError: CustomStringConvertible, CustomDebugStringConvertible {
    package var description: String {
        var text = code.rawValue
        if let sqlState { text += " \(sqlState)" }
        if isMessageSafe { text += ": \(Self.bounded(message))" }
        if let constraint { text += " (constraint \(Self.bounded(constraint)))" }
        return text
    }

    package var debugDescription: String {
        var text = code.rawValue
        if let sqlState { text += " \(sqlState)" }
        text += ": \(message)"
        let extras = [
            ("detail", detail), ("hint", hint), ("table", table), ("column", column), ("constraint", constraint),
            ("position", position.map(String.init)),
        ]
        for case (let name, let value?) in extras { text += "\n  \(name): \(value)" }
        return text
    }

    var logMetadata: Logger.Metadata {
        ["error.code": "\(code.rawValue)", "error.sqlstate": "\(sqlState ?? "-")"]
    }

    /// Data exceptions and PL/pgSQL's default RAISE quote values in their primary message.
    private var isMessageSafe: Bool {
        guard let sqlState else { return true }
        return !sqlState.hasPrefix("22") && sqlState != "P0001"
    }

    /// One line of at most 200 characters.
    private static func bounded(_ text: String) -> String {
        let line = text.prefix(200).map { $0.isNewline || $0 == "\t" ? " " : $0 }
        return String(line) + (text.count > 200 ? "…" : "")
    }
}

extension PostgresError {
    init(result: OpaquePointer) {
        func field(_ code: Int32) -> String? { PQresultErrorField(result, code).map { String(cString: $0) } }

        let sqlState = field(clibpq_diag_sqlstate)
        let isStale =
            sqlState == SQLState.invalidStatementName
            // The message ("cached plan must not change result type") is translated, the function's name is not.
            || (sqlState == SQLState.featureNotSupported && field(clibpq_diag_function) == "RevalidateCachedQuery")
        self.init(
            isStale ? .staleStatement : .serverError,
            sqlState: sqlState,
            message: field(clibpq_diag_message) ?? Self.firstLine(PQresultErrorMessage(result))
        )
        constraint = field(clibpq_diag_constraint)
        table = field(clibpq_diag_table)
        column = field(clibpq_diag_column)
        hint = field(clibpq_diag_hint)
        position = field(clibpq_diag_position).flatMap { Int($0) }
        let details = [field(clibpq_diag_detail), field(clibpq_diag_context)].compactMap { $0 }
        detail = details.isEmpty ? nil : details.joined(separator: "\n")
    }

    /// The error of a connection that broke in use.
    init(lost connection: OpaquePointer) {
        let text = Self.firstLine(PQerrorMessage(connection))
        self.init(.connectionLost, message: text.isEmpty ? "the connection broke" : text)
    }

    /// The error of a connection that did not come about.
    ///
    /// libpq has no SQLSTATE for these, but prints it into the message at verbosity "verbose": `FATAL:  28P01: password
    /// …`. The severity is translated, two spaces and the state are not.
    init(connecting connection: OpaquePointer) {
        let all = String(cString: PQerrorMessage(connection))
        var line = Self.firstLine(PQerrorMessage(connection))
        var state: String?
        var rest = line[...]
        while state == nil, let mark = rest.firstRange(of: ":  ") {
            rest = rest[mark.upperBound...]
            let candidate = rest.prefix(5)
            let isState = candidate.utf8.allSatisfy { (48...57).contains($0) || (65...90).contains($0) }
            guard isState, candidate.utf8.count == 5, rest.dropFirst(5).hasPrefix(": ") else { continue }
            state = String(candidate)
            line.removeSubrange(candidate.startIndex..<rest.index(candidate.endIndex, offsetBy: 2))
        }
        self.init(.connectionFailed, sqlState: state, message: line.isEmpty ? "the connection failed" : line)
        detail = all
    }

    private static func firstLine(_ text: UnsafePointer<CChar>?) -> String {
        guard let text else { return "" }
        return String(cString: text).split(whereSeparator: \.isNewline).first.map(String.init) ?? ""
    }
}
