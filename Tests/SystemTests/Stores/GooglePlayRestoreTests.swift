import Crypto
import Entitlements
import Foundation
import HTTPTypes
import Postgres
import Queue
import StoreSimulator
import TestSupport
import Testing
import UserRequests

/// Google Play as the only witness: every state of its table, shown by a purchase token.
@Suite struct GooglePlayRestoreTests {
    static func scenario(_ purchases: String..., more: String = "") -> String {
        "google_play:\n\(more)  purchases:\n" + purchases.map { "    - {\($0)}\n" }.joined()
    }

    static let states: [(String, String, String)] = [
        ("state: active", "restored", "restored"),
        ("state: grace", "restored", "restored"),
        ("state: silent_grace", "restored", "restored"),
        ("state: canceled", "restored", "restored"),
        ("state: active, prepaid: true", "restored", "restored"),
        ("state: canceled_past", "nothing_to_restore", "nothing.expired"),
        ("state: expired", "nothing_to_restore", "nothing.expired"),
        ("state: on_hold", "nothing_to_restore", "nothing.billing_retry"),
        ("state: paused", "nothing_to_restore", "nothing.paused"),
        ("state: pending", "nothing_to_restore", "nothing.pending_payment"),
        ("state: pending_canceled", "nothing_to_restore", "nothing"),
        ("state: unknown", "nothing_to_restore", "nothing"),
        ("state: gone", "nothing_to_restore", "nothing"),
        ("state: active, test: true", "nothing_to_restore", "nothing.sandbox"),
        ("state: active, product: extra", "nothing_to_restore", "nothing"),
        (
            "state: active, product: extra, addons: [{product: pro, plan: monthly, expires: +9d}]", "restored",
            "restored"
        ),
        ("kind: one_time, state: active", "restored", "restored"),
        ("kind: one_time, state: pending", "nothing_to_restore", "nothing.pending_payment"),
        ("kind: one_time, state: canceled", "nothing_to_restore", "nothing.refunded"),
        ("kind: one_time, state: active, consumed: true", "nothing_to_restore", "nothing"),
    ]

    @Test(arguments: states)
    func `24, 25, 27, 28, 31, 36, 49, 50, 69, 71: every state has its outcome`(
        _ purchase: String,
        _ outcome: String,
        _ key: String
    ) async throws {
        try await World.with(scenario: Self.scenario("token: tok-a, \(purchase)")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let status = try await world.restored(
                "ann",
                proofs: world.tokenProof("tok-a"),
                setup: world.asking(world.googlePlay)
            )
            #expect(status.outcome == outcome && status.messageKey == key)
            #expect(try await world.type(of: "ann") == (outcome == "restored" ? "subscriber" : "free"))
            #expect(try await world.tickets(of: "ann").isEmpty)
        }
    }

    @Test func `A token that nobody knows is nothing, and one of another shape is refused`() async throws {
        try await World.with(scenario: Self.scenario("token: tok-a, state: active")) { world in
            try await world.add("ann")
            let setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-b"), setup: setup).messageKey == "nothing"
            )
            let odd = world.tokenProof("../../../orders/x")
            let refusal = await #expect(throws: PostgresError.self) { try await world.restore("ann", proofs: odd) }
            #expect(refusal?.sqlState == "ES002" && refusal?.message.hasPrefix("proofs[0].value:") == true)
        }
    }

    @Test func `20: an id that matches a configured derivation names the owner, an unknown one proves nothing`()
        async throws
    {
        let hash = "9b74c9897bac770ffc029102a200c5de5cb3a4d4d6b4a2f0d2c6f9a4f9d9a1b2"
        let scenario = Self.scenario(
            "token: tok-plain, state: active, account: bob",
            "token: tok-unknown, state: active, account: \(hash)",
            "token: tok-hmac, state: active, account: \(Self.hmac("former", "carol"))"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob", "carol"] { try await world.add(user) }
            try await world.addProducts()
            let setup = world.asking(world.googlePlay, ["ACCOUNT_ID_KEYS": "present,former"])
            let others = try await world.restored("ann", proofs: world.tokenProof("tok-plain"), setup: setup)
            #expect(others.outcome == "store_account_mismatch")
            #expect(try await world.tickets(of: "ann").map(\.owner) == ["bob"])
            #expect(try await world.type(of: "bob") == "subscriber", "whose it is was found, and had not asked")
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-unknown"), setup: setup).outcome
                    == "restored"
            )
            #expect(
                try await world.restored("carol", proofs: world.tokenProof("tok-hmac"), setup: setup).outcome
                    == "restored"
            )
            let rules = try await world.pool.query("SELECT owner_rule FROM entitlement_sync.purchase ORDER BY id")
                .map { try $0.decode(String.self) }
            #expect(Set(rules) == ["account_id", "first_proof"])
        }
    }

    static func hmac(_ key: String, _ id: String) -> String {
        let code = HMAC<SHA256>.authenticationCode(for: Array(id.utf8), using: SymmetricKey(data: Array(key.utf8)))
        return code.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    @Test func `41, 42: an upgrade keeps its lineage and owner, though the middle was never seen`() async throws {
        let scenario = Self.scenario("token: tok-1, state: active")
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "eve"] { try await world.add(user) }
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-1"), setup: setup).outcome == "restored"
            )
            for number in 2...5 {
                let linked = #""linked":"tok-\#(number - 1)""#
                let state = number == 5 ? "active" : "expired"
                try await world.steer("/google-play/purchases/tok-\(number)", #"{"state":"\#(state)",\#(linked)}"#)
            }
            try await world.steer("/google-play/purchases/tok-1", #"{"state":"expired"}"#)
            // Whoever shows the newest token does not become the owner of what has one.
            let other = try await world.restored("eve", proofs: world.tokenProof("tok-5"), setup: setup)
            #expect(other.outcome == "store_account_mismatch")
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-5"), setup: setup).outcome
                    == "already_subscriber"
            )
            let rows = try await world.number(
                "SELECT count(*) FROM entitlement_sync.purchase WHERE merged_into IS NULL"
            )
            #expect(rows == 1)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged", "the newest token is asked")
        }
    }

    @Test func `99: a token of which Google has said all that it will say is asked about no more`() async throws {
        try await World.with(scenario: Self.scenario("token: tok-a, state: active")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            let asked = { @Sendable in
                world.simulator.requestReport().byPath.filter { $0.key.contains("/tokens/") }.map(\.value).reduce(0, +)
            }
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup).outcome == "restored"
            )
            // Google tells of a subscription for sixty days after its end.
            try await world.steer("/google-play/purchases/tok-a", #"{"state":"expired","expires":"-62d"}"#)
            #expect(try await world.reconciled("ann", setup: setup).outcome == "demoted")
            try await world.steer("/google-play/purchases/tok-a", #"{"state":"gone"}"#)
            let before = asked()
            for _ in 1...2 { #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged") }
            #expect(before > 0 && asked() == before)
            // Whoever shows it is answered all the same.
            let shown = try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup)
            #expect(shown.outcome == "nothing_to_restore")
        }
    }

    @Test func `Whatever Google calls a token that somebody made up, it alarms nobody`() async throws {
        try await World.with(scenario: Self.scenario("token: tok-a, state: active")) { world in
            try await world.add("ann")
            try await world.addProducts()
            let fault = #"{"endpoint":"google_play.subscription","status":400,"error_type":"somethingNew"}"#
            try await world.steer("/faults", fault, method: .post)
            let status = try await world.restored(
                "ann",
                proofs: world.tokenProof("made-up"),
                setup: world.asking(world.googlePlay)
            )
            #expect(status.outcome == "nothing_to_restore")
            #expect(try await world.alarms().isEmpty)
            let text = try await world.decisions(about: "ann").last?.explanation
            #expect(text?.hasSuffix("What was shown did not verify: purchase_token (unknown).") == true)
        }
    }

    @Test func `5: an order number leads to its purchase and decides nothing`() async throws {
        let scenario = Self.scenario(
            "token: tok-a, state: active, order_id: GPA.1111-2222-3333-44444",
            "token: tok-b, state: active, order_id: GPA.5555-2222-3333-44444, account: bob"
        )
        try await World.with(scenario: scenario) { world in
            for user in ["ann", "bob"] { try await world.add(user) }
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            let claim = world.proof("google_play", "order_id", "GPA.1111-2222-3333-44444")
            // The access token is for everybody.
            _ = try await world.restored("ann", proofs: world.tokenProof("nobody"), setup: setup)
            let start = world.simulator.requestReport().total
            let status = try await world.restored("ann", proofs: claim, setup: setup)
            #expect(status.outcome == "nothing_to_restore" && status.ticketID == nil)
            let middle = world.simulator.requestReport().total
            let madeUp = world.proof("google_play", "order_id", "GPA.9999-2222-3333-44444")
            #expect(try await world.restored("ann", proofs: madeUp, setup: setup).messageKey == status.messageKey)
            #expect(world.simulator.requestReport().total - middle == middle - start, "nor does the time tell")
            let own = world.proof("google_play", "order_id", "GPA.5555-2222-3333-44444")
            #expect(try await world.restored("bob", proofs: own, setup: setup).outcome == "restored")
        }
    }
}

/// Sales that Google Play takes back unless it is told that they were granted.
@Suite struct AcknowledgementTests {
    @Test(arguments: ["subscription", "one_time"])
    func `What was granted ends acknowledged, with one call`(kind: String) async throws {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-a, state: active, acknowledged: false, kind: \(kind)"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup).outcome == "restored"
            )
            let report = try #require(world.simulator.googlePlayPurchase("tok-a"))
            #expect(report.isAcknowledged && report.acknowledgeCalls == 1)
            #expect(try await world.number("SELECT count(*) FROM entitlement_sync.acknowledgement") == 0)
            // Granted a second time, it is acknowledged already.
            #expect(try await world.reconciled("ann", setup: setup).outcome == "unchanged")
            #expect(world.simulator.googlePlayPurchase("tok-a")?.acknowledgeCalls == 1)
        }
    }

    @Test func `What was not granted never is, and a disputed sale gives its ticket a deadline`() async throws {
        let scenario = GooglePlayRestoreTests.scenario(
            "token: tok-theirs, state: active, acknowledged: false, account: bob, started: -1d",
            "token: tok-test, state: active, acknowledged: false, test: true",
            "token: tok-extra, state: active, acknowledged: false, product: extra"
        )
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.add("bob", status: "banned")
            try await world.addProducts()
            let setup = world.asking(world.googlePlay)
            for token in ["tok-theirs", "tok-test", "tok-extra"] {
                #expect(
                    try await world.restored("ann", proofs: world.tokenProof(token), setup: setup).outcome != "restored"
                )
                #expect(world.simulator.googlePlayPurchase(token)?.acknowledgeCalls == 0)
            }
            let hours = try await world.number(
                "SELECT round(extract(epoch FROM deadline - now()) / 3600)::bigint FROM entitlement_sync.ticket"
            )
            #expect(hours == 48)
        }
    }

    @Test func `Nobody is told of sales where that is switched off, or while we only observe`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, acknowledged: false")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            let proof = world.tokenProof("tok-a")
            let observing = world.asking(world.googlePlay, ["MODE": "observe"]) { $0.decision.mode = .observe }
            _ = try await world.restored("ann", proofs: proof, setup: observing)
            let off = world.asking(world.googlePlay, ["GOOGLE_PLAY_ACKNOWLEDGE": "false"])
            #expect(try await world.restored("ann", proofs: proof, setup: off).outcome == "restored")
            #expect(world.simulator.googlePlayPurchase("tok-a")?.acknowledgeCalls == 0)
        }
    }

    @Test func `A call whose answer was lost is repeated only after a read shows that it is still due`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, acknowledged: false")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            // The call is carried out, and its answer never comes.
            try await world.steer(
                "/faults",
                #"{"endpoint":"google_play.acknowledge","connection":"reset_after","times":1}"#,
                method: .post
            )
            let setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup).outcome == "restored"
            )
            try await world.pool.query("UPDATE entitlement_sync.acknowledgement SET due = now()")
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.acknowledgement"
                )
            }
            #expect(world.simulator.googlePlayPurchase("tok-a")?.acknowledgeCalls == 1)
        }
    }

    @Test func `That Google Play suddenly knows nothing of a sale does not end what it waits for`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, acknowledged: false")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            // The restore's own reading is answered; the call, and two questions what became of it, are not.
            for rule in [
                #"{"endpoint":"google_play.acknowledge","status":404,"error_type":"notFound","times":1}"#,
                #"{"endpoint":"google_play.subscription","skip":1,"times":2,"status":404,"error_type":"notFound"}"#,
            ] {
                try await world.steer("/faults", rule, method: .post)
            }
            let setup = world.asking(world.googlePlay)
            let proof = world.tokenProof("tok-a")
            #expect(try await world.restored("ann", proofs: proof, setup: setup).outcome == "restored")
            for attempt in 1...2 {
                try await world.working(setup) {
                    try await world.waitUntil(
                        """
                        SELECT count(*) FROM entitlement_sync.acknowledgement
                         WHERE attempt = \(Int32(attempt)) AND last_error IS NOT NULL AND due > now()
                        """
                    )
                }
                #expect(try await world.alarms().isEmpty)
                try await world.pool.query("UPDATE entitlement_sync.acknowledgement SET due = now()")
            }
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.acknowledgement"
                )
            }
            #expect(world.simulator.googlePlayPurchase("tok-a")?.isAcknowledged == true)
        }
    }

    @Test func `A worker that died between the grant and the call leaves it to the next one`() async throws {
        let scenario = GooglePlayRestoreTests.scenario("token: tok-a, state: active, acknowledged: false")
        try await World.with(scenario: scenario) { world in
            try await world.add("ann")
            try await world.addProducts()
            // As that worker left it: the mark that a call was begun, and no call.
            try await world.steer(
                "/faults",
                #"{"endpoint":"google_play.acknowledge","connection":"drop_before","times":1}"#,
                method: .post
            )
            let setup = world.asking(world.googlePlay)
            #expect(
                try await world.restored("ann", proofs: world.tokenProof("tok-a"), setup: setup).outcome == "restored"
            )
            #expect(world.simulator.googlePlayPurchase("tok-a")?.isAcknowledged == false)
            try await world.pool.query("UPDATE entitlement_sync.acknowledgement SET due = now()")
            try await world.working(setup) {
                try await world.waitUntil(
                    "SELECT (count(*) = 0)::integer::bigint FROM entitlement_sync.acknowledgement"
                )
            }
            #expect(world.simulator.googlePlayPurchase("tok-a")?.isAcknowledged == true)
        }
    }
}
