import FoundationEssentials
import Schedules
import Testing

@Suite struct ScheduleTests {
    /// Lists the slots from an instant on.
    private func slots(_ text: String, _ zone: String, from instant: String, count: Int) throws -> [String] {
        let schedule = Schedule(try CronExpression(text), in: try TimeZoneName(zone))
        var last = try at(instant)
        return try (0..<count).map { _ in
            last = try #require(schedule.next(after: last))
            return last.formatted(.iso8601)
        }
    }

    private func at(_ text: String) throws -> Date { try Date(text, strategy: .iso8601) }

    private func utc(_ text: String) throws -> Schedule { Schedule(try CronExpression(text)) }

    @Test func `A slot is after its instant and not at it`() throws {
        let hourly = try utc("@hourly")
        let noon = try at("2026-05-01T12:00:00Z")
        #expect(hourly.next(after: noon) == noon.addingTimeInterval(3600))
        #expect(hourly.next(after: noon.addingTimeInterval(-0.001)) == noon)
        #expect(hourly.last(upTo: noon) == noon)
        #expect(hourly.last(upTo: noon.addingTimeInterval(-0.001)) == noon.addingTimeInterval(-3600))
        #expect(hourly.description == "0 * * * * UTC")
    }

    @Test func `Fixed hours: a skipped slot is due once after the gap, a repeated one at its first pass`() throws {
        #expect(
            try slots("30 2 * * *", "Europe/Berlin", from: "2026-03-28T00:00:00Z", count: 3)
                == ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
        )
        #expect(
            try slots("*/15 2,3 * * *", "Europe/Berlin", from: "2026-03-29T00:00:00Z", count: 3)
                == ["2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z", "2026-03-29T01:30:00Z"]
        )
        #expect(
            try slots("30 2 * * *", "Europe/Berlin", from: "2026-10-24T12:00:00Z", count: 2)
                == ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        )
        #expect(
            try slots("0 0-23 * * *", "Europe/Berlin", from: "2026-10-25T00:00:00Z", count: 2)
                == ["2026-10-25T02:00:00Z", "2026-10-25T03:00:00Z"],
            "02:00 was due at 00:00Z, and is not due again"
        )
    }

    @Test func `Any hour: both passes of a repeated hour are due, and nothing that was skipped`() throws {
        #expect(
            try slots("*/30 * * * *", "Europe/Berlin", from: "2026-10-25T00:00:00Z", count: 4)
                == ["2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"]
        )
        #expect(
            try slots("0 * * * *", "Europe/Berlin", from: "2026-03-29T00:00:00Z", count: 2)
                == ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]
        )
        #expect(
            try slots("30 */2 * * *", "Europe/Berlin", from: "2026-03-28T23:30:00Z", count: 1)
                == ["2026-03-29T02:30:00Z"],
            "02:30 was skipped"
        )
    }

    @Test func `Lord Howe changes by half an hour`() throws {
        // 2026-10-04: 02:00 is 02:30. 2026-04-05: 02:00 is 01:30 again.
        #expect(
            try slots("15 2 * * *", "Australia/Lord_Howe", from: "2026-10-03T12:00:00Z", count: 2)
                == ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]
        )
        #expect(
            try slots("45 1 * * *", "Australia/Lord_Howe", from: "2026-04-04T12:00:00Z", count: 2)
                == ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"]
        )
        #expect(
            try slots("45 * * * *", "Australia/Lord_Howe", from: "2026-04-04T14:00:00Z", count: 3)
                == ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"]
        )
    }

    @Test func `Apia had no 30 December 2011`() throws {
        #expect(
            try slots("0 12 * * *", "Pacific/Apia", from: "2011-12-29T12:00:00Z", count: 3)
                == ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"],
            "noon of the day that was skipped is due at its end"
        )
        #expect(
            try slots("0 0 30 12 *", "Pacific/Apia", from: "2011-01-01T00:00:00Z", count: 2)
                == ["2011-12-30T10:00:00Z", "2012-12-29T10:00:00Z"]
        )
        #expect(
            try slots("0 */12 * * *", "Pacific/Apia", from: "2011-12-29T12:00:00Z", count: 3)
                == ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]
        )
        #expect(
            try slots("0 * 30 12 *", "Pacific/Apia", from: "2011-01-01T00:00:00Z", count: 1) == ["2012-12-29T10:00:00Z"]
        )
    }

    @Test func `In São Paulo midnight itself was skipped`() throws {
        #expect(
            try slots("@daily", "America/Sao_Paulo", from: "2018-11-03T12:00:00Z", count: 2)
                == ["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"]
        )
        #expect(
            try slots("30 23 * * *", "America/Sao_Paulo", from: "2018-02-17T12:00:00Z", count: 2)
                == ["2018-02-18T01:30:00Z", "2018-02-19T02:30:00Z"]
        )
    }

    @Test func `Monrovia was ahead by seconds`() throws {
        #expect(
            try slots("0 * * * *", "Africa/Monrovia", from: "1972-01-06T22:44:30Z", count: 2)
                == ["1972-01-06T23:44:30Z", "1972-01-07T01:00:00Z"]
        )
        #expect(
            try slots("0 0 * * *", "Africa/Monrovia", from: "1972-01-06T22:44:30Z", count: 2)
                == ["1972-01-07T00:44:30Z", "1972-01-08T00:00:00Z"]
        )
    }

    @Test func `February 29 is found across 2100, which is no leap year`() throws {
        #expect(
            try slots("0 0 29 2 *", "Europe/Berlin", from: "2092-03-01T00:00:00Z", count: 3)
                == ["2096-02-28T23:00:00Z", "2104-02-28T23:00:00Z", "2108-02-28T23:00:00Z"]
        )
        let leap = try utc("0 0 29 2 *")
        #expect(leap.last(upTo: try at("2104-02-28T23:59:59Z")) == (try at("2096-02-29T00:00:00Z")))
        #expect(leap.next(after: try at("1896-03-01T00:00:00Z")) == (try at("1904-02-29T00:00:00Z")))
        #expect(leap.next(after: try at("1999-03-01T00:00:00Z")) == (try at("2000-02-29T00:00:00Z")))
        #expect(
            try slots("0 0 29 2 */7", "UTC", from: "2087-01-01T00:00:00Z", count: 2)
                == ["2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"],
            "a Sunday as well"
        )
    }

    @Test func `Either day is enough where both are restricted, and both are needed where one has a star`() throws {
        func days(_ text: String, _ count: Int) throws -> [String] {
            try slots(text, "UTC", from: "2026-01-31T12:00:00Z", count: count).map { String($0.prefix(10).suffix(5)) }
        }
        #expect(try days("0 0 13 * fri", 5) == ["02-06", "02-13", "02-20", "02-27", "03-06"])
        #expect(try days("0 0 14 2 fri", 5) == ["02-06", "02-13", "02-14", "02-20", "02-27"])
        #expect(try days("0 0 * * fri", 2) == ["02-06", "02-13"])
        #expect(try days("0 0 13 * *", 2) == ["02-13", "03-13"])
        #expect(try days("0 0 */2 * fri", 3) == ["02-13", "02-27", "03-13"], "odd days that are Fridays")
        #expect(try days("0 0 1-31 * fri", 3) == ["02-01", "02-02", "02-03"])
    }

    @Test func `What was missed is made up for once, by the latest slot`() throws {
        let daily = try utc("0 3 * * *")
        let now = try at("2026-05-10T12:00:00Z")
        let today = try at("2026-05-10T03:00:00Z")
        #expect(daily.missed(since: try at("2026-05-01T03:00:00Z"), upTo: now) == today)
        #expect(daily.missed(since: .distantPast, upTo: now) == today)
        #expect(daily.missed(since: today, upTo: now) == nil, "that slot was not missed")
        #expect(daily.missed(since: today.addingTimeInterval(-1), upTo: today) == today, "the present counts")
        #expect(daily.missed(since: now, upTo: now) == nil)
        #expect(daily.missed(since: now, upTo: try at("2026-05-09T00:00:00Z")) == nil, "the clock was set back")
    }

    @Test func `Instants that no calendar has get no answer`() throws {
        let schedule = Schedule(try CronExpression("@daily"), in: try TimeZoneName("Europe/Paris"))
        for seconds in [Double.nan, .infinity, -.infinity, 1e15, -1e15, 1e300] {
            #expect(schedule.next(after: Date(timeIntervalSince1970: seconds)) == nil)
            #expect(schedule.last(upTo: Date(timeIntervalSince1970: seconds)) == nil)
        }
        #expect(schedule.next(after: .distantPast) != nil)
        #expect(schedule.last(upTo: .distantFuture) != nil)
        #expect(try utc("0 0 29 2 *").next(after: at("9999-01-01T00:00:00Z")) == nil, "the year 10000 is too far")
    }

    @Test(.timeLimit(.minutes(1)))
    func `A far slot is found without stepping through the years`() throws {
        let schedule = Schedule(try CronExpression("59 * 29 2 */7"), in: try TimeZoneName("America/New_York"))
        let start = try at("2088-03-01T12:00:00Z")
        let slot = try at("2128-02-29T05:59:00Z")
        for _ in 0..<100 {
            #expect(schedule.next(after: start) == slot)
            #expect(schedule.last(upTo: slot.addingTimeInterval(-1)) == (try at("2088-03-01T04:59:00Z")))
        }
    }
}
