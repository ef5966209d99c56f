import FoundationEssentials
import Synchronization

/// How far the runs that go on had come, as their planner saw it.
///
/// A run's own curve has a point where a stretch has ended, and several are on their way at once: too coarse for the
/// pace of the last minute.
final class RunPace: Sendable {
    /// How often progress is read.
    private static let interval: TimeInterval = 2
    /// What is longer ago says nothing of the pace.
    private static let memory: TimeInterval = 1200

    private let curves = Mutex<[Int64: [RunRecord.Point]]>([:])
    private let reads = Mutex<[Int64: Date]>([:])

    /// Whether it is time to read progress again; `true` counts as a read, with any result.
    func isDue(_ run: Int64, at now: Date) -> Bool {
        reads.withLock { reads in
            if let last = reads[run], now >= last, now.timeIntervalSince(last) < Self.interval { return false }
            reads[run] = now
            return true
        }
    }

    /// Notes how many users of a run had been read.
    func note(_ run: Int64, users: Int64, at now: Date) {
        curves.withLock { curves in
            var curve = curves[run] ?? []
            // A clock that was set back starts from the beginning.
            if let last = curve.last, now < last.at { curve = [] }
            curve.append(RunRecord.Point(at: now, users: users))
            if let first = curve.firstIndex(where: { now.timeIntervalSince($0.at) <= Self.memory }) {
                curve.removeFirst(first)
            }
            curves[run] = curve
        }
    }

    /// What was seen of a run, oldest first.
    func curve(of run: Int64) -> [RunRecord.Point] { curves.withLock { $0[run] ?? [] } }

    /// Forgets the runs that do not go on.
    func keep(_ runs: [Int64]) {
        reads.withLock { reads in reads = reads.filter { runs.contains($0.key) } }
        curves.withLock { curves in curves = curves.filter { runs.contains($0.key) } }
    }
}
