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
    @OrNull var outcome: String?
    @OrNull var messageKey: String?
    @OrNull var message: String?
    var products: [RestoredProduct]
    @OrNull var estimatedWaitSeconds: Int?

    private enum CodingKeys: String, CodingKey {
        case id, reference, state, outcome, message, products
        case messageKey = "message_key"
        case estimatedWaitSeconds = "estimated_wait_s"
    }

    /// Shows a reading; `wait`: how long it will still take, in seconds, where that is known.
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
}
