import CLibPQ
import Glibc

/// All rows that a statement returned, read from libpq's own memory, which lives as long as one of them.
package struct PostgresRows: RandomAccessCollection, Sendable {
    private let result: ResultStorage

    init(_ result: ResultStorage) { self.result = result }

    package var startIndex: Int { 0 }
    package var endIndex: Int { result.rowCount }

    package subscript(position: Int) -> PostgresRow {
        precondition(indices.contains(position), "row index out of range")
        return PostgresRow(result: result, index: Int32(position))
    }

    /// The row of a statement that always returns one.
    package var one: PostgresRow {
        get throws(PostgresError) {
            guard let first else { throw PostgresError(.protocolViolation, message: "no row") }
            return first
        }
    }

    /// How many rows the statement changed, or returned if it only read.
    package var affected: Int { result.affected }

    package var columnNames: [String] { (0..<result.columnCount).map(result.columnName) }
}

/// One row.
package struct PostgresRow: Sendable {
    fileprivate let result: ResultStorage
    fileprivate let index: Int32

    /// Reads all columns in order, those that may be NULL as optionals; a `.decoding` error names the column.
    package func decode<each Value: PostgresDecodable>(
        _ types: repeat (each Value).Type
    ) throws(PostgresError) -> (repeat each Value) {
        var columns: Int32 = 0
        for _ in repeat each types { columns += 1 }
        guard columns == result.columnCount else {
            let message = "the row has \(result.columnCount) columns, \(columns) were asked for"
            throw PostgresError(.decoding, message: message)
        }
        var column: Int32 = 0
        return (repeat try result.decode((each Value).self, row: index, column: &column))
    }

    /// Reads all columns in order into what a function makes of them, such as a memberwise initializer by its full name.
    ///
    /// `make` has one parameter a column; an optional where the column may be NULL.
    /// Throws `PostgresError` with `.decoding`, naming the column, and what `make` does.
    package func decode<each Value: PostgresDecodable, Result>(
        into make: (repeat each Value) throws(PostgresError) -> Result
    ) throws(PostgresError) -> Result {
        let values = try decode(repeat (each Value).self)
        return try make(repeat each values)
    }

    /// Reads the only column.
    package func decode<Value: PostgresDecodable>(_ type: Value.Type) throws(PostgresError) -> Value {
        guard result.columnCount == 1 else {
            throw PostgresError(.decoding, message: "the row has \(result.columnCount) columns, 1 were asked for")
        }
        return try decode(type, at: 0)
    }

    /// The value of a column by its name, which a statement gives it once; an optional where it may be NULL.
    ///
    /// Throws `PostgresError` with `.decoding`, naming the column.
    package subscript<Value: PostgresDecodable>(_ name: StaticString) -> Value {
        get throws(PostgresError) {
            guard var column = result.column(named: name) else {
                throw PostgresError(.decoding, message: "the row has no column \(name)")
            }
            return try result.decode(Value.self, row: index, column: &column)
        }
    }

    /// Reads the column at a place, from 0.
    package func decode<Value: PostgresDecodable>(_ type: Value.Type, at column: Int) throws(PostgresError) -> Value {
        guard (0..<result.columnCount).contains(column) else {
            throw PostgresError(.decoding, message: "the row has \(result.columnCount) columns, none at \(column)")
        }
        var column = Int32(column)
        return try result.decode(type, row: index, column: &column)
    }
}

/// Owns a `PGresult`.
///
/// Unchecked, because the pointer is not `Sendable` by itself. libpq's manual ("Behavior in Threaded Programs") states
/// that a `PGresult` is read-only after creation and so can be passed between threads freely; only functions that read
/// are called here, and `PQclear` runs once, when there is no reference any more.
final class ResultStorage: @unchecked Sendable {
    private let raw: OpaquePointer
    let rowCount: Int
    let columnCount: Int

    init(owning raw: OpaquePointer) {
        self.raw = raw
        rowCount = Int(PQntuples(raw))
        columnCount = Int(PQnfields(raw))
    }

    deinit { PQclear(raw) }

    var affected: Int { Int(String(cString: PQcmdTuples(raw))) ?? 0 }

    func columnName(_ column: Int) -> String { PQfname(raw, Int32(column)).map { String(cString: $0) } ?? "" }

    /// The place of a column; the names of a result are few, and compared as they lie in memory.
    func column(named name: StaticString) -> Int32? {
        (0..<Int32(columnCount)).first { column in
            guard let other = PQfname(raw, column) else { return false }
            return UnsafeRawPointer(name.utf8Start).withMemoryRebound(to: CChar.self, capacity: name.utf8CodeUnitCount)
            {
                strcmp($0, other) == 0
            }
        }
    }

    /// Reads a column that exists and moves on to the next.
    func decode<Value: PostgresDecodable>(
        _: Value.Type,
        row: Int32,
        column: inout Int32
    ) throws(PostgresError) -> Value {
        let current = column
        column += 1
        let type = PostgresType(rawValue: PQftype(raw, current))
        do throws(PostgresError) {
            guard PQgetisnull(raw, row, current) == 0 else { return try Value(postgresNull: type) }
            let bytes = UnsafeRawBufferPointer(
                start: PQgetvalue(raw, row, current),
                count: Int(PQgetlength(raw, row, current))
            )
            return try Value(postgresBytes: bytes, type: type)
        } catch {
            var named = error
            named.message = "column \(current) (\(columnName(Int(current)))): \(error.message)"
            throw named
        }
    }
}
