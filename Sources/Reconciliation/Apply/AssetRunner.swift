package import Logging
package import Queue
import ServiceLifecycle

/// Freezes and unfreezes assets that were too many for the transaction that decided on them.
package struct AssetRunner: Service {
    private let runs: AssetRuns
    private let signal: Signal
    private let logger: Logger

    /// - Parameters:
    ///   - runs: the assets that wait.
    ///   - signal: raised when runs begin.
    ///   - logger: gets failures.
    package init(_ runs: AssetRuns, signal: Signal, logger: Logger) {
        self.runs = runs
        self.signal = signal
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("asset runner", every: .milliseconds(250), wokenBy: signal, logger: logger) {
            try await runs.step() ? .again : .idle
        }.run()
    }
}

/// Writes down in how many answers stores knew their purchases, which this process has only counted.
package struct AbsenceKeeper: Service {
    private let apply: Apply
    private let logger: Logger

    package init(_ apply: Apply, logger: Logger) {
        self.apply = apply
        self.logger = logger
    }

    package func run() async {
        await PeriodicService("absence keeper", .upkeep, every: .seconds(5), logger: logger) {
            try await apply.keepAbsences()
            return .idle
        }.run()
    }
}
