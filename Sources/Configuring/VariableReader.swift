/// Reads variables as text, parses them strictly, and keeps every fault on the way.
///
/// A value that does not parse is recorded and replaced by its default, so that reading goes on to the next fault; the
/// caller throws ``faults`` at the end.
struct VariableReader {
    private var recorded: [Variable: [ConfigurationFault]] = [:]
    private let gone: [ConfigurationFault]
    /// What is set, with the values of files filled in; an empty variable counts as not set.
    let values: [String: String]

    /// Takes the environment, with the values of `NAME_FILE` files filled in.
    init(environment: [String: String]) {
        var values = environment.filter { !$0.value.isEmpty }
        for variable in Variable.allCases {
            let name = variable.rawValue
            guard let path = values[variable.fileVariable] else { continue }
            guard values[name] == nil else {
                let problem = "is set, and \(variable.fileVariable) is set too"
                recorded[variable] = [.init(variable: name, problem: problem, fix: "Keep one of the two")]
                continue
            }
            do throws(ValueFile.Failure) {
                values[name] = try ValueFile.read(path, upTo: variable.longestFile)
            } catch {
                let fix = "Name a readable text file that holds the value of \(name)"
                recorded[variable] = [.init(variable: variable.fileVariable, problem: error.problem, fix: fix)]
            }
        }
        self.values = values
        gone = values.keys.filter { $0.hasPrefix("HTTP_TLS_") && $0.utf8.allSatisfy(Self.isIdentifier) }.sorted()
            .map {
                ConfigurationFault(
                    variable: $0,
                    problem: "is set, but the API speaks no TLS",
                    fix: "Unset it, and let a proxy in front of the API end TLS, as README has it"
                )
            }
    }

    /// Everything recorded so far, in the order of ``Variable``; first what is set and has no meaning any more.
    var faults: [ConfigurationFault] { gone + Variable.allCases.flatMap { recorded[$0] ?? [] } }

    /// Whether a variable was given well: reading it recorded no fault.
    func isSound(_ variable: Variable) -> Bool { recorded[variable] == nil }

    /// Records a fault; `name`: what is shown as the variable, where that is a part of its value.
    mutating func fault(_ variable: Variable, as name: String? = nil, _ problem: String, fix: String) {
        recorded[variable, default: []].append(
            ConfigurationFault(variable: name ?? variable.rawValue, problem: problem, fix: fix)
        )
    }

    /// The text of a variable; `nil` when it is not set, empty, or unreadable.
    ///
    /// Control characters are refused everywhere: they end up in headers, connection strings and logs.
    mutating func text(_ variable: Variable) -> String? {
        guard let text = values[variable.rawValue] else { return nil }
        let isLine = { (scalar: Unicode.Scalar) in variable.hasLines && ["\n", "\r", "\t"].contains(scalar) }
        guard !text.unicodeScalars.contains(where: { $0.properties.generalCategory == .control && !isLine($0) }) else {
            fault(variable, "holds a control character or a line break", fix: "Give it on one line")
            return nil
        }
        return text
    }

    /// A text that `parse` accepts.
    ///
    /// The problem it gives must not quote the value of a secret.
    mutating func parsed<Value>(
        _ variable: Variable,
        fix: String,
        _ parse: (String) -> Result<Value, Problem>
    ) -> Value? {
        guard let text = text(variable) else { return nil }
        switch parse(text) {
        case .success(let value): return value
        case .failure(let problem):
            fault(variable, problem.text, fix: fix)
            return nil
        }
    }

    /// What a parser found wrong, as the middle of a sentence.
    struct Problem: Error {
        let text: String

        init(_ text: String) { self.text = text }
    }

    /// A text that `parse` accepts, where only one thing can be wrong with it.
    mutating func parsed<Value>(
        _ variable: Variable,
        fix: String,
        else problem: String,
        _ parse: (String) -> Value?
    ) -> Value? {
        parsed(variable, fix: fix) { parse($0).map(Result.success) ?? .failure(Problem(problem)) }
    }

    /// A web address that `check` accepts.
    mutating func address(
        _ variable: Variable,
        fix: String = "Set an https:// address; http:// only for a loopback host",
        _ check: (String) throws(WebAddress.Fault) -> String = WebAddress.base
    ) -> String? {
        parsed(variable, fix: fix) { text in
            do throws(WebAddress.Fault) {
                return .success(try check(text))
            } catch {
                return .failure(Problem(error.problem))
            }
        }
    }

    /// Records that a variable is missing which others need, unless something else is wrong with it.
    mutating func missing(_ variable: Variable, _ others: String, fix: String) {
        if isSound(variable) { fault(variable, "is not set, but \(others)", fix: fix) }
    }

    /// A whole number.
    mutating func number(_ variable: Variable, default: Int, in range: ClosedRange<Int>, unit: String = "") -> Int {
        let unit = unit.isEmpty ? "" : " (\(unit))"
        let fix =
            "Set a whole number\(unit) from \(range.lowerBound) to \(range.upperBound); the default is \(`default`)"
        return parsed(variable, fix: fix) { text in
            guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), !text.isEmpty else {
                return .failure(Problem("\(quoted(text)) is not a whole number"))
            }
            guard let number = Int(text), range.contains(number) else {
                return .failure(Problem("\(quoted(text)) is out of range"))
            }
            return .success(number)
        } ?? `default`
    }

    /// A limit of requests.
    mutating func rate(_ variable: Variable, default usual: Int, most: Int = 100_000) -> Int {
        number(variable, default: usual, in: 0...most, unit: "requests a minute, 0 for no limit")
    }

    /// A decimal number such as `0.5`; no exponent, no sign.
    mutating func decimal(_ variable: Variable, default: Double, in range: ClosedRange<Double>) -> Double {
        let fix =
            "Set a number such as 0.5, from \(Int(range.lowerBound)) to \(Int(range.upperBound)); "
            + "the default is \(`default`)"
        return parsed(variable, fix: fix) { text in
            // `Double` alone would take "nan", "inf" and hexadecimal.
            guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) || $0 == 0x2E }), let number = Double(text) else {
                return .failure(Problem("\(quoted(text)) is not a number"))
            }
            guard range.contains(number) else { return .failure(Problem("\(quoted(text)) is out of range")) }
            return .success(number)
        } ?? `default`
    }

    /// One of the raw values of an enumeration.
    mutating func choice<Value>(_ variable: Variable, default: Value) -> Value
    where Value: RawRepresentable<String> & CaseIterable {
        let known = Value.allCases.map(\.rawValue).joined(separator: ", ")
        return parsed(variable, fix: "Set one of \(known); the default is \(`default`.rawValue)") { text in
            Value(rawValue: text).map(Result.success) ?? .failure(Problem("\(quoted(text)) is not known"))
        } ?? `default`
    }
}

extension VariableReader {
    /// Whether a byte is a letter, a digit, `-` or `_`.
    static func isIdentifier(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x5F: true
        default: false
        }
    }
}

/// A value that is not secret, short enough for a line.
func quoted(_ text: String) -> String {
    text.count <= 40 ? "\"\(text)\"" : "\"\(text.prefix(40))…\""
}
