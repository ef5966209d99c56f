/// One figure beside the limit that was measured in the same run.
struct BenchMeasurement: Encodable {
    var name: String
    var value: Double
    var unit: String
    /// What the same machine does without us, or the bound of a figure that is to stay low; `nil` for a limit itself.
    var limit: Double?
    var ratio: Double?
    var target: Double?
    var holds: Bool?

    init(_ name: String, _ value: Double, _ unit: String, limit: Double? = nil, target: Double? = nil) {
        self.name = name
        self.value = value
        self.unit = unit
        self.limit = limit
        self.target = target
        ratio = limit.map { value / $0 }
        holds = target.flatMap { target in limit.map { value / $0 >= target } }
    }

    /// A figure that is to stay below a bound.
    init(_ name: String, _ value: Double, _ unit: String, below bound: Double) {
        self.init(name, value, unit, limit: bound, target: 1)
        holds = value < bound
    }
}

extension BenchMeasurement {
    /// A figure that is to stay within a multiple of its limit.
    init(_ name: String, _ value: Double, _ unit: String, limit: Double, atMost target: Double) {
        self.init(name, value, unit, limit: limit, target: target)
        holds = value <= limit * target
    }
}

extension Duration {
    var milliseconds: Double { self / .milliseconds(1) }
}

extension [Double] {
    /// The value that so many percent of the values do not exceed; 0 where there are none.
    func percentile(_ percent: Double) -> Double {
        guard !isEmpty else { return 0 }
        let rank = Int((Double(count) * percent / 100).rounded(.up)) - 1
        return sorted()[Swift.min(Swift.max(rank, 0), count - 1)]
    }
}

/// How surely two samples come from two distributions, by Wilcoxon's rank sum.
///
/// - Returns: how many standard deviations the ranks are from those of two samples of one distribution; positive where the
///   first sample's values are the greater ones.
func rankSum(_ first: [Double], _ second: [Double]) -> Double {
    let ordered = (first.map { ($0, true) } + second.map { ($0, false) }).sorted { $0.0 < $1.0 }
    let ranks = ordered.enumerated().reduce(0.0) { $1.element.1 ? $0 + Double($1.offset + 1) : $0 }
    let (count, others) = (Double(first.count), Double(second.count))
    let all = count + others + 1
    return (ranks - count * all / 2) / (count * others * all / 12).squareRoot()
}
