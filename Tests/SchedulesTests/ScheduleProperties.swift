import FoundationEssentials
import Schedules
import Testing

@Suite struct ScheduleProperties {
    /// Zones with the years of interest: shifts of 30 minutes and two hours, at midnight, within Ramadan, by a day.
    static let zones: [(String, ClosedRange<Int>)] = [
        ("UTC", 2024...2024), ("Europe/Berlin", 2015...2030), ("America/New_York", 2000...2030),
        ("America/St_Johns", 2006...2013), ("Australia/Lord_Howe", 2005...2030), ("Antarctica/Troll", 2006...2030),
        ("America/Sao_Paulo", 2008...2019), ("America/Havana", 2008...2028), ("Africa/Cairo", 2008...2028),
        ("Africa/Casablanca", 2010...2030), ("Pacific/Apia", 2009...2014), ("Pacific/Kwajalein", 1993...1993),
        ("Asia/Kathmandu", 1985...1986), ("Asia/Pyongyang", 2015...2018), ("America/Caracas", 2007...2016),
        ("America/Nuuk", 2020...2030),
    ]

    private func date(_ minute: Int) -> Date { Date(timeIntervalSince1970: Double(minute * 60)) }

    @Test(arguments: zones)
    func `Slots around clock changes are those of a walk through every minute`(name: String, years: ClosedRange<Int>)
        throws
    {
        let zone = try TimeZoneName(name)
        let foundation = try #require(TimeZone(identifier: name))
        var random = SeededRandom(seed: UInt64(years.lowerBound + name.utf8.count))
        let changes = ClockWindow.changes(of: foundation, in: years)
        #expect(changes.isEmpty == (name == "UTC"))
        var slotted = 0
        for _ in 0..<12 {
            let change = changes.randomElement(using: &random) ?? 1_700_000_000 / 60 * 60
            let window = ClockWindow(foundation, around: change)
            for _ in 0..<16 {
                let drawn = DrawnExpression(using: &random)
                guard let expression = try? CronExpression(drawn.text) else { continue }
                let schedule = Schedule(expression, in: zone)
                let slots = window.slots(of: drawn)
                slotted += slots.isEmpty ? 0 : 1
                // Anywhere, near the change, and at a slot; a little before or after the minute as well.
                let minutes = [
                    Int.random(in: window.start...window.end, using: &random),
                    change / 60 + Int.random(in: -200...200, using: &random),
                    slots.randomElement(using: &random) ?? window.start,
                ]
                for minute in minutes {
                    for shift in [-0.5, 0, 30] {
                        check(schedule, at: date(minute).addingTimeInterval(shift), against: slots, in: window)
                    }
                }
            }
        }
        #expect(slotted > 60, "most expressions have to have slots")
    }

    /// Compares; an expectation for each of so many instants would take longer than all the rest.
    private func check(_ schedule: Schedule, at instant: Date, against slots: [Int], in window: ClockWindow) {
        let index = slots.partitioningIndex { date($0) > instant }
        let (next, last) = (schedule.next(after: instant), schedule.last(upTo: instant))
        let isNext = index < slots.count ? next == date(slots[index]) : next.map { $0 > date(window.end) } == true
        if !isNext { Issue.record("\(schedule) after \(instant): \(next.map(\.description) ?? "none")") }
        let isLast = index > 0 ? last == date(slots[index - 1]) : last.map { $0 < date(window.start) } == true
        if !isLast { Issue.record("\(schedule) up to \(instant): \(last.map(\.description) ?? "none")") }
    }

    @Test(arguments: zones.map(\.0))
    func `The next slot and the last one are each other's inverse, with none between`(name: String) throws {
        let zone = try TimeZoneName(name)
        var random = SeededRandom(seed: UInt64(name.utf8.count))
        for _ in 0..<120 {
            let drawn = DrawnExpression(using: &random)
            guard let expression = try? CronExpression(drawn.text) else { continue }
            let schedule = Schedule(expression, in: zone)
            let instant = Date(timeIntervalSince1970: Double.random(in: -1e9...5e9, using: &random))
            let next = try #require(schedule.next(after: instant))
            let last = try #require(schedule.last(upTo: instant))
            let comment = Comment(rawValue: "\(schedule) at \(instant)")
            #expect(last <= instant && instant < next, comment)
            #expect(schedule.last(upTo: next) == next, comment)
            #expect(schedule.next(after: next.addingTimeInterval(-1)) == next, comment)
            #expect(schedule.last(upTo: next.addingTimeInterval(-0.001)) == last, comment)
            #expect(schedule.next(after: last) == next, comment)
            #expect(schedule.missed(since: last, upTo: instant) == nil, comment)
            #expect(schedule.missed(since: last.addingTimeInterval(-0.001), upTo: instant) == last, comment)
            #expect(schedule.missed(since: instant, upTo: next) == next, comment)
        }
    }
}

extension Array {
    /// Finds the first index whose element fulfils what all later ones fulfil as well.
    fileprivate func partitioningIndex(_ isLater: (Element) -> Bool) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = (low + high) / 2
            if isLater(self[middle]) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
