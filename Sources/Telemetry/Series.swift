import Metrics
import Synchronization

/// The values under one name and one set of labels.
protocol Series: AnyObject, Sendable {
    func expose(name: String, labels: Labels, to text: inout Exposition)
}

/// A number that only grows, by whole and broken amounts.
final class CounterSeries: Series, CounterHandler, FloatingPointCounterHandler {
    private let whole = Atomic<UInt64>(0)
    private let broken = Mutex(0.0)

    /// Adds an amount; a negative one is ignored.
    func increment(by amount: Int64) {
        guard amount > 0 else { return }
        whole.wrappingAdd(UInt64(amount), ordering: .relaxed)
    }

    /// Adds an amount; one that is negative or no number is ignored.
    func increment(by amount: Double) {
        guard amount > 0, amount.isFinite else { return }
        broken.withLock { $0 += amount }
    }

    func reset() {
        whole.store(0, ordering: .relaxed)
        broken.withLock { $0 = 0 }
    }

    func expose(name: String, labels: Labels, to text: inout Exposition) {
        text.sample(name, labels, Double(whole.load(ordering: .relaxed)) + broken.withLock { $0 })
    }
}

/// A number that goes up and down; the last value counts.
final class GaugeSeries: Series, RecorderHandler, MeterHandler {
    private let value = Mutex(0.0)

    func record(_ value: Int64) { set(Double(value)) }
    func record(_ value: Double) { set(value) }
    func set(_ value: Int64) { set(Double(value)) }
    func set(_ value: Double) { self.value.withLock { $0 = value } }
    func increment(by amount: Double) { value.withLock { $0 += amount } }
    func decrement(by amount: Double) { value.withLock { $0 -= amount } }

    func expose(name: String, labels: Labels, to text: inout Exposition) {
        text.sample(name, labels, value.withLock { $0 })
    }
}

/// How often values fell into each of a fixed row of buckets.
final class HistogramSeries: Series, RecorderHandler, TimerHandler {
    /// From a tenth of a millisecond, a commit on a fast disk, over a minute, a store at its limit, to an hour, a
    /// restore that waited for a store to come back.
    static let seconds = [
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
        3600,
    ]
    /// Counts of things: requests of a read, rows of a batch.
    static let amounts: [Double] = [0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000]

    private struct Tally {
        /// One more than there are bounds: the last is for everything above.
        var counts: [UInt64]
        var sum = 0.0
    }

    private let bounds: [Double]
    private let tally: Mutex<Tally>

    /// `bounds`: the upper ends of the buckets, each belonging to its bucket, ascending.
    init(bounds: [Double]) {
        self.bounds = bounds
        tally = Mutex(Tally(counts: Array(repeating: 0, count: bounds.count + 1)))
    }

    func record(_ value: Int64) { record(Double(value)) }

    /// Adds a value; what is no number is ignored, for it would spoil the sum for good.
    func record(_ value: Double) {
        guard value.isFinite else { return }
        let bucket = bounds.firstIndex { value <= $0 } ?? bounds.count
        tally.withLock {
            $0.counts[bucket] += 1
            $0.sum += value
        }
    }

    /// Adds a time; one below zero, as a clock that was set back gives it, counts as zero.
    func recordNanoseconds(_ duration: Int64) { record(Double(max(0, duration)) / 1e9) }

    func expose(name: String, labels: Labels, to text: inout Exposition) {
        let tally = self.tally.withLock { $0 }
        var total: UInt64 = 0
        for (bound, count) in zip(bounds + [.infinity], tally.counts) {
            total += count
            text.sample(name + "_bucket", labels, bound: bound, Double(total))
        }
        text.sample(name + "_sum", labels, tally.sum)
        text.sample(name + "_count", labels, Double(total))
    }
}
