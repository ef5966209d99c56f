import Foundation
import Reports
import Testing

/// The report as machines read it.
@Suite struct JSONTests {
    private static let keys = [
        "announced_demotions", "applied", "asked_at", "asked_by", "changes", "changes_total", "demotion_limit",
        "demotions",
        "drift", "dry_run", "ended_at", "errors", "hash", "held", "lists", "observed", "outcomes", "predicted_end",
        "progress",
        "promotions",
        "rules", "run", "schedule", "scope", "since", "skipped", "started_at", "state", "subscribers",
        "total",
        "users",
        "users_per_second",
    ]

    private func object(_ report: RunReport) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(report.json().utf8)) as? [String: Any])
    }

    @Test func `Texts are written as they are`() throws {
        for text in Sample.nasty {
            let object = try object(Sample.filled(with: text))
            for key in ["scope", "state", "schedule", "asked_by", "hash"] {
                #expect(object[key] as? String == text, "\(key)")
            }
            for (key, number) in ["outcomes": 5, "rules": 6, "errors": 7] {
                #expect(object[key] as? [String: Int] == [text: number], "\(key)")
            }
            #expect(object["lists"] as? [String] == [text])
            let change = try #require((object["changes"] as? [[String: Any]])?.first)
            for key in ["user_id", "outcome", "rule", "explanation", "type_before", "state"] {
                #expect(change[key] as? String == text, "\(key)")
            }
            #expect(change["type_after"] as? String == text + "2")
        }
    }

    @Test func `The smallest and the largest numbers are written whole`() throws {
        var report = Sample.stopped
        report.run = .max
        report.users = .max
        report.total = .min
        report.outcomes = ["promoted": .max]
        report.usersPerSecond = 0.1
        report.drift?.oldestEvidenceSeconds = 1e300
        let object = try object(report)
        for (key, number) in ["run": Int64.max, "users": .max, "total": .min] {
            #expect((object[key] as? NSNumber)?.int64Value == number, "\(key)")
        }
        #expect((object["outcomes"] as? [String: NSNumber])?["promoted"]?.int64Value == .max)
        #expect(object["users_per_second"] as? Double == 0.1)
        #expect((object["drift"] as? [String: Any])?["oldest_evidence_seconds"] as? Double == 1e300)
    }

    @Test func `Every key is there, known or not`() throws {
        for report in [Sample.stopped, Sample.empty] {
            #expect(try object(report).keys.sorted() == Self.keys)
        }
        let empty = try object(Sample.empty)
        for key in ["schedule", "since", "ended_at", "total", "hash", "drift", "users_per_second"] {
            #expect(empty[key] is NSNull, "\(key)")
        }
    }

    @Test func `The parts have their keys`() throws {
        let object = try object(Sample.stopped)
        let drift = try #require(object["drift"] as? [String: Any])
        #expect(drift.keys.sorted() == ["agreeing", "compared", "convergence_seconds", "oldest_evidence_seconds"])
        let convergence = try #require(drift["convergence_seconds"] as? [String: Any])
        #expect(convergence.keys.sorted() == ["p50", "p95"])
        let point = try #require((object["progress"] as? [[String: Any]])?.first)
        #expect(point.keys.sorted() == ["at", "users"])
        #expect(point["at"] as? String == "2026-11-23T12:00:00.000Z")
        let change = try #require((object["changes"] as? [[String: Any]])?.first)
        let keys = ["assets", "explanation", "outcome", "rule", "state", "type_after", "type_before", "user_id"]
        #expect(change.keys.sorted() == keys)
        var unknown = Sample.stopped
        unknown.drift = RunReport.Drift(compared: 0, agreeing: 0)
        unknown.changes[0].rule = nil
        #expect(try unknown.json().contains(#""compared":0,"convergence_seconds":{"p50":null,"p95":null}"#))
        #expect(try unknown.json().contains(#""rule":null"#))
    }

    @Test func `Figures stand under their keys`() throws {
        let object = try object(Sample.stopped)
        let numbers: [String: Double] = [
            "run": 12, "users": 48_211, "total": 50_007, "promotions": 1_312, "demotions": 8_124,
            "announced_demotions": 124, "applied": 1_436, "held": 8_001, "demotion_limit": 100, "subscribers": 20_203,
            "users_per_second": 13.374, "changes_total": 9_436,
        ]
        for (key, number) in numbers { #expect(object[key] as? Double == number, "\(key)") }
        #expect(object["dry_run"] as? Bool == false)
        #expect(object["started_at"] as? String == "2026-11-23T12:00:01.500Z")
        #expect(object["ended_at"] as? String == "2026-11-23T13:00:01.250Z")
        #expect(object["since"] as? String == "2026-11-22T12:00:00.000Z")
    }

    @Test func `The same report has the same bytes, with its keys in order`() throws {
        let first = try Sample.stopped.json()
        for _ in 0..<20 { #expect(try Sample.stopped.json() == first) }
        #expect(!first.contains("\n"))
        let places = try Self.keys.map { try #require(first.range(of: #""\#($0)":"#)).lowerBound }
        // `users` and `state` stand in parts as well, so only the keys that stand nowhere else are compared.
        let own = zip(Self.keys, places).filter { !["users", "state", "rules"].contains($0.0) }.map(\.1)
        #expect(own == own.sorted())
    }

    @Test(
        arguments: [
            (0, "1970-01-01T00:00:00.000Z"), (-0.001, "1969-12-31T23:59:59.999Z"), (0.0004, "1970-01-01T00:00:00.000Z"),
            (1_795_435_200.029, "2026-11-23T12:00:00.029Z"), (1_795_435_199.9996, "2026-11-23T12:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"), (Double.infinity, "9999-12-31T23:59:59.999Z"),
            (-Double.infinity, "1583-01-01T00:00:00.000Z"),
        ]
    )
    func `Instants have milliseconds`(seconds: Double, text: String) throws {
        var report = Sample.empty
        report.askedAt = Date(timeIntervalSince1970: seconds)
        #expect(try report.json().contains(#""asked_at":"\#(text)""#))
    }

    @Test func `What is no number is not written`() {
        var report = Sample.empty
        report.usersPerSecond = .nan
        #expect(throws: EncodingError.self) { try report.json() }
    }
}
