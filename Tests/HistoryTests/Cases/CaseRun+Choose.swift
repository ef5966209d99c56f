import Entitlements
import Foundation
import Postgres
import TestSupport

/// What happens next: half of it leads a ticket on, the rest comes between.
extension CaseRun {
    /// Does what needs no transaction of its own.
    ///
    /// - Returns: what is done in a transaction; `nil`: it is done.
    mutating func choose() async throws -> Deed? {
        let tickets = try await standings()
        guard !tickets.isEmpty else { return nil }
        let open = tickets.filter { !["transferred", "auto_resolved", "duplicate", "expired"].contains($0.state) }
        var ticket = open.first ?? tickets[tickets.count - 1]
        if random.oneIn(3), !open.isEmpty { ticket = open[random.below(open.count)] }
        if let executing = tickets.first(where: { $0.state == "executing" }), random.oneIn(2) { ticket = executing }
        if random.below(100) < (isCalm ? 75 : 60) { return try await leadOn(ticket) }
        return try await comeBetween(ticket)
    }

    private mutating func leadOn(_ ticket: Standing) async throws -> Deed? {
        switch ticket.state {
        case "new":
            guard ticket.hasEvidence, !random.oneIn(4) else {
                _ = try await collect(ticket.id)
                return nil
            }
            return act(approver(), .claim, ticket)
        case "claimed":
            guard let holder = ticket.holder, Agent.approvers.contains(holder) else {
                return act(ticket.holder ?? .ann, random.oneIn(2) ? .release : .lend, ticket)
            }
            if !ticket.hasEvidence {
                _ = try await collect(ticket.id)
                return nil
            }
            return try await approve(holder, ticket)
        case "needs_second":
            return random.oneIn(8) ? act(approver(), .waive, ticket) : try await approve(approver(), ticket)
        case "waiting_owner":
            switch random.below(8) {
            case 0: return act(random.pick(.cid, .cid, .dan), .waive, ticket)
            case 1: return ownerSays("agree", ticket.id)
            case 2..<5: try await time("owner_window", "ends_at", of: ticket.id)
            default: break
            }
            return random.oneIn(2) ? tend() : act(approver(), .transfer, ticket)
        case "approved": return random.oneIn(12) ? try await people() : act(approver(), .transfer, ticket)
        case "executing":
            switch random.below(60) {
            case 0..<3: return try await people()
            case 3..<6: return try await desk()
            case 6..<11: return try await resolve(ticket)
            case 11..<16: try await tenMinutes()
            case 16..<18: return pause()
            default: return try await sagaStep()
            }
            return nil
        case "refused":
            if random.oneIn(3) { return restore(ticket.claimant ?? 1) }
            _ = try await collect(ticket.id)
            return nil
        default:
            // The former owner, or another claimant, comes.
            if random.oneIn(2) { return restore(random.below(3)) }
            try await readAll()
            try await applyAll()
            return nil
        }
    }

    private mutating func approver() -> Agent { Agent.approvers[random.below(Agent.approvers.count)] }

    /// Approves what the agent saw; most look again before.
    private mutating func approve(_ agent: Agent, _ ticket: Standing) async throws -> Deed? {
        if seen[agent]?.ticket != ticket.id || !random.oneIn(3) { try await look(agent, ticket.id) }
        guard let look = seen[agent], look.ticket == ticket.id else { return nil }
        let confirmed = random.oneIn(10) ? [] : look.alsoMoves
        return Deed(
            name: "\(agent) approves \(ticket.id)",
            query: """
                SELECT entitlement_sync.approve_ticket(\(agent.session), \(ticket.id), \(PostgresBytes(look.hash)), \(confirmed))
                """,
            after: .act(agent, .approve, ofClaimant: ticket.claimant)
        )
    }

    private mutating func look(_ agent: Agent, _ ticket: Int64) async throws {
        let rows = try await host.query(
            """
            SELECT e.hash, e.also_moves FROM entitlement_sync.ticket AS t
              JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id WHERE t.id = \(ticket)
            """
        )
        guard let row = rows.first else { return }
        let (hash, alsoMoves) = try row.decode(PostgresBytes.self, [String].self)
        seen[agent] = Look(ticket: ticket, hash: hash.bytes, alsoMoves: alsoMoves)
    }

    func act(_ agent: Agent, _ act: CaseAct, _ standing: Standing) -> Deed {
        let ticket = standing.id
        let session = agent.session
        let query: PostgresQuery =
            switch act {
            case .claim: "SELECT entitlement_sync.assign_ticket(\(session), \(ticket))"
            case .release: "SELECT entitlement_sync.unassign_ticket(\(session), \(ticket))"
            case .refuse: "SELECT entitlement_sync.refuse_ticket(\(session), \(ticket), 'refuse', NULL)"
            case .lend: "SELECT entitlement_sync.give_temporary_access(\(session), \(ticket))"
            case .waive: "SELECT entitlement_sync.waive_owner_window(\(session), \(ticket), 'words')"
            case .withdraw: "SELECT entitlement_sync.withdraw_approval(\(session), \(ticket))"
            case .transfer: "SELECT entitlement_sync.begin_transfer(\(session), \(ticket))"
            case .note: "SELECT entitlement_sync.note_ticket(\(session), \(ticket), 'words')"
            // These say more than an agent and a ticket.
            case .approve, .resolve: "SELECT NULL::text"
            }
        return Deed(
            name: "\(agent) \(act) \(ticket)",
            query: query,
            after: .act(agent, act, ofClaimant: standing.claimant)
        )
    }

    private func restore(_ user: Int) -> Deed {
        Deed(
            name: "user-\(user) taps",
            query: """
                SELECT entitlement_sync.request_restore(\(userID(user)), \(PostgresJSON(Self.proof)), '7')::text
                """
        )
    }

    private func tend() -> Deed { Deed(name: "tend", query: "SELECT entitlement_sync.apply_ticket_deadlines()::text") }

    // MARK: What comes between

    private mutating func comeBetween(_ ticket: Standing) async throws -> Deed? {
        let anyone = Agent.allCases[random.below(Agent.allCases.count)]
        let kind = random.below(100)
        // What mostly ends a case, or begins it anew.
        let isGrave = [10..<14, 19..<22, 41..<51, 73..<85, 96..<98].contains { $0.contains(kind) }
        if isCalm, isGrave, !random.oneIn(8) { return nil }
        switch kind {
        case 0..<8: return act(anyone, .claim, ticket)
        case 8..<10: return act(ticket.holder ?? anyone, .release, ticket)
        case 10..<14: return act(ticket.holder ?? anyone, .refuse, ticket)
        case 14..<19: return act(ticket.holder ?? anyone, .lend, ticket)
        case 19..<22: return act(approver(), .withdraw, ticket)
        case 22..<26: return try await approve(anyone, ticket)
        case 26..<30: return act(anyone, .transfer, ticket)
        case 30..<34: return try await resolve(ticket)
        case 34..<35: return act(anyone, .note, ticket)
        case 35..<41: _ = try await collect(ticket.id)
        case 41..<46: renew()
        case 46..<51: return owner(ticket.id)
        case 51..<54: buyAnew()
        case 54..<58: return restore(random.below(3))
        case 58..<66: try await readAll()
        case 66..<73: try await applyAll()
        case 73..<79: return try await people()
        case 79..<85: return try await desk()
        case 85..<90: try await timePasses(ticket)
        case 90..<92: return tend()
        case 92..<94: try await tenMinutes()
        case 94..<95: arrive()
        case 95..<96: return pause()
        case 96..<98: try await storeMoves()
        default: return try await sagaStep()
        }
        return nil
    }

    /// A senior looks at RevenueCat, and ends a transfer by hand.
    private mutating func resolve(_ ticket: Standing) async throws -> Deed? {
        let rows = try await host.query(
            """
            SELECT x.id, x.calls FROM entitlement_sync.transfer AS x
             WHERE x.ticket_id = \(ticket.id) AND x.step NOT IN ('done', 'stopped')
            """
        )
        guard let row = rows.first else { return nil }
        let (id, count) = try row.decode(Int64.self, Int16.self)
        let hasMoved = count > 0 && calls[id, default: CaseCalls()].effects > 0
        let agent: Agent = random.oneIn(3) ? approver() : .cid
        return Deed(
            name: "\(agent) resolves \(ticket.id): \(hasMoved)",
            query: """
                SELECT entitlement_sync.resolve_transfer(\(agent.session), \(ticket.id), \(hasMoved ? "moved" : "not_moved"))
                """,
            after: .resolved(transfer: id, moved: hasMoved)
        )
    }

    /// The owner renews; seldom it ends, or is given back.
    private mutating func renew() {
        renewals += 1
        switch random.below(20) {
        case 0: truth.items[0].set("expired", false, ends: StoreTruth.past, renewal: "will_not_renew")
        case 1: truth.items[0].set("refunded", false, ends: StoreTruth.past, renewal: nil)
        default:
            let ends = Instant(microseconds: StoreTruth.future.microseconds + renewals * 86_400_000_000)
            truth.items[0].set("active", true, ends: ends, renewal: "will_renew")
        }
        note("the store's word changed")
        trace.append("store: \(truth.items[0].status) \(renewals)")
    }

    private mutating func owner(_ ticket: Int64) -> Deed {
        switch random.below(5) {
        case 0: ownerSays("agree", ticket)
        case 1, 2: release(ticket)
        default: ownerSays("object", ticket)
        }
    }

    /// What the owner is shown, they object or agree to.
    private func ownerSays(_ wish: String, _ ticket: Int64) -> Deed {
        Deed(
            name: "the owner of \(ticket) says \(wish)",
            query: """
                SELECT coalesce(entitlement_sync.reply_to_ticket(u.user_id, o.id, NULL, \(wish), NULL,
                                                                 coalesce(o.question_id, entitlement_sync.new_id())), 'taken')
                  FROM entitlement_sync.ticket AS t
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = t.owner_key
                 CROSS JOIN LATERAL entitlement_sync.owner_cases(t.owner_key) AS o
                 WHERE t.id = \(ticket) AND t.id = ANY (o.open) AND u.user_id IS NOT NULL
                """,
            after: .said(wish)
        )
    }

    /// The owner gives it to the account that shows the reference.
    private func release(_ ticket: Int64) -> Deed {
        Deed(
            name: "the owner of \(ticket) releases it",
            query: """
                SELECT entitlement_sync.consent_to_transfer(u.user_id, entitlement_sync.reference_of('R', j.id))::text || 'taken'
                  FROM entitlement_sync.ticket AS t
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = t.owner_key
                  JOIN entitlement_sync.job_history AS j ON j.user_key = t.claimant_key AND j.outcome = 'store_account_mismatch'
                 WHERE t.id = \(ticket) AND u.user_id IS NOT NULL ORDER BY j.finished_at DESC LIMIT 1
                """,
            after: .said("release")
        )
    }

    private mutating func buyAnew() {
        let last = truth.items.count - 1
        guard !truth.items[last].isListed else { return }
        truth.items[last].isListed = true
        note("the claimant buys anew")
        trace.append("the claimant buys anew")
    }

    /// RevenueCat's own console moves the purchase; not while a call of ours may be on its way.
    private mutating func storeMoves() async throws {
        let busy = try await host.query(
            "SELECT 1 FROM entitlement_sync.transfer AS x WHERE x.step NOT IN ('done', 'stopped')"
        )
        guard busy.isEmpty else { return }
        truth.items[0].customer = random.pick(0, 1, 1, 1, 2, nil)
        note("the store moved it")
        trace.append("store: moved to \(Self.customerID(truth.items[0].customer))")
    }

    private mutating func people() async throws -> Deed? {
        let user = random.below(2)
        switch random.below(10) {
        case 0, 1:
            try await checkWitnesses()
            return Deed(
                name: "user-\(user) is erased",
                query: """
                    WITH gone AS (DELETE FROM assets WHERE user_id = \(userID(user))),
                         left_ AS (DELETE FROM users WHERE id = \(userID(user)))
                    SELECT (SELECT e.tickets FROM entitlement_sync.erase_user(\(userID(user))) AS e)::text
                    """,
                after: .erased(user)
            )
        case 2..<6:
            let status = random.pick("banned", "banned_final", "to_be_deleted")
            return Deed(
                name: "user-\(user) becomes \(status)",
                query: """
                    UPDATE users SET status = \(status) WHERE id = \(userID(user)) RETURNING NULL::text
                    """,
                after: .banned(user)
            )
        default:
            // Surely banned until now.
            try await endAll()
            try await host.query(
                """
                UPDATE hist.fate SET until = clock_timestamp()
                 WHERE until IS NULL AND user_key IN (SELECT s.user_key FROM entitlement_sync.user_sync AS s
                                                        JOIN users AS u ON u.id = s.user_id)
                """
            )
            try await host.query("UPDATE users SET status = 'active' WHERE status <> 'active'")
            trace.append("everybody is active")
            return nil
        }
    }

    private mutating func desk() async throws -> Deed? {
        let agent = approver()
        switch random.below(8) {
        case 0, 1, 2:
            note("a role was changed")
            return Deed(
                name: "\(agent) becomes agent",
                query: """
                    UPDATE entitlement_sync.operator SET role = 'agent' WHERE name = \(agent.rawValue) RETURNING NULL::text
                    """
            )
        case 3:
            return Deed(
                name: "\(agent) is disabled",
                query: """
                    SELECT entitlement_sync.disable_operator(\(Agent.root.session), \(agent.rawValue))::text
                    """
            )
        case 4:
            return Deed(
                name: "\(agent) signs out",
                query: "SELECT entitlement_sync.sign_out(\(agent.session))::text"
            )
        default:
            try await restoreDesk()
            return nil
        }
    }

    /// Everybody is what they were at the beginning, and signed in.
    mutating func restoreDesk() async throws {
        try await endAll()
        for agent in Agent.allCases {
            try await host.query(
                """
                UPDATE entitlement_sync.operator SET role = \(roles[agent]), disabled_at = NULL
                 WHERE name = \(agent.rawValue) AND (role <> \(roles[agent]) OR disabled_at IS NOT NULL)
                """
            )
            try await signIn(agent)
        }
    }

    private mutating func timePasses(_ ticket: Standing) async throws {
        switch random.below(5) {
        case 0: try await time("ticket", "assigned_until", of: ticket.id)
        case 1: try await time("owner_window", "ends_at", of: ticket.id)
        case 2, 3: try await time("ticket_approval", "expires_at", of: ticket.id)
        default: try await sixMinutes()
        }
    }

    /// What was allowed was allowed a while ago.
    func sixMinutes() async throws {
        try await host.withConnection { connection in
            try await connection.execute(
                script: """
                    BEGIN; SET LOCAL session_replication_role = replica;
                    UPDATE entitlement_sync.transfer_step SET at = at - interval '6 minutes'; COMMIT
                    """
            )
        }
    }

    /// A time that was to come is now.
    private mutating func time(_ table: String, _ column: String, of ticket: Int64) async throws {
        try await endAll()
        trace.append("\(table).\(column) of \(ticket) is over")
        try await host.query(
            """
            UPDATE entitlement_sync.\(rawSQL: table) SET \(rawSQL: column) = clock_timestamp()
             WHERE \(rawSQL: column) > clock_timestamp()
               AND \(rawSQL: ["ticket": "id", "owner_window": "ticket_id"][table] ?? "ended_at IS NULL AND ticket_id") = \(ticket)
            """
        )
    }

    private func pause() -> Deed {
        Deed(
            name: "transfers are paused, or not",
            query: """
                UPDATE entitlement_sync.control SET paused = NOT paused WHERE name = 'transfers' RETURNING NULL::text
                """
        )
    }
}
