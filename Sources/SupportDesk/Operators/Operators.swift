package import Postgres
import Queue

/// What an operator is.
///
/// What each may do stands in the database's table `operator_permission`.
package enum DeskRole: String, Sendable, CaseIterable, Codable {
    /// Reads tickets, with personal data masked.
    case viewer
    /// Works on tickets.
    case agent
    /// May also approve transfers, and carry them out.
    case approver
    /// May also decide what needs experience: overrides, second transfers, banned owners.
    case senior
    /// Reads everything, the operators' log included, and changes nothing.
    case auditor
    /// Manages operators, and decides no ticket.
    case admin
}

/// Who works at the desk: their accounts and sessions.
///
/// What a role may is decided in the database.
package struct Operators: Sendable {
    let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    // MARK: Signing in

    /// What a name's password is hashed with.
    package struct Salt: Sendable, Hashable {
        /// How long the name has to wait from here before it may try.
        package var wait: Duration
        /// The stored form of what it costs.
        package var cost: String
        package var bytes: [UInt8]
        /// The operator of the name has signed in with this browser or terminal of late.
        package var isKnown: Bool
    }

    /// Asks what a name's password is hashed with, and how long to wait; an unknown name has a salt as well, which
    /// stays the same.
    ///
    /// `address`: where it comes from, as a hash; `nil` at a terminal. `client`: the hash of what the browser or
    /// terminal shows of earlier sign-ins. `cost`: of passwords where there is no other.
    package func salt(
        of name: String,
        from address: [UInt8]?,
        client: [UInt8]?,
        usual cost: String
    ) async throws -> Salt {
        let (wait, stored, salt, isKnown) = try await pool.query(
            """
            SELECT s.wait, s.cost, s.salt, s.is_known
              FROM entitlement_sync.sign_in_salt(\(name), \(address.map(PostgresBytes.init)),
                                                 \(client.map(PostgresBytes.init)), \(cost)) AS s
            """
        ).one.decode(Double.self, String.self, PostgresBytes.self, Bool.self)
        return Salt(wait: .seconds(wait), cost: stored, bytes: salt.bytes, isKnown: isKnown)
    }

    /// Where an operator sits.
    package enum SessionKind: String, Sendable, CaseIterable { case console, terminal }

    /// What is made of a password.
    package struct Shown: Sendable {
        /// The stored form of what it cost.
        package var cost: String
        package var salt: [UInt8]
        /// 32 bytes.
        package var key: [UInt8]
    }

    /// What an operator shows to sign in, and chooses on the way.
    struct Try {
        var name: String
        /// What is made of the password.
        var key: [UInt8]
        /// Six digits.
        var code: String?
        /// Whence, as a hash; `nil` at a terminal.
        var address: [UInt8]?
        /// The hash of what this browser or terminal shows, now and from now on.
        var client: [UInt8]?
        var kind: SessionKind
        /// The hash of what the operator will show.
        var session: [UInt8]
        /// The password to have from now on.
        var chosen: Shown?
        /// The device to have from now on, where there is none.
        var device: [UInt8]?
    }

    /// What comes of a try.
    package enum Outcome: Sendable, Hashable {
        case signedIn
        /// Right so far; something is missing.
        case needs(Set<Need>)
        /// Whatever was wrong: the answer does not say.
        case refused
        /// The new password is the old one.
        case samePassword
        /// Too many have failed; this one was not tried.
        case wait(Duration)
        /// The password is right, and too many codes were wrong after it.
        case locked
        /// The password is right, and operators sign in through the identity provider.
        case provider
    }

    /// The message to an operator whose password is not taken while an identity provider is in use.
    package static let providerWords =
        "operators sign in through the identity provider: open the console, or run entitlement-sync operator login without a"
        + " name"

    /// The message to an operator whose codes are locked.
    package static let lockedWords =
        "too many wrong codes were given with this password; wait up to a day, or have an admin reset the account. If they were"
        + " not yours, another person knows the password"

    /// What signing in may ask for, after the right password.
    package enum Need: String, Sendable, CaseIterable {
        /// One of the operator's own, in place of the one that another operator gave.
        case password = "needs_password"
        case device = "needs_device"
        case code = "needs_code"
    }

    /// Signs an operator in, and stores what is chosen on the way; all of it or nothing.
    ///
    /// The try is announced first, in a transaction of its own: no way of failing undoes its count. `digest`: SHA-256
    /// over the name, a zero byte, the key and the code.
    func signIn(_ shown: Try, digest: [UInt8]) async throws -> Outcome {
        let (id, wait) = try await pool.query(
            """
            SELECT a.announced::text, a.wait
              FROM entitlement_sync.announce_sign_in(\(shown.name), \(shown.address.map(PostgresBytes.init)),
                                                     \(shown.client.map(PostgresBytes.init)),
                                                     \(PostgresBytes(digest)), \(PostgresBytes(shown.key))) AS a
            """
        ).one.decode(String?.self, Double.self)
        guard let id else { return .wait(.seconds(wait)) }
        let result = try await pool.query(
            """
            SELECT entitlement_sync.sign_in(
                       \(id)::text::uuid, \(shown.name), \(PostgresBytes(shown.key)), \(shown.code),
                       \(PostgresBytes(shown.session)), \(shown.kind.rawValue), \(shown.client.map(PostgresBytes.init)),
                       \(shown.chosen?.cost),
                       \(shown.chosen.map { PostgresBytes($0.salt) }), \(shown.chosen.map { PostgresBytes($0.key) }),
                       \(shown.device.map(PostgresBytes.init)))
            """
        ).one.decode(String.self)
        switch result {
        case "signed_in": return .signedIn
        case "refused": return .refused
        case "same_password": return .samePassword
        case "locked": return .locked
        case "provider": return .provider
        case "put_off": return .wait(.seconds(1))
        default: return .needs(Set(result.split(separator: " ").compactMap { Need(rawValue: String($0)) }))
        }
    }

    /// Ends a session.
    package func signOut(_ session: [UInt8]) async throws {
        try await pool.query("SELECT entitlement_sync.sign_out(\(PostgresBytes(session)))")
    }

    /// Where an operator is signed in.
    package struct Session: Sendable, Codable, Hashable {
        /// `console` or `terminal`.
        package var kind: String
        package var startedAt: String
        package var seenAt: String
        package var isThis: Bool

        enum CodingKeys: String, CodingKey {
            case kind
            case startedAt = "started_at"
            case seenAt = "seen_at"
            case isThis = "is_this"
        }
    }

    /// The sessions of the operator who is signed in with one of them, the newest first.
    package func sessions(of session: [UInt8]) async throws -> [Session] {
        try await recorded(session, "view") {
            try await pool.query(
                """
                SELECT s.kind, to_char(s.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                       to_char(s.seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), s.is_this
                  FROM entitlement_sync.own_sessions(\(PostgresBytes(session))) AS s
                """
            ).map { row in
                try row.decode(into: Session.init)
            }
        }
    }

    /// Ends all sessions but this one.
    ///
    /// - Returns: how many there were.
    /// - Throws: `PostgresError` with SQLSTATE `ES009` where the session has ended.
    package func endOthers(than session: [UInt8]) async throws -> Int {
        try await recorded(session, "view") {
            try await pool.query("SELECT entitlement_sync.end_other_sessions(\(PostgresBytes(session)))")
                .first?.decode(Int.self, at: 0) ?? 0
        }
    }

    // MARK: Acting

    /// The acting operator.
    package struct Actor: Sendable, Hashable {
        package var id: Int64
        package var name: String
        package var role: String
    }

    /// Finds out who acts, if the role has a duty.
    ///
    /// - Throws: `PostgresError` with SQLSTATE `ES009`: no operator is signed in, or the role may not; that is on record then.
    package func acting(_ session: [UInt8], as duty: String) async throws -> Actor {
        try await recorded(session, duty) {
            try await pool.query(
                "SELECT a.id, a.name, a.role FROM entitlement_sync.acting(\(PostgresBytes(session)), \(duty)) AS a"
            ).one.decode(into: Actor.init)
        }
    }

    /// Does something in an operator's name, and puts a refusal on record, which it has undone itself.
    @discardableResult
    func recorded<Result>(_ session: [UInt8], _ duty: String, _ body: () async throws -> Result) async throws -> Result
    {
        do { return try await body() } catch let error as PostgresError
            where error.sqlState == "ES009" || error.sqlState == "ES007"
        {
            _ = try? await pool.query("SELECT entitlement_sync.note_refusal(\(PostgresBytes(session)), \(duty))")
            throw error
        }
    }

    // MARK: Managing

    /// Runs an administrator's statement; without a session the schema's owner does it.
    func manage(_ session: [UInt8]?, _ query: PostgresQuery) async throws {
        guard let session else {
            try await pool.query(query)
            return
        }
        try await recorded(session, "manage") { try await pool.query(query) }
    }

    /// An operator that is to be.
    package struct NewOperator: Sendable {
        package var name: String
        package var role: String
        /// The operator's own account in the app.
        package var userID: String?
        /// What is made of the password for the first sign-in.
        package var password: Shown

        package init(name: String, role: String, userID: String?, password: Shown) {
            self.name = name
            self.role = role
            self.userID = userID
            self.password = password
        }
    }

    /// Adds an operator; without an administrator's session, only the first one.
    ///
    /// Throws `PostgresError` with SQLSTATE `ES009` where that is not allowed, `ES007` where the sign-in is too old,
    /// `22023` for a name that can't be taken, `ES001` for an unknown user.
    package func add(_ wanted: NewOperator, by session: [UInt8]?) async throws {
        try await manage(
            session,
            """
            SELECT entitlement_sync.add_operator(\(session.map(PostgresBytes.init)), \(wanted.name), \(wanted.role),
                                                 \(wanted.userID), \(wanted.password.cost),
                                                 \(PostgresBytes(wanted.password.salt)),
                                                 \(PostgresBytes(wanted.password.key)))
            """
        )
    }

    /// Ends what an operator may do, at once.
    package func disable(_ name: String, by session: [UInt8]) async throws {
        try await manage(session, "SELECT entitlement_sync.disable_operator(\(PostgresBytes(session)), \(name))")
    }

    /// Gives an operator an initial password again, and takes the second factor away.
    package func reset(_ name: String, password: Shown, by session: [UInt8]) async throws {
        try await manage(
            session,
            """
            SELECT entitlement_sync.reset_operator(\(PostgresBytes(session)), \(name), \(password.cost),
                                                   \(PostgresBytes(password.salt)), \(PostgresBytes(password.key)))
            """
        )
    }

    /// Stands in, as a second administrator or the schema's owner, for an account that another administrator made or
    /// reset.
    ///
    /// - Throws: `PostgresError` with SQLSTATE `ES009` where that is not allowed, `ES007` where the sign-in is too old.
    package func confirm(_ name: String, by session: [UInt8]?) async throws {
        let shown = session.map(PostgresBytes.init)
        try await manage(session, "SELECT entitlement_sync.confirm_operator(\(shown), \(name))")
    }

    /// Says which account in the app is an operator's own.
    package func link(_ name: String, to userID: String, by session: [UInt8]) async throws {
        let shown = PostgresBytes(session)
        try await manage(session, "SELECT entitlement_sync.link_operator(\(shown), \(name), \(userID))")
    }

    /// An operator, without secrets.
    package struct Row: Sendable, Codable, Hashable {
        package var name: String
        package var role: String
        package var userID: String?
        package var hasDevice: Bool
        /// `password`, `provider`, or `break_glass`: with a password also while a provider is in use.
        package var signsIn: String
        package var isEnrolled: Bool
        package var isDisabled: Bool
        /// Until when the account decides nothing, unless a second administrator confirms it before; `confirmed`: until one does.
        package var heldUntil: String?
        package var seenAt: String?

        enum CodingKeys: String, CodingKey {
            case name, role
            case userID = "user_id"
            case hasDevice = "second_factor"
            case signsIn = "signs_in"
            case isEnrolled = "enrolled"
            case isDisabled = "disabled"
            case heldUntil = "held_until"
            case seenAt = "seen_at"
        }
    }

    /// All operators by name, for administrators and auditors.
    package func all(by session: [UInt8]) async throws -> [Row] {
        try await recorded(session, "audit") {
            try await pool.query(
                """
                SELECT o.name, o.role, o.user_id, o.has_device, o.signs_in, o.is_enrolled, o.disabled_at IS NOT NULL,
                       CASE WHEN isfinite(o.held_until)
                            THEN to_char(o.held_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                            WHEN o.held_until IS NOT NULL THEN 'confirmed' END,
                       to_char(o.seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                  FROM entitlement_sync.operators(\(PostgresBytes(session))) AS o
                """
            ).map { row in try row.decode(into: Row.init) }
        }
    }
}
