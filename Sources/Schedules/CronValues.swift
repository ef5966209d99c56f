/// The numbers that one field of a cron expression names.
struct CronValues: Hashable, Sendable {
    /// The numbers as bits.
    private var bits: UInt64 = 0
    /// The field begins with `*`, which decides more than its numbers: how days are joined, and what a clock change
    /// does.
    let isStarred: Bool

    init(isStarred: Bool) { self.isStarred = isStarred }

    mutating func insert(_ numbers: StrideThrough<Int>) {
        for number in numbers { bits |= 1 << UInt64(number) }
    }

    /// Writes Sunday as 0 where it is written as 7.
    mutating func moveSunday() { bits = bits & ~(1 << 7) | 1 }

    func contains(_ number: Int) -> Bool { bits & (1 << UInt64(number)) != 0 }

    /// Finds the first number from a given one on.
    func first(from number: Int) -> Int? {
        guard number < 64 else { return nil }
        let rest = bits & (.max << UInt64(number))
        return rest == 0 ? nil : rest.trailingZeroBitCount
    }

    /// Finds the last number up to a given one.
    func last(upTo number: Int) -> Int? {
        guard number >= 0 else { return nil }
        let rest = bits & (.max >> UInt64(63 - number))
        return rest == 0 ? nil : 63 - rest.leadingZeroBitCount
    }

    /// Finds the first number from a given one on, or the last one up to it.
    func nearest(_ way: SearchDirection, from number: Int) -> Int? {
        way == .later ? first(from: number) : last(upTo: number)
    }

    /// Takes the numbers as weekdays: the days 1 to 35 of a month that begins on `weekday` and fall on one of them.
    func repeated(from weekday: Int) -> CronValues {
        let week = (bits | bits << 7) >> UInt64(weekday) & 0x7F
        var month = self
        month.bits = (week | week << 7 | week << 14 | week << 21 | week << 28) << 1
        return month
    }

    /// Joins two sets of numbers: those in either, or those in both.
    func joined(with other: CronValues, isUnion: Bool) -> CronValues {
        var joined = self
        joined.bits = isUnion ? bits | other.bits : bits & other.bits
        return joined
    }

    /// Leaves out all numbers after a given one.
    func cut(after number: Int) -> CronValues {
        var values = self
        values.bits &= .max >> UInt64(63 - number)
        return values
    }

    /// Writes the numbers of a field, each once in `range`, in the one way that is canonical: the star first, if any.
    func text(in range: ClosedRange<Int>) -> String {
        var items: [String] = []
        var rest = self
        if isStarred {
            let step = (1...64).first {
                stride(from: range.lowerBound, through: range.upperBound, by: $0).allSatisfy(contains)
            }
            rest.remove(stride(from: range.lowerBound, through: range.upperBound, by: step ?? 1))
            items.append(step == 1 ? "*" : "*/\(step ?? 1)")
        }
        while let first = rest.first(from: range.lowerBound) {
            let (last, step) = rest.longestRun(from: first, in: range)
            rest.remove(stride(from: first, through: last, by: step))
            items.append(first == last ? "\(first)" : step == 1 ? "\(first)-\(last)" : "\(first)-\(last)/\(step)")
        }
        return items.joined(separator: ",")
    }

    /// Finds the longest run of at least three numbers, or of four with a step; the number by itself where none is.
    private func longestRun(from first: Int, in range: ClosedRange<Int>) -> (last: Int, step: Int) {
        var best = (last: first, step: 1)
        var length = 2
        for step in 1...range.upperBound {
            var last = first
            while last + step <= range.upperBound, contains(last + step) { last += step }
            let count = (last - first) / step + 1
            guard count > max(length, step == 1 ? 2 : 3) else { continue }
            (best, length) = ((last, step), count)
        }
        return best
    }

    private mutating func remove(_ numbers: StrideThrough<Int>) {
        for number in numbers { bits &= ~(1 << UInt64(number)) }
    }
}
