/// Users of every kind, all of whom tap Restore.
///
/// Ids are `kind-0001` and on; the store knows no others than those of the scenario.
struct Crowd: Sendable, Hashable {
    /// How many there are of each kind, in percent of the usual few thousand.
    var percent = 100
    /// How long the store thinks about each answer: with few jobs at once, work lasts as long as a test needs it to.
    var latency = 0

    static let usual = Crowd()

    private struct Kind {
        var name: String
        var users: Int
        var type = "free"
        var status = "active"
        var frozen = "{}"
        var error: String?
        /// What the store holds; nil where it knows nobody of this kind.
        var state: String?
        /// Whether the store serves them badly; there are never more of these than usual.
        var isTroubled = false
    }

    private static let lapsed = "{subscription_lapsed}"
    private static let kinds = [
        Kind(name: "active", users: 900, frozen: lapsed, state: "active"),
        Kind(name: "subscribed", users: 300, type: "subscriber", frozen: "{moderation}", state: "active"),
        Kind(name: "still-frozen", users: 100, type: "subscriber", frozen: lapsed, state: "active"),
        Kind(name: "lapsed", users: 100, type: "subscriber", state: "expired"),
        Kind(name: "expired", users: 250, status: "onboarding", frozen: lapsed, state: "expired"),
        Kind(name: "billing-retry", users: 100, state: "billing_retry"), Kind(name: "newcomer", users: 200),
        Kind(name: "banned", users: 50, status: "banned", frozen: lapsed, state: "active"),
        Kind(name: "owner", users: 60, frozen: lapsed), Kind(name: "second-login", users: 20),
        Kind(name: "claimant", users: 60, frozen: lapsed, error: "receipt_already_in_use"),
        Kind(name: "paid-elsewhere", users: 40, error: "7102"), Kind(name: "typed-id", users: 40),
        Kind(name: "signed-out", users: 30, error: "login_discarded"),
        Kind(name: "unmapped", users: 5, state: "unmapped", isTroubled: true),
        Kind(name: "broken", users: 5, state: "active", isTroubled: true),
        Kind(name: "shaky", users: 150, frozen: lapsed, state: "active", isTroubled: true),
        Kind(name: "throttled", users: 50, frozen: lapsed, state: "active", isTroubled: true),
        Kind(name: "slow", users: 40, frozen: lapsed, state: "active", isTroubled: true),
        Kind(name: "collector", users: 3, frozen: lapsed, state: "active", isTroubled: true),
    ]

    private func count(_ kind: Kind) -> Int {
        max(1, kind.users * (kind.isTroubled ? min(percent, 100) : percent) / 100)
    }

    private func count(_ name: String) -> Int { Self.kinds.first { $0.name == name }.map(count) ?? 0 }

    /// How many restores are asked for.
    var size: Int { Self.kinds.reduce(0) { $0 + count($1) } }

    /// What the store holds and how badly it answers.
    var scenario: String {
        let generated = Self.kinds.compactMap { kind in
            kind.state.map { "  - {id: \"\(kind.name)-{n:4}\", count: \(max(9999, count(kind))), state: \($0)}\n" }
        }
        let owners = (1...count("owner")).map { number in
            let alias = number <= count("second-login") ? "aliases: [\(Self.id("second-login", number))], " : ""
            return "  - {id: \(Self.id("owner", number)), \(alias)subscriptions: "
                + "[{state: active, store_subscription_identifier: \"\(Self.transaction(number))\"}]}\n"
        }
        let faults =
            (1...150).map { "  - {customer: \(Self.id("shaky", $0)), status: 503, times: 2}\n" }
            + (1...50).map { "  - {customer: \(Self.id("throttled", $0)), status: 429, backoff: 200ms, times: 1}\n" }
            + (1...40).map { "  - {customer: \(Self.id("slow", $0)), latency: 300ms, latency_max: 600ms}\n" }
            + (1...5).map { "  - {customer: \(Self.id("broken", $0)), body: html}\n" }
            + (latency > 0 ? ["  - {latency: \(latency)ms, latency_max: \(latency * 2)ms}\n"] : [])
        return "generate:\n" + generated.joined() + "customers:\n" + owners.joined() + "faults:\n" + faults.joined()
    }

    /// The host's rows, and a restore for each user.
    ///
    /// Collectors come last in the queue: their many assets are still at work when all others are done.
    var load: String {
        let rows = Self.kinds.map { kind in
            let error = kind.error.map { "'\($0)'" } ?? "NULL"
            return "('\(kind.name)', \(count(kind)), '\(kind.type)', '\(kind.status)', '\(kind.frozen)', \(error))"
        }
        return """
            CREATE TABLE kind (name text PRIMARY KEY, users int, type text, status text, frozen text[], error text);
            INSERT INTO kind VALUES \(rows.joined(separator: ", "));
            CREATE TABLE member AS
            SELECT k.*, k.name || '-' || lpad(n::text, greatest(4, length(n::text)), '0') AS id
              FROM kind AS k, generate_series(1, k.users) AS n;
            INSERT INTO users (id, type, status) SELECT m.id, m.type, m.status FROM member AS m ORDER BY 1;
            INSERT INTO assets (user_id, frozen_reasons, frozen_at)
            SELECT m.id, CASE WHEN n % 3 = 0 THEN '{moderation}' ELSE m.frozen END,
                   CASE WHEN n % 3 = 0 OR m.frozen <> '{}' THEN now() END
              FROM member AS m
             CROSS JOIN generate_series(1, CASE m.name WHEN 'collector' THEN \(120 * min(percent, 100)) ELSE 2 END) AS n
             ORDER BY m.id, n;
            SELECT count(entitlement_sync.request_restore(
                       user_id      => u.id,
                       client_error => u.error,
                       proofs       => CASE WHEN u.name IN ('claimant', 'typed-id') THEN jsonb_build_array(
                                           jsonb_build_object('store', 'app_store', 'kind', 'transaction_id',
                                                              'value', '2000000700' || right(u.id, 4)))
                                       ELSE '[]' END))
              FROM (SELECT m.* FROM member AS m ORDER BY m.name = 'collector', md5(m.id)) AS u;
            """
    }

    private static func id(_ kind: String, _ number: Int) -> String {
        let digits = "\(number)"
        return kind + "-" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits
    }

    private static func transaction(_ owner: Int) -> String { "2000000700" + id("", owner).dropFirst() }
}
