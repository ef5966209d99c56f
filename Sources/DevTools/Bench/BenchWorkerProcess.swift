import Composition
import Foundation

/// A worker as a process of its own.
struct BenchWorkerProcess {
    private let worker: BenchProcess

    /// `storePort`: where the simulator listens.
    init(runtime: Runtime, database: String, storePort: Int) {
        worker = BenchProcess(
            runtime: runtime,
            database: database,
            arguments: ["worker"],
            settings: [
                "REVENUECAT_API_KEY": "sk_bench", "REVENUECAT_PROJECT_ID": "projbench",
                "REVENUECAT_BASE_URL": "http://127.0.0.1:\(storePort)/v2", "REVENUECAT_REQUESTS_PER_MINUTE": "600",
                "LOG_LEVEL": "info",
            ]
        )
    }

    /// The time from the start of the process to its lease, in milliseconds; the best of five.
    func startUp() async throws -> Double {
        var best = Double.infinity
        for _ in 0..<5 {
            let started = ContinuousClock.now
            let (process, log) = try worker.start()
            let ready = await worker.line(of: log, containing: "working")
            let elapsed = (ContinuousClock.now - started).milliseconds
            await worker.stop(process)
            guard ready != nil else { throw CommandFailure(.software, "the worker did not start") }
            best = min(best, elapsed)
        }
        return best
    }

    /// The highest resident size of a worker that has run for a while, in MiB.
    func memory(after time: Duration) async throws -> Double {
        let (process, log) = try worker.start()
        log.readabilityHandler = { _ = $0.availableData }
        try await Task.sleep(for: time)
        let peak = try BenchProcess.peakMemory(of: process)
        await worker.stop(process)
        return peak
    }
}
