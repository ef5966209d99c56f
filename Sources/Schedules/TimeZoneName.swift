import FoundationEssentials
// The zones' data; FoundationEssentials by itself knows fixed offsets alone.
import FoundationInternationalization

/// The name of a time zone, as the IANA database has it, with the zone's rules.
///
/// The rules are part of Foundation, and of programs that are linked with it statically: no package of the system
/// (Debian's tzdata) is read. A change of rules comes with a new Foundation.
package struct TimeZoneName: Hashable, Sendable, CustomStringConvertible {
    /// The zone without clock changes.
    package static let utc = TimeZoneName(name: "UTC", zone: .gmt)
    /// The most characters that a name may have.
    private static let longest = 64

    /// The name as it was written.
    package let name: String
    let zone: TimeZone

    /// Why a text is not the name of a time zone, and what to write.
    package enum Fault: Error, Hashable, Sendable, CustomStringConvertible {
        /// No zone has the name; another one may have been meant.
        case unknown(String, meant: String?)
        /// An abbreviation such as `EST`, which several places share, or which has no clock changes.
        case abbreviation(String)
        /// No zone can be found at all.
        case noDatabase

        package var description: String {
            switch self {
            case .unknown(let name, let meant):
                "\(name) is not a time zone; write "
                    + (meant ?? "a name of the IANA database such as Europe/Paris, or UTC")
            case .abbreviation(let name):
                "\(name) is an abbreviation; write the name of a place such as America/New_York, or UTC"
            case .noDatabase:
                "the program has no time zones; build it with Foundation's data (FoundationInternationalization), or"
                    + " write UTC"
            }
        }
    }

    /// Checks a name.
    ///
    /// - Parameter name: an area and a place (`Europe/Paris`, old names too), `Etc/…`, or `UTC`.
    /// - Throws: `Fault` where it is no name of the database; abbreviations and offsets are none.
    package init(_ name: String) throws(Fault) { try self.init(name, find: { TimeZone(identifier: $0) }) }

    init(_ name: String, find: (String) -> TimeZone?) throws(Fault) {
        if name == "UTC" {
            self = .utc
            return
        }
        let isWord = name.unicodeScalars.allSatisfy { ("!"..."~").contains($0) }
        guard isWord, (1...Self.longest).contains(name.unicodeScalars.count) else {
            throw .unknown("the text", meant: nil)
        }
        // Rules of System V are no places, though the data has them under such names.
        if name.contains("/"), !name.hasPrefix("SystemV/"), let zone = find(name), zone.identifier == name {
            self.init(name: name, zone: zone)
            return
        }
        guard find("Europe/Paris") != nil else { throw .noDatabase }
        if let meant = Self.meant(by: name) { throw .unknown(name, meant: meant) }
        throw find(name) == nil || name.contains("/") ? .unknown(name, meant: nil) : .abbreviation(name)
    }

    private init(name: String, zone: TimeZone) {
        self.name = name
        self.zone = zone
    }

    /// Finds the name that differs in case alone, or that ends with a place's name.
    private static func meant(by name: String) -> String? {
        let folded = name.lowercased()
        if ["utc", "gmt", "z", "zulu"].contains(folded) { return utc.name }
        let known = TimeZone.knownTimeZoneIdentifiers
        return known.first { $0.lowercased() == folded } ?? known.first { $0.lowercased().hasSuffix("/" + folded) }
    }

    package var description: String { name }
}

/// The zone's clock: seconds since 1970 on the one hand, what the clock shows on the other, as seconds from
/// 1970-01-01T00:00 of the clock.
extension TimeZoneName {
    /// Longer than any clock was ever set forward or back at once.
    static let longestChange = 2 * 86_400

    /// How many seconds the clock is ahead of UTC at an instant.
    func offset(at second: Int) -> Int { zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(second))) }

    /// The second of the clock's first change after an instant and up to another; the offset may stay the same.
    func change(after second: Int, upTo end: Int) -> Int? {
        let next = zone.nextDaylightSavingTimeTransition(after: Date(timeIntervalSince1970: Double(second)))
        guard let next, next.timeIntervalSince1970 <= Double(end) else { return nil }
        let found = Int(next.timeIntervalSince1970)
        return found > second ? found : nil
    }

    /// Finds the last change of the clock after an instant and up to another.
    func lastChange(after second: Int, upTo end: Int) -> Int? {
        var last: Int?
        while let next = change(after: last ?? second, upTo: end) { last = next }
        return last
    }

    /// The latest time that the clock has ever shown up to an instant, which is not what it shows in a repeated hour.
    func latestTime(upTo second: Int) -> Int {
        var latest = second + offset(at: second)
        var start = second - Self.longestChange
        while let change = change(after: start, upTo: second) {
            latest = max(latest, change - 1 + offset(at: change - 1))
            start = change
        }
        return latest
    }

    /// Finds the first instant at which the clock shows a time, or a later one where the time is skipped.
    func instant(reaching time: Int) -> Int {
        var start = time - Self.longestChange
        let end = time + Self.longestChange
        while true {
            let found = max(start, time - offset(at: start))
            guard let change = change(after: start, upTo: end), change <= found else { return found }
            start = change
        }
    }
}
