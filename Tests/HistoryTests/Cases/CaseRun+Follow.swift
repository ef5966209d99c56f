import Postgres

/// What follows when something is committed.
extension CaseRun {
    mutating func follow(_ deed: Deed, _ answer: String?) async throws {
        switch deed.after {
        case .nothing: break
        case .act(let agent, let act, let claimant):
            note("\(act): \(answer ?? "done")")
            if agent == .eve, claimant == 1, answer != "own_case" {
                throw fail("somebody acted on their own case: \(act) \(answer ?? "done")")
            }
        case .erased(let user): try await noteFate(of: user, "erased")
        case .banned(let user): try await noteFate(of: user, "banned")
        case .allowed, .settledCall, .settled: try followSaga(deed, answer)
        case .said(let wish): note("owner: \(wish): \(answer ?? "no case")")
        case .resolved(let transfer, let moved):
            note("resolve: \(answer ?? (moved ? "moved" : "not moved"))")
            if answer == nil, !moved { try expectNone(transfer, "stopped by hand") }
        }
    }

    /// From now on the user surely is no claimant; notes where the case stood.
    private mutating func noteFate(of user: Int, _ what: String) async throws {
        // Erased users have no name any more.
        try await host.query(
            """
            INSERT INTO hist.fate (user_key)
            SELECT s.user_key FROM entitlement_sync.user_sync AS s LEFT JOIN users AS u ON u.id = s.user_id
             WHERE (u.id IS NULL OR u.status NOT IN ('active', 'onboarding'))
               AND NOT EXISTS (SELECT 1 FROM hist.fate AS f WHERE f.user_key = s.user_key AND f.until IS NULL)
            """
        )
        for ticket in try await standings() {
            let side = ticket.claimant == user || user == 1 && ticket.claimant == nil ? "claimant" : "owner"
            note("\(side) \(what) while \(ticket.state)")
        }
    }
}
