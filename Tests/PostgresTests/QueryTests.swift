import Postgres
import Testing

struct QueryTests {
    @Test func `interpolation makes parameters, never text`() {
        let name = "'; DROP TABLE users; --"
        let query: PostgresQuery = "SELECT \(1) FROM t WHERE name = \(name) AND id = ANY (\([1, 2]))"
        #expect(query.sql == "SELECT $1 FROM t WHERE name = $2 AND id = ANY ($3)")
        #expect(query.binds.map(\.type) == [.int8, .text, PostgresType.int8.array])
        #expect(query.binds[1].bytes == Array(name.utf8))
    }

    @Test func `only raw text is spliced`() {
        let query: PostgresQuery = "SELECT \(rawSQL: "a, b") FROM \(rawSQL: "t") LIMIT \(5)"
        #expect(query.sql == "SELECT a, b FROM t LIMIT $1")
        #expect(query.binds.count == 1)
    }

    @Test func `a missing value is NULL of its type`() {
        let missing: String? = nil
        let query: PostgresQuery = "SELECT \(missing)"
        #expect(query.binds[0].type == .text)
        #expect(query.binds[0].bytes == nil)
    }

    @Test func `nothing that prints a query shows its parameters`() {
        let query: PostgresQuery = "SELECT \("top secret")"
        let printed = "\(query) \(String(reflecting: query)) \(query.binds) \(String(reflecting: query.binds))"
        #expect(!printed.contains("secret"))
        var dumped = ""
        dump(query.binds, to: &dumped)
        #expect(!dumped.contains("secret") && !dumped.contains("115"))
    }

    @Test func `nothing that prints a configuration shows the password`() {
        let configuration = PostgresConfiguration(connectionString: "postgres://u:top-secret@h/d")
        var dumped = "\(configuration) \(String(reflecting: configuration))"
        dump(configuration, to: &dumped)
        #expect(!dumped.contains("secret"))
    }

    @Test(
        arguments: [
            (PostgresError.Code.serverError, "40001", true), (.serverError, "40P01", true),
            (.serverError, "57P01", true),
            (.serverError, "25006", true), (.serverError, "53300", true), (.serverError, "08006", true),
            (.serverError, "55P03", true),
            (.serverError, "23505", false), (.serverError, "42601", false), (.serverError, "57014", false),
            (.connectionFailed, nil, true), (.connectionFailed, "57P03", true), (.connectionFailed, "28P01", false),
            (.connectionFailed, "3D000", false), (.connectionLost, nil, true), (.connectionLost, "57P01", true),
            (.commitUnknown, "57P01", false), (.poolExhausted, nil, true), (.timeout, "57014", true),
            (.cancelled, "57014", false),
            (.closed, nil, false), (.decoding, nil, false), (.configuration, nil, false),
            (.staleStatement, "0A000", true),
            (.misuse, nil, false), (.protocolViolation, nil, false),
        ] as [(PostgresError.Code, String?, Bool)]
    )
    func `whether to retry is decided by code and state`(code: PostgresError.Code, state: String?, retryable: Bool) {
        #expect(PostgresError(code, sqlState: state, message: "").isRetryable == retryable)
    }

    @Test func `descriptions are one short line`() {
        let error = PostgresError(.serverError, sqlState: "42601", message: String(repeating: "long\n", count: 1000))
        #expect(error.description.count < 260)
        #expect(!error.description.contains("\n"))
    }
}
