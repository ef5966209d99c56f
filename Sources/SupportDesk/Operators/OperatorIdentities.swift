import Postgres

/// Operators as the team's identity provider names them, and terminals that their browsers sign in.
extension Operators {
    /// A person that the provider has named; the console has verified its token.
    package struct Identity: Sendable {
        package var issuer: String
        package var subject: String
        /// What people are called, in order of preference.
        package var names: [String]
        /// `nil`: they are in no group that has one.
        package var role: String?
        /// How long ago they showed the provider who they are; `nil`: it does not say.
        package var provedAgo: Duration?

        package init(issuer: String, subject: String, names: [String], role: String?, provedAgo: Duration?) {
            self.issuer = issuer
            self.subject = subject
            self.names = names
            self.role = role
            self.provedAgo = provedAgo
        }
    }

    /// What comes of it.
    package enum Arrival: String, Sendable, CaseIterable {
        case signedIn = "signed_in"
        /// The database says that another provider is in use.
        case otherProvider = "other_provider"
        /// None of the person's groups has a role; sessions that they had are over.
        case noRole = "no_role"
        /// An account of the name is another person's, or no name has the form of one.
        case nameTaken = "name_taken"
        case disabled
    }

    /// Puts a provider in use: passwords are taken from admins alone then who are marked for the case that it fails.
    ///
    /// - Throws: `PostgresError`, SQLSTATE `42501` without the role `entitlement_sync_console`.
    package func use(provider issuer: String) async throws {
        try await pool.query("SELECT entitlement_sync.use_provider(\(issuer))")
    }

    /// Takes passwords of all operators again.
    ///
    /// - Returns: whether a provider was in use.
    /// - Throws: `PostgresError`, SQLSTATE `ES009` for all but the schema's owner.
    package func leaveProvider() async throws -> Bool {
        try await pool.query("SELECT entitlement_sync.leave_provider()").first?.decode(Bool.self) ?? false
    }

    /// The issuer of the provider in use; `nil`: there is none.
    package func provider() async throws -> String? {
        try await pool.query("SELECT entitlement_sync.provider_in_use()").first?.decode(String?.self)
    }

    /// Signs a person in; `lifetime`: how long the provider's word is good for.
    package func signIn(_ identity: Identity, session: [UInt8], for lifetime: Duration) async throws -> Arrival {
        let rows = try await pool.query(
            """
            SELECT entitlement_sync.provider_sign_in(
                       \(identity.issuer), \(identity.subject), \(identity.names), \(identity.role),
                       \(identity.provedAgo.map { Double($0.components.seconds) })::double precision * interval '1 second',
                       \(PostgresBytes(session)), \(Double(lifetime.components.seconds)) * interval '1 second')
            """
        )
        guard let word = try rows.first?.decode(String.self, at: 0), let arrival = Arrival(rawValue: word) else {
            throw PostgresError(.protocolViolation, message: "no known word")
        }
        return arrival
    }

    /// Says that an account is a person's at the provider; it waits for another admin's word then.
    package func identify(_ name: String, as subject: String, by session: [UInt8]) async throws {
        let shown = PostgresBytes(session)
        try await manage(session, "SELECT entitlement_sync.identify_operator(\(shown), \(name), \(subject))")
    }

    /// Marks an admin for the case that the provider fails, or takes the mark away.
    ///
    /// `session`: another admin's, or the own; `nil`: the schema's owner does it.
    package func markBreakGlass(_ name: String, _ marked: Bool, by session: [UInt8]?) async throws {
        let shown = session.map(PostgresBytes.init)
        try await manage(session, "SELECT entitlement_sync.mark_break_glass(\(shown), \(name), \(marked))")
    }

    // MARK: Terminals

    /// A terminal that asks to be signed in.
    package struct AskingTerminal: Sendable {
        /// The database user.
        package var user: String
        package var address: String
    }

    /// Asks for a terminal to be signed in.
    ///
    /// - Returns: eight letters that the operator types at the console within five minutes.
    package func askTerminal(_ session: [UInt8]) async throws -> String {
        try await pool.query("SELECT entitlement_sync.ask_terminal(\(PostgresBytes(session)))").one.decode(String.self)
    }

    /// Which terminal has a code; `nil`: none asks with it.
    package func terminal(asking code: String, _ session: [UInt8]) async throws -> AskingTerminal? {
        try await recorded(session, "view") {
            try await pool.query(
                """
                SELECT t.asked_by, t.asked_from
                  FROM entitlement_sync.terminal_asking(\(PostgresBytes(session)), \(code)) AS t
                """
            ).first?.decode(into: AskingTerminal.init)
        }
    }

    /// Signs a terminal in as the operator at the console.
    ///
    /// - Returns: whether one asks with the code.
    /// - Throws: `PostgresError`, SQLSTATE `ES007` where the sign-in is too old.
    package func allowTerminal(_ code: String, by session: [UInt8]) async throws -> Bool {
        try await recorded(session, "view") {
            try await pool.query("SELECT entitlement_sync.allow_terminal(\(PostgresBytes(session)), \(code))")
                .first?.decode(Bool.self) ?? false
        }
    }

    /// Who a session is; `nil`: none yet, or no longer.
    package func name(of session: [UInt8]) async throws -> String? {
        try await pool.query("SELECT entitlement_sync.session_name(\(PostgresBytes(session)))")
            .first?.decode(String?.self)
    }
}
