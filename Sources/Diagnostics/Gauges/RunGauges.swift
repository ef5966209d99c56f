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

    /// Series that come and go with what they are about.
    private final class Shown: Sendable {
        enum Family: Hashable { case left, end, late, alarm }

        private let families = Mutex<[Family: [String: Gauge]]>([:])

        /// Shows the series of these names, and no others of their family.
        func replace(_ family: Family, with values: [String: Double], _ gauge: (String) -> Gauge) {
            families.withLock { families in
                var gauges = families[family] ?? [:]
                for (name, gauge) in gauges where values[name] == nil {
                    gauge.destroy()
                    gauges[name] = nil
                }
                for (name, figure) in values {
                    let shown = gauges[name] ?? gauge(name)
                    shown.record(figure)
                    gauges[name] = shown
                }
                families[family] = gauges
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
            shown.replace(.left, with: Dictionary(left) { $1 }) {
                Gauge(label: "entitlement_sync_run_left_users", dimensions: [("run", $0)])
            }
            let ends = figures.open.compactMap { run in run.seconds.map { ("\(run.id)", $0) } }
            shown.replace(.end, with: Dictionary(ends) { $1 }) {
                Gauge(label: "entitlement_sync_run_end_seconds", dimensions: [("run", $0)])
            }
            shown.replace(.late, with: figures.lateSeconds) {
                Gauge(label: "entitlement_sync_schedule_late_seconds", dimensions: [("schedule", $0)])
            }
            shown.replace(.alarm, with: figures.alarms) {
                Gauge(label: "entitlement_sync_alarm", dimensions: [("name", $0)])
            }
        }
        if let day = try? await invariants.drift()?.checksNextDay, let ratio = forecast.dayRatio(checks: day) {
            Gauge(label: "entitlement_sync_sweep_day_ratio").record(ratio)
        }
    }
}
