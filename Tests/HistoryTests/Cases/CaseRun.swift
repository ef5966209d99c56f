import Diagnostics
import Entitlements
import Foundation
import Postgres
import Queue
import Reconciliation
import SupportDesk
import TestSupport

/// One made-up case: agents, owner, claimant, host and workers act one into the other on a real database.
///
/// Users: 0 owns the purchase, 1 claims it, 2 may claim it too.
struct CaseRun {
    let floor: CaseFloor
    var random: SeededGenerator
    var sessions: [CaseSession]
    var truth = StoreTruth()
    var epoch: Int32 = 0
    /// Read, and not applied.
    var readings: [ReadJob] = []
    /// What each agent saw last of a ticket.
    var seen: [Agent: Look] = [:]
    var hands: [CaseHand] = []
    var lastHand = 0
    /// What became of each transfer's calls at RevenueCat.
    var calls: [Int64: CaseCalls] = [:]
    var settings = DeskSettings()
    var situations: Set<String> = []
    var trace: [String] = []
    var renewals: Int64 = 0
    /// Little comes between, so that much is brought to its end.
    var isCalm = false
    /// What everybody is at the beginning.
    var roles = Agent.roles

    struct Look: Sendable {
        var ticket: Int64
        var hash: [UInt8]
        var alsoMoves: [String]
    }

    /// A ticket as it stands.
    struct Standing: Sendable {
        var id: Int64
        var state: String
        var holder: Agent?
        var hasEvidence: Bool
        var claimant: Int?
    }

    var transfers: Transfers { Transfers(pool: floor.pool) }
    var records: CaseRecords { CaseRecords(pool: floor.pool) }
    var host: PostgresPool { floor.lane.host }

    init(_ floor: CaseFloor, seed: UInt64) {
        self.floor = floor
        random = SeededGenerator(seed: seed)
        sessions = floor.connections.map { CaseSession(connection: $0) }
    }

    /// Makes 50 to 100 moves, further 70 where the former owner comes back, then ends what is open and checks the laws.
    mutating func perform() async throws {
        try await begin()
        for _ in 0..<(50 + random.below(51)) { try await tick() }
        if try await standings().contains(where: { $0.state == "transferred" }), random.oneIn(2) {
            try await comeBack()
            for _ in 0..<70 { try await tick() }
        }
        try await finish()
    }

    mutating func note(_ input: String) { situations.insert(input) }

    func fail(_ text: String) -> Failed { Failed(kind: text, text: text) }

    // MARK: The beginning

    private mutating func begin() async throws {
        try await floor.reset()
        isCalm = !random.oneIn(3)
        settings.ownerWindow = random.oneIn(2) ? .seconds(72 * 3600) : .zero
        try await host.withConnection { connection in
            try await connection.execute(
                script: """
                    INSERT INTO users (id) VALUES ('user-0'), ('user-1'), ('user-2');
                    INSERT INTO assets (user_id, frozen_reasons, frozen_at)
                    VALUES ('user-0', '{}', NULL), ('user-1', '{subscription_lapsed}', now());
                    """
            )
        }
        if random.oneIn(2) { roles[.dan] = "senior" }
        for agent in Agent.allCases {
            try await host.query(
                """
                INSERT INTO entitlement_sync.operator (name, role) VALUES (\(agent.rawValue), \(roles[agent]))
                """
            )
            try await signIn(agent)
        }
        // The store: the purchase, what else the owner has, and what the claimant may buy later.
        truth.items = [StoreItem(customer: 0, names: ["rc-0", "st-0"])]
        if random.oneIn(3) { truth.items.append(StoreItem(customer: 0, names: ["rc-1", "st-1"])) }
        var own = StoreItem(customer: 1, names: ["rc-9", "st-9"])
        own.isListed = false
        truth.items.append(own)
        try await startWorker()
        try await request(0, restore: false)
        try await readAll()
        try await applyAll()
        try await request(1, restore: true)
        if random.oneIn(2) { try await request(2, restore: true) }
        try await readAll()
        try await applyAll()
        // One agent is the claimant as well.
        try await host.query(
            """
            UPDATE entitlement_sync.operator AS o SET user_key = u.user_key
              FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'user-1' AND o.name = 'eve'
            """
        )
        if random.oneIn(2) { try await prove() }
        // Somebody has moved it by hand already.
        if random.oneIn(6) { truth.items[0].customer = 1 }
        let standings = try await standings()
        guard !standings.isEmpty else { throw fail("the claim opened no ticket") }
    }

    func signIn(_ agent: Agent) async throws {
        try await host.query(
            """
            INSERT INTO entitlement_sync.operator_session (digest, operator_id, kind)
            SELECT sha256(\(agent.session)), o.id, 'console' FROM entitlement_sync.operator AS o
             WHERE o.name = \(agent.rawValue)
            ON CONFLICT (digest) DO UPDATE SET proved_at = clock_timestamp(), seen_at = clock_timestamp()
            """
        )
    }

    /// The claimant has shown what a store verified.
    private func prove() async throws {
        try await host.query(
            """
            INSERT INTO entitlement_sync.observation (user_key, job_id, purchase_id, asked_at, source, coverage, attribution)
            SELECT t.claimant_key, entitlement_sync.new_id(), t.purchase_id, now(), 'app_store', 'full', 'foreign'
              FROM entitlement_sync.ticket AS t WHERE t.purchase_id IS NOT NULL
            """
        )
    }

    func standings() async throws -> [Standing] {
        try await host.query(
            """
            SELECT t.id, t.state, h.name, t.evidence_id IS NOT NULL, u.user_id
              FROM entitlement_sync.ticket AS t
              JOIN entitlement_sync.user_sync AS u ON u.user_key = t.claimant_key
              LEFT JOIN entitlement_sync.operator AS h ON h.id = t.assignee_id ORDER BY t.id
            """
        ).map { row in
            let (id, state, holder, hasEvidence, user) = try row.decode(
                Int64.self,
                String.self,
                String?.self,
                Bool.self,
                String?.self
            )
            return Standing(
                id: id,
                state: state,
                holder: holder.flatMap(Agent.init(rawValue:)),
                hasEvidence: hasEvidence,
                claimant: user.flatMap(userIndex)
            )
        }
    }

    /// Both sides are read again, and the former owner taps.
    private mutating func comeBack() async throws {
        roles[.dan] = "senior"
        try await endAll()
        try await request(0, restore: false)
        try await readAll()
        try await applyAll()
        try await request(0, restore: true)
        try await readAll()
        try await applyAll()
        try await restoreDesk()
    }

    // MARK: Transactions side by side

    /// One move: somebody ends what they began, or begins something.
    private mutating func tick() async throws {
        let open = sessions.indices.filter { sessions[$0].isOpen }
        if !open.isEmpty, open.count == sessions.count || random.oneIn(2) {
            return try await end(open[random.below(open.count)])
        }
        let free = sessions.indices.filter { !sessions[$0].isOpen }
        let place = free[random.below(free.count)]
        if let waiting = sessions[place].waiting, random.oneIn(2) {
            sessions[place].waiting = nil
            return try await start(waiting, in: place)
        }
        guard let deed = try await choose() else { return }
        try await start(deed, in: place)
    }

    /// Begins a transaction; where it meets a lock it is undone and tried again later.
    private mutating func start(_ deed: Deed, in place: Int) async throws {
        let connection = sessions[place].connection
        try await connection.execute(script: "BEGIN")
        do throws(PostgresError) {
            let rows = try await connection.query(deed.query)
            let answer = try rows.first?.decode(String?.self, at: 0)
            trace.append("\(place): \(deed.name) -> \(answer ?? "done")")
            sessions[place].done = (deed, answer)
        } catch {
            try await connection.execute(script: "ROLLBACK")
            trace.append("\(place): \(deed.name) -> \(error.sqlState ?? error.code.rawValue)")
            switch error.sqlState {
            case SQLState.lockNotAvailable, SQLState.deadlockDetected:
                note("met a lock")
                sessions[place].waiting = deed
            case "ES009", "ES007": note("refused by the role or the session")
            case "ES001": note("unknown user")
            case "ES008": note("an owner says too much")
            default:
                throw Failed(kind: "error \(error.sqlState ?? "")", text: "\(deed.name): \(error) \(error.message)")
            }
            return
        }
        // At once, more often than not.
        if !random.oneIn(3) { try await end(place) }
    }

    /// Ends a transaction; seldom by undoing it, as when its process dies.
    mutating func end(_ place: Int, undoing: Bool? = nil) async throws {
        guard let (deed, answer) = sessions[place].done else { return }
        sessions[place].done = nil
        if undoing ?? random.oneIn(12) {
            try await sessions[place].connection.execute(script: "ROLLBACK")
            trace.append("\(place): undone: \(deed.name)")
            note("undone")
            dropHand(of: deed)
            return
        }
        // All databases of a server announce one after the other.
        try await sessions[place].connection.execute(script: "SET LOCAL lock_timeout = '10s'; COMMIT")
        trace.append("\(place): committed: \(deed.name)")
        try await follow(deed, answer)
    }

    /// Ends all that is open.
    mutating func endAll() async throws {
        for place in sessions.indices { try await end(place, undoing: false) }
    }

    /// Leaves nothing open to the case that follows.
    func abandon() async {
        for session in sessions where session.isOpen { try? await session.connection.execute(script: "ROLLBACK") }
    }

    // MARK: The end

    private mutating func finish() async throws {
        try await endAll()
        for place in sessions.indices { sessions[place].waiting = nil }
        hands = []
        try await host.query("UPDATE entitlement_sync.control SET paused = false")
        try await finishTransfers()
        try await host.query("SELECT entitlement_sync.apply_ticket_deadlines()")
        try await settleUsers()
        try await check()
    }

    /// A worker to which nothing happens goes on with every transfer, as far as it goes.
    private mutating func finishTransfers() async throws {
        for _ in 0..<12 {
            try await tenMinutes()
            hands = []
            try await take()
            guard !hands.isEmpty else { return }
            for _ in 0..<12 where !hands.isEmpty {
                let hand = hands[0].number
                guard let deed = try await advance(hand) else { continue }
                try await start(deed, in: 0)
                try await end(0, undoing: false)
                if sessions[0].waiting != nil { throw fail("a lock that nobody holds: \(deed.name)") }
            }
        }
    }

    private mutating func settleUsers() async throws {
        for _ in 0..<2 {
            for user in 0..<3 { try await request(user, restore: false) }
            for _ in 0..<6 {
                try await readAll()
                guard !readings.isEmpty else { break }
                try await applyAll()
            }
        }
        let assets = AssetRuns(pool: floor.lane.pool(.a), mode: .full, logger: .quiet)
        for _ in 0..<10 {
            try await host.query("UPDATE entitlement_sync.asset_run SET due = now()")
            guard try await assets.step() else { break }
        }
    }

    /// Asks the witnesses.
    ///
    /// In the middle of a case nobody has tended yet what the last moment ended.
    func checkWitnesses(isEnd: Bool = false) async throws {
        let wrong = try await host.query(
            "SELECT w.what FROM hist.wrong AS w WHERE \(isEnd) OR w.what NOT LIKE 'access is lent%'"
        ).map { try $0.decode(String.self) }
        if let first = wrong.first { throw Failed(kind: first, text: wrong.joined(separator: "\n")) }
    }

    private mutating func check() async throws {
        try await checkWitnesses(isEnd: true)
        let watch = InvariantMonitor(pool: host)
        try await watch.run()
        let laws = try await watch.found()
        guard laws.count == 9 else { throw fail("\(laws.count) laws were looked at") }
        // Who was banned as a subscriber stays one until somebody decides: that is the host's to find.
        for law in laws where law.broken != 0 && law.name != "ineligible_subscribers" {
            throw fail("law \(law.name): \(law.broken)")
        }
        for (id, call) in calls where call.effects > 1 { throw fail("transfer \(id) was made \(call.effects) times") }
        try await noteEnds()
    }

    /// What is seen in the records alone.
    private mutating func noteEnds() async throws {
        let seen = try await host.query(
            """
            SELECT DISTINCT 'approvals ended: ' || a.ended_by FROM entitlement_sync.ticket_approval AS a
             WHERE a.ended_by IS NOT NULL
            UNION SELECT DISTINCT 'ticket: ' || t.state FROM entitlement_sync.ticket AS t
            UNION SELECT DISTINCT 'transfer: ' || x.step FROM entitlement_sync.transfer AS x
            UNION SELECT 'transfer without a call' FROM entitlement_sync.transfer AS x WHERE x.step = 'done' AND x.calls = 0
            UNION SELECT 'a purchase moved back' FROM entitlement_sync.transfer AS x
                    JOIN entitlement_sync.transfer AS y ON y.to_key = x.from_key AND y.id > x.id
                   WHERE x.step = 'done' AND y.step = 'done'
            UNION SELECT DISTINCT 'stopped: ' || x.last_error FROM entitlement_sync.transfer AS x WHERE x.step = 'stopped'
            UNION SELECT DISTINCT 'event: ' || e.kind FROM entitlement_sync.ticket_event AS e
            UNION SELECT DISTINCT 'fact: ' || f.fact FROM entitlement_sync.ticket_evidence AS e
                   CROSS JOIN unnest(e.facts) AS f(fact)
            UNION SELECT 'step: ' || s.step FROM entitlement_sync.transfer_step AS s
            UNION SELECT 'alarm: ' || a.name FROM entitlement_sync.alarm AS a
            """
        ).map { try $0.decode(String.self) }
        situations.formUnion(seen)
    }
}
