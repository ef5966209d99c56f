import Foundation

/// How a user stands, as far as they may know it themselves: what a reply to them is made of.
///
/// The database leaves out whatever is another user's, and cases that their claimant does not know of.
package struct UserStanding: Decodable, Sendable, Hashable {
    package enum Account: String, Decodable, Sendable, CaseIterable {
        case eligible
        /// Banned, or being deleted.
        case barred
        case gone
    }

    /// A case that the user has opened and knows of: the open one, else the latest.
    package struct Case: Decodable, Sendable, Hashable {
        package var reference: String
        package var state: String
        package var verdict: String?
    }

    package var account = Account.eligible
    package var subscriber = false
    /// The day, such as `2026-12-01`, on which access ends; `nil`: none is known.
    package var until: String?
    package var `case`: Case?
    /// The day on which the last of their subscriptions ended; `nil`: none has.
    package var ended: String?
    /// A purchase of theirs was moved to another account, after they had been asked.
    package var moved = false
    /// A job of theirs is queued or running.
    package var waiting = false
    /// The last job ended without an answer of a store.
    package var failed = false
    /// Of the job that they are most likely to speak of; `nil`: there was none.
    package var reference: String?
}

/// A text for a user, ready to be sent.
package struct Reply: Codable, Sendable, Hashable {
    /// The name of a ``Replies/Reason``.
    package var reason: String
    /// One of ``Replies/languages``.
    package var language: String
    package var text: String
}

extension UserStanding {
    /// Reads what the records give, one JSON object.
    package init(json: String) throws { self = try JSONDecoder().decode(UserStanding.self, from: Data(json.utf8)) }

    /// What may be written to the user now, without holes; a language that is not one of ours is answered in English.
    package func reply(in language: String) -> Reply {
        let language = Replies.languages.contains(language) ? language : Replies.fallback
        var reason = ReplyRule.rules.first { $0.fits(self) }?.says(self) ?? .notAsked
        var values: [String: String] = [:]
        values["until"] = until ?? ended
        values["reference"] = ReplyMatter(self) == .case ? self.case?.reference : reference ?? self.case?.reference
        var text = Replies.text(reason: reason, language: language, values: values)
        if text == nil {
            // Its job is long forgotten: no user is sent a text with a hole.
            reason = .notAsked
            text = Replies.text(reason: reason, language: language)
        }
        return Reply(reason: reason.rawValue, language: language, text: text ?? "")
    }
}
