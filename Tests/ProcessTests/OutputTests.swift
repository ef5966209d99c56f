import Foundation
import Postgres
import TestSupport
import Testing

/// What programs read: shapes on stdout, logs on stderr, exit codes.
struct OutputTests {
    private static let jobStatus: Set<String> = [
        "id", "reference", "kind", "user_id", "state", "outcome", "message_key", "ticket_id", "attempt", "created_at",
        "finished_at", "last_error",
    ]
    private static let scenario = """
        customers: [{id: payer, state: active}, {id: lapsed, state: expired}, {id: late, state: active}]
        faults: [{customer: late, latency: 30s}, {customer: broken, status: 500}]
        """

    /// A site with a worker at work.
    private static func served(_ body: @Sendable (Site) async throws -> Void) async throws {
        let simulator = try await Simulator(scenario: scenario)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(
                """
                INSERT INTO users (id, type) VALUES ('payer', 'free'), ('lapsed', 'subscriber'), ('late', 'free'),
                                                    ('broken', 'free')
                """
            )
            let worker = try await site.start("worker")
            try await body(site)
            let ending = try await worker.stop()
            #expect(ending.out == "", "\(ending)")
        }
    }

    @Test("restore --output json prints a row of job_status and a message, and its exit code says how it went")
    func restore() async throws {
        try await Self.served { site in
            let done = try await site.run("restore", "payer", "--wait", "20", "--output", "json")
            #expect(done.code == 0 && done.err == "", "\(done)")
            let row = try Self.object(done.out)
            #expect(Set(row.keys) == Self.jobStatus.union(["message"]))
            #expect(row["state"] as? String == "done" && row["outcome"] as? String == "restored")
            #expect(row["user_id"] as? String == "payer" && row["kind"] as? String == "restore")
            #expect(row["message_key"] as? String == "restored" && row["attempt"] as? Int == 0)
            #expect(row["ticket_id"] is NSNull && row["last_error"] is NSNull)
            #expect((row["message"] as? String)?.isEmpty == false)
            #expect(try #require(row["reference"] as? String).wholeMatch(of: /R-[0-9A-Z]{4}-[0-9A-Z]{2}/) != nil)
            #expect(try #require(row["id"] as? String) == (row["id"] as? String)?.lowercased())

            let nothing = try await site.run("restore", "lapsed", "--wait", "20", "--output", "json")
            #expect(nothing.code == 0, "an answer is an answer: \(nothing)")
            #expect(try Self.object(nothing.out)["message_key"] as? String == "nothing.ended")

            let unavailable = try await site.run("restore", "broken", "--wait", "20", "--output", "json")
            #expect(unavailable.code == 69, "\(unavailable)")
            #expect(try Self.object(unavailable.out)["outcome"] as? String == "store_unavailable")

            let late = try await site.run("restore", "late", "--wait", "1", "--output", "json")
            #expect(late.code == 75, "\(late)")
            let waiting = try Self.object(late.out)
            #expect(Set(waiting.keys) == Self.jobStatus.union(["message"]))
            #expect(waiting["outcome"] is NSNull && waiting["state"] as? String == "running")
            #expect((waiting["message"] as? String)?.hasPrefix("This is taking longer") == true)

            // Whoever does not wait has not waited long.
            let asked = try await site.run("restore", "late", "--output", "json")
            let unknown = try Self.object(asked.out)
            #expect(asked.code == 0 && Set(unknown.keys) == Self.jobStatus.union(["message"]), "\(asked)")
            #expect(unknown["message"] is NSNull && unknown["outcome"] is NSNull)
        }
    }

    @Test("reconcile --output json prints a line for each user, then a summary")
    func reconcile() async throws {
        try await Self.served { site in
            let ending = try await site.run("reconcile", "payer", "lapsed", "--wait", "20", "--output", "json")
            #expect(ending.code == 0 && ending.err == "", "\(ending)")
            let lines = try ending.out.split(separator: "\n").map { try Self.object(String($0)) }
            try #require(lines.count == 3)
            for (line, expected) in zip(lines, [("payer", "promoted"), ("lapsed", "demoted")]) {
                #expect(Set(line.keys) == ["user_id", "job_id", "outcome", "rule", "explanation"])
                #expect(line["user_id"] as? String == expected.0 && line["outcome"] as? String == expected.1)
                #expect(
                    (line["rule"] as? String)?.isEmpty == false && (line["explanation"] as? String)?.isEmpty == false
                )
            }
            #expect(Set(lines[2].keys) == ["summary"])
            #expect(lines[2]["summary"] as? [String: Int] == ["promoted": 1, "demoted": 1])
        }
    }

    @Test("queue stats, queue dead, doctor, explain and grant list print their shapes and nothing else")
    func shapes() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        try await Site.with(store: simulator.url) { site in
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('payer'), ('broken');
                SELECT entitlement_sync.request_restore(u.id) FROM users AS u;
                """
            )
            let queued = try Self.object(try await Self.output(site, "queue", "stats"))
            #expect(Set(queued.keys) == ["queued", "running", "delayed", "dead", "oldest_seconds"])
            #expect(queued["queued"] as? Int == 2 && queued["running"] as? Int == 0 && queued["dead"] as? Int == 0)
            #expect(try #require(queued["oldest_seconds"] as? Double) > 0)

            #expect(try await site.run("worker", "--until-idle").code == 0)
            #expect(try await site.run("grant", "add", "payer", "--until", "2099-01-01", "--reason", "r").code == 0)

            let doctor = try Self.object(try await Self.output(site, "doctor"))
            #expect(Set(doctor.keys) == ["ok", "checks"])
            #expect(doctor["ok"] as? Bool == false, "a job is dead")
            let checks = try #require(doctor["checks"] as? [[String: Any]])
            #expect(checks.count > 10)
            for check in checks {
                #expect(Set(check.keys) == ["name", "ok", "detail", "fix"])
                let isWell = check["ok"] as? Bool == true
                #expect((check["fix"] as? String)?.isEmpty == isWell, "\(check)")
            }
            let dead = try #require(checks.first { $0["name"] as? String == "dead_jobs" })
            #expect(dead["ok"] as? Bool == false)

            let jobs = try Self.array(try await Self.output(site, "queue", "dead"))
            #expect(jobs.count == 1)
            #expect(jobs.allSatisfy { Set($0.keys) == Self.jobStatus && $0["state"] as? String == "dead" })

            let timeline = try Self.object(try await Self.output(site, "explain", "payer"))
            #expect(Set(timeline.keys) == ["user_id", "events"])
            #expect(timeline["user_id"] as? String == "payer")
            let events = try #require(timeline["events"] as? [[String: Any]])
            #expect(events.allSatisfy { Set($0.keys).isSuperset(of: ["at", "kind", "text"]) })
            let kinds = Set(events.compactMap { $0["kind"] as? String })
            #expect(kinds.isSuperset(of: ["observation", "decision", "grant", "job", "now"]))

            let grants = try Self.array(try await Self.output(site, "grant", "list"))
            #expect(grants.count == 1)
            #expect(
                grants.allSatisfy {
                    Set($0.keys) == ["id", "user_id", "until", "active", "reason", "granted_by"]
                }
            )
        }
    }

    @Test("bench --only signatures needs no database, and names every figure beside its limit")
    func signatures() async throws {
        let unreachable = ["DATABASE_URL": "host=127.0.0.1 port=1"]
        let words = ["bench", "--only", "signatures", "--output", "json"]
        let ending = try await Site.run(words, settings: unreachable, within: .seconds(300))
        #expect(ending.code == 0 && ending.err == "", "\(ending)")
        let object = try Self.object(ending.out)
        #expect(Set(object.keys) == ["measurements"], "there is no server whose settings would matter")
        let measurements = try #require(object["measurements"] as? [[String: Any]])
        #expect(
            measurements.map { $0["name"] as? String } == ["raw_p256", "signatures", "raw_chain", "signatures_cold"]
        )
        #expect(measurements.map { $0["target"] as? Double } == [nil, 0.7, nil, 0.3])
        for (raw, ours) in [(measurements[0], measurements[1]), (measurements[2], measurements[3])] {
            let limit = try #require(raw["value"] as? Double)
            #expect(limit > 0 && ours["limit"] as? Double == limit)
            #expect(try #require(ours["value"] as? Double) > 0)
            #expect(ours["holds"] is Bool)
        }
        let others = try await Site.run(["bench", "--only", "signatures", "people"], settings: unreachable)
        #expect(others.code == 69 && others.out == "", "the others do need it: \(others)")
    }

    @Test("Logs go to stderr, as JSON where that is asked for, and no key is among them")
    func logs() async throws {
        let simulator = try await Simulator(scenario: Self.scenario)
        let settings = [
            "LOG_LEVEL": "trace", "LOG_FORMAT": "json", "REVENUECAT_API_KEY": "sk_hunter2", "JOB_MAX_ATTEMPTS": "2",
        ]
        try await Site.with(store: simulator.url, settings: settings) { site in
            try await site.execute(
                """
                INSERT INTO users (id) VALUES ('payer'), ('broken');
                SELECT entitlement_sync.request_restore(u.id) FROM users AS u;
                """
            )
            let ending = try await site.run("worker", "--until-idle")
            #expect(ending.code == 0 && ending.out == "", "\(ending)")
            let lines = ending.err.split(separator: "\n").map(String.init)
            #expect(!lines.isEmpty)
            for line in lines { _ = try Self.object(line) }
            #expect(!ending.err.contains("hunter2"))
        }
    }

    /// What a command prints as JSON, and nothing on stderr.
    private static func output(_ site: Site, _ words: String...) async throws -> String {
        let ending = try await Site.run(words + ["--output", "json"], settings: site.settings)
        #expect(ending.code == 0 && ending.err == "", "\(words): \(ending)")
        #expect(ending.out.hasSuffix("\n"))
        return ending.out
    }

    private static func object(_ text: String) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
    }

    private static func array(_ text: String) throws -> [[String: Any]] {
        try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [[String: Any]])
    }
}
