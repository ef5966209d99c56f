import Entitlements
import Testing
import TextFormats

@Suite struct EntitlementJSONTests {
    @Test(arguments: [nil, 0, 1_772_352_000_123_456, 16_725_225_600_000_000] as [Int64?])
    func `A set is read as it was written`(_ end: Int64?) throws {
        var held = HeldEntitlement()
        (held.name, held.store, held.environment) = ("premium", "app_store", "production")
        held.endsAt = end.map { Instant(microseconds: $0) }
        #expect(try EntitlementJSON.read(record: EntitlementJSON.record([held])) == [held])
    }

    @Test func `An end that can't be read is an error, and no access without an end`() {
        #expect(throws: DecodingError.self) {
            try EntitlementJSON.read(record: #"[{"id":"premium","store":"app_store","ends_at":"soon"}]"#)
        }
    }
}
