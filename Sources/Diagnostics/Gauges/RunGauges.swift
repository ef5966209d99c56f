import Metrics
import RateLimits
package import Runs
import Synchronization

/// How runs, schedules and scheduled checks stand, as gauges; the same in every process.
package struct RunGauges: Sendable {
    private let runs: RunRecords
    private let invariants: InvariantMonitor
    private let forecast: RunForecast
    private let shown = Shown()
    private let turn = Throttle(every: .seconds(10))

    /// Series that come and go with what they are about, by their metric.
    private final class Shown: Sendable {
        private let metrics = Mutex<[String: [String: Gauge]]>([:])

        /// Shows a metric's series with these values of a dimension, and no others.
        func replace(_ label: String, by dimension: String, with values: [String: Double]) {
            metrics.withLock { metrics in
                var gauges = metrics[label] ?? [:]
                for (name, gauge) in gauges where values[name] == nil {
                    gauge.destroy()
                    gauges[name] = nil
                }
                for (name, value) in values {
                    let gauge = gauges[name] ?? Gauge(label: label, dimensions: [(dimension, name)])
                    gauge.record(value)
                    gauges[name] = gauge
                }
                metrics[label] = gauges
            }
        }
    }

    package init(runs: RunRecords, invariants: InvariantMonitor, forecast: RunForecast) {
        self.runs = runs
        self.invariants = invariants
        self.forecast = forecast
    }

    /// Reads every figure, at most every ten seconds; what can't be read keeps its value.
    package func refresh() async {
        guard turn.isDue() else { return }
        if let figures = try? await runs.figures() {
            Gauge(label: "entitlement_sync_due_users").record(figures.dueUsers)
            Gauge(label: "entitlement_sync_due_oldest_seconds").record(figures.dueOldestSeconds)
            for state in [RunRecord.State.reading, .stopped, .applying] {
                Gauge(label: "entitlement_sync_runs", dimensions: [("state", state.rawValue)])
                    .record(figures.runs[state] ?? 0)
            }
            let left = figures.open.compactMap { run in run.left.map { ("\(run.id)", Double($0)) } }
            shown.replace("entitlement_sync_run_left_users", by: "run", with: Dictionary(left) { $1 })
            let ends = figures.open.compactMap { run in run.seconds.map { ("\(run.id)", $0) } }
            shown.replace("entitlement_sync_run_end_seconds", by: "run", with: Dictionary(ends) { $1 })
            shown.replace("entitlement_sync_schedule_late_seconds", by: "schedule", with: figures.lateSeconds)
            shown.replace("entitlement_sync_alarm", by: "name", with: figures.alarms)
        }
        if let day = try? await invariants.drift()?.checksNextDay, let ratio = forecast.dayRatio(checks: day) {
            Gauge(label: "entitlement_sync_sweep_day_ratio").record(ratio)
        }
    }
}
