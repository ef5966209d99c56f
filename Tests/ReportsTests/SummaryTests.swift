import Foundation
import Reports
import Testing

/// The report at a terminal.
@Suite struct SummaryTests {
    @Test func `What happened comes first, then the numbers in columns`() {
        let lines = Sample.stopped.summary()
        #expect(
            lines.prefix(8) == [
                "Reconciliation run 12", "", "8,000 demotions are held: they exceed the limit of 100.",
                "Review the changes; if they are right:",
                "    entitlement-sync runs release 12 --hash "
                    + "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                "", "The run", "  Run                  12",
            ]
        )
        for line in [
            "  Users read              48,211", "  Limit of demotions         100", "  store_unavailable      22",
            "  first_absence     613", "  throttled  19", "  Oldest evidence             93,784 s (26.1 h)",
            "9,436 changes, of which the report holds 2.",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
    }

    @Test func `Users are not in it`() {
        let text = Sample.stopped.summary().joined(separator: "\n")
        for change in Sample.stopped.changes { #expect(!text.contains(change.userID)) }
    }

    @Test(arguments: [(12, "there were no users to read"), (5, "7 users were read")])
    func `Users who were left out are not told as read`(skipped: Int64, said: String) {
        var report = Sample.empty
        report.state = "done"
        (report.isDryRun, report.users, report.total, report.skipped) = (false, 12, 12, skipped)
        let lines = report.summary()
        #expect(lines.contains { $0.contains(said) }, "\(lines)")
        #expect(lines.contains { $0.hasPrefix("  Users not read") && $0.hasSuffix(" \(skipped)") }, "\(lines)")
    }

    @Test func `An empty report has no empty tables`() {
        let lines = Sample.empty.summary()
        #expect(!lines.contains("Errors") && !lines.contains("Drift") && !lines.contains("Users by rule"))
        #expect(lines.last == "0 changes.")
    }

    @Test(arguments: Sample.nasty)
    func `Nothing steers the terminal`(text: String) {
        for line in Sample.filled(with: text).summary() {
            for scalar in line.unicodeScalars {
                let category = scalar.properties.generalCategory
                #expect(![.control, .format, .lineSeparator, .paragraphSeparator].contains(category), "\(line)")
            }
        }
    }
}
