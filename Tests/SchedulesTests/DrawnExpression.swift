/// Random numbers that are the same in every run.
struct SeededRandom: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = (state ^ (state >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}

/// A field of a made-up expression: its text, and by another way than the parser's what it means.
struct DrawnField {
    var text: String
    /// The numbers as bits.
    var numbers: UInt64 = 0
    var isStarred: Bool

    /// Draws a field.
    ///
    /// - Parameters:
    ///   - range: the numbers of the field.
    ///   - stars: how many of ten fields are a plain star.
    ///   - names: what may be written for the numbers, from the first on.
    ///   - random: where the draws come from.
    init(_ range: ClosedRange<Int>, stars: Int, names: [String] = [], using random: inout SeededRandom) {
        text = "*"
        isStarred = true
        guard Int.random(in: 0..<10, using: &random) >= stars else {
            mark(range.lowerBound, range.upperBound, 1)
            return
        }
        var items: [String] = []
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            let ends = [Int.random(in: range, using: &random), Int.random(in: range, using: &random)].sorted()
            let step = Int.random(in: 1...max(2, range.count / 4), using: &random)
            let spelled = ends.map { end in
                let index = end - range.lowerBound
                return index < names.count && Bool.random(using: &random) ? names[index] : "\(end)"
            }
            // A name for Sunday at an end of a range would mean another Sunday than the number does.
            let isSunday = !names.isEmpty && range.lowerBound == 0 && ends[1] % 7 == 0
            switch Int.random(in: 0..<6, using: &random) {
            case 0:
                items.append("*/\(step)")
                mark(range.lowerBound, range.upperBound, step)
            case 1 where !isSunday:
                items.append("\(spelled[0])-\(spelled[1])")
                mark(ends[0], ends[1], 1)
            case 2 where !isSunday:
                items.append("\(spelled[0])-\(spelled[1])/\(step)")
                mark(ends[0], ends[1], step)
            default:
                items.append(spelled[0])
                mark(ends[0], ends[0], 1)
            }
        }
        text = items.joined(separator: ",")
        isStarred = text.hasPrefix("*")
    }

    private mutating func mark(_ first: Int, _ last: Int, _ step: Int) {
        for number in first...last where (number - first) % step == 0 { numbers |= 1 << UInt64(number) }
    }
}

/// A made-up expression.
struct DrawnExpression {
    var minute: DrawnField
    var hour: DrawnField
    var day: DrawnField
    var month: DrawnField
    var weekday: DrawnField

    init(using random: inout SeededRandom) {
        minute = DrawnField(0...59, stars: 2, using: &random)
        hour = DrawnField(0...23, stars: 3, using: &random)
        day = DrawnField(1...31, stars: 6, using: &random)
        let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        month = DrawnField(1...12, stars: 8, names: months, using: &random)
        weekday = DrawnField(
            0...7,
            stars: 6,
            names: ["sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"],
            using: &random
        )
        weekday.numbers |= weekday.numbers >> 7
    }

    var text: String { [minute, hour, day, month, weekday].map(\.text).joined(separator: " ") }
}
