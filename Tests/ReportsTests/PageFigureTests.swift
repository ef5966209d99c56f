import Foundation
import Reports
import Testing

/// The numbers and the drawings of the page.
@Suite struct PageFigureTests {
    private func root(_ report: RunReport) throws -> Page.Element { try Page.read(report.html()).root }

    private func chart(_ name: String, in root: Page.Element) throws -> Page.Element {
        let section = root.all("section").first { $0.attributes["aria-labelledby"] == "chart-\(name)" }
        return try #require(section)
    }

    /// The widths of a chart's bars, in hundredths of the drawing.
    private func widths(_ name: String, in root: Page.Element) throws -> [Double] {
        try chart(name, in: root).all("rect").filter { $0.attributes["class"] != "track" }
            .compactMap { $0.attributes["width"] }.map { text in
                #expect(text.hasSuffix("%"))
                return try #require(Double(text.dropLast()))
            }
    }

    @Test func `Every number is on the page`() throws {
        let main = try #require(try root(Sample.stopped).all("main").first)
        let words = main.all.map(\.own).joined(separator: " ")
        let numbers = [
            "12", "48,211", "50,007", "1,311", "8,123", "38,002", "611", "142", "22", "30,411", "8,119", "613", "8,904",
            "19",
            "3", "1,312", "8,124", "124", "8,000", "1,436", "8,001", "100", "20,203", "13.37", "211", "8,211",
            "16,211", "24,211", "32,211", "40,211", "5,011", "4,987", "93,784 s (26.1 h)", "2.25 s", "41.5 s", "9,436",
            "7",
            "2026-11-22 12:00:00 UTC", "2026-11-23 12:00:00 UTC", "2026-11-23 12:00:01 UTC", "2026-11-23 13:00:01 UTC",
            "2026-11-23 13:01:40 UTC", "2026-11-23 12:40:00 UTC",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        ]
        for number in numbers {
            let escaped = NSRegularExpression.escapedPattern(for: number)
            let whole = "(?<![0-9,.])\(escaped)(?![0-9]|[,.][0-9])"
            #expect(words.range(of: whole, options: .regularExpression) != nil, "\(number)")
        }
        let facts = try root(Sample.stopped).all("div").filter { $0.children.first?.name == "dt" }
        let named = Dictionary(facts.map { ($0.all("dt")[0].text, $0.all("dd")[0].text) }) { first, _ in first }
        #expect(named["Promotions"] == "1,312")
        #expect(named["Demotions"] == "8,124")
        #expect(named["Announced by a store"] == "124")
        #expect(named["Count toward the limit"] == "8,000")
        #expect(named["Changes held"] == "8,001")
        #expect(named["Changes applied"] == "1,436")
        #expect(named["Records that agreed"] == "4,987")
    }

    @Test func `Bars are as wide as their numbers say`() throws {
        let root = try root(Sample.stopped)
        let outcomes = try widths("outcomes", in: root)
        #expect(outcomes == [1_311, 8_123, 38_002, 611, 142, 22].map { ($0 / 38_002 * 100_000).rounded() / 1000 })
        #expect(
            try widths("rules", in: root)
                == [30_411, 8_904, 8_119, 613].map { ($0 / 30_411 * 100_000).rounded() / 1000 }
        )
        #expect(try widths("errors", in: root) == [100, (3.0 / 19 * 100_000).rounded() / 1000])
        let names = try chart("outcomes", in: root).all("tbody").flatMap { $0.all("th") }.map(\.text)
        #expect(names == ["Promoted", "Demoted", "Unchanged", "Deferred", "Not eligible", "Store unavailable"])
    }

    @Test(
        arguments: [
            (8_124, 124, 100, 98, 1.225, true), (50, 0, 100, 49, 98, false), (100, 0, 100, 98, 98, false),
            (101, 1, 100, 98, 98, false), (101, 0, 100, 98, 97.03, true), (0, 0, 0, 0, 0, false),
            (7, 9, 5, 0, 98, false),
            (.max, 0, 1, 98, 0, true), (3, 0, 0, 98, 0, true),
        ] as [(Int64, Int64, Int64, Double, Double, Bool)]
    )
    func `Demotions and their limit stand on one scale`(
        demotions: Int64,
        announced: Int64,
        limit: Int64,
        width: Double,
        mark: Double,
        isOver: Bool
    ) throws {
        var report = Sample.stopped
        (report.demotions, report.announcedDemotions, report.demotionLimit) = (demotions, announced, limit)
        let root = try root(report)
        #expect(try widths("limit", in: root) == [width])
        let chart = try chart("limit", in: root)
        let line = try #require(chart.all("line", "mark").first)
        #expect(line.attributes["x1"].flatMap { Double($0.dropLast()) } == mark)
        #expect(line.attributes["x2"] == line.attributes["x1"])
        #expect(chart.all("rect", "over").isEmpty != isOver)
        let words = chart.all("svg").first?.attributes["aria-label"]
        #expect(words?.contains(isOver ? "more than the limit" : "within the limit") == true)
        #expect(report.exceedsLimit == isOver)
    }

    @Test func `Without a limit there is no mark`() throws {
        var report = Sample.stopped
        report.demotionLimit = nil
        let chart = try chart("limit", in: root(report))
        #expect(chart.all("line").isEmpty)
        #expect(chart.text.contains("No limit is known."))
        #expect(!report.exceedsLimit)
    }

    @Test func `The line goes from the first point to the last`() throws {
        var report = Sample.stopped
        report.total = 400
        report.progress = [(30.0, 300), (0, 0), (10, 100)].map { .init(at: Sample.noon + $0, users: $1) }
        let paths = try chart("progress", in: root(report)).all("path")
        #expect(paths.first { $0.attributes["class"] == "line" }?.attributes["d"] == "M0 300L333.33 225L1000 75")
        #expect(paths.first { $0.attributes["class"] == "goal" }?.attributes["d"] == "M0 0H1000")
        report.total = nil
        let free = try chart("progress", in: root(report)).all("path")
        #expect(free.first { $0.attributes["class"] == "line" }?.attributes["d"] == "M0 300L333.33 200L1000 0")
        #expect(!free.contains { $0.attributes["class"] == "goal" })
        report.progress = [.init(at: Sample.noon, users: 50)]
        report.total = 100
        let dot = try chart("progress", in: root(report)).all("path").first { $0.attributes["class"] == "dot" }
        #expect(dot?.attributes["d"] == "M500 150h0.01")
        report.progress = [.init(at: Sample.noon, users: 1), .init(at: Sample.noon, users: 2)]
        #expect(try chart("progress", in: root(report)).all("path", "line").count == 1)
    }

    @Test func `An empty report says that there is nothing to show`() throws {
        let root = try root(Sample.empty)
        for name in ["outcomes", "progress", "rules"] {
            let chart = try chart(name, in: root)
            #expect(chart.all("p").map(\.text) == ["Nothing to show."])
            #expect(chart.all("svg").isEmpty)
        }
        #expect(!root.all("h2").contains { $0.text == "Errors" || $0.text == "Drift" })
        #expect(root.text.contains("No changes."))
    }

    @Test func `Noughts are bars without a width`() throws {
        var report = Sample.empty
        report.outcomes = ["promoted": 0, "unchanged": 0]
        report.total = 0
        report.progress = [.init(at: Sample.noon, users: 0)]
        report.drift = RunReport.Drift(compared: 0, agreeing: 0)
        #expect(try widths("outcomes", in: root(report)) == [0, 0])
    }

    @Test func `The largest numbers, and what is no number, are drawn`() throws {
        var report = Sample.stopped
        report.outcomes = ["promoted": .max, "demoted": .max, "other": .min]
        report.users = .max
        report.total = .max
        (report.demotions, report.announcedDemotions) = (.min, .max)
        report.held = .min
        report.changesTotal = .max
        report.usersPerSecond = .infinity
        report.drift?.oldestEvidenceSeconds = .nan
        report.drift?.convergenceSeconds.p50 = 1e300
        report.askedAt = .distantFuture
        report.since = Date(timeIntervalSince1970: -.infinity)
        report.progress = [.init(at: .distantPast, users: .max), .init(at: .distantFuture, users: .min)]
        let root = try root(report)
        #expect(try widths("outcomes", in: root) == [100, 100, 0])
        #expect(root.text.contains("9,223,372,036,854,775,807"))
        #expect(!report.summary().isEmpty)
        let words = try #require(root.all("main").first?.text)
        #expect(!words.contains("nan") && !words.contains("inf"))
    }

    @Test(
        arguments: [
            (2, "The first 2 of 9,436 changes: 9,434 are not on this page.", 9_436), (2, "All 2 changes.", 2),
            (1, "The first 1 of 2 changes: 1 is not on this page.", 2), (1, "All 1 change.", 1),
        ] as [(Int, String, Int64)]
    )
    func `Changes that were cut off are told of`(count: Int, words: String, total: Int64) throws {
        var report = Sample.stopped
        report.changes = Array(report.changes.prefix(count))
        report.changesTotal = total
        let table = try #require(try root(report).all("table", "rows").first)
        #expect(table.children.first?.text == words)
        #expect(table.all("tbody").first?.children.count == count)
    }

    @Test func `Changes that are all cut off are told of`() throws {
        var report = Sample.empty
        report.changesTotal = 3
        #expect(try root(report).all("p", "cut").map(\.text) == ["The page shows none of 3 changes."])
    }
}
