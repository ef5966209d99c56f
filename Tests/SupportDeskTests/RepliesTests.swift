import Entitlements
import SupportDesk
import Testing

/// What agents send to users.
@Suite struct RepliesTests {
    private static let values = ["reference": "R-7K3Q-92", "until": "1 December 2026"]
    private static let reasons = Replies.Reason.allCases

    @Test(arguments: ["de", "en", "es", "fr", "it", "pt"])
    func `Every reason has a text of its own, with the same places as in English`(language: String) throws {
        var texts: [String] = []
        for reason in Self.reasons {
            let text = try #require(
                Replies.text(reason: reason, language: language, values: Self.values),
                "\(reason.rawValue) in \(language)"
            )
            #expect(!text.contains("{") && !text.contains("}"), "\(reason.rawValue) in \(language)")
            #expect(text.count <= 400, "\(reason.rawValue) in \(language) is not short")
            #expect(
                Replies.places(reason: reason, language: language) == Replies.places(reason: reason),
                "\(reason.rawValue) in \(language)"
            )
            if language != Replies.fallback {
                #expect(text != Replies.text(reason: reason, language: "en", values: Self.values), "\(reason.rawValue)")
            }
            texts.append(text)
        }
        #expect(Set(texts).count == texts.count, "two reasons are the same in \(language)")
    }

    @Test func `There are these languages and reasons, each by a name of its own, and places that agents know`() {
        #expect(Replies.languages == ["de", "en", "es", "fr", "it", "pt"])
        for reason in Self.reasons {
            #expect(Replies.places(reason: reason).isSubset(of: Self.values.keys))
        }
        #expect(Self.reasons.count == 18)
    }

    @Test(arguments: [
        ("pt-BR", "pt"), ("DE", "de"), ("de_AT", "de"), ("it-IT", "it"), ("ja", "en"), ("", "en"), ("deu", "en"),
    ])
    func `A language that there is not is answered in English`(tag: String, language: String) {
        #expect(
            Replies.text(reason: .expired, language: tag, values: Self.values)
                == Replies.text(reason: .expired, language: language, values: Self.values)
        )
    }

    @Test func `What is filled in is nobody's template, and nobody is sent a text with holes`() {
        let text = Replies.text(
            reason: .activeUntil,
            language: "en",
            values: ["until": "{reference}", "reference": "x"]
        )
        #expect(text == "Your access is active until {reference}.")
        #expect(Replies.text(reason: .activeUntil, language: "en") == nil)
        #expect(Replies.text(reason: .activeUntil, language: "en", values: ["until": ""]) == nil)
        #expect(Replies.text(reason: .active, language: "en") == "Your access is active.")
    }

    @Test(arguments: TicketState.allCases)
    func `Each state of a ticket has something to say to its claimant`(state: TicketState) {
        let plain = Replies.Reason(state: state, verdict: nil)
        #expect(Replies.text(reason: plain, language: "de", values: Self.values) != nil)
        for verdict in CaseVerdict.allCases {
            let reason = Replies.Reason(state: state, verdict: verdict)
            switch state {
            case .refused: #expect(reason.rawValue == (verdict == .transfer ? .refuse : verdict).rawValue)
            default: #expect(reason == plain, "a verdict is no news before the case is decided")
            }
        }
    }

    @Test func `No text says that somebody else, or another account, is there`() {
        let forbidden = [
            "another account", "other account", "belongs to", "anderes Konto", "anderen Konto", "autre compte",
        ]
        for reason in Self.reasons {
            for language in Replies.languages {
                let text = Replies.text(reason: reason, language: language, values: Self.values) ?? ""
                for words in forbidden {
                    #expect(reason == .transfer || !text.contains(words), "\(reason.rawValue) in \(language)")
                }
            }
        }
    }
}
