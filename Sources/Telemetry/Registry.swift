package import Metrics
import Synchronization

/// Keeps every metric of the process and shows them as Prometheus text.
///
/// Equal names with equal dimensions share one series. Names are made valid (`.` and `-` become `_`), counters get the
/// ending `_total` and timers `_seconds`. A recorder that aggregates is a histogram, one that does not is a gauge.
///
/// Two mistakes cost data, never the process: a name asked for with another type, and more series than ``maxSeries``.
/// Such series count into nothing, and `entitlement_sync_metrics_dropped_series_total` tells how many there were.
///
/// Series that are made for an app (``AppScope``) bear its name.
///
/// Recording costs an atomic addition or a short lock. Making a handler takes the registry's lock: make it once, keep
/// it.
package final class Registry: MetricsFactory {
    package static let contentType = "text/plain; version=0.0.4; charset=utf-8"

    package let maxSeries: Int
    private let help: [String: String]
    private let state = Mutex(State())

    private struct State {
        var families: [String: Family] = [:]
        var count = 0
        var dropped = 0
    }

    private struct Family {
        let type: MetricType
        var series: [Labels: any Series] = [:]
    }

    /// `help`: texts by exposed name; a metric without one shows no HELP line.
    package init(help: [String: String] = MetricNames.help, maxSeries: Int = 10_000) {
        self.help = help
        self.maxSeries = maxSeries
    }

    /// All metrics in the Prometheus text format 0.0.4, sorted by name, then by labels.
    package func render() -> String {
        let (families, dropped) = state.withLock { ($0.families, $0.dropped) }
        var text = Exposition()
        for (name, family) in families.sorted(by: { $0.key < $1.key }) where !family.series.isEmpty {
            text.begin(name, type: family.type, help: help[name])
            for (labels, series) in family.series.sorted(by: { $0.key < $1.key }) {
                series.expose(name: name, labels: labels, to: &text)
            }
        }
        text.begin(MetricNames.droppedSeries, type: .counter, help: help[MetricNames.droppedSeries])
        text.sample(MetricNames.droppedSeries, Labels([]), Double(dropped))
        return text.text
    }

    private func series<S: Series>(
        _ label: String,
        ending: String = "",
        _ dimensions: [(String, String)],
        _ type: MetricType,
        make: () -> S
    ) -> S {
        let name = Exposition.metricName(label, ending: ending)
        let labels = Labels(AppScope.name.map { dimensions + [("app", $0)] } ?? dimensions)
        return state.withLock { state in
            if let known = state.families[name]?.series[labels] as? S, state.families[name]?.type == type {
                return known
            }
            let made = make()
            // No copy of the family is held here, or each new series would copy all others.
            guard state.families[name]?.type ?? type == type, state.families[name]?.series[labels] == nil,
                state.count < maxSeries, name != MetricNames.droppedSeries
            else {
                state.dropped += 1
                return made
            }
            state.families[name, default: Family(type: type)].series[labels] = made
            state.count += 1
            return made
        }
    }

    /// Forgets the gauges of an app that is gone: they would keep their last values for ever.
    package func forgetGauges(of app: String) {
        state.withLock { state in
            for (name, family) in state.families where family.type == .gauge {
                let kept = family.series.filter { !$0.key.has("app", app) }
                state.count -= family.series.count - kept.count
                state.families[name] = kept.isEmpty ? nil : Family(type: .gauge, series: kept)
            }
        }
    }

    private func remove(_ handler: AnyObject) {
        state.withLock { state in
            for (name, family) in state.families {
                guard let labels = family.series.first(where: { $0.value === handler })?.key else { continue }
                state.families[name]?.series[labels] = nil
                state.count -= 1
                // A name without series may come back with another type.
                if family.series.count == 1 { state.families[name] = nil }
                return
            }
        }
    }
}

extension Registry {
    package func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        series(label, ending: "_total", dimensions, .counter, make: CounterSeries.init)
    }

    package func makeFloatingPointCounter(
        label: String,
        dimensions: [(String, String)]
    ) -> any FloatingPointCounterHandler {
        series(label, ending: "_total", dimensions, .counter, make: CounterSeries.init)
    }

    package func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        series(label, dimensions, .gauge, make: GaugeSeries.init)
    }

    package func makeRecorder(
        label: String,
        dimensions: [(String, String)],
        aggregate: Bool
    ) -> any RecorderHandler {
        guard aggregate else { return series(label, dimensions, .gauge, make: GaugeSeries.init) }
        return series(label, dimensions, .histogram) { HistogramSeries(bounds: HistogramSeries.amounts) }
    }

    package func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        series(label, ending: "_seconds", dimensions, .histogram) { HistogramSeries(bounds: HistogramSeries.seconds) }
    }

    /// Forgets a series; a handler that is still held records into nothing.
    package func destroyCounter(_ handler: any CounterHandler) { remove(handler) }
    package func destroyFloatingPointCounter(_ handler: any FloatingPointCounterHandler) { remove(handler) }
    package func destroyMeter(_ handler: any MeterHandler) { remove(handler) }
    package func destroyRecorder(_ handler: any RecorderHandler) { remove(handler) }
    package func destroyTimer(_ handler: any TimerHandler) { remove(handler) }
}
