import Foundation
import Reports
import Testing

/// What is data stays data on the page, whatever it holds.
@Suite struct PageTextTests {
    /// A text as a page shows it: a line's end is one sign, and what has no place there is replaced.
    private func shown(_ text: String) -> String {
        var scalars = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.value {
            case 0x09, 0x0A, 0x20...0x7E, 0xA0...0x2029, 0x202F...0x2065, 0x206A...0xFDCF, 0xFDF0...0xFFFD,
                0x10000...0x1FFFD:
                scalars.append(scalar)
            default: scalars.append("\u{FFFD}")
            }
        }
        return String(scalars)
    }

    private func same(_ left: String, _ right: String) -> Bool { Array(left.utf8) == Array(right.utf8) }

    @Test(arguments: Sample.nasty)
    func `Every text is on the page as it is`(text: String) throws {
        let root = try Page.read(Sample.filled(with: text).html()).root
        let row = try #require(root.all("table", "rows").first?.all("tbody").first?.children.first)
        let cells = row.children.map(\.text)
        try #require(cells.count == 7)
        let shown = shown(text)
        #expect(same(cells[0], shown))
        #expect(same(cells[2], shown))
        #expect(same(cells[3], shown + " → " + shown + "2"))
        #expect(same(cells[5], shown))
        #expect(same(cells[6], text.isEmpty ? "–" : shown))
        let facts = root.all("div").filter { $0.children.first?.name == "dt" }
        for name in ["State", "Scope", "Schedule", "Hash of the changes"] {
            let fact = try #require(facts.first { $0.children.first?.text == name })
            #expect(same(fact.all("dd").map(\.text).joined(), shown), "\(name)")
        }
        let codes = root.all("table").filter { ["Users by rule", "Errors"].contains($0.children.first?.text) }
        #expect(codes.count == 2)
        for table in codes {
            #expect(same(table.all("tbody").first?.all("th").first?.text ?? "none", shown))
        }
        let words = root.all("svg").compactMap { $0.attributes["aria-label"] }
        let errors = words.filter { $0.hasPrefix("Errors: ") }
        let inAttribute = shown.replacing("\r\n", with: " ").replacing("\n", with: " ").replacing("\t", with: " ")
        #expect(errors.map { same($0, "Errors: \(inAttribute) 7.") } == [true])
    }

    @Test(arguments: Sample.nasty.dropLast())
    func `No sign of it is read as the page's own`(text: String) throws {
        let plain = try Page.read(Sample.filled(with: "x").html()).root
        let nasty = try Page.read(Sample.filled(with: text).html()).root
        #expect(nasty.all.map(\.name) == plain.all.map(\.name))
        #expect(nasty.all.map { $0.attributes.keys.sorted() } == plain.all.map { $0.attributes.keys.sorted() })
    }

    @Test func `What a page must not hold raw is not in its bytes`() {
        let text = Sample.nasty.joined()
        let bytes = Array(Sample.filled(with: text).html().utf8)
        #expect(!bytes.contains { $0 < 0x20 && $0 != 0x0A && $0 != 0x09 })
        let html = String(decoding: bytes, as: UTF8.self)
        // A quotation mark with an accent is two signs to a browser.
        let raw = [
            "<script>alert", "</style><img", "]]>", "--> -->", "`$", "\u{202E}", "\"\u{301}", "'\u{301}", ">\u{301}",
        ]
        let page = Array(html.unicodeScalars)
        for text in raw { #expect(!page.contains(text), "\(text.debugDescription)") }
    }

    @Test func `The file says whether it holds users' ids`() throws {
        for (showsUsers, words) in [(true, "holds ids of users"), (false, "cut to their first two characters")] {
            let html = Sample.stopped.html(showsUsers: showsUsers)
            let page = try Page.read(html)
            #expect(page.comments.first?.contains(words) == true)
            #expect(page.root.all("p", "privacy").map(\.text).first?.contains(words) == true)
            let head = html.split(separator: "</head>").first
            #expect(head?.contains(words) == true)
        }
    }

    @Test(
        arguments: [
            ("kqXaP4v2aBNhJpZ0", "kq…"), ("abcd", "ab…"), ("abc", "a…"), ("ab", "a…"), ("a", "…"), ("", "…"),
            ("e\u{301}\u{301}\u{301}\u{301}secret", "e\u{301}…"), ("👩‍👩‍👧👩‍👩‍👧", "👩\u{200D}…"), ("<<<<", "<<…"),
        ]
    )
    func `A masked id keeps two signs, and is never whole`(id: String, masked: String) throws {
        var report = Sample.stopped
        report.changes = [
            Sample.change(
                id,
                "demoted",
                "r",
                "a",
                "b",
                assets: 0,
                state: "held",
                explanation: "User \(id) ended. \(id)"
            )
        ]
        let root = try Page.read(report.html(showsUsers: false)).root
        let row = try #require(root.all("table", "rows").first?.all("tbody").first?.children.first)
        #expect(same(row.children[0].text, masked))
        if id.unicodeScalars.count >= 4 {
            #expect(same(row.children[6].text, "User \(masked) ended. \(masked)"))
            #expect(!Array(report.html(showsUsers: false).utf8).contains(Array(id.utf8)))
        }
    }
}

extension Array where Element == Unicode.Scalar {
    /// Whether the signs of a text stand in it, one after the other.
    fileprivate func contains(_ text: String) -> Bool { !ranges(of: Array(text.unicodeScalars)).isEmpty }
}

extension Array where Element == UInt8 {
    fileprivate func contains(_ part: [UInt8]) -> Bool { !ranges(of: part).isEmpty }
}
