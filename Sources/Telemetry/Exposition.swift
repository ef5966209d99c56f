/// What a family of series is to Prometheus.
enum MetricType: String {
    case counter, gauge, histogram
}

/// The labels of one series, sorted by name, each name once.
struct Labels: Hashable, Comparable {
    /// As they stand between the braces: `a="b",c="d"`; empty without labels.
    let text: String

    /// The longest value in UTF-8 bytes; values come from enumerations, so that anything longer is a mistake.
    static let valueLimit = 256

    init(_ dimensions: [(String, String)]) {
        let unique = Dictionary(dimensions.map { (Exposition.labelName($0.0), $0.1) }) { $1 }
        text = unique.sorted { $0.key < $1.key }.map { "\($0.key)=\"\(Self.escaped($0.value))\"" }.joined(
            separator: ","
        )
    }

    /// Whether a label, of a name and a value without commas and quotes, is among them.
    func has(_ name: String, _ value: String) -> Bool { ",\(text),".contains(",\(name)=\"\(value)\",") }

    static func < (left: Labels, right: Labels) -> Bool { left.text < right.text }

    private static func escaped(_ value: String) -> String {
        var size = 0
        let cut = value.unicodeScalars.prefix { scalar in
            size += scalar.utf8.count
            return size <= valueLimit
        }
        return Exposition.escaped(cut, quotes: true)
    }
}

/// Text in the Prometheus format 0.0.4, as it grows.
/// - SeeAlso: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
struct Exposition {
    private(set) var text = ""

    /// Starts a family; every sample of it follows at once.
    mutating func begin(_ name: String, type: MetricType, help: String?) {
        if let help { text += "# HELP \(name) \(Self.escaped(help.unicodeScalars, quotes: false))\n" }
        text += "# TYPE \(name) \(type.rawValue)\n"
    }

    /// Escapes a text; `quotes` as well, for a label's value.
    fileprivate static func escaped(_ text: some Sequence<Unicode.Scalar>, quotes: Bool) -> String {
        text.reduce(into: "") { escaped, scalar in
            switch scalar {
            case "\\": escaped += "\\\\"
            case "\"" where quotes: escaped += "\\\""
            case "\n": escaped += "\\n"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
    }

    /// Adds a sample; `bound` is a histogram bucket's upper end.
    mutating func sample(_ name: String, _ labels: Labels, bound: Double? = nil, _ value: Double) {
        let le = bound.map { "le=\"\(Self.number($0))\"" } ?? ""
        let inner = labels.text.isEmpty || le.isEmpty ? labels.text + le : labels.text + "," + le
        text += inner.isEmpty ? "\(name) " : "\(name){\(inner)} "
        text += Self.number(value) + "\n"
    }

    /// A number as Prometheus reads it; whole numbers without a point.
    static func number(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        if value.isInfinite { return value > 0 ? "+Inf" : "-Inf" }
        return value.magnitude < 9_007_199_254_740_992 && value == value.rounded() ? String(Int64(value)) : "\(value)"
    }

    /// A valid metric name that ends in `ending`.
    static func metricName(_ label: String, ending: String) -> String {
        let name = valid(label, mayHoldColons: true)
        return name.hasSuffix(ending) ? name : name + ending
    }

    /// A valid label name; `le` belongs to histograms, and names with two leading underscores to Prometheus itself.
    static func labelName(_ label: String) -> String {
        let name = valid(label, mayHoldColons: false)
        return name == "le" || name.hasPrefix("__") ? "label_" + name : name
    }

    private static func valid(_ text: String, mayHoldColons: Bool) -> String {
        let bytes = text.utf8.map { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x5F: byte
            case 0x3A where mayHoldColons: byte
            default: UInt8(ascii: "_")
            }
        }
        let name = String(decoding: bytes, as: UTF8.self)
        guard let first = bytes.first, !(0x30...0x39).contains(first) else { return "_" + name }
        return name
    }
}
