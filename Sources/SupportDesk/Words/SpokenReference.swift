/// A reference such as `T-7K3Q-92` as people read it out and write it down.
package enum SpokenReference {
    /// What may be meant: without its dashes, with an O for a zero and an I or L for a one, and without its first letter.
    ///
    /// - Parameter text: what was written.
    /// - Returns: references in their proper form, the likeliest first; empty for what can be none.
    package static func readings(of text: String) -> [String] {
        let signs = text.uppercased().filter { !"- ".contains($0) }
        guard (6...7).contains(signs.count), signs.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber) }) else {
            return []
        }
        let kinds = signs.count == 6 ? ["T", "R"] : [String(signs.prefix(1))]
        guard kinds.allSatisfy({ ["T", "R"].contains($0) }) else { return [] }
        let code = signs.suffix(6).map { sign -> Character in
            switch sign {
            case "O": "0"
            case "I", "L": "1"
            default: sign
            }
        }
        guard !code.contains("U") else { return [] }
        return kinds.map { "\($0)-\(String(code.prefix(4)))-\(String(code.suffix(2)))" }
    }
}
