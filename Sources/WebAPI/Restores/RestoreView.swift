import Entitlements
import Foundation
import UserRequests

/// A restore as it is sent to the app.
struct RestoreView: Encodable, Sendable {
    /// After this time without an end the user reads that it takes longer, in seconds.
    static let patience = 20.0

    var id: String
    var reference: String
    var state: String
    var outcome: String?
    var messageKey: String?
    var message: String?
    var products: [RestoredProduct]
    var estimatedWaitSeconds: Int?

    private enum CodingKeys: String, CodingKey {
        case id, reference, state, outcome, message, products
        case messageKey = "message_key"
        case estimatedWaitSeconds = "estimated_wait_s"
    }

    /// Shows a reading.
    ///
    /// - Parameters:
    ///   - answer: the reading.
    ///   - wait: how long it will still take, in seconds, where that is known.
    ///   - messages: the texts.
    ///   - language: one of theirs.
    init(_ answer: RestoreAnswer, wait: Double?, messages: Messages, language: String) {
        let isLate = !answer.hasEnded && answer.age >= Self.patience
        let key = isLate ? MessageKey.stillChecking.rawValue : answer.messageKey
        id = answer.id.uuidString.lowercased()
        reference = answer.reference
        state = answer.state
        outcome = answer.outcome
        messageKey = key
        message = key.flatMap { messages.text(for: $0, in: language, reference: answer.reference) }
        products = answer.products
        // Within bounds that a client's integers hold.
        estimatedWaitSeconds = isLate ? wait.map { Int(min(max($0, 1), 86_400).rounded(.up)) } : nil
    }

    /// Writes all members; what is not known is null.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(id, forKey: .id)
        try container.encode(reference, forKey: .reference)
        try container.encode(state, forKey: .state)
        try container.encode(outcome, forKey: .outcome)
        try container.encode(messageKey, forKey: .messageKey)
        try container.encode(message, forKey: .message)
        try container.encode(products, forKey: .products)
        try container.encode(estimatedWaitSeconds, forKey: .estimatedWaitSeconds)
    }
}
