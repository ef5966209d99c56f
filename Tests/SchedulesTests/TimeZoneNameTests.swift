import FoundationEssentials
import FoundationInternationalization
import Testing

@testable import Schedules

@Suite struct TimeZoneNameTests {
    @Test(arguments: [
        "UTC", "Etc/UTC", "Europe/Paris", "Europe/Kyiv", "Europe/Kiev", "Asia/Kolkata", "Asia/Calcutta",
        "America/Indiana/Knox", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe", "US/Eastern", "Etc/GMT+5",
    ])
    func `Names of the database are taken as they are, old ones too`(name: String) throws {
        let zone = try TimeZoneName(name)
        #expect(zone.name == name)
        #expect(zone.description == name)
        #expect(try TimeZoneName(name) == zone)
    }

    private static let general = "write a name of the IANA database such as Europe/Paris, or UTC"
    private static let place = "is an abbreviation; write the name of a place such as America/New_York, or UTC"

    /// What is no name, and what is answered.
    static let bad: [(String, String)] = [
        ("EST", "EST \(place)"),
        ("CET", "CET \(place)"),
        ("IST", "IST \(place)"),
        ("EST5EDT", "EST5EDT \(place)"),
        ("GMT+3", "GMT+3 \(place)"),
        ("GMT", "GMT is not a time zone; write UTC"),
        ("utc", "utc is not a time zone; write UTC"),
        ("Z", "Z is not a time zone; write UTC"),
        ("europe/paris", "europe/paris is not a time zone; write Europe/Paris"),
        ("Paris", "Paris is not a time zone; write Europe/Paris"),
        ("new_york", "new_york is not a time zone; write America/New_York"),
        ("Europe/Atlantis", "Europe/Atlantis is not a time zone; \(general)"),
        ("+03:00", "+03:00 is not a time zone; \(general)"),
        ("../Europe/Paris", "../Europe/Paris is not a time zone; \(general)"),
        ("SystemV/EST5EDT", "SystemV/EST5EDT is not a time zone; \(general)"),
        ("Etc/Unknown", "Etc/Unknown is not a time zone; \(general)"),
        ("", "the text is not a time zone; \(general)"),
        ("Europe/Paris ", "the text is not a time zone; \(general)"),
        ("Europe/Paris\n", "the text is not a time zone; \(general)"),
        (String(repeating: "a/", count: 33), "the text is not a time zone; \(general)"),
    ]

    @Test(arguments: bad)
    func `What is no name is told with what to write`(name: String, message: String) {
        #expect { try TimeZoneName(name) } throws: { error in "\(error)" == message }
    }

    @Test(arguments: ["Europe/Paris", "Asia/Tokyo", "EST", "Europe/Atlantis"])
    func `A program without time zones says so, and never takes UTC instead`(name: String) {
        #expect(throws: TimeZoneName.Fault.noDatabase) { try TimeZoneName(name, find: { _ in nil }) }
        #expect(TimeZoneName.Fault.noDatabase.description.hasPrefix("the program has no time zones; build it with"))
    }

    @Test func `A zone that turns out to be another is not taken`() {
        #expect(throws: TimeZoneName.Fault.unknown("Mars/Olympus", meant: nil)) {
            try TimeZoneName("Mars/Olympus", find: { _ in .gmt })
        }
    }

    @Test func `UTC needs no data`() throws {
        #expect(try TimeZoneName("UTC", find: { _ in nil }) == .utc)
        #expect(TimeZoneName.utc.offset(at: 1_800_000_000) == 0)
    }

    @Test func `The zones of Foundation are there, whatever the system has installed`() throws {
        let known = TimeZone.knownTimeZoneIdentifiers.filter { $0.contains("/") }
        #expect(known.count > 400)
        for name in known { #expect(try TimeZoneName(name).name == name) }
    }
}
