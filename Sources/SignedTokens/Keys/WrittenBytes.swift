/// Bytes as a key of what is remembered about them.
///
/// An array's own hash takes byte by byte, which for the certificates of one text costs a tenth of a signature's
/// verification.
package struct WrittenBytes: Hashable, Sendable {
    package var bytes: ArraySlice<UInt8>

    package init(bytes: ArraySlice<UInt8>) {
        self.bytes = bytes
    }

    /// A copy, which doesn't keep what the bytes are a part of.
    package var copy: WrittenBytes { WrittenBytes(bytes: ArraySlice(Array(bytes))) }

    package func hash(into hasher: inout Hasher) { bytes.withUnsafeBytes { hasher.combine(bytes: $0) } }
}
