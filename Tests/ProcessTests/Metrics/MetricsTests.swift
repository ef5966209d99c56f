import Foundation
import Telemetry
import TestSupport
import Testing

/// What operators see of a worker: every metric moves when it should, and nothing breaks who reads them.
struct MetricsTests {
    @Test("A metric moves when what it counts happens", arguments: Movement.all)
    func moves(movement: Movement) async throws {
        #expect(movement.isSeen(in: try await Scenes.scrapes.value), "\(movement)")
    }

    @Test("Every metric has its help, its test, and is shown; no other is")
    func complete() async throws {
        let shown = Set(try await Scenes.scrapes.value.flatMap { $0.families.keys })
        #expect(shown.symmetricDifference(MetricNames.help.keys).sorted() == [])
        #expect(Set(Movement.all.map(\.name)).symmetricDifference(MetricNames.help.keys).sorted() == [])
        for family in try await Scenes.scrapes.value.flatMap(\.families.values) {
            #expect(family.help == MetricNames.help[family.name])
        }
    }

    @Test("Labels come from closed sets: no user's id is among them, and the series stay few")
    func cardinality() async throws {
        for scrape in try await Scenes.scrapes.value {
            let samples = scrape.families.values.flatMap(\.samples)
            #expect(samples.count < 1500)
            let values = Set(samples.flatMap { $0.labels.filter { $0.key != "le" }.values })
            #expect(values.count < 200)
            for word in ["payer", "claimant", "user-1", "limited", "proj0a1b2c3d", "alice", "mallory", "odile", "tok-"]
            {
                #expect(values.allSatisfy { !$0.contains(word) }, "\(word)")
            }
        }
    }

    @Test("What a worker shows after its work passes promtool check metrics", .enabled(if: checker != nil))
    func promtool() async throws {
        let program = try #require(Self.checker)
        for scrape in try await Scenes.scrapes.value {
            let file = try Paths.temporary(scrape.text, suffix: ".prom")
            defer { try? FileManager.default.removeItem(atPath: file) }
            let ending = try await Program(
                ["/bin/sh", "-c", "exec \"$0\" check metrics <\"$1\"", program, file],
                environment: Site.environment([:])
            ).ending()
            #expect(ending.code == 0, "\(ending)")
        }
    }

    private static let checker = ["/usr/bin/promtool", "/usr/local/bin/promtool"].first {
        FileManager.default.isExecutableFile(atPath: $0)
    }

    @Test("A commit is a part of its batch's transaction, and its time is resolved below a millisecond")
    func commitTime() async throws {
        let scrapes = try await Scenes.scrapes.value
        for scrape in scrapes {
            guard let commit = scrape.families["entitlement_sync_commit_duration_seconds"] else { continue }
            let bounds = commit.samples.compactMap { $0.labels["le"].flatMap { Double($0) } }
            #expect(bounds.count { $0 <= 0.001 } >= 4)
            let sum = try #require(commit.samples.first { $0.name.hasSuffix("_sum") }?.value)
            #expect(sum > 0)
        }
        #expect(scrapes.contains { $0.families["entitlement_sync_commit_duration_seconds"] != nil })
    }

    @Test(
        "A reader that takes no nonsense reads what it should",
        arguments: [
            "", "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n",
            "# TYPE a gauge\na{b=\"c\\\\\\\"\\n\"} -1.5e-3\n",
            "# TYPE a gauge\na NaN\n# TYPE b gauge\nb +Inf\n",
            "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 2\na_sum 5\na_count 2\n",
        ]
    )
    func accepted(text: String) throws { _ = try Exposition(text) }

    @Test(
        "A reader that takes no nonsense refuses nonsense",
        arguments: [
            "a 1", "a 1\n", "# TYPE a gauge\n", "# TYPE a gauge\na 1\n\n", "# TYPE a_total gauge\na_total 1\n",
            "# TYPE a counter\na 1\n", "# TYPE a_total counter\na_total -1\n", "# TYPE a gauge\na 1\na 2\n",
            "# TYPE a gauge\na{b=\"1\"} 1\na{b=\"1\"} 2\n", "# TYPE a gauge\na 1\n# TYPE a gauge\na 1\n",
            "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\na{c=\"1\"} 1\n", "# TYPE a summary\na 1\n",
            "# HELP a A.\na 1\n", "# HELP a A.\n# HELP a B.\n# TYPE a gauge\na 1\n", "# TYPE a gauge\na inf\n",
            "# TYPE a gauge\nb 1\n", "# TYPE 1a gauge\n1a 1\n", "# TYPE a gauge\na{b=\"c\" 1\n",
            "# TYPE a gauge\na  1\n",
            "# TYPE a gauge\na{b=\"\\x\"} 1\n", "# TYPE a gauge\na{b=\"c\",b=\"d\"} 1\n",
            "# TYPE a gauge\na{b-c=\"d\"} 1\n", "# TYPE a gauge\na{quantile=\"0.5\"} 1\n",
            "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 5\na_count 1\n",
            "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 5\na_count 1\n",
            "# TYPE a histogram\na_bucket{le=\"+Inf\"} 2\na_sum 5\na_count 1\n",
            "# TYPE a histogram\na_bucket{le=\"+Inf\"} 2\na_count 2\n",
            "# TYPE a histogram\na_bucket{le=\"2\"} 1\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        ]
    )
    func refused(text: String) {
        #expect(throws: Exposition.Fault.self) { try Exposition(text) }
    }
}
