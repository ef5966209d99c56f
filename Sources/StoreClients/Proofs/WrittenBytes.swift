/// Bytes as a key of what is remembered about them.
///
/// An array's own hash takes byte by byte, which for the certificates of one text costs a tenth of a signature's
/// verification.
struct WrittenBytes: Hashable, Sendable {
    var bytes: ArraySlice<UInt8>

    /// A copy, which doesn't keep what the bytes are a part of.
    var copy: WrittenBytes { WrittenBytes(bytes: ArraySlice(Array(bytes))) }

    func hash(into hasher: inout Hasher) { bytes.withUnsafeBytes { hasher.combine(bytes: $0) } }
}
