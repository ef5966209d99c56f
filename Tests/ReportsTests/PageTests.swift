import Foundation
import Reports
import Testing

/// The page's build: what it may hold, and what a browser without help needs.
@Suite struct PageTests {
    private static let elements: Set<String> = [
        "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "div", "h1", "h2", "p",
        "pre",
        "code", "dl", "dt", "dd", "time", "svg", "text", "rect", "line", "path", "details", "summary", "table",
        "caption",
        "thead", "tbody", "tr", "th", "td", "span",
    ]
    private static let attributes: Set<String> = [
        "lang", "charset", "http-equiv", "content", "name", "class", "id", "aria-label", "aria-labelledby", "role",
        "scope",
        "data-label", "datetime", "width", "height", "viewBox", "preserveAspectRatio", "x", "y", "x1", "x2", "y1", "y2",
        "rx",
        "d", "text-anchor",
    ]

    static var reports: [RunReport] {
        var running = Sample.stopped
        running.state = "reading"
        var predicted = Sample.stopped
        predicted.isDryRun = true
        return [Sample.stopped, Sample.empty, running, predicted] + Sample.nasty.map { Sample.filled(with: $0) }
    }

    @Test(arguments: [true, false])
    func `A page is well-formed, and holds nothing but what a page needs`(showsUsers: Bool) throws {
        for report in Self.reports {
            let html = report.html(showsUsers: showsUsers)
            #expect(html.hasPrefix("<!DOCTYPE html>\n<html lang=\"en\">"))
            let page = try Page.read(html)
            for element in page.root.all {
                #expect(Self.elements.contains(element.name), "\(element.name)")
                #expect(Set(element.attributes.keys).isSubset(of: Self.attributes), "\(element.attributes)")
            }
            #expect(page.comments.count == 1)
        }
    }

    @Test func `Nothing is loaded, run or sent`() throws {
        for report in Self.reports where !report.askedBy.contains("src") {
            let html = report.html()
            for word in [
                "http:", "https:", "//", "url(", "@import", "src=", "href=", "<script", "<link", "<img", "<form",
            ] {
                #expect(!html.contains(word), "\(word) in a page of \(report.askedBy)")
            }
            let metas = try Page.read(html).root.all("meta")
            let policy = metas.first { $0.attributes["http-equiv"] == "Content-Security-Policy" }?.attributes["content"]
            #expect(policy == "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'")
        }
    }

    @Test func `The head, the landmarks and the headings are in order`() throws {
        for report in Self.reports {
            let root = try Page.read(report.html()).root
            #expect(root.attributes["lang"] == "en")
            #expect(
                root.all("title").map(\.text) == [
                    "Reconciliation \(report.isDryRun ? "dry run" : "run") \(report.run) · entitlement-sync"
                ]
            )
            #expect(root.all("meta").contains { $0.attributes["name"] == "viewport" })
            for name in ["header", "main", "footer", "h1"] { #expect(root.all(name).count == 1, "\(name)") }
            let headings = root.all.filter { ["h1", "h2", "h3", "h4"].contains($0.name) }
            #expect(headings.first?.name == "h1")
            #expect(headings.dropFirst().allSatisfy { $0.name == "h2" && !$0.text.isEmpty })
            let ids = root.all.compactMap { $0.attributes["id"] }
            #expect(Set(ids).count == ids.count)
            for element in root.all {
                guard let label = element.attributes["aria-labelledby"] else { continue }
                #expect(ids.contains(label))
            }
        }
    }

    @Test func `Charts have words, and tables captions and scopes`() throws {
        let root = try Page.read(Sample.stopped.html()).root
        let charts = root.all("svg").filter { !$0.path.contains("svg") }
        #expect(charts.count == 5)
        for chart in charts {
            #expect(chart.attributes["role"] == "img")
            #expect(chart.attributes["aria-label"]?.isEmpty == false)
        }
        let tables = root.all("table")
        #expect(tables.count == charts.count + 1)
        for table in tables {
            #expect(table.children.first?.name == "caption")
            #expect(table.all("th").allSatisfy { ["col", "row"].contains($0.attributes["scope"]) })
            #expect(
                table.all("tbody").flatMap(\.children).allSatisfy { $0.children.first?.attributes["scope"] == "row" }
            )
        }
    }

    @Test func `Both schemes and paper have their colours`() throws {
        let style = try #require(try Page.read(Sample.empty.html()).root.all("style").first?.text)
        #expect(style.contains("@media (prefers-color-scheme: dark)"))
        #expect(style.contains("@media print"))
        #expect(!style.contains("<"))
    }

    @Test func `A person reads first what happened and what to do`() throws {
        let root = try Page.read(Sample.stopped.html()).root
        let headline = Sample.stopped.headline
        let first = try #require(root.all("main").first?.children.first)
        #expect(first.attributes["class"] == "said warning")
        #expect(first.children.map(\.text) == [headline.happened, headline.next, headline.command])
        #expect(first.all("code").map(\.text) == [headline.command])
    }
}
