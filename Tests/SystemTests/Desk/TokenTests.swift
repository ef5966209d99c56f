import Diagnostics
import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
@testable import SupportDesk
import TestSupport
import Testing
import Transport
import UserRequests

/// What the App Store is told of a purchase that was moved; the transfer is done whatever it answers.
@Suite struct TokenTests {
    private static let namespace = "3d813cbb-47fb-32ba-91df-831e1593ac29"
    /// Of version 5 in the namespace, made with Python's uuid.
    private static let ownerToken = "a7e6ad0f-abbc-5677-869d-c429624e09bb"
    private static let claimantToken = "148ad62b-519f-50fd-8dca-1bf32319d27c"
    private static let transaction = "200000070000001"
    private static let putPath = "PUT /app-store/inApps/v1/transactions/{id}/appAccountToken"

    /// The App Store, which names the owner.
    private static func appStore(_ more: String = "transaction: \"\(transaction)\"") -> String {
        AppStoreRestoreTests.scenario(
            "original: \"\(transaction)\", product: premium_monthly, expires: +20d, account_token: \(ownerToken), \(more)"
        )
    }

    /// A case whose purchase the App Store knows as well, up to the transfer that two people have approved.
    private static func with(
        namespace: String? = namespace,
        scenario: String = appStore(),
        _ body: @Sendable (DeskCase, Int64, WorkerSetup) async throws -> Void
    ) async throws {
        try await DeskCase.with(scenario: scenario) { scene, ticket in
            try await scene.world.addProducts()
            var setup = scene.setup
            setup.role = "entitlement_sync_worker"
            setup.variables.merge(try scene.world.appStore) { $1 }
            if let namespace { setup.variables["ACCOUNT_ID_NAMESPACE"] = namespace }
            try await scene.world.working(setup) { [setup] in
                try await scene.collect(ticket)
                try await scene.approveAll(ticket)
                _ = setup
            }
            try await body(scene, ticket, setup)
        }
    }

    // MARK: Set

    @Test func `The App Store names the claimant once the transfer is done, and its echo agrees with our records`()
        async throws
    {
        try await Self.with { scene, ticket, setup in
            let world = scene.world
            #expect(try await scene.facts(ticket).contains("token_names_owner"))
            try await world.working(setup) {
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilMoved(ticket)
                try await scene.untilTokens("set")
            }
            #expect(try await scene.accountToken(Self.transaction) == Self.claimantToken)
            #expect(world.asked(Self.putPath) == 1)
            #expect(try await scene.tokens() == ["set - 1"])
            let steps = try await world.texts("SELECT s.step FROM entitlement_sync.transfer_step AS s ORDER BY s.id")
            #expect(steps == ["calling", "confirmed", "done"], "it is no step that a transfer waits for")
            var reading = setup
            reading.untilIdle = true
            reading.servesDesk = false
            #expect(try await world.reconciled("claimant", setup: reading).outcome == "unchanged")
            #expect(try await world.reconciled("owner", setup: reading).outcome == "unchanged")
            #expect(try await world.owner(of: Self.transaction) == "claimant")
            let contradicted = try await world.number(
                """
                SELECT count(*) FROM entitlement_sync.purchase AS p
                  JOIN entitlement_sync.user_sync AS u ON u.user_key = p.account_key WHERE u.user_id = 'owner'
                """
            )
            #expect(contradicted == 0)
            let shown = try await scene.shown(ticket)
            #expect(
                shown.tokens.map(TokenWords.sentence) == [
                    "The App Store names the claimant from the current period on."
                ]
            )
            #expect(try await scene.act(scene.bea, .token, on: ticket) == "no_token")
        }
    }

    @Test func `Where RevenueCat names a later transaction, the App Store is asked for the first one`() async throws {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"200000070000000\", transaction: \"\(Self.transaction)\", product: premium_monthly, expires: +20d"
        )
        try await Self.with(scenario: scenario) { scene, ticket, setup in
            // As where the App Store was never read: only RevenueCat has named the purchase.
            try await scene.begin(ticket, setup)
            try await scene.world.pool.query("UPDATE entitlement_sync.purchase SET lookup_id = NULL")
            try await scene.world.pool.query(
                "DELETE FROM entitlement_sync.purchase_identifier AS i WHERE i.value = '200000070000000'"
            )
            try await scene.againAndUntil("set", setup)
            #expect(try await scene.accountToken(Self.transaction) == Self.claimantToken)
        }
    }

    // MARK: Skipped

    @Test(arguments: ["app_store_off", "token_unknown", "claimant_gone", "moved_on", "purchase_unknown"])
    func `Where there is nothing to tell the App Store, that is on record with its reason`(_ reason: String)
        async throws
    {
        try await Self.with { scene, ticket, setup in
            let world = scene.world
            let pool = world.pool
            try await scene.begin(ticket, setup)
            var changed = setup
            switch reason {
            case "app_store_off": changed.variables["APP_STORE_ISSUER_ID"] = nil
            case "token_unknown": changed.variables["ACCOUNT_ID_NAMESPACE"] = nil
            case "claimant_gone":
                try await pool.query("UPDATE entitlement_sync.user_sync SET user_id = NULL WHERE user_id = 'claimant'")
            case "moved_on":
                try await pool.query(
                    """
                    UPDATE entitlement_sync.purchase SET owner_key =
                           (SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'owner')
                    """
                )
            default:
                try await pool.query("UPDATE entitlement_sync.purchase SET lookup_id = NULL")
                try await pool.query(
                    "DELETE FROM entitlement_sync.purchase_identifier AS i WHERE i.store = 'app_store'"
                )
            }
            if reason == "app_store_off" {
                for name in ["APP_STORE_KEY_ID", "APP_STORE_PRIVATE_KEY"] { changed.variables[name] = nil }
            }
            try await scene.againAndUntil("skipped", changed)
            #expect(try await scene.tokens() == ["skipped \(reason) 1"])
            #expect(world.asked(Self.putPath) == 0)
            #expect(try await scene.accountToken(Self.transaction) == Self.ownerToken)
            #expect(try await scene.state(ticket) == "transferred")
            let words = try await scene.shown(ticket).tokens.map(TokenWords.sentence)
            #expect(
                words.count == 1 && words[0].hasPrefix("The App Store was not given the account token: "),
                "\(words)"
            )
            #expect(!words[0].contains(reason), "in words: \(words)")
        }
    }

    // MARK: Refused

    @Test(arguments: [
        ("4000185", "family_shared"), ("4000187", "not_original"), ("4040005", "unknown"), ("4000183", "rejected"),
        ("4000048", "rejected"),
    ])
    func `What the App Store refuses is on record, asked once, and undoes nothing`(_ code: String, _ reason: String)
        async throws
    {
        try await Self.with { scene, ticket, setup in
            let world = scene.world
            let status = String(code.prefix(3))
            try await world.inject(#"{"endpoint":"app_store.token","status":\#(status),"error_type":"\#(code)"}"#)
            try await world.working(setup) {
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilMoved(ticket)
                try await scene.untilTokens("refused")
            }
            #expect(try await scene.tokens() == ["refused \(reason) 1"])
            #expect(world.asked(Self.putPath) == 1)
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await world.owner(of: Self.transaction) == "claimant")
            let words = try await scene.shown(ticket).tokens.map(TokenWords.sentence)
            #expect(words.allSatisfy { $0.hasPrefix("The App Store does not take the claimant's account token: ") })
        }
    }

    // MARK: No answer

    @Test(arguments: [
        #"{"endpoint":"app_store.token","connection":"drop_before","times":3}"#,
        // Carried out, and the answer is lost: the same token is sent again.
        #"{"endpoint":"app_store.token","connection":"reset_after","times":3}"#,
        #"{"endpoint":"app_store.token","status":503,"times":3}"#,
        #"{"endpoint":"app_store.token","status":429,"times":3}"#,
        #"{"endpoint":"app_store.token","body":"html","times":3}"#,
    ])
    func `Without an answer it is tried again later, and nobody waits for that`(_ fault: String) async throws {
        try await Self.with { scene, ticket, setup in
            let world = scene.world
            try await world.inject(fault)
            try await world.working(setup) {
                #expect(try await scene.act(scene.bea, .transfer, on: ticket) == nil)
                try await scene.untilMoved(ticket)
                try await world.waitUntil(
                    """
                    SELECT count(*) FROM entitlement_sync.transfer_token AS k
                     WHERE k.state = 'due' AND k.reason IS NOT NULL AND k.due > now()
                    """,
                    comment: "it was not put off"
                )
                #expect(try await scene.shown(ticket).tokens.map(\.state) == ["due"])
                try await world.heal()
                try await world.pool.query("UPDATE entitlement_sync.transfer_token SET due = now()")
                try await scene.untilTokens("set")
            }
            #expect(try await ["set - 2", "set - 3", "set - 4"].contains(scene.tokens().first))
            #expect(try await scene.accountToken(Self.transaction) == Self.claimantToken)
        }
    }

    @Test func `Given up after ten tries, it is shown with what to do; who may transfer has it tried again`()
        async throws
    {
        try await Self.with { scene, ticket, setup in
            let world = scene.world
            try await world.inject(#"{"endpoint":"app_store.token","status":503}"#)
            try await scene.begin(ticket, setup)
            try await world.pool.query("UPDATE entitlement_sync.transfer_token SET tries = 8")
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.transfer_token AS k WHERE k.tries = 9 AND k.reason = 'unavailable'"
                )
                #expect(try await scene.tokens() == ["due unavailable 9"])
                let hours = try await world.number(
                    "SELECT ceil(extract(epoch FROM k.due - now()) / 3600)::bigint FROM entitlement_sync.transfer_token AS k"
                )
                #expect(hours == 3, "the pauses grow, and not for ever")
                try await world.pool.query("UPDATE entitlement_sync.transfer_token SET due = now()")
                try await scene.untilTokens("given_up")
            }
            #expect(try await scene.tokens() == ["given_up unavailable 10"])
            #expect(try await world.alarms().contains("account_token"))
            #expect(try await scene.state(ticket) == "transferred")
            #expect(try await world.owner(of: Self.transaction) == "claimant")
            let words = try #require(try await scene.shown(ticket).tokens.map(TokenWords.sentence).first)
            #expect(words.contains("in 10 tries (it does not answer as it should)"), "\(words)")
            #expect(words.contains("Check its key and its status page, and try again."), "\(words)")

            try await world.heal()
            await expectRefusal { _ = try await scene.act(scene.ann, .token, on: ticket) }
            let eve = try await scene.desk.enter("eve", .senior, by: scene.admin, user: "owner")
            #expect(try await scene.act(eve, .token, on: ticket) == "own_case")
            #expect(try await scene.act(scene.bea, .token, on: ticket) == nil)
            #expect(try await scene.events(ticket).last == "token_asked")
            try await world.working(setup) { try await scene.untilTokens("set") }
            #expect(try await scene.tokens() == ["set - 1"])
            #expect(try await scene.act(scene.bea, .token, on: ticket) == "no_token")
        }
    }

    // MARK: Order

    @Test func `Transfers that are paused tell the App Store nothing`() async throws {
        try await Self.with { scene, ticket, setup in
            let world = scene.world
            try await scene.begin(ticket, setup)
            try await world.controls.set("transfers", paused: true)
            let tokens = TransferTokens(pool: world.pool)
            #expect(try await tokens.take(upTo: 4).isEmpty)
            try await world.controls.set("transfers", paused: false)
            #expect(try await tokens.take(upTo: 4).count == 1)
            #expect(try await tokens.take(upTo: 4).isEmpty, "somebody has it")
        }
    }

    @Test func `Of a purchase that was moved twice the later move has the last word`() async throws {
        try await Self.with { scene, ticket, setup in
            let pool = scene.world.pool
            try await scene.begin(ticket, setup)
            let tokens = TransferTokens(pool: pool)
            // Another transfer of the same purchase, which owes a token as well.
            try await pool.query(
                """
                INSERT INTO entitlement_sync.ticket (claimant_key, kind, visible)
                SELECT t.claimant_key, t.kind, false FROM entitlement_sync.ticket AS t WHERE t.id = \(ticket)
                """
            )
            try await pool.query(
                """
                INSERT INTO entitlement_sync.transfer (ticket_id, from_key, to_key, purchase_id, begun_by)
                SELECT (SELECT max(id) FROM entitlement_sync.ticket), x.from_key, x.to_key, x.purchase_id, x.begun_by
                  FROM entitlement_sync.transfer AS x
                """
            )
            try await pool.query("UPDATE entitlement_sync.transfer_token SET due = now() + interval '1 hour'")
            try await pool.query("UPDATE entitlement_sync.transfer SET step = 'done' WHERE step = 'begun'")
            try await pool.query(
                """
                SELECT entitlement_sync.owe_tokens(x) FROM entitlement_sync.transfer AS x
                 WHERE x.id = (SELECT max(y.id) FROM entitlement_sync.transfer AS y)
                """
            )
            let first = try #require(try await tokens.take(upTo: 4).first, "the earlier one is looked at first")
            #expect(try await tokens.take(upTo: 4).isEmpty, "the later one waits for it")
            // A turn that is over writes nothing.
            var old = first
            old.turn -= 1
            try await tokens.end(old, .set)
            try await tokens.putOff(old, for: .zero, error: "timeout")
            #expect(try await scene.tokens() == ["due - 1", "due - 0"])
            try await tokens.end(first, .skipped(.movedOn))
            let second = try #require(try await tokens.take(upTo: 4).first)
            #expect(second.id > first.id)
            try await tokens.release(second)
            #expect(try await scene.tokens() == ["skipped moved_on 1", "due - 0"])
            // Nor does one that ended before somebody asked anew.
            #expect(try await scene.act(scene.cid, .token, on: ticket) == nil)
            try await tokens.end(first, .set)
            #expect(try await scene.tokens() == ["due - 0", "due - 0"])
        }
    }
}

extension DeskCase {
    /// Has the transfer carried out, and looks no further: what is owed to the App Store is still owed.
    fileprivate func begin(_ ticket: Int64, _ setup: WorkerSetup) async throws {
        try await world.execute(
            """
            CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                NEW.due := 'infinity';
                RETURN NEW;
            END $$;
            CREATE TRIGGER hold BEFORE INSERT ON entitlement_sync.transfer_token FOR EACH ROW EXECUTE FUNCTION hold();
            """
        )
        #expect(try await act(bea, .transfer, on: ticket) == nil)
        try await world.working(setup) { try await untilMoved(ticket) }
        #expect(try await tokens() == ["due - 0"])
        try await world.execute("DROP FUNCTION public.hold() CASCADE")
        try await world.pool.query("UPDATE entitlement_sync.transfer_token SET due = now()")
    }

    fileprivate func againAndUntil(_ state: String, _ setup: WorkerSetup) async throws {
        try await world.working(setup) { try await untilTokens(state) }
    }

    /// Waits until both users have been read again.
    fileprivate func untilMoved(_ ticket: Int64) async throws {
        try await untilEnded(ticket)
        try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'claimant' AND type = 'subscriber'")
        try await world.waitUntil("SELECT count(*) FROM users WHERE id = 'owner' AND type = 'free'")
    }

    fileprivate func untilTokens(_ state: String) async throws {
        try await world.waitUntil(
            "SELECT count(*) FROM entitlement_sync.transfer_token AS k WHERE k.state = \(state)",
            comment: "no token is \(state)"
        )
    }

    /// What became of each: state, reason and tries.
    fileprivate func tokens() async throws -> [String] {
        try await world.texts(
            """
            SELECT concat_ws(' ', k.state, coalesce(k.reason, '-'), k.tries)
              FROM entitlement_sync.transfer_token AS k ORDER BY k.id
            """
        )
    }

    /// The token that the App Store has for a transaction.
    fileprivate func accountToken(_ transaction: String) async throws -> String? {
        struct Shown: Decodable {
            var token: String?

            enum CodingKeys: String, CodingKey { case token = "account_token" }
        }
        let answer = try await world.transport.send(
            HTTPRequest(
                method: .get,
                scheme: "http",
                authority: "127.0.0.1:\(world.simulatorPort)",
                path: "/control/app-store/transactions/\(transaction)"
            ),
            timeout: .seconds(10)
        )
        try #require(answer.response.status == .ok)
        return try JSONDecoder().decode(Shown.self, from: Data(answer.body)).token
    }
}
