/// One figure beside the limit that was measured in the same run.
package struct BenchMeasurement: Sendable, Codable {
    package var name: String
    package var value: Double
    package var unit: String
    /// What the same machine does without us, or the bound of a figure that is to stay low; `nil` for a limit itself.
    package var limit: Double?
    package var ratio: Double?
    package var target: Double?
    package var holds: Bool?

    package init(name: String, value: Double, unit: String, limit: Double? = nil, target: Double? = nil) {
        self.name = name
        self.value = value
        self.unit = unit
        self.limit = limit
        self.target = target
        ratio = limit.map { value / $0 }
        holds = target.flatMap { target in limit.map { value / $0 >= target } }
    }

    /// A figure that is to stay below a bound.
    package init(name: String, value: Double, unit: String, below bound: Double) {
        self.init(name: name, value: value, unit: unit)
        limit = bound
        ratio = value / bound
        target = 1
        holds = value < bound
    }
}
