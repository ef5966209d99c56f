import Foundation
import Postgres
import TestSupport
import Testing

@Suite(.database) struct TypeTests {
    /// Sends values as scalars, as an array and as an array with a NULL, and compares what comes back.
    private func roundTrip<Value: PostgresEncodable & PostgresDecodable & Equatable>(_ values: [Value]) async throws {
        let gaps: [Value?] = [nil] + values.map { $0 } + [nil]
        let none: [Value] = []
        let missing: Value? = nil
        try await withConnection { connection in
            let all = try #require(
                try await connection.query("SELECT \(values), \(gaps), \(none), \(missing), \([Value?]())").first
            )
            let (back, backWithGaps, empty, null, emptyOptionals) = try all.decode(
                [Value].self,
                [Value?].self,
                [Value].self,
                Value?.self,
                [Value?].self
            )
            #expect(back == values)
            #expect(backWithGaps == gaps)
            #expect(empty.isEmpty && emptyOptionals.isEmpty)
            #expect(null == nil)
            for value in values {
                let row = try #require(try await connection.query("SELECT \(value)").first)
                #expect(try row.decode(Value.self) == value)
                #expect(try row.decode(Value?.self) == value)
            }
        }
    }

    @Test func `booleans round trip`() async throws { try await roundTrip([true, false]) }
    @Test func `small integers round trip`() async throws { try await roundTrip([Int16.min, -1, 0, 1, .max]) }
    @Test func `integers round trip`() async throws { try await roundTrip([Int32.min, -1, 0, 1, .max]) }
    @Test func `big integers round trip`() async throws { try await roundTrip([Int64.min, -1, 0, 1, .max]) }
    @Test func `native integers round trip`() async throws { try await roundTrip([Int.min, -1, 0, 1, .max]) }

    @Test func `floating point numbers round trip`() async throws {
        try await roundTrip([0, -0.0, 1.5, .infinity, -.infinity, .leastNonzeroMagnitude, .greatestFiniteMagnitude])
    }

    @Test func `text round trips`() async throws {
        try await roundTrip([
            "", " ", "NULL", "{}", "\"quoted\\\"", "Grüße, 世界 👩‍👩‍👧‍👦", "e\u{301}", "$1; DROP TABLE x --", "\u{1}\u{10FFFF}",
            String(repeating: "ä", count: 100_000),
        ])
    }

    @Test func `identifiers round trip`() async throws {
        try await roundTrip([UUID(), UUID(uuid: (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255))])
    }

    @Test func `bytes round trip`() async throws {
        try await roundTrip([PostgresBytes([]), PostgresBytes(Array(0...255))])
    }

    @Test func `moments round trip`() async throws {
        try await roundTrip([
            PostgresTimestamp(microsecondsSinceUnixEpoch: 0),
            PostgresTimestamp(microsecondsSinceUnixEpoch: -1),
            PostgresTimestamp(microsecondsSinceUnixEpoch: 1_767_225_600_123_456),
            // The server's first moment, 4713-11-24 BC.
            PostgresTimestamp(microsecondsSinceUnixEpoch: -210_866_803_200_000_000),
            // The last that a count of microseconds since 1970 can hold, save the mark of infinity.
            PostgresTimestamp(microsecondsSinceUnixEpoch: .max - 1),
            .infinity, .negativeInfinity,
        ])
    }

    @Test func `json documents round trip`() async throws {
        try await roundTrip([PostgresJSON("{}"), PostgresJSON(#"{"a": [1, null, "ü"]}"#), PostgresJSON("null")])
    }

    private enum Colour: String, PostgresEncodable, PostgresDecodable { case red, green }

    @Test func `enums over text round trip and refuse what they do not know`() async throws {
        try await roundTrip([Colour.red, .green])
        let error = try await failure {
            try await withConnection { _ = try await $0.query("SELECT 'blue'").first?.decode(Colour.self) }
        }
        #expect(error.code == .decoding)
    }

    @Test func `moments agree with what the server prints`() async throws {
        try await withConnection { connection in
            let moment = PostgresTimestamp(Date(timeIntervalSince1970: 1_700_000_000.25))
            let rows = try await connection.query("SELECT \(moment)::text, \(PostgresTimestamp.infinity)::text")
            #expect(
                try #require(rows.first).decode(String.self, String.self) == ("2023-11-14 22:13:20.25+00", "infinity")
            )
            #expect(moment.date.timeIntervalSince1970 == 1_700_000_000.25)
        }
    }

    @Test(arguments: [
        "'x'::varchar", "'x'::name", "'x'::char(1)", "'x'::\"char\"", "'\"x\"'::json", "'\"x\"'::jsonb", "'x'::mood",
    ])
    func `strings are read from every textual type`(expression: String) async throws {
        try await withConnection { connection in
            try await connection.execute(script: "CREATE TYPE mood AS ENUM ('x')")
            let row = try #require(try await connection.query("SELECT \(rawSQL: expression)").first)
            let text = try row.decode(String.self)
            #expect(text == "x" || text == "\"x\"")
        }
    }

    @Test func `narrow columns are read as wide integers`() async throws {
        try await withConnection { connection in
            let row = try #require(
                try await connection.query("SELECT 7::int2, 8::int4, 9::oid, 1.5::float4, 2::int2").first
            )
            let (a, b, c, d, e) = try row.decode(Int.self, Int64.self, Int.self, Double.self, Int32.self)
            #expect(a == 7 && b == 8 && c == 9 && d == 1.5 && e == 2)
        }
    }

    @Test(arguments: [
        ("SELECT NULL::int8 AS total", "column 0 (total): NULL is not a value of Int"),
        ("SELECT 'x' AS total", "column 0 (total): type 25 of 1 bytes is not readable as Int"),
        ("SELECT 1.5::numeric AS total", "column 0 (total): type 1700 of 12 bytes is not readable as Int"),
        ("SELECT 1, 2", "the row has 2 columns, 1 were asked for"),
    ])
    func `decoding errors name the column and the reason`(sql: String, message: String) async throws {
        let error = try await failure {
            try await withConnection { _ = try await $0.query("\(rawSQL: sql)").first?.decode(Int.self) }
        }
        #expect(error.code == .decoding)
        #expect(error.message == message)
        #expect(!error.isRetryable)
    }

    @Test func `arrays of two dimensions are refused`() async throws {
        let error = try await failure {
            try await withConnection {
                _ = try await $0.query("SELECT '{{1,2},{3,4}}'::int8[]").first?.decode([Int].self)
            }
        }
        #expect(error.code == .decoding)
    }

    @Test func `a hundred thousand elements travel both ways`() async throws {
        let ids = (0..<100_000).map { "user-\($0)" }
        let numbers = Array(0..<100_000)
        try await withConnection { connection in
            let rows = try await connection.query(
                "SELECT id, n FROM unnest(\(ids), \(numbers)) AS t (id, n) ORDER BY n"
            )
            #expect(rows.count == 100_000)
            #expect(try rows.map { try $0.decode(String.self, at: 0) } == ids)
            let back = try await connection.query("SELECT array_agg(n ORDER BY n) FROM unnest(\(numbers)) AS t (n)")
                .first
            #expect(try back?.decode([Int].self) == numbers)
        }
    }

    @Test func `rows know their number, their columns and what was changed`() async throws {
        try await withConnection { connection in
            try await connection.execute(script: "CREATE TABLE t (id int8 PRIMARY KEY, name text)")
            let inserted = try await connection.query("INSERT INTO t SELECT n FROM unnest(\([1, 2, 3])) AS u (n)")
            #expect(inserted.affected == 3 && inserted.isEmpty)
            let rows = try await connection.query("SELECT id, name FROM t ORDER BY id")
            #expect(rows.columnNames == ["id", "name"])
            #expect(rows.affected == 3 && rows.count == 3)
            #expect(try rows.reversed().map { try $0.decode(Int.self, at: 0) } == [3, 2, 1])
        }
    }
}
