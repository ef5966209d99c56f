import Jobs
package import Postgres

/// Who works at the desk: their accounts and sessions.
///
/// What a role may is decided in the database.
package struct Operators: Sendable {
    private let pool: PostgresPool

    package init(pool: PostgresPool) { self.pool = pool }

    // MARK: Signing in

    /// What signing in needs to know of a name.
    package struct Facts: Sendable {
        package var id: Int64
        package var role: String
        /// The hash that is stored.
        package var password: String
        /// Somebody else gave it: the operator has to choose one.
        package var isInitial: Bool
        /// The second factor's secret.
        package var codeSecret: [UInt8]?
        /// The period of the last code that was taken.
        package var lastPeriod: Int64?
    }

    /// What a try to sign in meets.
    package enum Beginning: Sendable {
        /// Too many failed; nothing may be tried before.
        case wait(Duration)
        case nobody
        case somebody(Facts)
    }

    /// Counts a try to sign in as failed until it is completed.
    ///
    /// - Parameters:
    ///   - name: as typed.
    ///   - address: whence, as a hash.
    /// - Returns: who it is, or how long to wait.
    /// - Throws: `PostgresError`.
    package func begin(_ name: String, from address: [UInt8]) async throws -> Beginning {
        let rows = try await pool.query(
            """
            SELECT b.wait_seconds, b.operator_id, b.role, b.password, b.is_initial, b.code_secret, b.last_period
              FROM entitlement_sync.begin_sign_in(\(name), \(PostgresBytes(address))) AS b
            """
        )
        guard let row = rows.first else { throw PostgresError(.protocolViolation, message: "no row") }
        let (wait, id, role, password, isInitial, secret, period) = try row.decode(
            Double.self,
            Int64?.self,
            String?.self,
            String?.self,
            Bool?.self,
            PostgresBytes?.self,
            Int64?.self
        )
        guard wait <= 0 else { return .wait(.seconds(wait)) }
        guard let id, let role, let password, let isInitial else { return .nobody }
        return .somebody(
            Facts(
                id: id,
                role: role,
                password: password,
                isInitial: isInitial,
                codeSecret: secret?.bytes,
                lastPeriod: period
            )
        )
    }

    /// A session that is to begin.
    package struct NewSession: Sendable {
        /// The hash of what the operator shows.
        package var digest: [UInt8]
        package var kind: SessionKind
        /// How long it lasts at most, and how long without being used.
        package var lasts: Duration
        package var idle: Duration

        package init(digest: [UInt8], kind: SessionKind, lasts: Duration, idle: Duration) {
            self.digest = digest
            self.kind = kind
            self.lasts = lasts
            self.idle = idle
        }
    }

    /// Where an operator sits.
    package enum SessionKind: String, Sendable, CaseIterable { case console, terminal }

    /// Begins a session for whoever has shown password and code.
    ///
    /// - Parameters:
    ///   - facts: what was known when it was checked.
    ///   - address: whence, as a hash.
    ///   - period: the code's; `nil` for operators without a second factor.
    ///   - session: what begins.
    /// - Returns: `false`: the code was taken meanwhile, or the operator may no longer sign in.
    /// - Throws: `PostgresError`.
    package func complete(
        _ facts: Facts,
        from address: [UInt8],
        period: Int64?,
        session: NewSession
    ) async throws -> Bool {
        let rows = try await pool.query(
            """
            SELECT entitlement_sync.complete_sign_in(
                       \(facts.id), \(facts.password), \(PostgresBytes(address)), \(period),
                       \(PostgresBytes(session.digest)), \(session.kind.rawValue),
                       \(session.lasts.microseconds) * interval '1 microsecond',
                       \(session.idle.microseconds) * interval '1 microsecond')
            """
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// Notes that somebody tried a name in vain.
    package func noteFailure(_ name: String) async throws {
        try await pool.query("SELECT entitlement_sync.note_failed_sign_in(\(name))")
    }

    /// Gives an operator a password and a second factor of their own; ends all their sessions.
    ///
    /// - Parameters:
    ///   - facts: what was known when the old password was checked.
    ///   - password: the new one's hash; `nil`: it stays.
    ///   - device: the second factor's secret, taken where there is none yet.
    /// - Returns: `false`: another password holds by now.
    /// - Throws: `PostgresError`.
    package func enrol(_ facts: Facts, password: String?, device: [UInt8]?) async throws -> Bool {
        let rows = try await pool.query(
            """
            SELECT entitlement_sync.enrol_operator(\(facts.id), \(facts.password), \(password),
                                                   \(device.map(PostgresBytes.init)))
            """
        )
        return try rows.first?.decode(Bool.self, at: 0) ?? false
    }

    /// Ends a session.
    package func signOut(_ session: [UInt8]) async throws {
        try await pool.query("SELECT entitlement_sync.sign_out(\(PostgresBytes(session)))")
    }

    // MARK: Acting

    /// Whoever acts.
    package struct Actor: Sendable, Hashable {
        package var id: Int64
        package var name: String
        package var role: String
    }

    /// Finds out who acts, if the role has a duty.
    ///
    /// - Throws: `PostgresError` with SQLSTATE `ES006`: nobody is signed in, or the role may not.
    package func acting(_ session: [UInt8], as duty: String) async throws -> Actor {
        let rows = try await pool.query(
            "SELECT a.id, a.name, a.role FROM entitlement_sync.acting(\(PostgresBytes(session)), \(duty)) AS a"
        )
        guard let row = rows.first else { throw PostgresError(.protocolViolation, message: "no row") }
        let (id, name, role) = try row.decode(Int64.self, String.self, String.self)
        return Actor(id: id, name: name, role: role)
    }

    // MARK: Managing

    /// An operator that is to be.
    package struct NewOperator: Sendable {
        package var name: String
        package var role: String
        /// The operator's own account in the app.
        package var userID: String?
        /// The initial password's hash.
        package var password: String

        package init(name: String, role: String, userID: String?, password: String) {
            self.name = name
            self.role = role
            self.userID = userID
            self.password = password
        }
    }

    /// Adds an operator.
    ///
    /// - Parameters:
    ///   - wanted: who.
    ///   - session: an administrator's; `nil` is taken for the first operator alone.
    /// - Throws: `PostgresError` with SQLSTATE `ES006` where that is not allowed, `22023` for a name that can't be taken,
    ///   `ES001` for an unknown user.
    package func add(_ wanted: NewOperator, by session: [UInt8]?) async throws {
        try await pool.query(
            """
            SELECT entitlement_sync.add_operator(\(session.map(PostgresBytes.init)), \(wanted.name), \(wanted.role),
                                                 \(wanted.userID), \(wanted.password))
            """
        )
    }

    /// Ends what an operator may do, at once.
    package func disable(_ name: String, by session: [UInt8]) async throws {
        try await pool.query("SELECT entitlement_sync.disable_operator(\(PostgresBytes(session)), \(name))")
    }

    /// Gives an operator an initial password again, and takes the second factor away.
    package func reset(_ name: String, password: String, by session: [UInt8]) async throws {
        try await pool.query("SELECT entitlement_sync.reset_operator(\(PostgresBytes(session)), \(name), \(password))")
    }

    /// An operator, without secrets.
    package struct Row: Sendable, Codable, Hashable {
        package var name: String
        package var role: String
        package var userID: String?
        package var hasDevice: Bool
        package var isEnrolled: Bool
        package var isDisabled: Bool
        package var seenAt: String?

        enum CodingKeys: String, CodingKey {
            case name, role
            case userID = "user_id"
            case hasDevice = "second_factor"
            case isEnrolled = "enrolled"
            case isDisabled = "disabled"
            case seenAt = "seen_at"
        }
    }

    /// All operators by name, for administrators and auditors.
    package func all(by session: [UInt8]) async throws -> [Row] {
        try await pool.query(
            """
            SELECT o.name, o.role, o.user_id, o.has_device, o.is_enrolled, o.disabled_at IS NOT NULL,
                   to_char(o.seen_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
              FROM entitlement_sync.operators(\(PostgresBytes(session))) AS o
            """
        ).map { row in
            let (name, role, userID, hasDevice, isEnrolled, isDisabled, seenAt) = try row.decode(
                String.self,
                String.self,
                String?.self,
                Bool.self,
                Bool.self,
                Bool.self,
                String?.self
            )
            return Row(
                name: name,
                role: role,
                userID: userID,
                hasDevice: hasDevice,
                isEnrolled: isEnrolled,
                isDisabled: isDisabled,
                seenAt: seenAt
            )
        }
    }
}
