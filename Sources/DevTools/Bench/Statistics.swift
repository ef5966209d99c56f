extension Duration {
    /// In milliseconds.
    package var milliseconds: Double {
        Double(components.seconds) * 1000 + Double(components.attoseconds) / 1e15
    }
}

extension [Double] {
    /// The value that so many percent of the values do not exceed; 0 where there are none.
    package func percentile(_ percent: Double) -> Double {
        guard !isEmpty else { return 0 }
        let rank = Int((Double(count) * percent / 100).rounded(.up)) - 1
        return sorted()[Swift.min(Swift.max(rank, 0), count - 1)]
    }
}

/// How surely two samples come from two distributions, by Wilcoxon's rank sum.
///
/// - Returns: how many standard deviations the ranks are from those of two samples of one distribution; positive where the
///   first sample's values are the greater ones.
package func rankSum(_ first: [Double], _ second: [Double]) -> Double {
    let ordered = (first.map { ($0, true) } + second.map { ($0, false) }).sorted { $0.0 < $1.0 }
    let ranks = ordered.enumerated().reduce(0.0) { $1.element.1 ? $0 + Double($1.offset + 1) : $0 }
    let (count, others) = (Double(first.count), Double(second.count))
    let all = count + others + 1
    return (ranks - count * all / 2) / (count * others * all / 12).squareRoot()
}
