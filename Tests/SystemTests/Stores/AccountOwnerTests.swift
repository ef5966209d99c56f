import Crypto
import Entitlements
import Foundation
import Postgres
import Queue
import StoreClients
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Purchases whose account id is derived from the id of another user than the one who shows them.
@Suite struct AccountOwnerTests {
    private static let keys = ["former", "present"]
    private static let namespace = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    private static let owner = "firebase-uid-of-owner-1"

    private static func hex(_ bytes: some Sequence<UInt8>) -> String {
        bytes.map { String(format: "%02x", $0) }.joined()
    }

    private static func uuid(_ bytes: some Sequence<UInt8>) -> String {
        var hex = Array(Self.hex(Array(bytes).prefix(16)))
        for place in [20, 16, 12, 8] { hex.insert("-", at: place) }
        return String(hex)
    }

    private static let sha = Array(SHA256.hash(data: Data(owner.utf8)))

    private static func hmac(_ key: String) -> [UInt8] {
        Array(HMAC<SHA256>.authenticationCode(for: Data(owner.utf8), using: SymmetricKey(data: Data(key.utf8))))
    }

    /// Ways in which apps make account ids of user ids.
    static let derived: [(way: String, id: String)] = [
        ("SHA-256", hex(sha)), ("SHA-256 in capitals", hex(sha).uppercased()),
        ("SHA-256, base64", Data(sha).base64EncodedString()),
        ("SHA-256 as a UUID", uuid(sha)), ("a former key", hex(hmac("former"))), ("a key", hex(hmac("present"))),
        ("a key, as a UUID", uuid(hmac("present"))),
        (
            "base64url",
            Data(hmac("present")).base64EncodedString().replacingOccurrences(of: "+", with: "-")
                .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
        ),
    ]

    private static func setup(_ world: World, _ stores: [String: String]) -> WorkerSetup {
        var setup = world.asking(stores)
        setup.variables = ["ACCOUNT_ID_KEYS": keys.joined(separator: ","), "ACCOUNT_ID_NAMESPACE": namespace]
        return setup
    }

    @Test(arguments: derived)
    func `What carries a derivation of another user's id is that user's, whoever shows it first`(
        _ derived: (way: String, id: String)
    ) async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, account: \"\(derived.id)\"")
        try await World.with(scenario: scenario) { world in
            for user in ["ann", Self.owner] { try await world.add(user) }
            try await world.addProducts()
            let setup = Self.setup(world, world.googlePlay)
            let stranger = try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(stranger.outcome == "store_account_mismatch")
            #expect(try await world.type(of: "ann") == "free")
            #expect(try await world.tickets(of: "ann").map(\.owner) == [Self.owner])
            #expect(
                try await world.type(of: Self.owner) == "subscriber",
                "it is known whose it is, and that it gives access"
            )
            let own = try await world.restored(Self.owner, proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(own.outcome == "already_subscriber")
        }
    }

    @Test(arguments: [uuid(sha), uuid(hmac("former"))])
    func `An App Store token that is derived from another user's id names that user`(_ token: String) async throws {
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly,"
                + " expires: +20d, account_token: \(token)"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", Self.owner] { try await world.add(user) }
            try await world.addProducts()
            let status = try await world.restored(
                "ann",
                proofs: world.transactionProof("2000000100000009"),
                setup: Self.setup(world, world.appStore)
            )
            #expect(status.outcome == "store_account_mismatch")
            #expect(try await world.owner(of: "2000000100000009") == Self.owner)
        }
    }

    @Test func `20: an id that is derived from no user's is no evidence, and is looked for once`() async throws {
        let unknown = Self.hex(SHA256.hash(data: Data("nobody of ours".utf8)))
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, account: \"\(unknown)\"")
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = Self.setup(world, world.googlePlay)
            let first = try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(first.outcome == "restored")
            let walks: PostgresQuery = "SELECT count(DISTINCT complete_began_at) FROM entitlement_sync.account_walk"
            #expect(try await world.number(walks) == 1)
            let ended = try await world.pool.query("SELECT complete_at FROM entitlement_sync.account_walk").first?
                .decode(PostgresTimestamp.self)
            let second = try await world.restored("bob", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(second.outcome == "store_account_mismatch")
            let later = try await world.pool.query("SELECT complete_at FROM entitlement_sync.account_walk").first?
                .decode(PostgresTimestamp.self)
            #expect(ended == later, "the answer is remembered")
        }
    }

    @Test func `What a proof proves is answered at the last try, though another store never said anything`()
        async throws
    {
        let scenario =
            GooglePlayRestoreTests.scenario("token: tok-a, state: active")
            + AppStoreRestoreTests.scenario(
                "original: \"50001\", product: premium_monthly, state: expired, expires: -2d"
            )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let google = world.asking(world.googlePlay)
            #expect(
                try await world.restored("bob", proofs: world.tokenProof("tok-a"), setup: google).outcome == "restored"
            )
            let setup = try world.asking(world.googlePlay, world.appStore) { $0.retry.maxAttempts = 1 }
            for endpoint in ["statuses", "transaction", "history"] {
                try await world.inject(#"{"endpoint":"app_store.\#(endpoint)","status":500}"#)
            }
            let both = try world.tokenProof("tok-a").dropLast() + "," + world.transactionProof("50001").dropFirst()
            let status = try await world.restored("ann", proofs: String(both), setup: setup)
            #expect(status.state == "dead" && status.outcome == "store_account_mismatch", "\(status)")
            #expect(status.messageKey == "mismatch" && status.lastError == "unavailable")
            #expect(status.ticketID != nil)
            #expect(try await world.tickets(of: "ann").map(\.owner) == ["bob"])
        }
    }

    @Test func `That an id is nobody's holds for those who waited for the walk; whoever comes later asks anew`()
        async throws
    {
        try await World.with { world in
            let ask: PostgresQuery = """
                SELECT a.standing FROM entitlement_sync.ask_accounts('fp', '{7}', interval '10 minutes') AS a
                """
            func walk(from began: String, to ended: String) async throws {
                try await world.pool.query(
                    """
                    INSERT INTO entitlement_sync.account_walk AS w (fingerprint, complete_began_at, complete_at)
                    VALUES ('fp', clock_timestamp() + \(began)::interval, clock_timestamp() + \(ended)::interval)
                    ON CONFLICT (fingerprint) DO UPDATE
                       SET complete_began_at = excluded.complete_began_at, complete_at = excluded.complete_at
                    """
                )
            }
            #expect(try await world.texts(ask) == ["pending"])
            try await walk(from: "0", to: "0")
            #expect(try await world.texts(ask) == ["absent"])
            try await world.pool.query(
                """
                UPDATE entitlement_sync.account_question
                   SET asked_at = asked_at - interval '20 minutes', seen_at = seen_at - interval '20 minutes'
                """
            )
            #expect(try await world.texts(ask) == ["pending"], "its user may have come meanwhile")
            try await walk(from: "0", to: "0")
            #expect(try await world.texts(ask) == ["absent"])
            // A walk under a clock that was two years ahead tells nothing.
            try await walk(from: "2 years", to: "2 years")
            #expect(try await world.texts(ask) == ["pending"])
            let isBegun = try await world.texts(
                "SELECT entitlement_sync.begin_account_walk('fp', gen_random_uuid(), interval '1 minute')::text"
            )
            #expect(isBegun == ["true"])
        }
    }

    @Test func `A user who came after the last walk is found by the next`() async throws {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-a, state: active, account: \"\(Self.hex(Self.sha))\"",
            "token: tok-b, state: active, account: \"\(Self.hex(Self.hmac("present")))\""
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = Self.setup(world, world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup).outcome == "restored"
            )
            try await world.add(Self.owner)
            try await world.add("bob")
            let status = try await world.restored("bob", proofs: world.tokenProof("tok-b"), setup: setup)
            #expect(status.outcome == "store_account_mismatch")
            #expect(try await world.owner(of: "tok-b") == Self.owner)
        }
    }

    @Test func `What the user's own id is derived to costs no walk`() async throws {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-a, state: active, account: \"\(Self.hex(Self.sha))\""
        )
        try await World.with(scenario: scenario) { world in
            try await world.add(Self.owner)
            try await world.addProducts()
            let setup = Self.setup(world, world.googlePlay)
            #expect(
                try await world.restored(Self.owner, proofs: world.tokenProof("tok-a"), setup: setup).outcome
                    == "restored"
            )
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.account_question") == 0)
        }
    }

    @Test func `As long as a walk goes on the job waits; when it does not end, people decide`() async throws {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-a, state: active, account: \"\(Self.hex(Self.sha))\""
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", Self.owner] { try await world.add(user) }
            try await world.addProducts()
            let setup = Self.setup(world, world.googlePlay)
            // Another process walks, and walks.
            let print = AccountIDs(keys: Self.keys, namespace: UUID(uuidString: Self.namespace)).fingerprint
            try await world.pool.query(
                """
                INSERT INTO entitlement_sync.account_walk (fingerprint, holder, lease_until)
                VALUES (\(PostgresBytes(print)), gen_random_uuid(), now() + interval '50 minutes')
                """
            )
            let job = try await world.restore("ann", proofs: world.tokenProof("tok-a"))
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_status WHERE id = \(job) AND last_error = 'owner_pending'"
                )
                #expect(try await world.status(job).attempt == 0)
                #expect(try await world.status(job).state == "queued")
                try await world.pool.query(
                    "UPDATE entitlement_sync.account_question SET since = now() - interval '11 minutes'"
                )
                try await world.makeJobsDue()
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.job_history WHERE id = \(job) AND state = 'dead'"
                )
            }
            let status = try await world.status(job)
            #expect(status.outcome == "store_unavailable" && status.lastError == "owner_unresolved")
            #expect(status.ticketID != nil)
            #expect(try await world.tickets(of: "ann").map(\.kind) == ["first_seen_elsewhere"])
            #expect(
                try await world.number("SELECT count(*) FROM entitlement_sync.alarm WHERE name = 'owner_unresolved'")
                    > 0
            )
            #expect(try await world.type(of: "ann") == "free")
        }
    }

    @Test func `What RevenueCat names the user as the owner of waits for no walk`() async throws {
        let token = Self.uuid(SHA256.hash(data: Data("nobody of ours".utf8)))
        let scenario = AppStoreRestoreTests.scenario(
            "original: \"2000000100000001\", transaction: \"2000000100000009\", product: premium_monthly,"
                + " expires: +20d, account_token: \(token)"
        )
        try await World.with(customers: [WitnessTests.holding("ann")], scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            var setup = Self.setup(world, try world.appStore)
            setup.stores = try world.asking(world.revenueCat, world.appStore).stores
            let status = try await world.restored(
                "ann",
                proofs: world.transactionProof("2000000100000009"),
                setup: setup
            )
            #expect(status.outcome == "restored")
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.account_question") == 0)
        }
    }

    @Test func `An erasure takes a user out of the index`() async throws {
        try await World.with { world in
            for user in [Self.owner, "ann"] { try await world.add(user) }
            try await world.work(Self.setup(world, world.googlePlay))
            try await world.working(Self.setup(world, world.googlePlay)) {
                try await world.waitUntil(
                    "SELECT count(*) FROM entitlement_sync.account_walk WHERE complete_at IS NOT NULL"
                )
            }
            // The plain digest, one by each key, and the namespace's.
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.account_index") == 8)
            _ = try await Erasure(pool: world.pool).erase(Self.owner)
            #expect(
                try await world.number(
                    "SELECT count(*) FROM entitlement_sync.account_index WHERE user_id = \(Self.owner)"
                ) == 0
            )
        }
    }

    @Test func `An acknowledgement has Google keep the ids of a purchase made in Play`() async throws {
        let account = Self.hex(Self.sha)
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-a, state: active, acknowledged: false, out_of_app: {expired_token: old, account: \"\(account)\"}"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", Self.owner] { try await world.add(user) }
            try await world.addProducts()
            let setup = Self.setup(world, world.googlePlay)
            #expect(
                try await world.restored(Self.owner, proofs: world.tokenProof("tok-a"), setup: setup).outcome
                    == "restored"
            )
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.acknowledgement") == 0)
            // As from a backup in which the purchase is not yet.
            try await world.pool.query(
                "TRUNCATE entitlement_sync.purchase_identifier, entitlement_sync.purchase CASCADE"
            )
            let stranger = try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(stranger.outcome == "store_account_mismatch")
        }
    }
}
