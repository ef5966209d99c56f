import Entitlements
import Foundation
import Logging
import Postgres
import Queue
import Reconciliation
import StoreSimulator
import SupportDesk
import TestSupport
import Testing
import UserRequests

/// What is kept of store accounts and sign-ins: keyed hashes and facts for the desk, as long as their user is not erased.
@Suite struct StoreAccountRecordTests {
    private static let scenario = """
        app_store:
          customers:
            - id: first
              app_transaction: "704111111111111111"
              transactions: [{original: "2000000100000001", product: premium_monthly, expires: +20d}]
            - id: second
              app_transaction: "704222222222222222"
            - id: member
              app_transaction: "704333333333333333"
              transactions:
                - {original: "2000000100000003", product: premium_monthly, expires: +20d, ownership: FAMILY_SHARED}
            - id: pair
              app_transaction: "704777777777777777"
              transactions:
                - {original: "2000000100000005", product: premium_monthly, expires: +20d}
                - {original: "2000000100000006", product: premium_yearly, state: expired, expires: -20d}
            - {id: tester, environment: Sandbox, app_transaction: "704444444444444444"}
            - {id: altered, app_transaction: "704555555555555555", app_transaction_flaw: bad_signature}
            - {id: foreign, app_transaction: "704666666666666666", app_transaction_flaw: foreign_bundle}
        """

    /// Restores on a device of an account, with the transactions that it shows.
    private static func restored(
        _ user: String,
        on account: String,
        showing transactions: [String] = [],
        in world: World,
        setup: WorkerSetup
    ) async throws -> JobStatus {
        let device = try #require(try world.simulator.appTransaction(ofAccount: account))
        var proofs = [["store": "app_store", "kind": "app_transaction", "value": device]]
        for id in transactions {
            let jws = try #require(try world.simulator.appStoreProof(ofTransaction: id))
            proofs.append(["store": "app_store", "kind": "storekit_jws", "value": jws])
        }
        let json = String(decoding: try JSONSerialization.data(withJSONObject: proofs), as: UTF8.self)
        return try await world.restored(user, proofs: json, setup: setup)
    }

    private static func with(
        _ users: [String],
        _ body: @Sendable (World, WorkerSetup) async throws -> Void
    ) async throws {
        try await World.with(scenario: scenario) { world in
            try await world.addProducts()
            for user in users { try await world.add(user) }
            try await body(world, try world.asking(world.appStore))
        }
    }

    /// Every row of every table as text.
    private static func everything(_ world: World) async throws -> String {
        let tables = try await world.texts(
            "SELECT format('entitlement_sync.%I', c.relname) FROM pg_class AS c WHERE c.relnamespace = 'entitlement_sync'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
        )
        var text = ""
        for table in tables {
            text += try await world.texts("SELECT t::text FROM \(rawSQL: table) AS t").joined(separator: "\n")
        }
        return text
    }

    private static let kept: PostgresQuery = """
        SELECT (SELECT count(*) FROM entitlement_sync.purchase AS p WHERE p.store_account IS NOT NULL)
             + (SELECT count(*) FROM entitlement_sync.submitted_account)
        """

    @Test func `only a keyed hash of the account is kept, with purchases and restores, and it falls with the erasure`()
        async throws
    {
        try await Self.with(["ann", "bob"]) { world, setup in
            let ann = try await Self.restored(
                "ann",
                on: "first",
                showing: ["2000000100000001"],
                in: world,
                setup: setup
            )
            #expect(ann.outcome == "restored")
            let bob = try await Self.restored("bob", on: "first", in: world, setup: setup)
            #expect(bob.messageKey == "nothing.other_store_account")
            #expect(try await world.number(Self.kept) == 3)
            let hashes = try await world.number(
                """
                SELECT count(DISTINCT h.hash) FROM (SELECT p.store_account FROM entitlement_sync.purchase AS p
                 UNION ALL SELECT a.store_account FROM entitlement_sync.submitted_account AS a) AS h(hash)
                """
            )
            #expect(hashes == 1)
            #expect(try await !Self.everything(world).contains("704111111111111111"))
            #expect(try await Erasure(pool: world.pool).erase("bob") != nil)
            #expect(try await world.number(Self.kept) == 2)
            #expect(try await Erasure(pool: world.pool).erase("ann") != nil)
            #expect(try await world.number(Self.kept) == 0)
            // Nor does it come back with another user's proof of the same purchase.
            try await world.add("cleo")
            let cleo = try await Self.restored(
                "cleo",
                on: "first",
                showing: ["2000000100000001"],
                in: world,
                setup: setup
            )
            #expect(cleo.outcome == "store_account_mismatch")
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.purchase AS p WHERE p.store_account IS NOT NULL"
                ) == 0
            )
        }
    }

    @Test func `the hash falls from purchases without an owner too, and stays with those of others`() async throws {
        try await Self.with(["ann", "bob"]) { world, setup in
            for (user, account, line) in [("bob", "first", "2000000100000001"), ("ann", "pair", "2000000100000005")] {
                let job = try await Self.restored(user, on: account, showing: [line], in: world, setup: setup)
                #expect(job.outcome == "restored", "\(user): \(job)")
            }
            try await world.pool.query(
                "UPDATE entitlement_sync.purchase SET owner_key = NULL WHERE status = 'expired'"
            )
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.purchase AS p
                     WHERE p.owner_key IS NULL AND p.store_account IS NOT NULL
                    """
                ) == 1
            )
            #expect(try await world.number(Self.kept) == 5)
            #expect(try await Erasure(pool: world.pool).erase("ann") != nil)
            #expect(try await world.number(Self.kept) == 2)
        }
    }

    @Test func `an account of a sandbox counts for its testers, and what does not verify for nobody`() async throws {
        try await Self.with(["ann", "bob"]) { world, setup in
            #expect(
                try await Self.restored("ann", on: "tester", in: world, setup: setup).messageKey == "nothing"
            )
            try await world.pool.query(
                "INSERT INTO entitlement_sync.sandbox_user VALUES ('ann', now() + interval '1 day')"
            )
            #expect(
                try await Self.restored("ann", on: "tester", in: world, setup: setup).messageKey
                    == "nothing.other_store_account"
            )
            for account in ["altered", "foreign"] {
                let job = try await Self.restored("bob", on: account, in: world, setup: setup)
                #expect(job.messageKey == "nothing" && job.state == "done", "\(account): \(job)")
            }
            #expect(
                try await world.decisions(about: "bob").allSatisfy { $0.explanation.contains("app_transaction (") }
            )
        }
    }

    @Test func `a signed transaction that is called an app transaction is read as what it is, and the other way round`()
        async throws
    {
        try await Self.with(["ann", "bob"]) { world, setup in
            let jws = try #require(try world.simulator.appStoreProof(ofTransaction: "2000000100000001"))
            let device = try #require(try world.simulator.appTransaction(ofAccount: "second"))
            let called = world.proof("app_store", "app_transaction", jws)
            #expect(try await world.restored("ann", proofs: called, setup: setup).outcome == "restored")
            let job = try await world.restored(
                "bob",
                proofs: world.proof("app_store", "storekit_jws", device),
                setup: setup
            )
            #expect(job.messageKey == "nothing.other_store_account")
            for value in ["a.b", "tok-1", String(device.dropLast(10)), device + "~"] {
                await #expect(throws: PostgresError.self, "\(value.prefix(20))") {
                    _ = try await world.restore("bob", proofs: world.proof("app_store", "app_transaction", value))
                }
            }
            await #expect(throws: PostgresError.self) {
                _ = try await world.restore("bob", proofs: world.proof("google_play", "app_transaction", device))
            }
        }
    }

    /// What the desk shows of a claimant's ticket.
    private static func facts(of claimant: String, _ scene: DeskCase) async throws -> DeskTicket.AccountFacts {
        let ticket = try await scene.world.number(
            """
            SELECT t.id FROM entitlement_sync.ticket AS t JOIN entitlement_sync.user_sync AS u ON u.user_key = t.claimant_key
             WHERE u.user_id = \(claimant)
            """
        )
        let json = try #require(try await scene.tickets(scene.ann).show(ticket))
        #expect(!json.contains("7041111"))
        return try #require(try DeskTicket(json: json).accountFacts)
    }

    @Test
    func `the desk sees whether store accounts are the same, others or of one family, and how many users have one`()
        async throws
    {
        let users = ["owner", "twin", "moved", "son", "plain"]
        try await Self.with(users) { world, setup in
            let line = ["2000000100000001"]
            _ = try await Self.restored("owner", on: "first", showing: line, in: world, setup: setup)
            _ = try await Self.restored("son", on: "member", showing: ["2000000100000003"], in: world, setup: setup)
            try await world.steer(
                "/app-store/customers/member",
                """
                {"app_transaction": "704333333333333333", "transactions": [{"original": "2000000100000003",
                 "product": "premium_monthly", "state": "revoked", "ownership": "FAMILY_SHARED"}]}
                """
            )
            #expect(try await world.reconciled("son", setup: setup).outcome == "demoted")
            for (user, account) in [("twin", "first"), ("moved", "second"), ("son", "member")] {
                let job = try await Self.restored(user, on: account, showing: line, in: world, setup: setup)
                #expect(job.outcome == "store_account_mismatch", "\(user): \(job)")
            }
            let plain = try await world.restored("plain", proofs: world.transactionProof(line[0]), setup: setup)
            #expect(plain.outcome == "store_account_mismatch")
            let scene = try await DeskCase(in: world)
            let twin = try await Self.facts(of: "twin", scene)
            #expect(twin.relation == "same" && twin.purchaseUsers == 2, "\(twin)")
            let moved = try await Self.facts(of: "moved", scene)
            #expect(moved.relation == "other" && moved.claimantUsers == 1 && moved.purchaseUsers == 2, "\(moved)")
            #expect(try await Self.facts(of: "son", scene).relation == "family")
            let unknown = try await Self.facts(of: "plain", scene)
            #expect(unknown.relation == nil && unknown.claimantUsers == nil, "\(unknown)")
            // It decides nothing: the same suggestion, whichever account it is.
            #expect(
                AccountWords.facts(twin).contains { $0.weight == .for && $0.words.contains("the store account that") }
            )
            #expect(AccountWords.facts(moved).allSatisfy { $0.weight == .known })
        }
    }

    @Test func `how and when the claimant signed in is a fact for the desk, and erased with them`() async throws {
        try await Self.with(["owner", "claimant"]) { world, setup in
            let line = ["2000000100000001"]
            _ = try await Self.restored("owner", on: "first", showing: line, in: world, setup: setup)
            var wish = RestoreWish(userID: "claimant", proofs: try world.transactionProof(line[0]))
            wish.signInProvider = "apple.com"
            wish.signedInAt = Instant(microseconds: 1_700_000_000_000_000)
            let requests = AppRequests(pool: world.pool)
            let first = try await requests.restore(wish)
            // A restore that joins brings the newer sign-in.
            wish.signInProvider = "google.com"
            #expect(try await requests.restore(wish).id == first.id)
            try await world.work(setup)
            #expect(try await world.status(first.id).outcome == "store_account_mismatch")
            let scene = try await DeskCase(in: world)
            let facts = try await Self.facts(of: "claimant", scene)
            #expect(facts.provider == "google.com", "\(facts)")
            let words = AccountWords.facts(facts).map(\.words)
            #expect(
                words.contains(
                    "The claimant requested the restore signed in by google.com since 2023-11-14 22:13 UTC."
                ),
                "\(words)"
            )
            #expect(try await Erasure(pool: world.pool).erase("claimant") != nil)
            #expect(
                try await world.number(
                    """
                    SELECT count(*) FROM entitlement_sync.job_request AS r
                     WHERE r.sign_in_provider IS NOT NULL OR r.signed_in_at IS NOT NULL
                    """
                ) == 0
            )
        }
    }

    @Test func `a search that a worker left behind is done by the next, and one that only observes opens no ticket`()
        async throws
    {
        try await Self.with(["owner", "claimant"]) { world, setup in
            _ = try await Self.restored("owner", on: "first", showing: ["2000000100000001"], in: world, setup: setup)
            var observing = setup
            observing.decision.mode = .observe
            let job = try await Self.restored("claimant", on: "first", in: world, setup: observing)
            #expect(job.messageKey == "nothing.other_store_account")
            #expect(try await world.tickets(of: "claimant").isEmpty)
            try await world.pool.query("UPDATE entitlement_sync.submitted_account SET search_at = now()")
            try await world.work(setup)
            #expect(try await world.tickets(of: "claimant").map(\.kind) == ["needs_proof"])
        }
    }

    /// What stands of searches: user, tries, and whether it is still to be done.
    private static func searches(_ world: World) async throws -> [String] {
        try await world.texts(
            """
            SELECT concat_ws(' ', u.user_id, a.search_tries, a.search_at IS NOT NULL)
              FROM entitlement_sync.submitted_account AS a JOIN entitlement_sync.user_sync AS u USING (user_key)
             WHERE u.user_id <> 'owner' ORDER BY 1
            """
        )
    }

    @Test func `a search that fails stops no other, is put off, and given up in the end`() async throws {
        try await Self.with(["owner", "ann", "bob"]) { world, setup in
            _ = try await Self.restored("owner", on: "first", showing: ["2000000100000001"], in: world, setup: setup)
            var observing = setup
            observing.decision.mode = .observe
            for user in ["ann", "bob"] { _ = try await Self.restored(user, on: "first", in: world, setup: observing) }
            try await world.pool.query(
                """
                CREATE FUNCTION refuse_ann() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    IF new.claimant_key = (SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'ann') THEN
                        RAISE 'refused' USING ERRCODE = 'check_violation';
                    END IF;
                    RETURN new;
                END $$
                """
            )
            try await world.pool.query(
                "CREATE TRIGGER refuse BEFORE INSERT ON entitlement_sync.ticket FOR EACH ROW EXECUTE FUNCTION refuse_ann()"
            )
            let due: PostgresQuery = "UPDATE entitlement_sync.submitted_account SET search_at = now()"
            try await world.pool.query(due)
            let search = AccountSearch(pool: world.pool, publishes: false, logger: Logger(label: "test"))
            #expect(try await search.step())
            #expect(try await Self.searches(world) == ["ann 1 t", "bob 0 f"])
            #expect(try await world.tickets(of: "bob").map(\.kind) == ["needs_proof"])
            #expect(try await !search.step(), "it is put off")
            #expect(try await !search.hasOpen(), "and not waited for")
            try await world.pool.query(
                """
                UPDATE entitlement_sync.submitted_account SET search_at = now(), search_tries = 9 WHERE search_at IS NOT NULL
                """
            )
            #expect(try await search.step())
            #expect(try await Self.searches(world) == ["ann 10 f", "bob 0 f"])
            // The next restore asks for it again.
            try await world.pool.query("DROP TRIGGER refuse ON entitlement_sync.ticket")
            _ = try await Self.restored("ann", on: "first", in: world, setup: setup)
            #expect(try await Self.searches(world) == ["ann 0 f", "bob 0 f"])
            #expect(try await world.tickets(of: "ann").map(\.kind) == ["needs_proof"])
        }
    }

    @Test func `a search waits for no restore, and an account of very many users opens no ticket`() async throws {
        try await Self.with(["owner", "ann"]) { world, setup in
            _ = try await Self.restored("owner", on: "first", showing: ["2000000100000001"], in: world, setup: setup)
            var observing = setup
            observing.decision.mode = .observe
            _ = try await Self.restored("ann", on: "first", in: world, setup: observing)
            let due: PostgresQuery = """
                UPDATE entitlement_sync.submitted_account AS a SET search_at = now()
                 WHERE a.user_key = (SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = 'ann')
                """
            // With owner and ann these make eleven.
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.submitted_account (user_key, store_account, store_app, job_id)
                SELECT -n, a.store_account, a.store_app, a.job_id
                  FROM (SELECT * FROM entitlement_sync.submitted_account LIMIT 1) AS a, generate_series(1, 9) AS n
                """
            )
            try await world.pool.query(due)
            let search = AccountSearch(pool: world.pool, publishes: false, logger: Logger(label: "test"))
            #expect(try await search.step())
            #expect(try await world.tickets(of: "ann").isEmpty)
            try await world.pool.query("DELETE FROM entitlement_sync.submitted_account AS a WHERE a.user_key = -1")
            try await world.pool.query(due)
            // As by another restore of ann's that is not committed yet.
            try await world.pool.withTransaction { connection in
                try await connection.query("SELECT FROM entitlement_sync.submitted_account AS a FOR UPDATE")
                #expect(try await search.step())
            }
            #expect(try await world.tickets(of: "ann").map(\.kind) == ["needs_proof"])
            #expect(try await search.step(), "what was locked is searched for again")
            #expect(try await !search.step())
        }
    }
}
