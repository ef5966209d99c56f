/// Why bytes are not the ASN.1 that they have to be.
package enum ASN1Fault: Error {
    /// Cut off, of a form that is not read, or written in another way than the shortest.
    case malformed
    /// Nested deeper than anything genuine.
    case tooDeep
    /// Something else stands there than what has to.
    case wrongType
}

/// Reads elements of ASN.1 one after another, without building anything.
///
/// It is for bytes that are not verified yet. What surrounds a signed content is not signed itself, so each element is
/// read in one form only: tags of one byte, lengths in the fewest bytes (as DER has it), or the indefinite length of
/// BER. A change of such bytes changes what they say, or they are refused.
///
/// - SeeAlso: X.690, sections 8.1 and 10.1
package struct ASN1Reader {
    /// The tags that are read.
    package enum Tag {
        package static let integer: UInt8 = 0x02
        package static let bitString: UInt8 = 0x03
        package static let octetString: UInt8 = 0x04
        package static let objectIdentifier: UInt8 = 0x06
        package static let utf8String: UInt8 = 0x0C
        package static let ia5String: UInt8 = 0x16
        package static let sequence: UInt8 = 0x30
        package static let set: UInt8 = 0x31
        /// What says that it is made of other elements.
        package static let constructed: UInt8 = 0x20

        /// A tag of the context, made of other elements.
        package static func context(_ number: UInt8) -> UInt8 { 0xA0 | number }
    }

    /// One element.
    package struct Element {
        package var tag: UInt8
        /// Without the mark that ends it, where the length is indefinite.
        package var content: ArraySlice<UInt8>
        /// With tag, length and end.
        package var whole: ArraySlice<UInt8>
        fileprivate var levels: Int

        /// Reads what it is made of.
        package func elements() throws(ASN1Fault) -> ASN1Reader {
            guard levels > 0 else { throw .tooDeep }
            return ASN1Reader(content, levels: levels - 1)
        }
    }

    /// How many levels may lie below the first one; a receipt's container and its payload have less than ten.
    package static let levels = 16

    private var rest: ArraySlice<UInt8>
    private let levels: Int

    /// Begins at the first byte; `levels` says how many may lie below.
    package init(_ bytes: ArraySlice<UInt8>, levels: Int = ASN1Reader.levels) {
        rest = bytes
        self.levels = levels
    }

    /// Whether everything is read.
    package var isAtEnd: Bool { rest.isEmpty }

    /// The tag of the next element; `nil` at the end.
    package var nextTag: UInt8? { rest.first }

    /// Reads the next element.
    package mutating func next() throws(ASN1Fault) -> Element {
        let (header, length) = try Self.header(rest)
        let start = rest.startIndex + header
        if let length {
            guard length <= rest.endIndex - start else { throw .malformed }
            return take(content: start..<(start + length), end: start + length)
        }
        let end = try Self.end(rest[start...], levels: levels)
        return take(content: start..<(end - 2), end: end)
    }

    /// Reads the next element; `wrongType` where it has another tag, or nothing is left.
    package mutating func next(_ tag: UInt8) throws(ASN1Fault) -> Element {
        guard nextTag == tag else { throw .wrongType }
        return try next()
    }

    /// Makes sure that everything is read.
    package func finish() throws(ASN1Fault) {
        guard isAtEnd else { throw .wrongType }
    }

    private mutating func take(content: Range<Int>, end: Int) -> Element {
        let element = Element(
            tag: rest[rest.startIndex],
            content: rest[content],
            whole: rest[rest.startIndex..<end],
            levels: levels
        )
        rest = rest[end...]
        return element
    }

    /// How many bytes the tag and the length have, and the length; `nil` where it is indefinite.
    private static func header(_ bytes: ArraySlice<UInt8>) throws(ASN1Fault) -> (bytes: Int, length: Int?) {
        guard bytes.count >= 2 else { throw .malformed }
        let tag = bytes[bytes.startIndex]
        // Number zero is reserved for the mark that ends an indefinite length; the rest are tags of several bytes.
        guard tag & ~Tag.constructed != 0, tag & 0x1F != 0x1F else { throw .malformed }
        let first = bytes[bytes.startIndex + 1]
        if first < 0x80 { return (2, Int(first)) }
        if first == 0x80 {
            guard tag & Tag.constructed != 0 else { throw .malformed }
            return (2, nil)
        }
        let count = Int(first & 0x7F)
        guard count <= 4, bytes.count >= 2 + count else { throw .malformed }
        let written = bytes[(bytes.startIndex + 2)..<(bytes.startIndex + 2 + count)]
        let length = written.reduce(0) { $0 << 8 | Int($1) }
        guard length >= 0x80, written.first != 0 else { throw .malformed }
        return (2 + count, length)
    }

    /// Where an element of indefinite length ends, given what follows its header.
    private static func end(_ bytes: ArraySlice<UInt8>, levels: Int) throws(ASN1Fault) -> Int {
        guard levels > 0 else { throw .tooDeep }
        var rest = bytes
        while true {
            guard rest.count >= 2 else { throw .malformed }
            if rest[rest.startIndex] == 0, rest[rest.startIndex + 1] == 0 { return rest.startIndex + 2 }
            let (header, length) = try header(rest)
            let start = rest.startIndex + header
            if let length {
                guard length <= rest.endIndex - start else { throw .malformed }
                rest = rest[(start + length)...]
            } else {
                rest = rest[try end(rest[start...], levels: levels - 1)...]
            }
        }
    }
}

extension ASN1Reader.Element {
    /// The number that an INTEGER says; `malformed` where it is longer than eight bytes, or than it has to be.
    package func integer() throws(ASN1Fault) -> Int64 {
        guard tag == ASN1Reader.Tag.integer else { throw .wrongType }
        guard let first = content.first, content.count <= 8 else { throw .malformed }
        if content.count > 1 {
            let isNegative = content[content.startIndex + 1] >= 0x80
            guard first != (isNegative ? 0xFF : 0x00) else { throw .malformed }
        }
        return content.reduce(first >= 0x80 ? -1 : 0) { $0 << 8 | Int64($1) }
    }

    /// The text that a UTF8String or an IA5String says.
    package func text() throws(ASN1Fault) -> String {
        guard tag == ASN1Reader.Tag.utf8String || tag == ASN1Reader.Tag.ia5String else { throw .wrongType }
        guard let text = String(validating: content, as: UTF8.self) else { throw .malformed }
        return text
    }

    /// The bytes of an OCTET STRING; BER may write it in pieces, of which none is empty.
    package func octets() throws(ASN1Fault) -> [UInt8] {
        if tag == ASN1Reader.Tag.octetString { return Array(content) }
        guard tag == ASN1Reader.Tag.octetString | ASN1Reader.Tag.constructed else { throw .wrongType }
        var pieces = try elements()
        var octets: [UInt8] = []
        while !pieces.isAtEnd {
            let piece = try pieces.next(ASN1Reader.Tag.octetString)
            guard !piece.content.isEmpty else { throw .malformed }
            octets += piece.content
        }
        return octets
    }
}
