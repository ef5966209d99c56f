import Crypto
import Entitlements
import Reconciliation

/// A file that names users' purchases: CSV with a header line, in UTF-8.
package struct ImportFile: Sendable {
    package static let header = "user_id,store,kind,value"
    package static let mostBytes = 64 * 1024 * 1024
    package static let mostLines = 1_000_000
    package static let mostLineBytes = 4 * 1024

    /// Why the file as a whole is not taken.
    package enum Fault: Error, Hashable {
        case tooLarge, tooManyLines, header
    }

    /// Why a line is not.
    package enum LineFault: String, Sendable, CaseIterable {
        case tooLong = "too_long"
        case encoding, fields, user, store, kind, value
    }

    package struct Line: Sendable, Hashable {
        /// Its number in the file, where the header is line 1.
        package var number: Int32
        package var userID: String?
        package var store: String?
        package var kind: String?
        package var value: String?
        package var fault: LineFault?
        /// The number of the first line that says exactly the same.
        package var first: Int32?
    }

    /// SHA-256 over the file.
    package let digest: [UInt8]
    private let bytes: [UInt8]
    private var offset = 0
    private var number: Int32 = 0
    /// Which lines were the first to say what they say, by its digest.
    private var firsts: [SHA256Digest: Int32] = [:]

    /// - Throws: `Fault`.
    package init(_ bytes: [UInt8]) throws(Fault) {
        guard bytes.count <= Self.mostBytes else { throw .tooLarge }
        // The header, and an end of the last line.
        guard bytes.count(where: { $0 == Self.newline }) <= Self.mostLines + 1 else { throw .tooManyLines }
        self.bytes = bytes
        digest = Array(SHA256.hash(data: bytes))
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { offset = 3 }
        guard let head = nextLine(), String(decoding: head, as: UTF8.self) == Self.header else { throw .header }
    }

    private static let newline = UInt8(ascii: "\n")

    /// The next lines, empty ones left out; none at the file's end.
    package mutating func lines(upTo most: Int) -> [Line] {
        var lines: [Line] = []
        while lines.count < most, let line = nextLine() {
            if !line.isEmpty { lines.append(read(line)) }
        }
        return lines
    }

    private mutating func nextLine() -> ArraySlice<UInt8>? {
        guard offset < bytes.count else { return nil }
        let end = bytes[offset...].firstIndex(of: Self.newline) ?? bytes.count
        var line = bytes[offset..<end]
        offset = end + 1
        number += 1
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        return line
    }

    private mutating func read(_ bytes: ArraySlice<UInt8>) -> Line {
        var line = Line(number: number)
        guard bytes.count <= Self.mostLineBytes else {
            line.fault = .tooLong
            return line
        }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            line.fault = .encoding
            return line
        }
        guard let fields = Self.fields(text), fields.count == 4 else {
            line.fault = .fields
            return line
        }
        line.fault = Self.fault(in: fields)
        // An id that can't be stored is left out: the line's number leads to it.
        if line.fault != .user { line.userID = fields[0] }
        guard line.fault == nil else { return line }
        (line.store, line.kind, line.value) = (fields[1], fields[2], fields[3])
        // No field holds a control character.
        let digest = SHA256.hash(data: Array(fields.joined(separator: "\n").utf8))
        line.first = firsts[digest]
        if line.first == nil { firsts[digest] = number }
        return line
    }

    private static func fault(in fields: [String]) -> LineFault? {
        guard (1...1500).contains(fields[0].utf8.count), fields[0].unicodeScalars.allSatisfy({ $0.value >= 0x20 })
        else {
            return .user
        }
        guard let kinds = Store(rawValue: fields[1]).flatMap({ NamedPurchase.kinds[$0] }) else { return .store }
        guard let kind = NamedPurchase.Kind(rawValue: fields[2]), kinds.contains(kind) else { return .kind }
        return isName(fields[3], of: kind) ? nil : .value
    }

    private static func isName(_ value: String, of kind: NamedPurchase.Kind) -> Bool {
        switch kind {
        case .originalTransactionID: value.wholeMatch(of: /[0-9]{1,40}/) != nil
        case .purchaseToken: value.wholeMatch(of: /[A-Za-z0-9._-]{1,1000}/) != nil
        case .orderID: value.wholeMatch(of: /[!-~]{1,255}/) != nil
        }
    }

    /// The fields of a line; `nil`: its quotation marks do not match.
    private static func fields(_ text: String) -> [String]? {
        var fields: [String] = []
        var rest = Substring(text)
        while true {
            var field = ""
            if rest.first == "\"" {
                rest.removeFirst()
                while true {
                    guard let end = rest.firstIndex(of: "\"") else { return nil }
                    field += rest[..<end]
                    rest = rest[rest.index(after: end)...]
                    guard rest.first == "\"" else { break }
                    field += "\""
                    rest.removeFirst()
                }
            } else {
                let end = rest.firstIndex(of: ",") ?? rest.endIndex
                field = String(rest[..<end])
                rest = rest[end...]
            }
            fields.append(field)
            guard let next = rest.first else { return fields }
            guard next == ",", fields.count < 5 else { return nil }
            rest.removeFirst()
        }
    }
}
