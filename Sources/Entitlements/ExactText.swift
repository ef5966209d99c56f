import Glibc

/// A text that equals another only byte for byte, as the database compares.
///
/// Swift's own `==` and hash equate Unicode's spellings of one character, and PostgreSQL holds two users under them.
package struct ExactText: Hashable, Comparable, Sendable, CustomStringConvertible {
    package var text: String

    package init(_ text: String) { self.text = text }

    package static func == (left: Self, right: Self) -> Bool { left.text.isExactly(right.text) }
    package static func < (left: Self, right: Self) -> Bool { left.text.compareExactly(to: right.text) < 0 }
    package func hash(into hasher: inout Hasher) { hasher.combineExactly(text) }

    package var description: String { text }
}

extension String {
    package func isExactly(_ other: String) -> Bool { compareExactly(to: other) == 0 }

    /// The order of the bytes, as `COLLATE "C"` has it: negative where this text comes first.
    package func compareExactly(to other: String) -> Int {
        let order = utf8.withContiguousStorageIfAvailable { left in
            other.utf8.withContiguousStorageIfAvailable { right in Self.compare(left, right) }
        }
        if case .some(.some(let order)) = order { return order }
        if utf8.elementsEqual(other.utf8) { return 0 }
        return utf8.lexicographicallyPrecedes(other.utf8) ? -1 : 1
    }

    private static func compare(_ left: UnsafeBufferPointer<UInt8>, _ right: UnsafeBufferPointer<UInt8>) -> Int {
        let shared = Swift.min(left.count, right.count)
        if shared > 0, let first = left.baseAddress, let second = right.baseAddress {
            let order = memcmp(first, second, shared)
            if order != 0 { return Int(order) }
        }
        return left.count - right.count
    }
}

extension Hasher {
    /// Feeds the bytes of a text, and where it ends.
    package mutating func combineExactly(_ text: String) {
        let fed: Void? = text.utf8.withContiguousStorageIfAvailable { combine(bytes: UnsafeRawBufferPointer($0)) }
        if fed == nil { for byte in text.utf8 { combine(byte) } }
        combine(UInt8(0xFF))
    }
}

extension Sequence<String> {
    /// Each text once, in the order of the bytes: the order in which the database locks under `COLLATE "C"`.
    package var sortedExactly: [String] { Set(map(ExactText.init)).sorted().map(\.text) }
}
