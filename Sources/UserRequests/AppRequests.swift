package import Entitlements
package import FoundationEssentials
package import Postgres
import Queue

/// What a user's app gets at its launch.
package struct EntitlementAnswer: Sendable, Hashable {
    /// `free` or `subscriber`.
    package var type: String
    /// RFC 3339; `nil` where no end is known.
    package var until: String?
    package var suggestsRestore: Bool
    package var tickets: [VisibleTicket]
    package var stores: [StoreState]
    /// Each thing that gives access now.
    package var entitlements: [GivenEntitlement]
}

/// One thing that gives access, as in the view `entitlement_status`.
package struct GivenEntitlement: Sendable, Hashable, Codable {
    /// The team's name for it.
    package var id: String?
    /// Of a purchase.
    package var store: String?
    /// Of a grant.
    package var source: String?
    package var productID: String?
    /// RFC 3339; `nil`: it has no end.
    package var endsAt: String?
    /// `nil`: the store has not said.
    package var willRenew: Bool?

    package init() {}

    package enum CodingKeys: String, CodingKey {
        case id, store, source
        case productID = "product_id"
        case endsAt = "ends_at"
        case willRenew = "will_renew"
    }

    /// Writes all members; what is not known is null.
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(id, forKey: .id)
        try container.encode(store, forKey: .store)
        try container.encode(source, forKey: .source)
        try container.encode(productID, forKey: .productID)
        try container.encode(endsAt, forKey: .endsAt)
        try container.encode(willRenew, forKey: .willRenew)
    }
}

/// A case at support, as its claimant sees it.
package struct VisibleTicket: Sendable, Hashable, Codable {
    /// The reference of the restore that opened it.
    package var reference: String
    /// `open` or `closed`.
    package var state: String
    /// RFC 3339.
    package var createdAt: String

    package enum CodingKeys: String, CodingKey {
        case reference, state
        case createdAt = "created_at"
    }
}

/// Whether a store answers.
package struct StoreState: Sendable, Hashable, Codable {
    package var store: String
    /// `ok`, `slow` or `down`.
    package var state: String
}

/// What a user's app asks for.
package struct RestoreWish: Sendable {
    package var userID: String
    /// JSON as `request_restore` takes it.
    package var proofs: String
    package var clientError: String?
    package var productIDs: [String]?
    package var idempotencyKey: String?
    package var origin: String?
    /// How and when the user signed in to the app, as their token says; kept for agents, and no part of the request.
    package var signInProvider: String?
    package var signedInAt: Instant?

    package init(
        userID: String,
        proofs: String = "[]",
        clientError: String? = nil,
        productIDs: [String]? = nil,
        idempotencyKey: String? = nil,
        origin: String? = nil
    ) {
        self.userID = userID
        self.proofs = proofs
        self.clientError = clientError
        self.productIDs = productIDs
        self.idempotencyKey = idempotencyKey
        self.origin = origin
    }
}

/// The requests of users' apps.
package struct AppRequests: Sendable {
    let pool: PostgresPool
    private let asker: String

    /// `asker`: goes into the notification of restores that are requested together, so that their own process can ignore it.
    package init(pool: PostgresPool, asker: String = "") {
        self.pool = pool
        self.asker = asker
    }

    /// A request that was accepted.
    package struct Accepted: Sendable, Hashable {
        package var id: UUID
        /// The job is queued, and was not before.
        package var isNew: Bool
    }

    /// Requests a restore; a user who requests all day without a new proof gets the last one.
    ///
    /// - Returns: the job that answers.
    /// - Throws: `PostgresError`, with SQLSTATE `ES001` to `ES005` where the request is refused.
    package func restore(_ wish: RestoreWish) async throws(PostgresError) -> Accepted {
        guard let answer = try await ask([wish], asker: "", patience: Self.patienceAlone).first else {
            throw PostgresError(.protocolViolation, message: "no job id")
        }
        return try answer.get()
    }

    /// Asks for several restores in one transaction; each is taken or refused by itself.
    ///
    /// - Returns: in the order of the wishes, what `restore(_:)` returns or throws; with `SQLState.lockNotAvailable` or
    ///   `deadlockDetected` if another transaction has locked the user: the caller may request that restore again alone.
    /// - Throws: `PostgresError`; nothing is asked for then, unless its outcome is unknown.
    package func restores(_ wishes: [RestoreWish]) async throws(PostgresError) -> [Result<Accepted, PostgresError>] {
        try await ask(wishes, asker: asker, patience: Self.patienceTogether)
    }

    /// How long a restore waits for a transaction that holds its user, in milliseconds: not for as long as to keep a connection that
    /// others wait for, and beside others no longer than a moment.
    private static let (patienceAlone, patienceTogether): (Int32, Int32) = (500, 10)

    private func ask(
        _ wishes: [RestoreWish],
        asker: String,
        patience: Int32
    ) async throws(PostgresError) -> [Result<Accepted, PostgresError>] {
        let rows = try await pool.query(
            """
            SELECT a.place, a.id, a.is_new, a.state, a.message, a.hint
              FROM entitlement_sync.app_restores(
                       \(wishes.map(\.userID)), \(wishes.map(\.proofs)), \(wishes.map(\.clientError)),
                       \(wishes.map { $0.productIDs.map(JSONList.text) }), \(wishes.map(\.idempotencyKey)),
                       \(wishes.map(\.origin)), asker => \(asker),
                       patience => \(patience), providers => \(wishes.map(\.signInProvider)),
                       signed_in_at => \(wishes.map { $0.signedInAt?.timestamp })) AS a
            """
        )
        var answers = [Result<Accepted, PostgresError>](
            repeating: .failure(PostgresError(.protocolViolation, message: "no job id")),
            count: wishes.count
        )
        for row in rows {
            try row.decode { (place: Int, id: UUID?, isNew: Bool?, state: String?, message: String?, hint: String?) in
                guard answers.indices.contains(place - 1) else { return }
                if let id {
                    answers[place - 1] = .success(Accepted(id: id, isNew: isNew ?? false))
                } else {
                    var error = PostgresError(.serverError, sqlState: state, message: message ?? "")
                    error.hint = hint.flatMap { $0.isEmpty ? nil : $0 }
                    answers[place - 1] = .failure(error)
                }
            }
        }
        return answers
    }

    /// Reads restores; ids that are no restore's are left out.
    package func answers(_ ids: [UUID]) async throws -> [RestoreAnswer] {
        try await pool.query(
            """
            SELECT a.id, a.user_id, a.state, a.outcome, a.message_key, a.age, a.products
              FROM entitlement_sync.restore_answers(\(ids)) AS a
            """
        ).map { row in
            try RestoreAnswer(
                id: row.decode(UUID.self, at: 0),
                userID: row.decode(String?.self, at: 1),
                state: row.decode(String.self, at: 2),
                outcome: row.decode(String?.self, at: 3),
                messageKey: row.decode(String?.self, at: 4),
                age: row.decode(Double.self, at: 5),
                products: JSONList.read(row.decode(PostgresJSON.self, at: 6))
            )
        }
    }

    /// How long a restore will wait.
    ///
    /// - Returns: seconds; `nil`: not known, because everything is paused.
    package func estimatedWait(_ id: UUID) async throws -> Double? {
        let rows = try await pool.query("SELECT entitlement_sync.estimated_wait(\(id))")
        return try rows.first?.decode(Double?.self, at: 0)
    }

    /// Whether a caller's id is the host's user of that id: the same bytes, or a spelling that the host takes for the same.
    package func isUser(_ userID: String, _ caller: String) async throws(PostgresError) -> Bool {
        guard !userID.isExactly(caller) else { return true }
        let rows = try await pool.query("SELECT coalesce(entitlement_sync.host_id(\(caller)) = \(userID), false)")
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// What a user has; `nil` where there is no such user.
    package func entitlement(of userID: String) async throws -> EntitlementAnswer? {
        try await pool.query(
            """
            SELECT e.type, e.until, e.restore_suggested, e.tickets, e.stores, e.entitlements
              FROM entitlement_sync.entitlement_answer(\(userID)) AS e
            """
        ).first.map { row in
            try EntitlementAnswer(
                type: row.decode(String.self, at: 0),
                until: row.decode(String?.self, at: 1),
                suggestsRestore: row.decode(Bool.self, at: 2),
                tickets: JSONList.read(row.decode(PostgresJSON.self, at: 3)),
                stores: JSONList.read(row.decode(PostgresJSON.self, at: 4)),
                entitlements: JSONList.read(row.decode(PostgresJSON.self, at: 5))
            )
        }
    }
}
