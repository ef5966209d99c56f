import Entitlements
import Foundation
import TextFormats

/// What a user reads for a message key, by language.
///
/// The texts are data, a JSON object of languages, each an object of keys. `{reference}` and `{support}` are filled in;
/// a key with `+support` behind it is the text for where an address of support is known.
package struct Messages: Sendable {
    /// The language for users who speak none of the others.
    package static let fallback = "en"
    /// What stands behind the key of a text for where an address of support is known.
    private static let withSupport = "+support"
    /// Texts about a store's health; `{store}` is filled in.
    private static let storeKeys = ["store.slow", "store.down"]
    /// Texts about cases at support.
    static let caseKeys = [
        "case.open", "case.question", "case.decided", "transfer.question", "transfer.open", "transfer.decided",
        "reply.noted", "release.noted",
    ]
    /// What begins the key of a question's text; teams may have questions of their own.
    static let question = "question."
    /// The languages and keys that one file may add, and a text's length in bytes.
    private static let mostLanguages = 200
    private static let mostBytes = 2_000

    private let texts: [String: [String: String]]
    /// An address that fits into a sentence.
    private let support: String?

    /// Why a file of texts is not taken.
    package struct Fault: Error, Hashable {
        /// As the middle of a sentence.
        package var problem: String
    }

    /// Takes the texts that are shipped, and a team's own above them, in JSON of the same form.
    ///
    /// - Throws: `Fault` where `own` is no such JSON, or names a key or a place that there is not.
    package init(support: String? = nil, own: [UInt8]? = nil) throws(Fault) {
        self.support = support.map {
            $0.hasPrefix("mailto:") ? String($0.dropFirst("mailto:".count).prefix { $0 != "?" }) : $0
        }
        var texts = try Self.shipped.get()
        if let own {
            let added = try Self.read(own)
            try Self.check(added)
            // In an order of their own: two spellings of one tag merge alike every time.
            for (language, entries) in added.sorted(by: { $0.key < $1.key }) {
                let language = language.lowercased()
                // A team that changes a text without support's address does not want ours where that is known.
                for key in entries.keys { texts[language]?[key + Self.withSupport] = nil }
                texts[language, default: [:]].merge(entries) { $1 }
            }
        }
        self.texts = texts
    }

    /// Read once for all apps of the process.
    private static let shipped = Result { () throws(Fault) in
        try read(EmbeddedFiles.content("WebAPI/Messages/messages.json"))
    }

    package var languages: [String] { texts.keys.sorted() }

    /// A user's text; `nil` for a key that there is not.
    ///
    /// A language that there is not is answered in English, as is a key that a language lacks; `reference` names the
    /// case to support.
    package func text(for key: String, in language: String = fallback, reference: String) -> String? {
        text(for: key, in: language, filled: ["reference": reference, "support": support ?? ""])
    }

    private func text(for key: String, in language: String, filled values: [String: String]) -> String? {
        for tag in Self.chain(language) {
            guard let entries = texts[tag] else { continue }
            let known = support == nil ? nil : entries[key + Self.withSupport]
            guard let text = known ?? entries[key] else { continue }
            return Self.fill(text, values)
        }
        return nil
    }

    /// Fills in what stands in braces, once: what is filled in is no template.
    private static func fill(_ text: String, _ values: [String: String]) -> String {
        var filled = ""
        var rest = text[...]
        while let opening = rest.utf8.firstIndex(of: UInt8(ascii: "{")),
            let closing = rest.utf8[opening...].firstIndex(of: UInt8(ascii: "}"))
        {
            filled += rest[..<opening]
            filled += values[String(rest[opening..<closing].dropFirst())] ?? ""
            rest = rest[rest.utf8.index(after: closing)...]
        }
        return filled + rest
    }

    /// What a user reads of a store's trouble, `slow` or `down`; `nil` for a store that is well.
    func text(of store: String, being state: String, in language: String) -> String? {
        // RevenueCat is no user's store: what it does not answer, the stores behind it do not.
        let name =
            ["app_store": "App Store", "google_play": "Google Play", "onside": "Onside"][store]
            ?? "App Store / Google Play"
        return text(
            for: "store." + state,
            in: language,
            filled: ["reference": "", "support": support ?? "", "store": name]
        )
    }

    /// A tag, what is left of it without its last parts, and English.
    private static func chain(_ language: String) -> [String] {
        var tags: [String] = []
        var tag = language[...]
        while !tag.isEmpty {
            tags.append(String(tag))
            guard let cut = tag.lastIndex(of: "-") else { break }
            tag = tag[..<cut]
        }
        return tags + [fallback]
    }

    private static func read(_ json: [UInt8]) throws(Fault) -> [String: [String: String]] {
        do { return try JSONDecoder().decode([String: [String: String]].self, from: Data(json)) } catch {
            throw Fault(problem: "is no JSON object of languages with an object of texts each")
        }
    }

    private static func check(_ added: [String: [String: String]]) throws(Fault) {
        guard added.count <= mostLanguages else { throw Fault(problem: "has more than \(mostLanguages) languages") }
        let outcomes: [String] = MessageKey.allCases.map(\.rawValue)
        let keys = Set<String>([outcomes, outcomes.map { $0 + withSupport }, storeKeys, caseKeys].joined())
        for (language, entries) in added {
            guard (2...35).contains(language.utf8.count),
                language.utf8.allSatisfy({ $0.isLetterOrDigit || $0 == UInt8(ascii: "-") })
            else {
                throw Fault(problem: "has a language that is no tag such as de or pt-BR")
            }
            for (key, text) in entries {
                guard keys.contains(key) || isQuestion(key) else {
                    throw Fault(problem: "has the key \(key.prefix(40)), which there is not")
                }
                guard text.utf8.count <= mostBytes else {
                    throw Fault(problem: "has a text of more than \(mostBytes) bytes")
                }
                let rest = ["{reference}", "{support}", storeKeys.contains(key) ? "{store}" : "{support}"]
                    .reduce(text) { $0.replacing($1, with: "") }
                guard !rest.contains("{"), !rest.contains("}") else {
                    throw Fault(problem: "has a place other than {reference} and {support} in \(key)")
                }
            }
        }
    }

    private static func isQuestion(_ key: String) -> Bool {
        key.wholeMatch(of: /question\.[a-z][a-z_]{0,39}/) != nil
    }
}

extension Messages {
    /// The language of the highest weight that we have, itself or without its region; English otherwise.
    ///
    /// A value of `Accept-Language` that does not read as such counts as nothing.
    func language(accepted header: String?) -> String {
        guard let header, header.utf8.count <= 1_000 else { return Self.fallback }
        var wishes: [(tag: String, weight: Double)] = []
        for part in header.split(separator: ",").prefix(50) {
            let pieces = part.split(separator: ";").map { $0.trimmingCharacters(in: .whitespaces).lowercased() }
            guard let tag = pieces.first, !tag.isEmpty else { continue }
            var weight = 1.0
            for piece in pieces.dropFirst() where piece.hasPrefix("q=") { weight = Double(piece.dropFirst(2)) ?? 0 }
            if weight > 0 { wishes.append((tag, weight)) }
        }
        // A stable order: of equal weights the first counts.
        for wish in wishes.enumerated().sorted(by: { ($1.element.weight, $0.offset) < ($0.element.weight, $1.offset) })
        {
            if let known = Self.chain(wish.element.tag).dropLast().first(where: { texts[$0] != nil }) { return known }
            if wish.element.tag == "*" { return Self.fallback }
        }
        return Self.fallback
    }
}
