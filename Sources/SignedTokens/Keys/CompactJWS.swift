import TextFormats

/// A signed text in three parts (RFC 7515, section 7.1), taken apart and not yet verified.
package struct CompactJWS: Sendable {
    /// The longest text that is read, in bytes.
    package static let maximumBytes = 64 << 10

    /// What a header says of the signature.
    package struct Header: Sendable {
        /// The algorithm; the verifier knows which one it has to be.
        package var algorithm: String
        /// The certificates in base64, the signer's first.
        package var certificates: [String] = []
        package var keyID: String?
    }

    /// The header as it was written, in base64url.
    package var writtenHeader: ArraySlice<UInt8>
    package var payload: [UInt8]
    package var signature: [UInt8]
    /// What is signed: the first two parts as they were written, with the dot between them.
    package var signed: ArraySlice<UInt8>

    /// Takes a text of at most `limit` bytes apart; its header is read by the caller that does not know it yet.
    package init(_ text: String, upTo limit: Int = maximumBytes) throws(ProofRefusal) {
        let bytes = Array(text.utf8)
        guard bytes.count <= limit else { throw ProofRefusal(.tooLarge, "It is longer than \(limit) bytes.") }
        let parts = bytes.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard parts.count == 3 else {
            throw ProofRefusal(
                .malformed,
                "A signed text has three parts with dots between them; this has \(parts.count)."
            )
        }
        writtenHeader = parts[0]
        payload = try Self.decoded(parts[1], "payload")
        signature = try Self.decoded(parts[2], "signature")
        signed = bytes[..<parts[1].endIndex]
    }

    /// Reads the header.
    package func header() throws(ProofRefusal) -> Header {
        let bytes = try Self.decoded(writtenHeader, "header")
        do throws(JSONFault) {
            return try Self.readHeader(bytes)
        } catch {
            throw ProofRefusal(.malformed, "The header is not what it has to be: \(error.clause).")
        }
    }

    private static func decoded(_ part: ArraySlice<UInt8>, _ name: String) throws(ProofRefusal) -> [UInt8] {
        guard let bytes = Base64.decode(part, .url) else {
            throw ProofRefusal(.malformed, "The \(name) is not base64url without padding and line breaks.")
        }
        return bytes
    }

    private enum HeaderField: String, CaseIterable {
        case algorithm = "alg"
        case certificates = "x5c"
        case keyID = "kid"
        case critical = "crit"
    }

    private static let headerFields = JSONFields<HeaderField>()

    private static func readHeader(_ bytes: [UInt8]) throws(JSONFault) -> Header {
        var header = Header(algorithm: "")
        try JSONReader.readObject(in: bytes, headerFields) { reader, field throws(JSONFault) in
            switch field {
            case .algorithm: header.algorithm = try reader.readString()
            case .keyID: header.keyID = try reader.readOptionalString()
            case .certificates:
                try reader.readArray { reader throws(JSONFault) in
                    header.certificates.append(try reader.readString(upTo: Self.maximumBytes))
                }
            // It names members that have to be understood; we understand none.
            case .critical: throw .wrongType
            }
        }
        guard !header.algorithm.isEmpty else { throw .missing }
        return header
    }
}
