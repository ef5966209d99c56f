/// Finds the name that was meant.
package enum SimilarNames {
    /// The known name that differs by two letters at most; few people mistype the first letter.
    package static func nearest(to name: String, among known: some Collection<String>) -> String? {
        let letters = Array(name.utf8)
        return known.lazy.compactMap { candidate -> (name: String, slips: Int)? in
            let other = Array(candidate.utf8)
            guard other.first == letters.first, abs(other.count - letters.count) <= 2 else { return nil }
            let slips = distance(letters, other)
            return slips <= 2 ? (candidate, slips) : nil
        }.min { ($0.slips, $0.name) < ($1.slips, $1.name) }?.name
    }

    /// Letters that are missing, too many, or others.
    private static func distance(_ one: [UInt8], _ other: [UInt8]) -> Int {
        var row = Array(0...other.count)
        for (line, letter) in one.enumerated() {
            var diagonal = row[0]
            row[0] = line + 1
            for (place, counterpart) in other.enumerated() {
                let next = min(row[place] + 1, row[place + 1] + 1, diagonal + (letter == counterpart ? 0 : 1))
                diagonal = row[place + 1]
                row[place + 1] = next
            }
        }
        return row[other.count]
    }
}
