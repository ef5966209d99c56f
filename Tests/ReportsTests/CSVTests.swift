import Reports
import TestSupport
import Testing

/// The changes as spreadsheets read them.
@Suite struct CSVTests {
    private func fields(_ text: String) throws -> [String] {
        let rows = try CSVReader.rows(
            RunReport.csvRow(
                RunReport.Change(
                    userID: text,
                    outcome: text,
                    rule: text,
                    explanation: text,
                    typeBefore: text,
                    typeAfter: text,
                    assets: 4,
                    state: text
                )
            )
        )
        #expect(rows.count == 1)
        let row = try #require(rows.first)
        try #require(row.count == 8)
        #expect(row[5] == "4")
        return Array(row[..<5] + row[6...])
    }

    @Test func `A row has the head's columns, in order`() throws {
        let change = RunReport.Change(
            userID: "u",
            outcome: "demoted",
            rule: "store_ended",
            explanation: "It ended, says \"the store\".",
            typeBefore: "subscriber",
            typeAfter: nil,
            assets: 3,
            state: "held"
        )
        #expect(RunReport.csvHeader == "user_id,outcome,rule,type_before,type_after,assets,state,explanation\r\n")
        #expect(
            RunReport.csvRow(change)
                == "u,demoted,store_ended,subscriber,,3,held,\"It ended, says \"\"the store\"\".\"\r\n"
        )
        let file = RunReport.csvHeader + RunReport.csvRow(change) + RunReport.csvRow(change)
        #expect(try CSVReader.rows(file).map(\.count) == [8, 8, 8])
    }

    @Test(
        arguments: Sample.nasty + [
            "a,b", "\"", "\"\"", "\n", "\r", "\r\n", " x ", "a\"\u{301}b", "x,\u{301}y", "\\\"", "'",
        ]
    )
    func `Whatever a field holds comes back`(text: String) throws {
        for field in try fields(text) {
            #expect(Array(field.utf8) == Array(guarded(text).utf8), "\(text.debugDescription)")
        }
    }

    @Test(
        arguments: [
            "=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", "\r\n=1", "=\u{301}1", "+\u{20E3}", "-\u{FE0F}",
            "@\u{200D}", "\u{FF1D}1", "\u{FF0B}1", "\u{FF0D}1", "\u{FF20}A1",
            "=HYPERLINK(\"http://x\",\"y\")", "=", "-",
        ]
    )
    func `What a spreadsheet would calculate gets an apostrophe`(text: String) throws {
        for field in try fields(text) { #expect(Array(field.utf8) == Array(("'" + text).utf8)) }
    }

    @Test(arguments: ["1=1", " =1", "a@b", "'=1", "x-", "", "−1"])
    func `Other texts stay`(text: String) throws {
        for field in try fields(text) { #expect(field == text) }
    }

    @Test func `Made-up fields come back`() throws {
        var generator = SeededGenerator(seed: 7)
        let pieces = [
            "\"", ",", "\r", "\n", "\r\n", "=", "+", "-", "@", "\t", " ", "a", "\u{301}", "é", "日", "👩‍👩‍👧", "\u{0}", "'",
            ";",
            "\u{2028}", "\u{FEFF}",
        ]
        for round in 0..<5_000 {
            let text = (0..<generator.below(9)).map { _ in pieces[generator.below(pieces.count)] }.joined()
            for field in try fields(text) {
                #expect(Array(field.utf8) == Array(guarded(text).utf8), "round \(round): \(text.debugDescription)")
            }
        }
    }

    /// The rule, written a second time.
    private func guarded(_ text: String) -> String {
        let signs = "=+-@\t\r\n\u{FF1D}\u{FF0B}\u{FF0D}\u{FF20}"
        guard let first = text.unicodeScalars.first, signs.unicodeScalars.contains(first) else { return text }
        return "'" + text
    }
}
