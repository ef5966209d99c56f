/// Metrics as a strict reader of the Prometheus text format 0.0.4 sees them.
///
/// - SeeAlso: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
struct Exposition: Sendable {
    struct Fault: Error, CustomStringConvertible {
        var line: Int
        var reason: String
        var description: String { "line \(line): \(reason)" }
    }

    struct Sample: Sendable {
        var name: String
        var labels: [String: String]
        var value: Double
    }

    struct Family: Sendable {
        var name: String
        var type: String
        var help: String?
        var samples: [Sample] = []
    }

    private(set) var families: [String: Family] = [:]
    /// As it was scraped.
    let text: String

    /// The sum of a family's samples with these labels; nil where there is none.
    ///
    /// Of a histogram it is how many values were recorded.
    func value(_ name: String, _ labels: [String: String] = [:]) -> Double? {
        guard let family = families[name] else { return nil }
        let wanted = family.type == "histogram" ? name + "_count" : name
        let found = family.samples.filter { sample in
            sample.name == wanted && labels.allSatisfy { sample.labels[$0.key] == $0.value }
        }
        return found.isEmpty ? nil : found.reduce(0) { $0 + $1.value }
    }

    /// Reads an answer to a scrape.
    ///
    /// - Throws: `Fault` for whatever a lenient reader might let pass.
    init(_ text: String) throws(Fault) {
        self.text = text
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.popLast() == "" else { throw Fault(line: lines.count, reason: "the last line has no end") }
        var current: Family?
        var help: (name: String, text: String)?
        var seen: Set<String> = []
        for (index, line) in lines.enumerated() {
            func fault(_ reason: String) -> Fault { Fault(line: index + 1, reason: "\(reason): \(line)") }
            if line.hasPrefix("# HELP ") {
                let words = line.dropFirst(7).split(separator: " ", maxSplits: 1).map(String.init)
                guard words.count == 2, help == nil else { throw fault("HELP without text, or twice") }
                help = (words[0], words[1])
            } else if line.hasPrefix("# TYPE ") {
                let words = line.dropFirst(7).split(separator: " ").map(String.init)
                guard words.count == 2, Self.isName(words[0], colons: true) else { throw fault("odd TYPE") }
                guard ["counter", "gauge", "histogram"].contains(words[1]) else { throw fault("unknown type") }
                guard help == nil || help?.name == words[0] else { throw fault("HELP of another family") }
                guard families[words[0]] == nil, current?.name != words[0] else { throw fault("family twice") }
                if let current { families[current.name] = current }
                current = Family(name: words[0], type: words[1], help: help?.text)
                help = nil
            } else {
                let sample: Sample
                do { sample = try Self.sample(line) } catch { throw fault(error.reason) }
                guard help == nil, let family = current, Self.names(of: family).contains(sample.name) else {
                    throw fault("a sample outside its family")
                }
                let key = sample.name + sample.labels.sorted { $0.key < $1.key }.description
                guard seen.insert(key).inserted else { throw fault("the same sample twice") }
                current?.samples.append(sample)
            }
        }
        if let current { families[current.name] = current }
        for family in families.values { try Self.check(family) }
    }

    // MARK: Lines

    private static func isName(_ text: some StringProtocol, colons: Bool) -> Bool {
        String(text).wholeMatch(of: colons ? /[a-zA-Z_:][a-zA-Z0-9_:]*/ : /[a-zA-Z_][a-zA-Z0-9_]*/) != nil
    }

    private static func names(of family: Family) -> [String] {
        family.type == "histogram" ? ["_bucket", "_sum", "_count"].map { family.name + $0 } : [family.name]
    }

    private static func sample(_ line: Substring) throws(Fault) -> Sample {
        func fault(_ reason: String) -> Fault { Fault(line: 0, reason: reason) }
        let name = line.prefix { $0 != "{" && $0 != " " }
        guard isName(name, colons: true) else { throw fault("no name") }
        var rest = line[name.endIndex...]
        var labels: [String: String] = [:]
        if rest.first == "{" {
            rest.removeFirst()
            while rest.first != "}" {
                let label = rest.prefix { $0 != "=" }
                rest = rest[label.endIndex...]
                guard isName(label, colons: false), rest.hasPrefix("=\"") else { throw fault("odd label") }
                rest = rest.dropFirst(2)
                guard labels.updateValue(try value(&rest), forKey: String(label)) == nil else {
                    throw fault("a label twice")
                }
                if rest.first == "," { rest.removeFirst() } else if rest.first != "}" { throw fault("odd labels") }
            }
            rest.removeFirst()
        }
        guard rest.first == " " else { throw fault("no value") }
        let number = rest.dropFirst()
        let special = ["+Inf": Double.infinity, "-Inf": -Double.infinity, "NaN": Double.nan][String(number)]
        guard let value = special ?? (number.first?.isLetter == false ? Double(number) : nil) else {
            throw fault("odd value")
        }
        return Sample(name: String(name), labels: labels, value: value)
    }

    /// Takes a label's value and the quote behind it.
    private static func value(_ rest: inout Substring) throws(Fault) -> String {
        var text = ""
        while let next = rest.popFirst() {
            switch next {
            case "\"": return text
            case "\\":
                switch rest.popFirst() {
                case "\\": text += "\\"
                case "\"": text += "\""
                case "n": text += "\n"
                default: throw Fault(line: 0, reason: "unknown escape")
                }
            default: text.append(next)
            }
        }
        throw Fault(line: 0, reason: "a value without end")
    }

    // MARK: Families

    private static func check(_ family: Family) throws(Fault) {
        func fault(_ reason: String) -> Fault { Fault(line: 0, reason: "\(family.name): \(reason)") }
        guard !family.samples.isEmpty else { throw fault("no samples") }
        guard family.samples.allSatisfy({ $0.labels["quantile"] == nil }) else { throw fault("a summary's label") }
        guard (family.type == "counter") == family.name.hasSuffix("_total") else {
            throw fault("_total is for counters")
        }
        switch family.type {
        case "counter":
            guard family.samples.allSatisfy({ $0.value >= 0 && $0.value.isFinite }) else { throw fault("odd count") }
        case "histogram": try checkHistogram(family)
        default: break
        }
    }

    private static func checkHistogram(_ family: Family) throws(Fault) {
        func fault(_ reason: String) -> Fault { Fault(line: 0, reason: "\(family.name): \(reason)") }
        let series = Dictionary(grouping: family.samples) { $0.labels.filter { $0.key != "le" } }
        for samples in series.values {
            let buckets = samples.filter { $0.name.hasSuffix("_bucket") }
            let bounds = buckets.compactMap { $0.labels["le"] }.compactMap { $0 == "+Inf" ? .infinity : Double($0) }
            let sums = samples.filter { $0.name.hasSuffix("_sum") }
            let counts = samples.filter { $0.name.hasSuffix("_count") }
            guard bounds.count == buckets.count, bounds.last == .infinity, bounds == bounds.sorted() else {
                throw fault("odd buckets")
            }
            guard zip(buckets, buckets.dropFirst()).allSatisfy({ $0.value <= $1.value }) else {
                throw fault("buckets do not add up")
            }
            guard sums.count == 1, counts.count == 1, counts[0].value == buckets.last?.value else {
                throw fault("sum and count do not fit")
            }
            guard counts[0].value > 0 || sums[0].value == 0, sums[0].value.isFinite else { throw fault("odd sum") }
            guard (sums + counts).allSatisfy({ $0.labels["le"] == nil }) else { throw fault("le outside a bucket") }
        }
    }
}
