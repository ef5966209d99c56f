import CLibPQ

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
