/// A file of `NAME=value` lines: no escapes, no continued lines.
package enum EnvironmentFile {
    /// Reads a file's variables; lines that are empty or begin with `#` say nothing, and quotes around a value are left out.
    ///
    /// - Throws: `ConfigurationFaults` where the file can't be read, with each line that is no variable, and with each variable that is set
    ///   twice; values are not shown.
    static func read(_ path: String) throws(ConfigurationFaults) -> [String: String] {
        let text: String
        do throws(ValueFile.Failure) { text = try ValueFile.read(path) } catch {
            throw ConfigurationFaults(
                faults: [
                    .init(
                        variable: path,
                        problem: error.problem,
                        fix: "Make it a text file that the service's user may read"
                    )
                ]
            )
        }
        var values: [String: String] = [:]
        var faults: [ConfigurationFault] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let line = trimmed(line)
            guard !line.isEmpty, line.first != "#" else { continue }
            let sides = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = String(trimmed(sides[0]))
            guard sides.count == 2, !name.isEmpty, name.utf8.allSatisfy(VariableReader.isIdentifier) else {
                faults.append(
                    .init(
                        variable: "\(path), line \(index + 1)",
                        problem: "is no variable",
                        fix: "Write NAME=value, or # before a comment"
                    )
                )
                continue
            }
            if values.updateValue(value(trimmed(sides[1])), forKey: name) != nil {
                faults.append(.init(variable: name, problem: "is set twice", fix: "Keep one of the two lines"))
            }
        }
        guard faults.isEmpty else { throw ConfigurationFaults(faults: faults) }
        return values
    }

    private static func trimmed(_ text: Substring) -> Substring {
        let begin = text.drop { $0 == " " || $0 == "\t" }
        guard let last = begin.lastIndex(where: { $0 != " " && $0 != "\t" }) else { return "" }
        return begin[...last]
    }

    private static func value(_ text: Substring) -> String {
        for quote: Character in ["\"", "'"] where text.count >= 2 && text.first == quote && text.last == quote {
            return String(text.dropFirst().dropLast())
        }
        return String(text)
    }
}
