import Foundation
import Glibc
import Postgres
import TestSupport
import Testing

/// An import whose worker, and whose command, are killed.
struct ImportKillTests {
    private static let scene = ImportScene(size: Profile.isFull ? 10_000 : 300)
    private static let settings = [
        "JOB_LEASE_SECONDS": "2", "JOB_BACKOFF_CAP_MS": "200", "BACKGROUND_CHECK_DAYS": "0",
        // So slow that a kill hits work.
        "WORKER_CONCURRENCY": "16", "WORKER_BATCH": "16",
    ]

    /// What an import leaves behind.
    private struct End {
        var lines: String
        var record: Record
        var rules: [String]
    }

    @Test("166: an import comes out the same, though its worker is killed while it asks and while it writes")
    func killed() async throws {
        let undisturbed = Slot<End>()
        try await StoreSite.with(scenario: Self.scene.scenario, settings: Self.settings) { stores in
            undisturbed.value = try await Self.run(at: stores.site, kills: false)
        }
        try await StoreSite.with(scenario: Self.scene.scenario, settings: Self.settings) { stores in
            let began = ContinuousClock.now
            let end = try await Self.run(at: stores.site, kills: true)
            report("an import of \(Self.scene.size) lines, killed twice: \(seconds(.now - began)) s")
            let expected = try #require(undisturbed.value)
            #expect(end.record.differences(from: expected.record) == [])
            #expect(end.lines == expected.lines)
            #expect(end.rules == expected.rules)
            #expect(end.record.count("ticket") == 0, "conflicts are no tickets")
        }
    }

    private static func run(at site: Site, kills: Bool) async throws -> End {
        try await scene.prepare(site)
        let folder = try Files.makeTemporaryDirectory()
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let file = folder + "/purchases.csv"
        try scene.file.write(toFile: file, atomically: true, encoding: .utf8)
        var worker = try await site.start("worker")
        if kills {
            let command = try await site.start("import", "--file", file)
            worker = try await replace(worker, at: site, once: "l.result IS NOT NULL")
            command.signal(SIGKILL)
            _ = try await command.ending()
        }
        // The same file goes on with what was begun.
        let asked = try await site.run("import", "--file", file, "--output", "json", within: .seconds(300))
        let ready = try ImportSummary(asked)
        try #require(asked.code == 0 && ready.state == "ready" && ready.id == 1, "\(asked)")
        #expect(ready.results["planned"] == scene.size)
        let owners = try await site.number(
            "SELECT count(*) FROM entitlement_sync.purchase AS p WHERE p.owner_rule = 'imported_by_operator'"
        )
        #expect(owners == 0, "nothing is written before it is released")
        let hash = try #require(ready.hash)
        if kills {
            let released = try await site.run("import", "release", "1", "--hash", hash, "--wait", "0")
            #expect(released.code == 0, "\(released)")
            worker = try await replace(worker, at: site, once: "l.result = 'imported'")
        } else {
            let released = try await site.run(
                "import",
                "release",
                "1",
                "--hash",
                String(hash.prefix(12)),
                within: .seconds(300)
            )
            #expect(released.code == 0, "\(released)")
        }
        try await site.waitUntil(
            "SELECT count(*) FROM entitlement_sync.import AS i WHERE i.state = 'done'",
            within: .seconds(300)
        )
        let answers = folder + "/answers.csv"
        let shown = try await site.run("import", "show", "1", "--output", "json", "--result", answers)
        let done = try ImportSummary(shown)
        #expect(done.results == scene.results && done.left == 0, "\(shown)")
        try await site.waitUntil(
            "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.queue",
            within: .seconds(300)
        )
        try await worker.stop()
        return End(
            lines: try String(contentsOfFile: answers, encoding: .utf8),
            record: try await Record(of: site),
            rules: try await site.texts(
                """
                SELECT concat_ws(' ', p.owner_rule, count(*)) FROM entitlement_sync.purchase AS p GROUP BY p.owner_rule ORDER BY 1
                """
            )
        )
    }

    /// Kills a worker in the midst of lines, and starts another.
    private static func replace(_ worker: Program, at site: Site, once condition: String) async throws -> Program {
        let some = Int64(scene.size / 5)
        try await eventually("the worker was never in the midst of lines", within: .seconds(120)) {
            let isTime = try await site.number(
                "SELECT (count(*) > \(some))::integer::bigint FROM entitlement_sync.import_line AS l WHERE \(rawSQL: condition)"
            )
            guard isTime == 1 else { return false }
            // It stands still while its lines are counted, or the kill may come between two pieces of work.
            worker.signal(SIGSTOP)
            let inWork = try await site.number(
                """
                SELECT count(*) FROM entitlement_sync.import_line AS l
                 WHERE coalesce(l.result, 'planned') = 'planned' AND l.epoch IS NOT NULL
                """
            )
            if inWork == 0 { worker.signal(SIGCONT) }
            return inWork > 0
        }
        try await worker.kill()
        return try await site.start("worker")
    }
}
