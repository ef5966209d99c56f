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
