package import FoundationEssentials

extension String: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .text }

    package func encode(into bytes: inout [UInt8]) { bytes.append(contentsOf: utf8) }

    /// Reads text, varchar, char, name, json, jsonb, xml and enums.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        var content = postgresBytes
        if type == .jsonb {
            content = try PostgresJSON.content(of: postgresBytes)
        } else if !type.isTextual {
            throw Self.mismatch(type, postgresBytes)
        }
        guard let text = String(validating: content, as: UTF8.self) else {
            throw PostgresError(.decoding, message: "the text of type \(type.rawValue) is not UTF-8")
        }
        self = text
    }
}

/// A JSON document in its text form; sent as `jsonb`.
package struct PostgresJSON: Hashable, Sendable, PostgresEncodable, PostgresDecodable {
    /// The server checks that it is JSON.
    package var text: String

    package init(_ text: String) { self.text = text }

    package static var postgresType: PostgresType { .jsonb }

    package func encode(into bytes: inout [UInt8]) {
        bytes.append(Self.version)
        bytes.append(contentsOf: text.utf8)
    }

    /// Reads jsonb (as the server prints it), json and text.
    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        text = try String(postgresBytes: postgresBytes, type: type)
    }

    /// The only version of jsonb's binary form: a byte, then the text.
    private static let version: UInt8 = 1

    static func content(of bytes: UnsafeRawBufferPointer) throws(PostgresError) -> UnsafeRawBufferPointer {
        guard bytes.first == version else { throw PostgresError(.decoding, message: "the jsonb version is unknown") }
        return UnsafeRawBufferPointer(rebasing: bytes.dropFirst())
    }
}

/// Bytes; sent as `bytea`.
package struct PostgresBytes: Hashable, Sendable, PostgresEncodable, PostgresDecodable {
    package var bytes: [UInt8]

    package init(_ bytes: [UInt8]) { self.bytes = bytes }

    package static var postgresType: PostgresType { .bytea }

    package func encode(into target: inout [UInt8]) { target.append(contentsOf: bytes) }

    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard type == .bytea else { throw Self.mismatch(type, postgresBytes) }
        bytes = Array(postgresBytes)
    }
}

extension UUID: PostgresEncodable, PostgresDecodable {
    package static var postgresType: PostgresType { .uuid }

    package func encode(into bytes: inout [UInt8]) { withUnsafeBytes(of: uuid) { bytes.append(contentsOf: $0) } }

    package init(postgresBytes: UnsafeRawBufferPointer, type: PostgresType) throws(PostgresError) {
        guard type == .uuid, postgresBytes.count == 16 else { throw Self.mismatch(type, postgresBytes) }
        self.init(uuid: postgresBytes.loadUnaligned(as: uuid_t.self))
    }
}
