/// In the order of their bytes, as the host pages through its users.
private func spelled(_ index: Int) -> String { "\(index)" }

/// The id of a history's user.
func userID(_ index: Int) -> String { "user-" + spelled(index) }

/// The user behind an id, byte for byte.
func userIndex(_ id: String) -> Int? { (0..<100).first { userID($0).utf8.elementsEqual(id.utf8) } }

/// The names of a history's item at RevenueCat and at its store.
func itemNames(_ index: Int) -> [String] { ["rc-" + spelled(index), "st-" + spelled(index)] }

/// A text in which nothing is equal to Swift that is not equal byte for byte.
func plain(_ text: String) -> String {
    guard !text.utf8.allSatisfy({ $0 < 0x80 }) else { return text }
    return text.unicodeScalars.map { $0.isASCII ? String($0) : "\\u{\(String($0.value, radix: 16))}" }.joined()
}

extension Sequence<String> {
    /// In the order of their bytes.
    var inByteOrder: [String] { sorted { $0.utf8.lexicographicallyPrecedes($1.utf8) } }
}
