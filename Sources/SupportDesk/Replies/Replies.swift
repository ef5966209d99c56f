package import Entitlements
import Foundation
import TextFormats

/// What an agent may send to a user, by reason and language: short, and never about another user.
package enum Replies {
    /// The language for users who speak none of the others.
    package static let fallback = "en"

    /// What is said, by its name in the texts.
    package enum Reason: String, Sendable, CaseIterable {
        case active
        case activeUntil = "active_until"
        /// A purchase could not be linked to the account; agents examine it.
        case caseOpen = "case_open"
        case stillChecking = "still_checking"
        case nothingFound = "nothing_found"
        /// What they had is over.
        case ended
        /// The stores were not asked about their purchases.
        case notAsked = "not_asked"
        case storeUnavailable = "store_unavailable"
        case notEligible = "not_eligible"
        case transfer
        case guideToLogin = "guide_to_login"
        case storeRefund = "store_refund"
        case grantUntilEnd = "grant_until_end"
        case refuse
        /// A question was not answered in time.
        case expired
        case autoResolved = "auto_resolved"
        case duplicate
        /// The owner's purchase was moved.
        case ownerMoved = "owner_moved"

        /// What a claimant may know of a ticket; `verdict`: how it was decided, where it was refused.
        package init(state: TicketState, verdict: CaseVerdict?) {
            self =
                switch state {
                case .new, .claimed, .waitingClaimant, .waitingOwner, .needsSecond, .approved, .executing: .caseOpen
                case .transferred: .transfer
                case .refused:
                    switch verdict {
                    // A verdict of earlier says nothing of a refusal.
                    case .transfer, .refuse, nil: .refuse
                    case .guideToLogin: .guideToLogin
                    case .grantUntilEnd: .grantUntilEnd
                    case .storeRefund: .storeRefund
                    }
                case .expired: .expired
                case .autoResolved: .autoResolved
                case .duplicate: .duplicate
                }
        }
    }

    private static let texts: [String: [String: String]] = {
        let json = Data(EmbeddedFiles.content("SupportDesk/Replies/replies.json"))
        // Ours, and tested.
        return (try? JSONDecoder().decode([String: [String: String]].self, from: json)) ?? [:]
    }()

    /// All languages.
    package static var languages: [String] { texts.keys.sorted() }

    /// The names of what has to be filled in, without their braces; the same in every language.
    package static func places(reason: Reason, language: String = fallback) -> Set<String> {
        Set((template(reason, language) ?? "").matches(of: /{([a-z]+)}/).map { String($0.output.1) })
    }

    /// What to send; a language that is not one of ours is answered in English.
    ///
    /// `values`: what is filled in, such as `reference` and `until`, as the reader is to see it.
    ///
    /// - Returns: `nil` where a value is missing, because no user is sent a text with holes.
    package static func text(reason: Reason, language: String, values: [String: String] = [:]) -> String? {
        guard let text = template(reason, language) else { return nil }
        guard places(reason: reason, language: language).allSatisfy({ values[$0]?.isEmpty == false }) else {
            return nil
        }
        // Once: what is filled in is no template.
        return text.replacing(/{([a-z]+)}/) { values[String($0.output.1)] ?? "" }
    }

    private static func template(_ reason: Reason, _ language: String) -> String? {
        let tag = language.lowercased().prefix { $0 != "-" && $0 != "_" }
        return texts[String(tag)]?[reason.rawValue] ?? texts[fallback]?[reason.rawValue]
    }
}
