import Metrics
import Testing

@testable import Telemetry

@Suite struct RegistryTests {
    private let registry = Registry(help: ["jobs_total": "Jobs, by outcome.\nNot \\ by user."])

    /// What is shown without the registry's own count.
    private var shown: [String] {
        registry.render().split(separator: "\n").map(String.init).filter { !$0.contains("dropped_series") }
    }

    private func counter(_ label: String, _ dimensions: [(String, String)] = []) -> Counter {
        Counter(label: label, dimensions: dimensions, factory: registry)
    }

    @Test func `Families and labels come in order, with help and type`() {
        counter("jobs", [("state", "done"), ("kind", "restore")]).increment(by: 2)
        counter("jobs", [("kind", "event"), ("state", "dead")]).increment()
        Gauge(label: "a.depth", dimensions: [], factory: registry).record(1.5)
        #expect(
            shown == [
                "# TYPE a_depth gauge", "a_depth 1.5",
                "# HELP jobs_total Jobs, by outcome.\\nNot \\\\ by user.", "# TYPE jobs_total counter",
                "jobs_total{kind=\"event\",state=\"dead\"} 1", "jobs_total{kind=\"restore\",state=\"done\"} 2",
            ]
        )
    }

    @Test func `Equal names and dimensions share a series, in any order of dimensions`() {
        counter("jobs", [("a", "1"), ("b", "2")]).increment()
        counter("jobs_total", [("b", "2"), ("a", "1")]).increment(by: 4)
        FloatingPointCounter(label: "jobs", dimensions: [("a", "1"), ("b", "2")], factory: registry).increment(by: 0.5)
        #expect(shown.last == "jobs_total{a=\"1\",b=\"2\"} 5.5")
    }

    @Test(arguments: [
        ("say \"hi\"", "say \\\"hi\\\""), ("a\nb", "a\\nb"), ("back\\slash", "back\\\\slash"), ("\\n", "\\\\n"),
        ("\"} 1\nfake_total{x=\"", "\\\"} 1\\nfake_total{x=\\\""), ("Straße", "Straße"),
        (String(repeating: "x", count: 300), String(repeating: "x", count: 256)),
    ])
    func `A label's value cannot break out of its quotes`(value: String, escaped: String) {
        counter("jobs", [("v", value)]).increment()
        #expect(shown.last == "jobs_total{v=\"\(escaped)\"} 1")
        #expect(shown.count == 3)
    }

    @Test(arguments: [
        ("http.requests-sent", "http_requests_sent_total"), ("2x", "_2x_total"), ("ü", "___total"), ("", "__total"),
        ("a b\n", "a_b__total"), ("a:b", "a:b_total"),
    ])
    func `Names are made valid`(label: String, name: String) {
        counter(label).increment()
        #expect(shown == ["# TYPE \(name) counter", "\(name) 1"])
    }

    @Test func `Label names that Prometheus keeps for itself are renamed`() {
        counter("n", [("le", "1"), ("__name__", "2"), ("a.b", "3"), ("a-b", "4")]).increment()
        #expect(shown.last == "n_total{a_b=\"4\",label___name__=\"2\",label_le=\"1\"} 1")
    }

    @Test func `A timer is a cumulative histogram in seconds`() {
        let timer = Timer(label: "wait", dimensions: [("lane", "restore")], factory: registry)
        for nanoseconds: Int64 in [500_000, 500_001, 2_000_000_000, 90_000_000_000, -5] {
            timer.recordNanoseconds(nanoseconds)
        }
        let lines = shown
        #expect(lines[0] == "# TYPE wait_seconds histogram")
        #expect(lines[1] == "wait_seconds_bucket{lane=\"restore\",le=\"0.0001\"} 1")
        #expect(lines.contains("wait_seconds_bucket{lane=\"restore\",le=\"0.0005\"} 2"))
        #expect(lines.contains("wait_seconds_bucket{lane=\"restore\",le=\"0.001\"} 3"))
        #expect(lines.contains("wait_seconds_bucket{lane=\"restore\",le=\"2.5\"} 4"))
        #expect(lines.contains("wait_seconds_bucket{lane=\"restore\",le=\"60\"} 4"))
        #expect(lines.contains("wait_seconds_bucket{lane=\"restore\",le=\"300\"} 5"))
        #expect(lines.contains("wait_seconds_bucket{lane=\"restore\",le=\"+Inf\"} 5"))
        #expect(lines.last == "wait_seconds_count{lane=\"restore\"} 5")
        #expect(lines.count == HistogramSeries.seconds.count + 4)
    }

    @Test func `A recorder that aggregates is a histogram of amounts, and takes no NaN`() {
        let recorder = Recorder(label: "requests", dimensions: [], aggregate: true, factory: registry)
        recorder.record(2)
        recorder.record(20_000)
        recorder.record(Double.nan)
        recorder.record(Double.infinity)
        #expect(shown.contains("requests_bucket{le=\"1\"} 0"))
        #expect(shown.contains("requests_bucket{le=\"2\"} 1"))
        #expect(shown.contains("requests_bucket{le=\"+Inf\"} 2"))
        #expect(shown.suffix(2) == ["requests_sum 20002", "requests_count 2"])
    }

    @Test func `A meter goes up and down`() {
        let meter = Meter(label: "open", dimensions: [], factory: registry)
        meter.set(10)
        meter.increment(by: 2.5)
        meter.decrement(by: 5)
        #expect(shown.last == "open 7.5")
    }

    @Test func `A counter takes no negative amount and starts anew at reset`() {
        let handler = registry.makeCounter(label: "n", dimensions: [])
        handler.increment(by: -4)
        handler.increment(by: 3)
        #expect(shown.last == "n_total 3")
        handler.reset()
        #expect(shown.last == "n_total 0")
    }

    @Test func `A name with two types keeps the first, and the second is counted as dropped`() {
        counter("x_total").increment()
        Gauge(label: "x_total", dimensions: [], factory: registry).record(9)
        Gauge(label: "x_total", dimensions: [("a", "b")], factory: registry).record(9)
        #expect(shown == ["# TYPE x_total counter", "x_total 1"])
        #expect(registry.render().contains("\nentitlement_sync_metrics_dropped_series_total 2\n"))
    }

    @Test func `More series than the limit are not kept, and memory stays bounded`() {
        let registry = Registry(maxSeries: 3)
        for number in 0..<10 {
            Counter(label: "n", dimensions: [("id", "\(number)")], factory: registry).increment()
        }
        let lines = registry.render().split(separator: "\n")
        #expect(lines.filter { $0.hasPrefix("n_total") }.count == 3)
        #expect(lines.last == "entitlement_sync_metrics_dropped_series_total 7")
    }

    @Test func `A destroyed series is forgotten and makes room`() {
        let registry = Registry(maxSeries: 1)
        let first = Counter(label: "n", dimensions: [], factory: registry)
        first.increment()
        first.destroy()
        Gauge(label: "n_total", dimensions: [], factory: registry).record(4)
        #expect(registry.render().hasPrefix("# TYPE n_total gauge\nn_total 4\n"))
    }

    @Test(arguments: [
        (0.0, "0"), (-0.0, "0"), (1, "1"), (-3, "-3"), (0.25, "0.25"), (.infinity, "+Inf"), (-.infinity, "-Inf"),
        (.nan, "NaN"), (1e20, "1e+20"), (1e-7, "1e-07"),
    ])
    func `Numbers are written as Prometheus reads them`(value: Double, text: String) {
        #expect(Exposition.number(value) == text)
    }

    @Test func `Nothing is lost when many tasks count at once and a page is rendered meanwhile`() async {
        let registry = registry
        await withTaskGroup { group in
            for _ in 0..<8 {
                group.addTask {
                    let timer = Timer(label: "t", dimensions: [], factory: registry)
                    for _ in 0..<5000 {
                        Counter(label: "c", dimensions: [("k", "v")], factory: registry).increment()
                        timer.recordNanoseconds(1)
                    }
                }
            }
            group.addTask { for _ in 0..<50 { _ = registry.render() } }
        }
        #expect(shown.contains("c_total{k=\"v\"} 40000"))
        #expect(shown.contains("t_seconds_count 40000"))
    }

    @Test func `Our own metrics carry the prefix and explain themselves`() {
        #expect(MetricNames.name("jobs_total") == "entitlement_sync_jobs_total")
        #expect(MetricNames.help.keys.allSatisfy { $0.hasPrefix(MetricNames.prefix) })
        #expect(Registry().render().hasPrefix("# HELP entitlement_sync_metrics_dropped_series_total "))
    }
}
