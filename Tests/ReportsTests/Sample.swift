import Foundation
import Reports

/// Reports to render.
enum Sample {
    static let noon = Date(timeIntervalSince1970: 1_795_435_200)

    /// A run whose demotions exceed the limit; no two of its numbers are the same.
    static var stopped: RunReport {
        var report = RunReport(
            run: 12,
            scope: "all",
            isDryRun: false,
            state: "stopped",
            askedBy: "ops@example.com",
            askedAt: noon
        )
        report.schedule = "nightly"
        report.since = noon - 86_400
        report.startedAt = noon + 1.5
        report.endedAt = noon + 3_601.25
        report.predictedEnd = noon + 3_700
        report.users = 48_211
        report.total = 50_007
        report.outcomes = [
            "promoted": 1_311, "demoted": 8_123, "unchanged": 38_002, "deferred": 611, "not_eligible": 142,
            "store_unavailable": 22,
        ]
        report.rules = ["store_access": 30_411, "store_ended": 8_119, "first_absence": 613, "no_access": 8_904]
        report.errors = ["throttled": 19, "malformed": 3]
        report.promotions = 1_312
        report.demotions = 8_124
        report.announcedDemotions = 124
        report.applied = 1_436
        report.held = 8_001
        report.demotionLimit = 100
        report.subscribers = 20_203
        report.hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        report.usersPerSecond = 13.374
        report.progress = (0...6).map { RunReport.Point(at: noon + Double($0) * 600, users: Int64($0) * 8_000 + 211) }
        report.drift = RunReport.Drift(
            compared: 5_011,
            agreeing: 4_987,
            oldestEvidenceSeconds: 93_784,
            convergenceSeconds: (p50: 2.25, p95: 41.5)
        )
        report.changes = [
            change("kqXaP4v2aBNhJpZ0", "demoted", "store_ended", "subscriber", "free", assets: 3, state: "held"),
            change("Zt8mQ1xWcLrYvE5u", "promoted", "store_access", "free", "subscriber", assets: 7, state: "applied"),
        ]
        report.changesTotal = 9_436
        return report
    }

    /// A dry run that found nothing to change.
    static var empty: RunReport {
        RunReport(run: 1, scope: "due", isDryRun: true, state: "done", askedBy: "", askedAt: noon)
    }

    static func change(
        _ id: String,
        _ outcome: String,
        _ rule: String,
        _ before: String,
        _ after: String,
        assets: Int64,
        state: String,
        explanation: String = "The store says that every purchase of the user is over (expired)."
    ) -> RunReport.Change {
        RunReport.Change(
            userID: id,
            outcome: outcome,
            rule: rule,
            explanation: explanation,
            typeBefore: before,
            typeAfter: after,
            assets: assets,
            state: state
        )
    }

    /// Texts that break what shows them carelessly.
    static let nasty = [
        "<script>alert(1)</script>", "\"\u{301} onload=\u{301}\"x", "'\u{301}>\u{301}<\u{338}b", "]]>", "<!-- --> -->",
        "&amp;&lt;&#60;", "`${x}`", "</style><img src=x onerror=alert(1)>", "a\u{0}b\u{1B}[31mc", "\u{202E}gpj.exe",
        "\u{FFFE}\u{FFFF}\u{1FFFE}", "line\nbreak\r\nand\ttab", "=cmd|' /C calc'!A0", "👩‍👩‍👧 Ünïcødé 日本", "",
    ]

    /// A report in which every text is one and the same.
    static func filled(with text: String, isHash: Bool = true) -> RunReport {
        var report = stopped
        report.scope = text
        report.state = text
        report.schedule = text
        report.askedBy = text
        report.hash = isHash ? text : nil
        report.outcomes = [text: 5]
        report.rules = [text: 6]
        report.errors = [text: 7]
        report.lists = [text]
        report.changes = [
            RunReport.Change(
                userID: text,
                outcome: text,
                rule: text,
                explanation: text,
                typeBefore: text,
                typeAfter: text + "2",
                assets: 1,
                state: text
            )
        ]
        return report
    }
}
