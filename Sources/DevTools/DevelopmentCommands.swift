package import ArgumentParser

/// The commands that only development needs: stores that answer as a scenario says, and benchmarks.
package let developmentCommands: [any ParsableCommand.Type] = [Simulate.self, BenchCommand.self]
