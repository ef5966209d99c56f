package import Postgres

/// One thing that `doctor` checked.
package struct Check: Sendable, Codable {
    package var name: String
    package var ok: Bool
    package var detail: String
    /// What to do about it; empty where all is well.
    package var fix: String

    package init(name: String, ok: Bool, detail: String, fix: String) {
        self.name = name
        self.ok = ok
        self.detail = detail
        self.fix = ok ? "" : fix
    }

    /// A finding that asks for nothing.
    init(_ name: String, fine detail: String) { self.init(name: name, ok: true, detail: detail, fix: "") }

    /// A count that has to be zero; `wrong` follows the count.
    init(_ name: String, zero count: Int64, fine: String, wrong: String, fix: String) {
        self.init(name: name, ok: count == 0, detail: count == 0 ? fine : "\(count) \(wrong)", fix: fix)
    }
}

/// From where on something is a finding.
package struct DoctorLimits: Sendable {
    /// How long a due restore or event may wait.
    package var wait = Duration.seconds(300)
    /// How long one of the database's transactions may stay open.
    package var transaction = Duration.seconds(300)
    /// How many transactions ago the oldest one began that any session may still have to see.
    package var horizon: Int64 = 5_000_000
    /// How old the last check of an invariant may be, while workers run.
    package var invariantAge = Duration.seconds(3600)
    /// What the hot table and its indexes may take with nothing in it, and dead rows that vacuum may leave for later.
    package var queueBytes: Int64 = 64 << 20
    package var deadRows: Int64 = 200_000
    /// How full the server's queue of notifications may be; 1 is full.
    package var notifications = 0.1
    /// What a replication slot may keep from being removed.
    package var slotBytes: Int64 = 8 << 30

    package init() {}
}

/// Finds what is wrong in the records, and says how to mend it.
package struct Doctor: Sendable {
    private let pool: PostgresPool
    private let limits: DoctorLimits

    package init(pool: PostgresPool, limits: DoctorLimits = DoctorLimits()) {
        self.pool = pool
        self.limits = limits
    }

    /// One query or a few, and what they show.
    private struct Step {
        /// Names the finding that it could not be taken.
        var name: String
        var checks: () async throws -> [Check]

        init(_ name: String, _ checks: @escaping () async throws -> [Check]) {
            self.name = name
            self.checks = checks
        }

        init(_ name: String, _ check: @escaping () async throws -> Check?) {
            self.init(name) { try await check().map { [$0] } ?? [] }
        }
    }

    /// All steps, in the order of the checks.
    private var steps: [Step] {
        let server = ServerChecks(pool: pool, limits: limits)
        let access = AccessChecks(pool: pool)
        let users = UserChecks(pool: pool)
        let stores = StoreChecks(pool: pool)
        let purchases = PurchaseChecks(pool: pool)
        let messages = MessageChecks(pool: pool)
        let runs = RunChecks(pool: pool)
        let counts = ZeroCount.all(limits).map { count in Step(count.name) { try await count.check(in: pool) } }
        return counts + [
            Step("privileges", access.privileges),
            Step("users", users.all),
            Step("unexplained_assets", users.unexplainedAssets),
            Step("horizon", server.horizon),
            Step("bloat", server.bloat),
            Step("notifications", server.notifications),
            Step("replication_slots", server.slots),
            Step("durability", server.durability),
            Step("alarms", runs.alarms),
            Step("stores", stores.health),
            Step("budgets", stores.budgets),
            Step("unclaimed_purchases", purchases.unclaimed),
            Step("desk_grants", purchases.deskGrants),
            Step("sign_in", access.signIn),
            Step("database_tls", access.databaseTLS),
            Step("inbox", messages.inbox),
            Step("letter_case", messages.letterCase),
            Step("events", messages.events),
            Step("credentials", stores.credentials),
            Step("restore_behavior", stores.restoreBehavior),
            Step("outbox", messages.outbox),
            Step("firebase_claims", messages.claims),
            Step("runs", runs.runs),
            Step("shadow", runs.shadow),
        ]
    }

    /// Runs every check; one that can't run is a finding itself, and hides none of the others.
    package func checks() async -> [Check] {
        var checks: [Check] = []
        for step in steps {
            do { checks += try await step.checks() } catch { checks.append(Self.unread(step.name, error)) }
        }
        return checks
    }

    /// A check that could not be made.
    private static func unread(_ name: String, _ error: any Error) -> Check {
        let error = error as? PostgresError
        guard error?.sqlState != SQLState.insufficientPrivilege else {
            return Check(
                name: name,
                ok: false,
                detail: "could not be checked: this database user lacks a right (\(error?.message ?? ""))",
                fix:
                    "Run doctor as a user that was granted entitlement_sync_worker; if it was, run entitlement-sync migrate."
            )
        }
        let detail = error.map { "\($0.message)\($0.sqlState.map { " (SQLSTATE \($0))" } ?? "")" } ?? ""
        return Check(
            name: name,
            ok: false,
            detail: "could not be checked: \(detail.isEmpty ? "an unexpected error" : detail)",
            fix: "Mend what the detail says."
        )
    }
}
