import Foundation
import UserRequests

/// The cases of a user, as they are sent.
struct CaseList: Encodable {
    var tickets: [CaseView]
}

/// A case as it is sent to the app.
struct CaseView: Encodable {
    private var shown: UserCase
    private var message: String

    init(_ shown: UserCase, _ messages: Messages, _ language: String) {
        self.shown = shown
        func text(_ key: String) -> String? {
            messages.text(for: key, in: language, reference: shown.reference ?? "")
        }
        let key = Self.key(of: shown)
        // A team's own question may have no text: then the user learns that there is one.
        message = text(key) ?? text("case.question") ?? ""
    }

    /// The key of a case's text.
    static func key(of shown: UserCase) -> String {
        switch (shown.role, shown.state) {
        case (.claimant, .question): "question." + (shown.question ?? "")
        case (.claimant, .open): "case.open"
        case (.claimant, .decided): "case.decided"
        case (.owner, .question): "transfer.question"
        case (.owner, .open): "transfer.open"
        case (.owner, .decided): "transfer.decided"
        }
    }

    private enum CodingKeys: String, CodingKey {
        case id, role, reference, state, question, store, message
        case createdAt = "created_at"
        case questionID = "question_id"
        case askedAt = "asked_at"
        case answerBy = "answer_by"
        case productID = "product_id"
    }

    /// Writes all members; what is not known is null.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(shown.id.uuidString.lowercased(), forKey: .id)
        try container.encode(shown.role, forKey: .role)
        try container.encode(shown.reference, forKey: .reference)
        try container.encode(shown.state, forKey: .state)
        try container.encode(shown.createdAt, forKey: .createdAt)
        try container.encode(shown.question, forKey: .question)
        try container.encode(shown.questionID?.uuidString.lowercased(), forKey: .questionID)
        try container.encode(shown.askedAt, forKey: .askedAt)
        try container.encode(shown.answerBy, forKey: .answerBy)
        try container.encode(shown.store, forKey: .store)
        try container.encode(shown.productID, forKey: .productID)
        try container.encode(message, forKey: .message)
    }
}
