import Foundation

extension Cases {
    /// What a walk over many cases came upon.
    struct Findings: Sendable {
        /// By the law that was broken, in the order of the seeds within each lane.
        var failures: [String: [String]] = [:]
        /// How often each input came up.
        var situations: [String: Int] = [:]
    }

    /// Walks seeds on every processor.
    ///
    /// - Parameters:
    ///   - seeds: the cases.
    ///   - body: what is wrong with a seed's case, by law, and the situations that came up.
    /// - Returns: what was found; each failure names its seed, which runs it alone.
    static func walk(
        _ seeds: Range<UInt64>,
        _ body: @escaping @Sendable (UInt64) -> (failures: [String: String], situations: Set<String>)
    ) async -> Findings {
        let width = UInt64(max(1, min(ProcessInfo.processInfo.activeProcessorCount, seeds.count)))
        return await withTaskGroup { group in
            for lane in 0..<width {
                group.addTask { @concurrent in
                    var findings = Findings()
                    for seed in stride(from: seeds.lowerBound + lane, to: seeds.upperBound, by: Int(width)) {
                        let found = body(seed)
                        for (law, text) in found.failures {
                            findings.failures[law, default: []].append("ENTITLEMENT_SYNC_TEST_SEED=\(seed): \(text)")
                        }
                        for name in found.situations { findings.situations[name, default: 0] += 1 }
                        // Other tests need the few threads that all tests share.
                        await Task.yield()
                    }
                    return findings
                }
            }
            return await group.reduce(into: Findings()) { all, found in
                all.failures.merge(found.failures, uniquingKeysWith: +)
                all.situations.merge(found.situations, uniquingKeysWith: +)
            }
        }
    }
}
