import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import Mustache
import SupportDesk
import Telemetry
import TextFormats

/// The console's templates, read once.
struct Pages: Sendable {
    private let library: MustacheLibrary

    /// Where the navigation leads; the permission that a role has to have for it.
    private static let places = [
        ("/console", "Queue", "view"), ("/console/dead", "Dead jobs", "view"), ("/console/runs", "Runs", "view"),
        ("/console/causes", "Causes", "view"),
        ("/console/figures", "Figures", "view"), ("/console/log", "Log", "audit"), ("/console/help", "Help", "view"),
    ]

    /// Read once for all consoles of the process.
    private static let shared = Result { try read() }

    /// - Throws: the library's error for a template that does not read.
    init() throws { library = try Self.shared.get() }

    private static func read() throws -> MustacheLibrary {
        MustacheContentTypes.register(PageEscape(), named: PageEscape.name)
        var library = MustacheLibrary()
        for (name, bytes) in EmbeddedFiles.contents(of: "SupportConsole/Templates") {
            // Without the first line, text would be escaped by the library's own rules.
            let text = "{{% CONTENT_TYPE: \(PageEscape.name)}}" + String(decoding: bytes, as: UTF8.self)
            library.register(try MustacheTemplate(string: text), named: name)
        }
        return library
    }

    /// A page with a title, which is its heading too; without a visit no operator is signed in.
    func page(
        _ template: String,
        _ title: String,
        _ values: [String: Any],
        _ visit: Visit?,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        var all = values
        all["title"] = title
        all["css"] = Assets.style.path
        all["js"] = Assets.script.path
        all["app"] = AppScope.name.flatMap { $0.isEmpty ? nil : $0 }
        if let visit {
            all["me"] = ["name": visit.me.name, "role": visit.me.role, "held": visit.me.isHeld] as [String: Any]
            all["key"] = visit.formKey
            let here = visit.path.split(separator: "?").first.map(String.init)
            all["places"] = Self.places.filter { visit.may($0.2) }.map {
                ["href": $0.0, "label": $0.1, "here": $0.0 == here] as [String: Any]
            }
            if all["said"] == nil, let said = Said(visit.path) { all["said"] = said.value }
        }
        return Response(
            status: status,
            headers: [.contentType: "text/html; charset=utf-8"],
            body: .init(byteBuffer: .init(string: library.render(all, withTemplate: template) ?? ""))
        )
    }
}

extension Response {
    /// Goes to a page, which says what was done, or by the database's word why not.
    static func going(to path: String, unless refusal: String?, did act: String) -> Response {
        .redirect(to: path + (refusal.map { "?not=\($0)" } ?? "?done=\(act)"), type: .normal)
    }
}

/// Values for a template, without those that are `nil`.
func shown(_ values: [String: Any?]) -> [String: Any] { values.compactMapValues(\.self) }

/// What the page before has done, as a word in the query; only words that are known are said.
struct Said {
    let value: [String: Any]

    init?(_ path: String) {
        guard let query = path.split(separator: "?", maxSplits: 1).dropFirst().first else { return nil }
        for pair in query.split(separator: "&") {
            let sides = pair.split(separator: "=", maxSplits: 1).map(String.init)
            guard sides.count == 2 else { continue }
            let words = sides[0] == "done" ? Self.done[sides[1]] : sides[0] == "not" ? Self.refusal(sides[1]) : nil
            if let words {
                value = ["words": words, "good": sides[0] == "done"]
                return
            }
        }
        return nil
    }

    private static let done = [
        "claim": "The ticket is yours for 30 minutes.", "release": "The ticket is anyone's again.",
        "refresh": "The evidence is being collected again.", "note": "The note is recorded.",
        "give-access": "The claimant has access for 72 hours, or until the case is decided.",
        "approve": "Your approval is recorded.", "waive": "The owner is not waited for any longer.",
        "withdraw": "Your approval is taken back.",
        "token": "A worker notifies the App Store again.",
        "transfer": "The transfer has begun; a worker carries it out.", "resolve": "The transfer was settled by hand.",
        "refuse": "The case is decided.", "ask": "The claimant has been asked.", "open": "The ticket is open.",
        "restore": "A worker reads the stores for this user now.", "retry": "The job is queued again.",
        "retry-all": "The jobs are queued again, at most 1,000 at a time.",
        "dry-run": "A worker reads the stores and says what a reconcile would do; nothing is changed by it.",
        "confirm": "It is you. You can decide now.", "terminal": "The terminal is signed in.",
    ]
}
