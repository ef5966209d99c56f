import Entitlements
import Testing

@testable import WebAPI

/// What people read, and in which language.
@Suite struct MessagesTests {
    private static let languages = ["de", "en", "es", "fr", "ja", "pt", "zh"]
    private static let reference = "R-7K2M-QX4D"
    /// Messages that lead to people.
    private static let leading: Set<MessageKey> = [.nothing, .nothingOtherStoreAccount, .mismatch, .notEligible]

    private func text(_ messages: Messages, _ key: MessageKey, in language: String) throws -> String {
        try #require(messages.text(for: key.rawValue, in: language, reference: Self.reference), "\(key) in \(language)")
    }

    // MARK: Texts

    @Test(arguments: [nil, "https://example.com/help", "mailto:help@example.com"] as [String?])
    func `Every message has a text of its own in every language, and none has a place left open`(
        support: String?
    ) throws {
        let messages = try Messages(support: support)
        #expect(messages.languages == Self.languages)
        for language in Self.languages {
            var texts: [String] = []
            for key in MessageKey.allCases {
                let said = try text(messages, key, in: language)
                texts.append(said)
                #expect(!said.isEmpty && !said.contains("{") && !said.contains("}"), "\(key) in \(language)")
            }
            #expect(Set(texts).count == texts.count, "two messages are the same in \(language)")
        }
        for key in MessageKey.allCases {
            let texts = try Self.languages.map { try text(messages, key, in: $0) }
            #expect(Set(texts).count == texts.count, "\(key) is the same in two languages")
        }
    }

    @Test func `What is filled in is nobody's template`() throws {
        let own = Array(#"{"en": {"restored": "{reference} and {reference} für {support}"}}"#.utf8)
        let messages = try Messages(support: "https://example.com/{reference}", own: own)
        let text = messages.text(for: "restored", reference: "R-{support}")
        #expect(text == "R-{support} and R-{support} für https://example.com/{reference}")
    }

    @Test(arguments: languages)
    func `188: whoever is not helped here is led to support, with a reference`(language: String) throws {
        let silent = try Messages()
        let helpful = try Messages(support: "mailto:help@example.com")
        for key in MessageKey.allCases {
            let leads = Self.leading.contains(key)
            let (plain, full) = (try text(silent, key, in: language), try text(helpful, key, in: language))
            #expect(plain.contains(Self.reference) == leads, "\(key)")
            #expect(full.contains(Self.reference) == leads, "\(key)")
            #expect(full.contains("help@example.com") == leads, "\(key)")
            #expect((full == plain) == !leads, "\(key)")
        }
    }

    @Test(
        arguments: [
            ("mailto:help@example.com", "help@example.com"),
            ("mailto:help@example.com?subject=Restore", "help@example.com"),
            ("https://example.com/help?from=app", "https://example.com/help?from=app"),
        ] as [(String, String)]
    )
    func `188: the address of support is said as people use it`(configured: String, address: String) throws {
        let messages = try Messages(support: configured)
        let said = try text(messages, .nothing, in: "en")
        #expect(said.contains("contact support at \(address) and"), "\(said)")
    }

    @Test func `A language that there is not is answered in English, and a key that there is not in none`() throws {
        let messages = try Messages()
        let english = try text(messages, .nothingExpired, in: "en")
        #expect(messages.text(for: "nothing.expired", reference: Self.reference) == english)
        #expect(messages.text(for: "nothing.expired", in: "it", reference: Self.reference) == english)
        #expect(messages.text(for: "nothing.else", in: "de", reference: Self.reference) == nil)
        #expect(messages.text(for: "", in: "de", reference: Self.reference) == nil)
    }

    // MARK: Languages

    static let headers: [(String?, String)] = [
        (nil, "en"), ("", "en"), ("de", "de"), ("DE", "de"), ("de-CH", "de"), ("de-ch-1996", "de"),
        ("zh-Hans-CN", "zh"), ("zh-Hant", "zh"), ("pt-BR", "pt"), ("it", "en"), ("deu", "en"), ("d", "en"),
        ("it, de", "de"), ("it-IT,it;q=0.9,fr;q=0.3", "fr"),
        // The weight counts, not the place.
        ("fr;q=0.5, de;q=0.8", "de"), ("fr;q=0.8, de;q=0.5", "fr"), ("en;q=0.1,ja", "ja"),
        ("de;q=0.9, pt-BR;q=0.95, en", "en"), ("es;q=0.001, it", "es"),
        // Of equal weights the first.
        ("fr, de", "fr"), ("de, fr", "de"), ("ja;q=0.7,es;q=0.7,de;q=0.7", "ja"), ("it;q=0.7,es;q=0.7,de;q=0.7", "es"),
        ("de;q=1, fr", "de"), ("fr, de;q=1.0", "fr"),
        // Any other language will do.
        ("*", "en"), ("*;q=0.5, fr;q=0.1", "en"), ("fr, *;q=0.5", "fr"), ("it, *", "en"), ("de, *", "de"),
        // Not wanted.
        ("de;q=0", "en"), ("de;q=0, fr", "fr"), ("de;q=0.0, en;q=0", "en"), ("de;q=-1, fr;q=0.1", "fr"),
        // Nonsense.
        (";;;,,,", "en"), ("???", "en"), ("q=1", "en"), (",", "en"), ("-", "en"), ("de;q=x", "en"),
        ("de;q=x, fr;q=0.1", "fr"), ("de;q=nan, fr;q=0.1", "fr"), ("de;q=", "en"), ("de;level=1", "de"),
        (" de", "de"), ("de ;q=0.5", "de"), ("fr;q=0.5,  de; q=0.9", "de"), ("\u{0}", "en"), ("日本語", "en"),
    ]

    @Test(arguments: headers)
    func `The language is the one that is wished for most, of those that there are`(
        header: String?,
        language: String
    ) throws {
        #expect(try Messages().language(accepted: header) == language)
    }

    @Test func `A header is read up to a length and a number of wishes`() throws {
        let messages = try Messages()
        #expect(messages.language(accepted: "de" + String(repeating: " ", count: 998)) == "de")
        #expect(messages.language(accepted: "de" + String(repeating: " ", count: 999)) == "en")
        func wishes(before count: Int) -> String {
            (Array(repeating: "xx", count: count) + ["de"]).joined(separator: ",")
        }
        #expect(messages.language(accepted: wishes(before: 49)) == "de")
        #expect(messages.language(accepted: wishes(before: 50)) == "en")
    }

    // MARK: A team's own texts

    private func own(_ json: String, support: String? = nil) throws(Messages.Fault) -> Messages {
        try Messages(support: support, own: Array(json.utf8))
    }

    @Test func `A team may add a language, and what it leaves out is said in English`() throws {
        let messages = try own(#"{"it":{"restored":"Il tuo abbonamento è di nuovo attivo."}}"#)
        #expect(messages.languages == (Self.languages + ["it"]).sorted())
        #expect(messages.language(accepted: "it-IT, de;q=0.5") == "it")
        #expect(try text(messages, .restored, in: "it") == "Il tuo abbonamento è di nuovo attivo.")
        let english = try text(messages, .nothing, in: "en")
        #expect(try text(messages, .nothing, in: "it") == english)
        #expect(try text(messages, .restored, in: "de") == "Ihr Abo ist wieder aktiv.")
    }

    @Test func `A team's text for a region comes before the language's`() throws {
        let messages = try own(#"{"pt-PT":{"restored":"A sua subscrição está novamente ativa."}}"#)
        #expect(messages.language(accepted: "pt-PT") == "pt-pt" && messages.language(accepted: "pt-BR") == "pt")
        #expect(try text(messages, .restored, in: "pt-pt") == "A sua subscrição está novamente ativa.")
        #expect(try text(messages, .restored, in: "pt") == "Sua assinatura está ativa novamente.")
    }

    @Test func `A team may replace one text, and the others stay`() throws {
        let shipped = try Messages()
        let messages = try own(#"{"de":{"restored":"Dein Abo läuft wieder."}}"#)
        #expect(try text(messages, .restored, in: "de") == "Dein Abo läuft wieder.")
        for key in MessageKey.allCases where key != .restored {
            let before = try text(shipped, key, in: "de")
            #expect(try text(messages, key, in: "de") == before, "\(key)")
        }
        let english = try text(shipped, .restored, in: "en")
        #expect(try text(messages, .restored, in: "en") == english)
    }

    @Test func `Places are filled in a team's own texts, with the address where it is known`() throws {
        let json = #"""
            {"it":{"nothing":"Niente ({reference}).","nothing+support":"Niente: {support}, {reference}, {reference}.",
            "mismatch":"Altro account ({reference})."}}
            """#
        let silent = try own(json)
        #expect(try text(silent, .nothing, in: "it") == "Niente (\(Self.reference)).")
        let helpful = try own(json, support: "https://example.com/help")
        let expected = "Niente: https://example.com/help, \(Self.reference), \(Self.reference)."
        #expect(try text(helpful, .nothing, in: "it") == expected)
        #expect(
            try text(helpful, .mismatch, in: "it") == "Altro account (\(Self.reference)).",
            "the reader's language comes before the address in another one"
        )
    }

    private func fault(_ json: String) -> String? {
        do throws(Messages.Fault) {
            _ = try own(json)
            return nil
        } catch { return error.problem }
    }

    @Test(
        arguments: [
            (#"{"de":{"nothing.else":"x"}}"#, "has the key nothing.else, which there is not"),
            (#"{"de":{"Restored":"x"}}"#, "has the key Restored,"),
            (#"{"de":{"restored+help":"x"}}"#, "has the key restored+help,"),
            (#"{"de":{"":"x"}}"#, "has the key ,"),
            (#"{"de":{"nothing":"Hallo {name}"}}"#, "has a place other than {reference} and {support} in nothing"),
            (#"{"de":{"nothing":"{ reference }"}}"#, "has a place other than"),
            (#"{"de":{"nothing":"{{reference}}"}}"#, "has a place other than"),
            (#"{"de":{"nothing":"}"}}"#, "has a place other than"),
            (#"{"de":{"nothing":"\#(String(repeating: "x", count: 2_001))"}}"#, "has a text of more than 2000 bytes"),
            (#"{"de":{"nothing":"\#(String(repeating: "é", count: 1_001))"}}"#, "has a text of more than 2000 bytes"),
            (#"{"d":{"nothing":"x"}}"#, "has a language that is no tag such as de or pt-BR"),
            (#"{"":{"nothing":"x"}}"#, "has a language that is no tag"),
            (#"{"de_DE":{"nothing":"x"}}"#, "has a language that is no tag"),
            (#"{"de CH":{"nothing":"x"}}"#, "has a language that is no tag"),
            (#"{"日本":{"nothing":"x"}}"#, "has a language that is no tag"),
            (#"{"\#(String(repeating: "x", count: 36))":{}}"#, "has a language that is no tag"),
            ("", "is no JSON object of languages"), ("no JSON", "is no JSON object of languages"),
            ("[]", "is no JSON object of languages"), (#"{"de":"x"}"#, "is no JSON object of languages"),
            (#"{"de":{"nothing":5}}"#, "is no JSON object of languages"),
            (#"{"de":{"nothing":null}}"#, "is no JSON object of languages"),
        ] as [(String, String)]
    )
    func `A team's file that can't be right is refused, and says why`(json: String, problem: String) throws {
        let said = try #require(fault(json))
        #expect(said.contains(problem), "\(said)")
    }

    @Test func `A team's file is taken up to its limits`() {
        #expect(fault("{}") == nil)
        #expect(fault(#"{"de":{"nothing":"\#(String(repeating: "x", count: 2_000))"}}"#) == nil)
        #expect(fault(#"{"\#(String(repeating: "x", count: 35))":{"nothing+support":"x"}}"#) == nil)
        func languages(_ count: Int) -> String {
            "{" + (0..<count).map { #""x-\#($0)":{}"# }.joined(separator: ",") + "}"
        }
        #expect(fault(languages(200)) == nil)
        #expect(fault(languages(201)) == "has more than 200 languages")
    }
}
