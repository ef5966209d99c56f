/// One thing that is wrong with the configuration.
package struct ConfigurationFault: Hashable, Sendable, CustomStringConvertible {
    /// The environment variable's name.
    package let variable: String
    /// What is wrong, without the value of anything secret.
    package let problem: String
    /// What to do about it.
    package let fix: String

    package init(variable: String, problem: String, fix: String) {
        self.variable = variable
        self.problem = problem
        self.fix = fix
    }

    package var description: String { "\(variable): \(problem). \(fix)." }
}

/// Everything that is wrong with the configuration, so that one start shows it all.
///
/// Never empty. The order is that of ``Variable``, the same in every run. The description has one line a fault.
package struct ConfigurationFaults: Error, Hashable, Sendable, CustomStringConvertible {
    package let faults: [ConfigurationFault]

    package init(faults: [ConfigurationFault]) { self.faults = faults }

    package var description: String {
        let count = faults.count == 1 ? "1 fault" : "\(faults.count) faults"
        return (["The configuration has \(count):"] + faults.map { "  \($0)" }).joined(separator: "\n")
    }
}
