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
