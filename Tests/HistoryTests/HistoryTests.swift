import Entitlements
import Foundation
import TestSupport
import Testing

/// Made-up histories of the whole system on a real database, beside a model of it in memory.
@Suite(.serialized) struct HistoryTests {
    /// Situations that the few seeds of the bounded profile do not lead to.
    private static let rare: Set = [
        "announced demotion", "deleted between read and write", "a transfer closes a ticket",
        "a purchase known by its notification alone",
    ]

    @Test(.timeLimit(.minutes(60)))
    func `Every made-up history goes in the database as in the model, and breaks no law`() async throws {
        let results = try await Histories.run(Seeds.all)
        if !results.failures.isEmpty { Issue.record("\(results.failures.joined(separator: "\n\n"))") }
        print("histories: \(results.count), steps: \(results.steps), in \(results.time)")
        let rare = Model.interesting.map { ($0, results.situations[$0, default: 0]) }.filter { $0.1 < 10 }
        if Seeds.isWhole { print("rarest: \(rare.sorted { $0.1 < $1.1 }.map { "\($0.0): \($0.1)" })") }
        guard Seeds.isWhole else { return }
        for name in Model.interesting where Profile.isFull || !Self.rare.contains(name) {
            #expect(results.situations[name, default: 0] > 0, "never occurred: \(name)")
        }
    }
}
