import Entitlements
import Foundation
import Postgres
import StoreSimulator
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// A case at the desk: an owner whose purchase somebody else claims, and the people who decide.
struct DeskCase: Sendable {
    let world: World
    let desk: DeskPeople
    let admin: DeskPeople.Person
    /// An agent, and two who may approve.
    let ann: DeskPeople.Person
    let bea: DeskPeople.Person
    let cid: DeskPeople.Person

    static let owner = """
        {id: owner, subscriptions: [{state: active, store_subscription_identifier: "200000070000001"}]}
        """
    static let variables = ["REVENUECAT_TRANSFER_API_KEY": "sk_move", "TRANSFER_OWNER_HOURS": "0"]
    static let scenario = "api_keys: [sk_move, {key: sk_test, write: false}]"

    /// Builds the world of a case, with the ticket that the claimant's restore has opened.
    ///
    /// - Parameters:
    ///   - customers: RevenueCat's; `owner` has the purchase.
    ///   - scenario: what other stores hold, as YAML.
    ///   - body: gets the case and the ticket's id.
    /// - Throws: what the body throws.
    static func with(
        customers: [String] = [owner, "{id: claimant, state: none}"],
        scenario: String = "",
        _ body: @Sendable (DeskCase, Int64) async throws -> Void
    ) async throws {
        try await World.with(customers: customers, scenario: Self.scenario + "\n" + scenario) { world in
            for user in ["owner", "claimant"] { try await world.add(user) }
            try await world.addAssets(3, of: "claimant", frozenFor: ["subscription_lapsed"])
            #expect(try await world.reconciled("owner").outcome == "promoted")
            let job = try await world.restore("claimant", proofs: proof, clientError: "7")
            try await world.work()
            #expect(try await world.status(job).outcome == "store_account_mismatch")
            let scene = try await DeskCase(in: world)
            let ticket = try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
            try await body(scene, ticket)
        }
    }

    static let proof = #"[{"store":"app_store","kind":"transaction_id","value":"200000070000001"}]"#

    var setup: WorkerSetup { WorkerSetup(servesDesk: true, variables: Self.variables) }

    /// What one operator sees and does.
    func tickets(_ person: DeskPeople.Person) -> DeskTickets {
        DeskTickets(pool: world.pool, session: person.token.digest)
    }

    func act(_ person: DeskPeople.Person, _ act: DeskTickets.Act, on ticket: Int64) async throws -> String? {
        try await tickets(person).act(act, on: ticket)
    }

    func state(_ ticket: Int64) async throws -> String? {
        try await world.texts("SELECT t.state FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket)").first
    }

    /// Changes the owner's subscription at RevenueCat.
    func changeOwner(state: String = "active", ends: String) async throws {
        try await world.change(
            "owner",
            """
            {"subscriptions":[{"state":"\(state)","ends":"\(ends)","store_subscription_identifier":"200000070000001"}]}
            """
        )
    }

    /// Has the evidence collected now, by a worker that runs already.
    func collect(_ ticket: Int64) async throws {
        // One that is being collected already may know nothing of what was done last.
        let asked = try #require(try await world.texts("SELECT clock_timestamp()::text").first)
        try await world.pool.query(
            "SELECT entitlement_sync.request_evidence(\(ticket))"
        )
        try await world.waitUntil(
            """
            SELECT count(*) FROM entitlement_sync.ticket_evidence AS e
             WHERE e.ticket_id = \(ticket) AND e.asked_at >= \(asked)::timestamptz
            """,
            comment: "no evidence was collected"
        )
    }

    /// The hash of the evidence that the desk shows.
    func hash(_ ticket: Int64) async throws -> [UInt8] {
        let rows = try await world.pool.query(
            """
            SELECT e.hash FROM entitlement_sync.ticket AS t
              JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id WHERE t.id = \(ticket)
            """
        )
        return try #require(rows.first).decode(PostgresBytes.self, at: 0).bytes
    }

    func facts(_ ticket: Int64) async throws -> Set<String> {
        Set(
            try await world.texts(
                """
                SELECT f.fact FROM entitlement_sync.ticket AS t
                  JOIN entitlement_sync.ticket_evidence AS e ON e.id = t.evidence_id
                 CROSS JOIN unnest(e.facts) AS f(fact) WHERE t.id = \(ticket)
                """
            )
        )
    }

    func approve(
        _ person: DeskPeople.Person,
        _ ticket: Int64,
        confirming items: [String] = []
    ) async throws -> String? {
        try await act(person, .approve(hash: hash(ticket), confirmed: items), on: ticket)
    }

    /// Has the ticket approved by two people.
    func approveAll(_ ticket: Int64, confirming items: [String] = []) async throws {
        #expect(try await act(bea, .claim, on: ticket) == nil)
        #expect(try await approve(bea, ticket, confirming: items) == nil)
        #expect(try await state(ticket) == "needs_second")
        #expect(try await approve(cid, ticket, confirming: items) == nil)
        #expect(try await state(ticket) == "approved")
    }

    /// Collects evidence, has the transfer approved and made, and waits for its end.
    func transfer(_ ticket: Int64) async throws {
        try await collect(ticket)
        try await approveAll(ticket)
        #expect(try await act(bea, .transfer, on: ticket) == nil)
        try await untilEnded(ticket)
    }

    /// The former owner of a purchase that was transferred asks for it, and has a ticket.
    func askedBack() async throws -> Int64 {
        try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
        let job = try await world.restore("owner", proofs: Self.proof, clientError: "7")
        try await world.waitUntil(
            "SELECT count(*) FROM entitlement_sync.job_status AS j WHERE j.id = \(job) AND j.state = 'done'"
        )
        return try await world.number("SELECT max(t.id) FROM entitlement_sync.ticket AS t")
    }

    /// Waits until a transfer of the ticket has come to its end.
    func untilEnded(_ ticket: Int64) async throws {
        try await world.waitUntil(
            """
            SELECT count(*) FILTER (WHERE x.step IN ('done', 'stopped'))
                   * (count(*) FILTER (WHERE x.step NOT IN ('done', 'stopped')) = 0)::int
              FROM entitlement_sync.transfer AS x WHERE x.ticket_id = \(ticket)
            """,
            comment: "the transfer did not end"
        )
    }

    /// How often RevenueCat was called to move something.
    func calls() async throws -> Int64 {
        try await world.number("SELECT coalesce(sum(x.calls), 0)::bigint FROM entitlement_sync.transfer AS x")
    }

    /// The outbox messages about tickets, oldest first: user, topic and content.
    func ticketMessages() async throws -> [String] {
        try await world.texts(
            """
            SELECT concat_ws(' ', u.user_id, o.topic, o.data::text) FROM entitlement_sync.outbox AS o
              JOIN entitlement_sync.user_sync AS u ON u.user_key = o.user_key WHERE o.topic LIKE 'ticket.%' ORDER BY o.id
            """
        )
    }
}

extension DeskCase {
    /// A desk in a world, with its operators.
    init(in world: World) async throws {
        self.world = world
        desk = DeskPeople(world: world)
        admin = try await desk.enter("root", .admin)
        ann = try await desk.enter("ann", .agent, by: admin)
        bea = try await desk.enter("bea", .approver, by: admin)
        cid = try await desk.enter("cid", .senior, by: admin)
    }
}
