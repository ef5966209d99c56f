/// The page of one report: it loads nothing, runs nothing, and is XML as well as HTML.
struct ReportPage {
    let report: RunReport
    let showsUsers: Bool

    var markup: Markup {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8"/>
        <!-- \(privacy) -->
        <meta http-equiv="Content-Security-Policy" content="\(policy)"/>
        <meta name="viewport" content="width=device-width, initial-scale=1"/>
        <meta name="color-scheme" content="light dark"/>
        <meta name="referrer" content="no-referrer"/>
        <meta name="robots" content="noindex"/>
        <title>\(title) · entitlement-sync</title>
        <style>
        \(PageStyle.css)
        </style>
        </head>
        <body>
        <header>
        <p class="brand">entitlement-sync</p>
        <h1>\(title)</h1>
        </header>
        <main>
        \(said)
        <p class="help privacy">\(privacy)</p>
        \(numbers)
        <div class="charts">
        \(charts)</div>
        \(facts("Drift", "drift", report.strayed))\
        \(facts("The run", "run", report.identity + (report.lists ?? []).compactMap { Fact("A store's list", .text($0)) }))\
        \(changes)
        </main>
        <footer><p>Times are in UTC. The page holds everything that it shows, and loads nothing.</p></footer>
        </body>
        </html>

        """
    }

    private var title: Markup { "Reconciliation \(report.isDryRun ? "dry run" : "run") \("\(report.run)")" }

    /// Nothing may be loaded, run or sent.
    private var policy: Markup {
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    }

    private var privacy: Markup {
        showsUsers
            ? "This file holds ids of users, which are personal data: keep it as such, and delete it when it has served."
            : "Ids of users are cut to their first two characters in this file."
    }

    private var said: Markup {
        let headline = report.headline
        let command: Markup = headline.command.map { "<pre><code>\($0)</code></pre>\n" } ?? ""
        return """
            <section class="said \(headline.tone.rawValue)" aria-label="What happened">
            <p class="what">\(headline.happened)</p>
            <p class="next">\(headline.next)</p>
            \(command)</section>
            """
    }

    private var numbers: Markup { facts("Numbers", "numbers", report.numbers) }

    private func facts(_ title: String, _ id: String, _ facts: [Fact]) -> Markup {
        guard !facts.isEmpty else { return "" }
        return """
            <section class="card" aria-labelledby="\(id)">
            <h2 id="\(id)">\(title)</h2>
            <dl class="facts">
            \(facts.map { "<div><dt>\($0.name)</dt><dd>\(Self.shown($0.value))</dd></div>\n" as Markup })\
            </dl>
            </section>

            """
    }

    private static func shown(_ value: Fact.Value) -> Markup {
        switch value {
        case .text(let text): "\(text)"
        case .code(let text): "<code>\(text)</code>"
        case .instant(let date): "<time datetime=\"\(Timestamp.machine(date))\">\(Timestamp.shown(date))</time>"
        }
    }

    private var charts: Markup {
        let outcomes = report.orderedOutcomes.map {
            BarChart.Bar(name: Self.plain($0.name), number: $0.number, colour: $0.name == "promoted" ? "p3" : "p1")
        }
        let limit = LimitChart(
            demotions: report.countedDemotions,
            announced: report.announcedDemotions,
            limit: report.demotionLimit
        )
        return """
            \(card("Users by outcome", "outcomes", bars("Users by outcome", outcomes)))\
            \(card("Progress", "progress", ProgressChart(points: report.progress, total: report.total).markup))\
            \(card("Demotions and the limit", "limit", limit.markup))\
            \(card("Users by rule", "rules", bars("Users by rule", codes(report.rules))))\
            \(report.errors.isEmpty ? "" : card("Errors", "errors", bars("Errors", unit: "Readings", codes(report.errors))))
            """
    }

    private func card(_ title: String, _ id: String, _ content: Markup) -> Markup {
        """
        <section class="card" aria-labelledby="chart-\(id)">
        <h2 id="chart-\(id)">\(title)</h2>
        \(content.text.isEmpty ? "<p class=\"help\">Nothing to show.</p>" : content)
        </section>

        """
    }

    private func bars(_ title: String, unit: String = "Users", _ bars: [BarChart.Bar]) -> Markup {
        bars.isEmpty ? "" : BarChart(title: title, unit: unit, bars: bars).markup
    }

    private func codes(_ numbers: [String: Int64]) -> [BarChart.Bar] {
        RunReport.ordered(numbers).map { BarChart.Bar(name: $0.name, number: $0.number) }
    }

    private var changes: Markup {
        ChangesSection(
            changes: report.changes,
            total: report.changesTotal,
            cutOff: report.cutOff,
            showsUsers: showsUsers
        )
        .markup
    }

    /// `Store unavailable` for `store_unavailable`.
    static func plain(_ code: String) -> String {
        let words = code.replacing("_", with: " ")
        return words.prefix(1).uppercased() + words.dropFirst()
    }
}
