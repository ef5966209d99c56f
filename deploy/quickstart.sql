-- The sample application of quickstart.sh: 1,000 users of every kind, and what is right for each of them.
-- Loaded after `entitlement-sync migrate`, into a database of its own.

CREATE SCHEMA demo;

-- One row a kind of customer. `outcome` and the columns after it say how a restore has to end, and `lapse_frozen`
-- whether assets are frozen for the lapse (null: some are).
CREATE TABLE demo.kind (
    place        integer GENERATED ALWAYS AS IDENTITY,
    kind         text    PRIMARY KEY,
    users        integer NOT NULL,
    type         text    NOT NULL,
    status       text    NOT NULL,
    lapse_frozen boolean,
    outcome      text    NOT NULL,
    message_key  text    NOT NULL,
    client_error text,
    type_after   text    NOT NULL GENERATED ALWAYS AS (
                 CASE WHEN outcome IN ('restored', 'already_subscriber') THEN 'subscriber'
                      WHEN message_key = 'account_gone' THEN 'deleted'
                      ELSE 'free' END) STORED
);

INSERT INTO demo.kind (kind, users, type, status, lapse_frozen, outcome, message_key) VALUES
    -- paid, but the app does not know it
    ('active',          150, 'free',       'active',        NULL,  'restored',            'restored'),
    ('onboarding',       40, 'free',       'onboarding',    NULL,  'restored',            'restored'),
    ('trial',            40, 'free',       'active',        NULL,  'restored',            'restored'),
    ('cancelled',        60, 'free',       'active',        NULL,  'restored',            'restored'),
    ('grace',            40, 'free',       'active',        NULL,  'restored',            'restored'),
    ('lifetime',         20, 'free',       'active',        NULL,  'restored',            'restored'),
    ('promotional',      20, 'free',       'active',        NULL,  'restored',            'restored'),
    ('family',           15, 'free',       'active',        NULL,  'restored',            'restored'),
    ('anonymous',        15, 'free',       'active',        NULL,  'restored',            'restored'),
    ('new-status',       10, 'free',       'active',        NULL,  'restored',            'restored'),
    ('many-pages',        5, 'free',       'active',        NULL,  'restored',            'restored'),
    ('slow',             10, 'free',       'active',        NULL,  'restored',            'restored'),
    ('shaky',            20, 'free',       'active',        NULL,  'restored',            'restored'),
    ('owner',            20, 'free',       'active',        NULL,  'restored',            'restored'),
    -- shown by the device, and known to the store alone
    ('apple',            10, 'free',       'active',        NULL,  'restored',            'restored'),
    ('receipt',          10, 'free',       'active',        NULL,  'restored',            'restored'),
    ('pass',             10, 'free',       'active',        NULL,  'restored',            'restored'),
    ('token',            10, 'free',       'active',        NULL,  'restored',            'restored'),
    ('onside',            5, 'free',       'active',        NULL,  'restored',            'restored'),
    ('onside-order',      5, 'free',       'active',        NULL,  'restored',            'restored'),
    ('apple-expired',    10, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.expired'),
    ('hold',             10, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.billing_retry'),
    ('forged',           10, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing'),
    ('apple-owned',      10, 'free',       'active',        NULL,  'store_account_mismatch', 'mismatch'),
    ('onside-other',      5, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing'),
    ('device-offline',    5, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing'),
    -- subscribers
    ('subscribed',      100, 'subscriber', 'active',        false, 'already_subscriber',  'already_subscriber'),
    ('still-frozen',     20, 'subscriber', 'active',        true,  'restored',            'restored'),
    ('unexplained',      10, 'subscriber', 'active',        false, 'already_subscriber',  'already_subscriber'),
    ('lapsed',           30, 'subscriber', 'active',        false, 'nothing_to_restore',  'nothing.ended'),
    -- nothing that gives access
    ('expired',          60, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.expired'),
    ('billing-retry',    40, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.billing_retry'),
    ('paused',           20, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.paused'),
    ('refunded',         20, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.refunded'),
    ('pending',          10, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.pending_payment'),
    ('sandbox',          10, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing.sandbox'),
    ('tips-only',        10, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing'),
    ('newcomer',         30, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing'),
    ('typed-id',         10, 'free',       'active',        NULL,  'nothing_to_restore',  'nothing'),
    -- another user's purchase
    ('claimant',         10, 'free',       'active',        NULL,  'store_account_mismatch', 'mismatch'),
    ('paid-elsewhere',    5, 'free',       'active',        NULL,  'store_account_mismatch', 'mismatch'),
    ('second-login',      5, 'free',       'active',        NULL,  'store_account_mismatch', 'mismatch'),
    -- no answer to be had
    ('signed-out',        5, 'free',       'active',        NULL,  'store_unavailable',   'sign_in_needed'),
    ('unmapped',          5, 'free',       'active',        NULL,  'store_unavailable',   'unavailable'),
    ('broken',            5, 'free',       'active',        NULL,  'store_unavailable',   'unavailable'),
    -- accounts that gain nothing, whatever they paid
    ('banned',           10, 'free',       'banned',        NULL,  'not_eligible',        'not_eligible'),
    ('banned-final',      5, 'free',       'banned_final',  NULL,  'not_eligible',        'not_eligible'),
    ('leaving',          10, 'free',       'to_be_deleted', NULL,  'not_eligible',        'not_eligible.deleting'),
    ('gone',              5, 'free',       'active',        NULL,  'not_eligible',        'account_gone');

-- What devices show: signed transactions, receipts and histories, as the stores have made them.
CREATE TABLE demo.device (kind text NOT NULL, subject text NOT NULL, value text NOT NULL, PRIMARY KEY (kind, subject));

-- What the app of a user sends along.
CREATE FUNCTION demo.proofs_of(user_id text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_object('store', p.store, 'kind', p.kind, 'value', p.value)), '[]')
      FROM (SELECT regexp_replace(user_id, '-\d+$', '') AS kind, right(user_id, 3) AS n) AS u
      JOIN LATERAL (
           SELECT 'app_store' AS store, d.kind, d.value FROM demo.device AS d
            WHERE d.kind = 'storekit_jws'
              AND d.subject = '20000009' || CASE u.kind WHEN 'apple' THEN '21' WHEN 'pass' THEN '23'
                                                        WHEN 'apple-expired' THEN '24' WHEN 'apple-owned' THEN '25' END || u.n
           UNION ALL
           SELECT 'app_store', d.kind, d.value FROM demo.device AS d
            WHERE d.kind = 'app_receipt' AND u.kind = 'receipt' AND d.subject = user_id
           UNION ALL
           -- Another user's, with a letter changed.
           SELECT 'app_store', d.kind, overlay(d.value PLACING 'AAAA' FROM length(d.value) - 3) FROM demo.device AS d
            WHERE d.kind = 'storekit_jws' AND u.kind = 'forged' AND d.subject = '2000000921' || u.n
           UNION ALL
           SELECT 'onside', d.kind, d.value FROM demo.device AS d
            WHERE d.kind = 'onside_history' AND u.kind = 'onside' AND d.subject = user_id
           UNION ALL
           SELECT 'onside', 'onside_order_id',
                  format('00000000-0000-4000-8000-%s00000000%s', CASE u.kind WHEN 'onside-order' THEN 1 ELSE 2 END, u.n)
            WHERE u.kind IN ('onside-order', 'onside-other')
           UNION ALL
           SELECT 'google_play', 'purchase_token', u.kind || '-' || u.n WHERE u.kind IN ('token', 'hold')) AS p ON true
$$;

-- What the app met on the device.
UPDATE demo.kind AS k SET client_error = met.error
  FROM (VALUES ('device-offline', 'connection_error'), ('claimant', 'receipt_already_in_use'), ('paid-elsewhere', '7102'), ('signed-out', 'login_discarded'))
       AS met(kind, error)
 WHERE k.kind = met.kind;

INSERT INTO users (id, type, status)
SELECT k.kind || '-' || to_char(n, 'FM000'), k.type, k.status
  FROM demo.kind AS k, generate_series(1, k.users) AS n;

-- What the kinds promise about an id such as `trial-017`.
CREATE FUNCTION demo.kind_of(user_id text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(user_id, '-\d+$', '')
$$;

-- Two assets a user, frozen for nothing, for the lapse, by a moderator, for both, or long ago for no recorded reason.
INSERT INTO assets (user_id, frozen_reasons, frozen_at)
SELECT u.id, freezing.reasons, freezing.at
  FROM (SELECT users.id, k.lapse_frozen, right(users.id, 3)::integer AS n
          FROM users JOIN demo.kind AS k ON k.kind = demo.kind_of(users.id)) AS u
 CROSS JOIN LATERAL generate_series(0, 1) AS nth
 CROSS JOIN LATERAL (
       SELECT * FROM (VALUES
           (0, '{}'::text[],                       NULL::timestamptz),
           (1, '{subscription_lapsed}',            now() - interval '20 days'),
           (2, '{moderation}',                     now() - interval '40 days'),
           (3, '{subscription_lapsed,moderation}', now() - interval '20 days'),
           (4, '{}',                               now() - interval '3 years')) AS f(form, reasons, at)
        WHERE f.form = CASE u.lapse_frozen
                         WHEN true  THEN 1 + (u.n + nth) % 2 * 2
                         WHEN false THEN (u.n + nth) % 3 * 2
                         ELSE (u.n + nth) % 5
                       END) AS freezing;

CREATE TABLE demo.asset_before AS TABLE assets;

-- RevenueCat's entitlement `premium` means access, and so do these products of the stores themselves.
INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
VALUES ('revenuecat', 'premium', 'premium', true), ('app_store', 'premium_monthly', 'premium', true),
       ('app_store', 'lifetime', 'premium', true), ('google_play', 'pro', 'premium', true),
       ('onside', 'premium_monthly', 'premium', true);
-- The store knows no end of a pass: its length is the team's.
INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access, duration)
VALUES ('app_store', 'pass30', 'premium', true, interval '30 days');
