/// A few thousand users of every kind, all of whom tap Restore.
///
/// Ids are `kind-0001` and on; the store knows no others than those of the scenario.
enum Crowd {
    /// What the store holds and how badly it answers.
    static var scenario: String {
        let states = [
            "active": "active", "subscribed": "active", "still-frozen": "active", "lapsed": "expired",
            "expired": "expired", "billing-retry": "billing_retry", "banned": "active", "shaky": "active",
            "throttled": "active", "slow": "active", "broken": "active", "unmapped": "unmapped",
            "collector": "active",
        ]
        let generated = states.sorted { $0.key < $1.key }.map { kind, state in
            "  - {id: \"\(kind)-{n:4}\", count: 9999, state: \(state)}\n"
        }
        let owners = (1...60).map { number in
            let alias = number <= 20 ? "aliases: [\(id("second-login", number))], " : ""
            return "  - {id: \(id("owner", number)), \(alias)subscriptions: "
                + "[{state: active, store_subscription_identifier: \"\(transaction(number))\"}]}\n"
        }
        let faults =
            (1...150).map { "  - {customer: \(id("shaky", $0)), status: 503, times: 2}\n" }
            + (1...50).map { "  - {customer: \(id("throttled", $0)), status: 429, backoff: 200ms, times: 1}\n" }
            + (1...40).map { "  - {customer: \(id("slow", $0)), latency: 300ms, latency_max: 600ms}\n" }
            + (1...5).map { "  - {customer: \(id("broken", $0)), body: html}\n" }
        return "generate:\n" + generated.joined() + "customers:\n" + owners.joined() + "faults:\n" + faults.joined()
    }

    /// The host's rows, and a restore for each user.
    ///
    /// Collectors come last in the queue: their many assets are still at work when all others are done.
    static let load = """
        CREATE TABLE kind (name text PRIMARY KEY, users int, type text, status text, frozen text[], error text);
        INSERT INTO kind VALUES
            ('active',         900, 'free',       'active',     '{subscription_lapsed}', NULL),
            ('subscribed',     300, 'subscriber', 'active',     '{moderation}',          NULL),
            ('still-frozen',   100, 'subscriber', 'active',     '{subscription_lapsed}', NULL),
            ('lapsed',         100, 'subscriber', 'active',     '{}',                    NULL),
            ('expired',        250, 'free',       'onboarding', '{subscription_lapsed}', NULL),
            ('billing-retry',  100, 'free',       'active',     '{}',                    NULL),
            ('newcomer',       200, 'free',       'active',     '{}',                    NULL),
            ('banned',          50, 'free',       'banned',     '{subscription_lapsed}', NULL),
            ('owner',           60, 'free',       'active',     '{subscription_lapsed}', NULL),
            ('second-login',    20, 'free',       'active',     '{}',                    NULL),
            ('claimant',        60, 'free',       'active',     '{subscription_lapsed}', 'receipt_already_in_use'),
            ('paid-elsewhere',  40, 'free',       'active',     '{}',                    '7102'),
            ('typed-id',        40, 'free',       'active',     '{}',                    NULL),
            ('signed-out',      30, 'free',       'active',     '{}',                    'login_discarded'),
            ('unmapped',         5, 'free',       'active',     '{}',                    NULL),
            ('broken',           5, 'free',       'active',     '{}',                    NULL),
            ('shaky',          150, 'free',       'active',     '{subscription_lapsed}', NULL),
            ('throttled',       50, 'free',       'active',     '{subscription_lapsed}', NULL),
            ('slow',            40, 'free',       'active',     '{subscription_lapsed}', NULL),
            ('collector',        3, 'free',       'active',     '{subscription_lapsed}', NULL);
        INSERT INTO users (id, type, status)
        SELECT k.name || '-' || to_char(n, 'FM0000'), k.type, k.status
          FROM kind AS k, generate_series(1, k.users) AS n ORDER BY 1;
        INSERT INTO assets (user_id, frozen_reasons, frozen_at)
        SELECT u.id, CASE WHEN n % 3 = 0 THEN '{moderation}' ELSE k.frozen END,
               CASE WHEN n % 3 = 0 OR k.frozen <> '{}' THEN now() END
          FROM users AS u JOIN kind AS k ON u.id ~ ('^' || k.name || '-\\d+$')
         CROSS JOIN generate_series(1, CASE k.name WHEN 'collector' THEN 12000 ELSE 2 END) AS n
         ORDER BY u.id, n;
        SELECT count(entitlement_sync.request_restore(
                   user_id      => u.id,
                   client_error => u.error,
                   proofs       => CASE WHEN u.name IN ('claimant', 'typed-id') THEN jsonb_build_array(
                                       jsonb_build_object('store', 'app_store', 'kind', 'transaction_id',
                                                          'value', '2000000700' || right(u.id, 4)))
                                   ELSE '[]' END))
          FROM (SELECT u.id, k.name, k.error FROM users AS u JOIN kind AS k ON u.id ~ ('^' || k.name || '-\\d+$')
                 ORDER BY k.name = 'collector', md5(u.id)) AS u;
        """

    private static func id(_ kind: String, _ number: Int) -> String {
        let digits = "\(number)"
        return kind + "-" + String(repeating: "0", count: 4 - digits.count) + digits
    }

    private static func transaction(_ owner: Int) -> String { "2000000700" + id("", owner).dropFirst() }
}
