import Postgres

/// Who gets in, and what the database's roles may do.
struct AccessChecks {
    let pool: PostgresPool

    /// Whether the roles may do what they have to: a role made after the schema lacks rights until `migrate`.
    func privileges() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT m.role, m.privilege, m.target, count(*) OVER ()
              FROM entitlement_sync.missing_privileges() AS m LIMIT 1
            """
        )
        guard let row = rows.first else {
            return Check("privileges", fine: "every role that exists has its privileges")
        }
        let (role, privilege, target, count) = try row.decode(String.self, String.self, String.self, Int64.self)
        return Check(
            name: "privileges",
            ok: false,
            detail: "roles lack \(count) privileges, such as \(role): \(privilege) on \(target)",
            fix: "Run entitlement-sync migrate as the schema's owner: it grants what is missing."
        )
    }

    /// How operators sign in, and whether an admin is left for the case that the identity provider fails.
    func signIn() async throws -> Check? {
        let rows = try await pool.query("SELECT w.issuer, w.marked FROM entitlement_sync.ways_in() AS w")
        guard let (issuer, marked) = try rows.first?.decode(String?.self, Int64.self) else { return nil }
        guard let issuer else { return Check("sign_in", fine: "operators sign in with passwords") }
        return Check(
            name: "sign_in",
            ok: marked > 0,
            detail: "operators sign in through \(issuer); \(marked) admins may use a password should it fail",
            fix: "Mark an admin who has signed in here: entitlement-sync operator break-glass NAME."
        )
    }

    /// Whether what is asked of the database can be read on the way.
    func databaseTLS() async throws -> Check? {
        let rows = try await pool.query(
            """
            SELECT s.ssl, coalesce(inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1', true)
              FROM pg_stat_ssl AS s WHERE s.pid = pg_backend_pid()
            """
        )
        guard let (isEncrypted, isLocal) = try rows.first?.decode(Bool.self, Bool.self) else { return nil }
        return Check(
            name: "database_tls",
            ok: isEncrypted || isLocal,
            detail: isEncrypted
                ? "the connection to the database is encrypted"
                : isLocal
                    ? "the database is on this machine" : "the connection to the database is not encrypted",
            fix: "Add sslmode=verify-full to DATABASE_URL, and sslrootcert for a root of its own."
        )
    }
}
