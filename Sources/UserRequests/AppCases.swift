package import FoundationEssentials
import Postgres

/// A case as its claimant, or the owner who is asked, sees it; contains no user's id.
package struct UserCase: Sendable, Hashable, Codable {
    package enum Role: String, Sendable, Codable, CaseIterable { case claimant, owner }

    package enum State: String, Sendable, Codable, CaseIterable {
        /// Agents work on it.
        case open
        /// An answer is awaited.
        case question
        case decided
    }

    package var id: UUID
    package var role: Role
    /// By which support finds a claimant's case; owners have none.
    package var reference: String?
    package var state: State
    /// RFC 3339.
    package var createdAt: String
    /// What is asked: a row of `desk_question`, or `transfer` for an owner.
    package var question: String?
    /// What an owner is asked now: consent names it, as consent to another question is none.
    package var questionID: UUID?
    /// RFC 3339.
    package var askedAt: String?
    /// RFC 3339.
    package var answerBy: String?
    /// The store of an owner's own purchase, as our records name it.
    package var store: String?
    package var productID: String?

    enum CodingKeys: String, CodingKey {
        case id, role, reference, state, question, store
        case createdAt = "created_at"
        case questionID = "question_id"
        case askedAt = "asked_at"
        case answerBy = "answer_by"
        case productID = "product_id"
    }
}

/// What a user says to a case.
package struct CaseReply: Sendable {
    /// 1 to 2000 characters; may be absent beside a decision.
    package var text: String?
    /// `object` or `agree`, from an owner who was asked.
    package var decision: String?
    /// The ``UserCase/questionID`` that `agree` answers.
    package var questionID: UUID?
    package var idempotencyKey: String?

    package init(text: String?, decision: String? = nil, questionID: UUID? = nil, idempotencyKey: String? = nil) {
        self.text = text
        self.decision = decision
        self.questionID = questionID
        self.idempotencyKey = idempotencyKey
    }
}

/// What became of a reply, as the database calls it.
package enum ReplyFate: String, Sendable {
    /// It is kept, since now or before.
    case taken
    /// No such case is the user's.
    case notFound = "not_found"
    /// Support is through with the case.
    case decided
    /// The user was not asked to decide.
    case notAsked = "not_asked"
    /// What the user agreed to is not asked now.
    case questionChanged = "question_changed"
}

extension AppRequests {
    /// A user's cases; `nil` where there is no such user.
    package func cases(of userID: String) async throws -> [UserCase]? {
        try await pool.query(
            "SELECT entitlement_sync.ticket_answers(coalesce(entitlement_sync.host_id(\(userID)), \(userID)))"
        ).first?.decode(PostgresJSON?.self, at: 0).map(JSONList.read)
    }

    /// Takes what a user says to a case of theirs; sent again it is taken once.
    ///
    /// Throws `PostgresError`, SQLSTATE `ES003`, `ES004`, `ES005` or `22023` where it can't be taken, `ES008` where
    /// enough was said for a day.
    package func reply(_ reply: CaseReply, to id: UUID, by userID: String) async throws -> ReplyFate {
        // Two users' words about one purchase may meet: one of the two is said again.
        let fate = try await pool.retrying(2) { connection in
            try await connection.query(
                """
                SELECT entitlement_sync.reply_to_ticket(
                           coalesce(entitlement_sync.host_id(\(userID)), \(userID)), \(id), \(reply.text), \(reply.decision), \(reply.idempotencyKey), \(reply.questionID))
                """
            ).first?.decode(String?.self, at: 0)
        }
        guard let fate else { return .taken }
        guard let known = ReplyFate(rawValue: fate) else {
            throw PostgresError(.decoding, message: "a reply's fate is not known: \(fate)")
        }
        return known
    }

    /// Takes an owner's word that a purchase of theirs may go to the account whose app shows a reference.
    ///
    /// - Throws: `PostgresError`, SQLSTATE `ES001` for an unknown user, `22023` for what is no reference, `ES008` where enough
    ///   were given for a day.
    package func release(to reference: String, by userID: String) async throws {
        try await pool.retrying(2) { connection in
            _ = try await connection.query(
                """
                SELECT entitlement_sync.consent_to_transfer(
                           coalesce(entitlement_sync.host_id(\(userID)), \(userID)), \(reference))
                """
            )
        }
    }
}
