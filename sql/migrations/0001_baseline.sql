-- The tables of entitlement-sync. Times are timestamptz, and only the database compares them.
-- Functions, views, triggers and grants have files of their own. This file has only the functions on which a default, an index or an
-- extension depends: a change of one of them needs a migration.

REVOKE ALL ON SCHEMA entitlement_sync FROM PUBLIC;

-- A random id whose first 48 bits are the milliseconds since 1970 (RFC 9562, version 7). New ids land on the right edge of their
-- index. The ids of a day are a range, so history can be partitioned by id.
CREATE FUNCTION new_id() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
               set_bit(set_bit(
                   overlay(uuid_send(gen_random_uuid())
                           PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                           FROM 1 FOR 6),
                   52, 1), 53, 1),
               'hex')::uuid
$$;

-- Spells the last thirty bits of an id as a reference that a user can read out: six characters without I, L, O and U.
CREATE FUNCTION reference_of(prefix text, id uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT prefix || '-' || substr(s, 1, 4) || '-' || substr(s, 5, 2)
      FROM (SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                                     (bits >> (5 * (5 - n)) & 31)::integer + 1, 1), '' ORDER BY n) AS s
              FROM (SELECT ('x' || right(replace(id::text, '-', ''), 8))::bit(32)::bigint AS bits) AS b,
                   generate_series(0, 5) AS n) AS spelled
$$;

-- One-time codes need HMAC-SHA-1, which PostgreSQL has in pgcrypto. The host may have the extension already, in any schema. If it has
-- not, the extension goes into `public`, where the host would search for it later; without the right to create there, into our schema.
DO $$
DECLARE
    home text := 'public';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pgcrypto') THEN
        IF NOT coalesce(has_schema_privilege('public', 'CREATE'), false) THEN
            home := 'entitlement_sync';
        END IF;
        BEGIN
            EXECUTE format('CREATE EXTENSION pgcrypto SCHEMA %I', home);
        EXCEPTION
            WHEN undefined_file OR feature_not_supported THEN
                RAISE EXCEPTION USING ERRCODE = '0A000',
                    MESSAGE = 'the database server does not have the extension pgcrypto, which operators'' one-time codes need',
                    HINT = 'install PostgreSQL''s contrib modules on the server (Debian and Ubuntu: the package postgresql has them;'
                        ' Fedora and RHEL: postgresql-contrib), then run entitlement-sync migrate again';
            WHEN insufficient_privilege THEN
                RAISE EXCEPTION USING ERRCODE = '42501',
                    MESSAGE = 'this database user may not create the extension pgcrypto, which operators'' one-time codes need',
                    HINT = 'have a superuser, or the database''s owner, run CREATE EXTENSION pgcrypto in this database, then run'
                        ' entitlement-sync migrate again';
        END;
    END IF;
    SELECT n.nspname INTO STRICT home FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
     WHERE e.extname = 'pgcrypto';
    IF home = 'entitlement_sync' THEN
        REVOKE ALL ON ALL FUNCTIONS IN SCHEMA entitlement_sync FROM PUBLIC;
    END IF;
    EXECUTE format($body$
        CREATE OR REPLACE FUNCTION hmac_sha1(data bytea, key bytea) RETURNS bytea
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN %I.hmac(data, key, 'sha1')
        $body$, home);
END
$$;

-- ---- Users and what gives them access --------------------------------------------------------------------------------

-- One row per known user. Other tables hold the key; the id also stands in `account_index`, `sandbox_user`, pending events and runs.
CREATE TABLE user_sync (
    user_key           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id            text        UNIQUE,
    epoch              bigint      NOT NULL DEFAULT 0,
    read_at            timestamptz,
    full_read_at       timestamptz,
    absent_since       timestamptz,
    next_check_at          timestamptz,
    flips_since        timestamptz,
    flips              smallint    NOT NULL DEFAULT 0,
    ever_observed      boolean     NOT NULL DEFAULT false,
    access_event_at        timestamptz,
    moved_away_at      timestamptz,
    awaits_eligibility           boolean     NOT NULL DEFAULT false,
    is_dry_run_only            boolean     NOT NULL DEFAULT false,
    decided_subscriber boolean,
    entitlements       json,
    decision_id        bigint,
    fingerprint        uuid,
    recorded_at        timestamptz,
    confirmed          integer     NOT NULL DEFAULT 0,
    confirmed_id       bigint      NOT NULL DEFAULT 0,
    confirmed_first_at timestamptz NOT NULL DEFAULT 'epoch',
    confirmed_at       timestamptz NOT NULL DEFAULT 'epoch',
    confirmed_asked_at timestamptz NOT NULL DEFAULT 'epoch'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
-- Users with a scheduled check. A worker reads the stores around the end of a paid period, because a webhook may be missing.
CREATE INDEX user_sync_next_check_at ON user_sync (next_check_at) WHERE next_check_at IS NOT NULL;
COMMENT ON COLUMN user_sync.epoch IS 'rises with every change of type; asset batches of an older epoch are void';
COMMENT ON COLUMN user_sync.read_at IS 'when the request of the newest applied read began';
COMMENT ON COLUMN user_sync.absent_since IS 'when the first full read began that found no access, while no store said that access is over';
COMMENT ON COLUMN user_sync.flips IS 'how many times the type changed within a day of flips_since';
COMMENT ON COLUMN user_sync.access_event_at IS 'when the newest event about access came: a read within minutes of it may lag behind it';
COMMENT ON COLUMN user_sync.moved_away_at
    IS 'when a transfer or RevenueCat moved a purchase to another user; cleared by a decision that uses it or finds access';
COMMENT ON COLUMN user_sync.awaits_eligibility
    IS 'the status of the host''s account rules out access: no check is planned until it changes';
COMMENT ON COLUMN user_sync.is_dry_run_only IS 'a dry run made the user known: this alone plans no check';
COMMENT ON COLUMN user_sync.decided_subscriber IS
    'whether the type that the last decision set or confirmed is subscriber; null: no decision has settled the type yet';
COMMENT ON COLUMN user_sync.entitlements IS
    'each thing that gives access, as the last decision left it (the view entitlement_status); null: nothing does';
COMMENT ON COLUMN user_sync.decision_id IS 'the newest row of decision, once a check has confirmed it';
COMMENT ON COLUMN user_sync.fingerprint IS 'a digest of what that decision and its reading say: a check with the same confirms it';
COMMENT ON COLUMN user_sync.recorded_at IS 'when the newest full reading began whose observations were written';
COMMENT ON COLUMN user_sync.confirmed IS 'how many checks have confirmed it; job_history has each of them until retention';
COMMENT ON COLUMN user_sync.confirmed_id IS 'the last of them, as an id of a decision; its time and the first one''s are beside it';
COMMENT ON COLUMN user_sync.confirmed_asked_at IS 'when the last of them began to read';

-- Which products of a store give access. The team writes this table.
CREATE TABLE product (
    store         text     NOT NULL,
    product_id    text     NOT NULL,
    base_plan_id  text,
    entitlement   text     NOT NULL,
    grants_access boolean  NOT NULL DEFAULT true,
    duration      interval,
    UNIQUE NULLS NOT DISTINCT (store, product_id, base_plan_id),
    -- NOT VALID, so that rows from before do not stop a migration; doctor names such rows.
    CONSTRAINT product_store_known CHECK (store IN ('revenuecat', 'app_store', 'google_play', 'play_store', 'onside')) NOT VALID,
    CONSTRAINT product_id_given CHECK (btrim(product_id) <> '') NOT VALID
);

-- Users whose sandbox purchases count, and until when. The team writes this table.
CREATE TABLE sandbox_user (
    user_id text        PRIMARY KEY,
    until   timestamptz NOT NULL
);

-- The ledger: one row per purchase, with at most one owner. `merged_into` names the surviving purchase of a row that was merged.
CREATE SEQUENCE purchase_id_block INCREMENT BY 1000 START WITH 1000;

CREATE TABLE purchase (
    id               bigint      PRIMARY KEY,
    owner_key        bigint,
    former_owner_key bigint,
    first_seen_at    timestamptz NOT NULL DEFAULT now(),
    owner_since      timestamptz NOT NULL DEFAULT now(),
    observed_at      timestamptz NOT NULL,
    period_ends_at   timestamptz,
    transferred_at   timestamptz,
    merged_into      bigint,
    gives_access     boolean,
    end_announced    boolean     NOT NULL DEFAULT false,
    source           text        NOT NULL,
    store            text        NOT NULL,
    environment      text        NOT NULL,
    kind             text        NOT NULL,
    status           text        NOT NULL,
    ownership        text        NOT NULL,
    renewal          text,
    product_id       text,
    owner_rule       text        NOT NULL,
    entitlements     text[]      NOT NULL DEFAULT '{}',
    lookup_id        text,
    account_key      bigint,
    stated_at        timestamptz,
    carried          text[],
    store_app        text        CHECK (length(store_app) <= 255),
    revenuecat_project text      CHECK (length(revenuecat_project) <= 255),
    store_account    uuid
) WITH (fillfactor = 45);
CREATE INDEX purchase_owner ON purchase (owner_key);
CREATE INDEX purchase_store_account ON purchase (store_account, id) WHERE store_account IS NOT NULL;
CREATE INDEX purchase_former_owner ON purchase (former_owner_key) WHERE former_owner_key IS NOT NULL;
-- Purchases without an owner are few, and agents have to find them.
CREATE INDEX purchase_unowned ON purchase (first_seen_at) WHERE owner_key IS NULL AND merged_into IS NULL;
CREATE INDEX purchase_merged ON purchase (merged_into) WHERE merged_into IS NOT NULL;
COMMENT ON COLUMN purchase.former_owner_key
    IS 'the owner before RevenueCat named another; null once a read of one of the two no longer lists the purchase';
COMMENT ON COLUMN purchase.observed_at IS 'when the request of the newest observation began, or when a transfer moved the purchase';
COMMENT ON COLUMN purchase.end_announced IS 'the store said before the period''s end that it would not renew';
COMMENT ON COLUMN purchase.lookup_id IS 'the identifier by which the store itself is asked; null: only RevenueCat knows the purchase';
COMMENT ON COLUMN purchase.account_key IS 'the user that the account id in the purchase names, owner or not; null: none is known';
COMMENT ON COLUMN purchase.stated_at IS 'when the store signed or fetched the newest statement on record';
COMMENT ON COLUMN purchase.carried IS
    'the entitlements that last gave access, if the store lists others now or none; null: the listed ones';
COMMENT ON COLUMN purchase.store_app IS
    'the app in which the store itself says that it was sold: a bundle id or a package name; null: the store itself has not said';
COMMENT ON COLUMN purchase.revenuecat_project IS 'the RevenueCat project that listed it last; null: none has';
COMMENT ON COLUMN purchase.store_account IS
    'a keyed hash of the id by which the App Store signs the account that it was bought with; null: not known, or erased';

CREATE TABLE purchase_identifier (
    value       text   NOT NULL,
    store       text   NOT NULL,
    environment text   NOT NULL,
    kind        text   NOT NULL,
    purchase_id bigint NOT NULL,
    PRIMARY KEY (value, store, environment)
);
CREATE INDEX purchase_identifier_purchase ON purchase_identifier (purchase_id);

-- Access that no store gives: by an operator (source `grant`), or paid for elsewhere, as the host says (any other source). A change keeps
-- the id, and what stood there until then becomes a row of its own, which has ended: so the past can be decided again.
CREATE TABLE "grant" (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key    bigint      NOT NULL,
    until       timestamptz NOT NULL,
    reason      text        NOT NULL,
    granted_by  text        NOT NULL DEFAULT session_user,
    created_at  timestamptz NOT NULL DEFAULT now(),
    revoked_at  timestamptz,
    source      text        NOT NULL DEFAULT 'grant' CHECK (source ~ '^[a-z0-9_]{1,32}$'),
    -- The payer's name for it, such as a subscription's id.
    external_id text        CHECK (length(external_id) BETWEEN 1 AND 255),
    -- The name that `product` has; null: access without a name.
    entitlement text,
    -- The row that this one was, before that was changed.
    version_of  bigint,
    -- The host was asked by `other_access`, and is asked again at each decision.
    is_asked    boolean     NOT NULL DEFAULT false
);
CREATE INDEX grant_user ON "grant" (user_key);
CREATE UNIQUE INDEX grant_external ON "grant" (source, external_id) WHERE external_id IS NOT NULL;

-- Digests of the proofs that a user's app submitted lately: a proof is new if none within a day is the same.
CREATE TABLE shown_proof (
    user_key bigint      NOT NULL,
    digest   bytea       NOT NULL,
    shown_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_key, digest)
);
CREATE INDEX shown_proof_at ON shown_proof USING brin (shown_at);

-- The store accounts of users' devices, as verified app transactions named them with a restore.
CREATE TABLE submitted_account (
    user_key      bigint      NOT NULL,
    store_account uuid        NOT NULL,
    store_app     text        NOT NULL CHECK (length(store_app) <= 255),
    job_id        uuid        NOT NULL,
    submitted_at  timestamptz NOT NULL DEFAULT now(),
    search_at     timestamptz,
    search_tries  smallint    NOT NULL DEFAULT 0,
    PRIMARY KEY (user_key, store_account)
);
CREATE INDEX submitted_account_users ON submitted_account (store_account, user_key);
CREATE INDEX submitted_account_search ON submitted_account (search_at) WHERE search_at IS NOT NULL;
CREATE INDEX submitted_account_at ON submitted_account (submitted_at);
COMMENT ON COLUMN submitted_account.store_account IS 'a keyed hash, as purchase.store_account';
COMMENT ON COLUMN submitted_account.store_app IS 'the app that the store account belongs to: each app has an id of its own';
COMMENT ON COLUMN submitted_account.job_id IS 'the last restore that submitted it';
COMMENT ON COLUMN submitted_account.search_at
    IS 'from when a worker searches for other users'' purchases under the account; null: there is nothing to search for';
COMMENT ON COLUMN submitted_account.search_tries IS 'how often the search has failed';

CREATE TABLE chargeback (
    purchase_id bigint      PRIMARY KEY REFERENCES purchase ON DELETE CASCADE,
    at          timestamptz NOT NULL,
    noted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    entries     bytea[]     NOT NULL DEFAULT '{}',
    lifted_at   timestamptz,
    lifted_by   text,
    lifted_for  text        CHECK (length(lifted_for) <= 200)
);
COMMENT ON TABLE chargeback IS 'purchases whose payment was reversed as fraud or by a chargeback, as a backfill found';
COMMENT ON COLUMN chargeback.at IS 'when the last chargeback was made, as the store says; when it was listed, if the store does not say';
COMMENT ON COLUMN chargeback.entries IS 'the values of chargeback_name.entry under which the store listed the purchase';
COMMENT ON COLUMN chargeback.lifted_at IS 'when the schema''s owner said that it does not count; a later chargeback counts again';

-- A purchase may become known after its chargeback, so the names that the store listed are kept as hashes. A token cannot be computed
-- from its hash. An order number could be, with much work, so the desk's database roles may not read the hashes.
CREATE TABLE chargeback_name (
    hash       bytea       PRIMARY KEY CHECK (octet_length(hash) = 32),
    entry      bytea       NOT NULL,
    at         timestamptz NOT NULL,
    noted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lifted_at  timestamptz,
    lifted_by  text,
    lifted_for text        CHECK (length(lifted_for) <= 200)
);
CREATE INDEX chargeback_name_entry ON chargeback_name (entry);
COMMENT ON TABLE chargeback_name IS 'tokens and orders that a store listed as charged back';
COMMENT ON COLUMN chargeback_name.hash IS 'SHA-256 of the store, a space, and the token or order';
COMMENT ON COLUMN chargeback_name.entry IS 'the hash of the first name in the same list entry: names of one entry are lifted together';
COMMENT ON COLUMN chargeback_name.lifted_at IS 'when the schema''s owner said that it does not count; a later chargeback counts again';

-- Consent: an owner gives a purchase to their other account, whose app displays the reference. The reference may lead to no ticket.
CREATE TABLE purchase_consent (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_key    bigint      NOT NULL,
    reference    text        NOT NULL CHECK (reference ~ '^[RT]-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$'),
    claimant_key bigint,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,
    UNIQUE (owner_key, reference)
);
COMMENT ON COLUMN purchase_consent.claimant_key IS 'the claimant of the ticket to which the reference led; null: it led to none';
COMMENT ON COLUMN purchase_consent.ended_at IS 'when the owner withdrew the consent by objecting';

-- ---- What was read and decided ---------------------------------------------------------------------------------------

-- What a store stated in one read, when the request began, and a hash of the statement. The product never changes or deletes a row.
-- Partitioned by the month of the job's id.
CREATE SEQUENCE observation_id_seq;
CREATE TABLE observation (
    id               bigint      NOT NULL DEFAULT nextval('observation_id_seq'),
    user_key         bigint      NOT NULL,
    job_id           uuid        NOT NULL,
    purchase_id      bigint,
    asked_at         timestamptz NOT NULL,
    period_starts_at timestamptz,
    period_ends_at   timestamptz,
    gives_access     boolean,
    source           text        NOT NULL,
    coverage         text        NOT NULL,
    store            text,
    environment      text,
    kind             text,
    status           text,
    ownership        text,
    renewal          text,
    product_id       text,
    attribution      text,
    entitlements     text[],
    payload_hash     bytea
) PARTITION BY RANGE (job_id);
CREATE INDEX observation_user ON observation (user_key, id);
CREATE INDEX observation_account_line ON observation (user_key, asked_at) WHERE attribution = 'same_account';

-- Partitioned by the month of the job's id, so that one decision a job stays a constraint.
CREATE SEQUENCE decision_id_seq;
CREATE TABLE decision (
    id                 bigint      NOT NULL DEFAULT nextval('decision_id_seq'),
    user_key           bigint      NOT NULL,
    job_id             uuid        NOT NULL,
    at                 timestamptz NOT NULL DEFAULT now(),
    assets_changed     integer     NOT NULL DEFAULT 0,
    version            smallint    NOT NULL DEFAULT 1,
    observed           boolean     NOT NULL DEFAULT false,
    braked             boolean     NOT NULL DEFAULT false,
    kind               smallint    NOT NULL,
    rule               text        NOT NULL,
    outcome            text        NOT NULL,
    type_before        text,
    type_after         text,
    explanation        text        NOT NULL,
    entitlements       json,
    previous_id        bigint,
    confirmed          integer,
    confirmed_id       bigint,
    confirmed_first_at timestamptz,
    confirmed_at       timestamptz,
    confirmed_asked_at timestamptz
) PARTITION BY RANGE (job_id);
CREATE UNIQUE INDEX decision_job ON decision (job_id);
CREATE INDEX decision_id ON decision (id);
CREATE INDEX decision_user ON decision (user_key, id);
CREATE INDEX decision_at ON decision USING brin (at);
CREATE INDEX decision_change ON decision (at) WHERE type_before IS DISTINCT FROM type_after;
COMMENT ON COLUMN decision.observed IS 'computed in observe mode: nothing else was written';
COMMENT ON COLUMN decision.entitlements IS 'each thing that gives access from then on; null: nothing of it changed';
COMMENT ON COLUMN decision.previous_id IS
    'the user''s decision before, where checks had confirmed it; the other columns say how often and when';
COMMENT ON COLUMN decision.braked IS 'a demotion that counts toward the brake';

-- Asset batches of a decision after its first one. `failed`: the SQLSTATE with which the host refused an asset.
CREATE TABLE asset_batch (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    decision_id bigint      NOT NULL,
    changed     integer     NOT NULL,
    failed      text,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX asset_batch_decision ON asset_batch (decision_id);

-- Unfinished asset work of a user. A newer change of type replaces it.
CREATE TABLE asset_run (
    user_key    bigint      PRIMARY KEY,
    epoch       bigint      NOT NULL,
    decision_id bigint      NOT NULL,
    direction   text        NOT NULL CHECK (direction IN ('freeze', 'unfreeze')),
    cursor      text,
    changed     bigint      NOT NULL DEFAULT 0,
    batch       integer     NOT NULL DEFAULT 1000,
    attempt     integer     NOT NULL DEFAULT 0,
    due         timestamptz NOT NULL DEFAULT now(),
    parked      boolean     NOT NULL DEFAULT false,
    last_error  text
);
CREATE INDEX asset_run_due ON asset_run (due);
COMMENT ON COLUMN asset_run.parked IS 'the host refuses the assets that are left; the worker tries again every hour';

-- Google Play sales to acknowledge. The worker writes a row when it grants access, and deletes it when nothing is left to do.
-- `called`: a call was begun, so only a read shows whether it took effect.
CREATE TABLE acknowledgement (
    token      text        PRIMARY KEY,
    product_id text        NOT NULL,
    kind       text        NOT NULL,
    deadline   timestamptz NOT NULL,
    due        timestamptz NOT NULL DEFAULT now(),
    attempt    integer     NOT NULL DEFAULT 0,
    called     boolean     NOT NULL DEFAULT false,
    last_error text,
    -- When a resubscription is acknowledged, Google Play drops the ids of the earlier purchase unless the call names them.
    account_id text,
    profile_id text,
    package    text        CHECK (length(package) <= 255)
);
CREATE INDEX acknowledgement_due ON acknowledgement (due);
COMMENT ON COLUMN acknowledgement.package IS 'the package name of the app in which it was sold; null: not known';
COMMENT ON COLUMN acknowledgement.account_id IS 'the obfuscated account id that the call asks Google Play to keep';

-- ---- Jobs ------------------------------------------------------------------------------------------------------------

-- The job queue: one row per user, so the primary key alone lets only one job of a user run at a time. A row holds at most one
-- restore and one reconcile that are queued or running, and one successor of each.
CREATE TABLE queue (
    user_key            bigint      PRIMARY KEY,
    due                 timestamptz NOT NULL,
    lane                smallint    NOT NULL,
    owner               integer,
    active              smallint,
    crashes             smallint    NOT NULL DEFAULT 0,
    cancel              boolean     NOT NULL DEFAULT false,
    has_request         boolean     NOT NULL DEFAULT false,
    restore_attempt     smallint    NOT NULL DEFAULT 0,
    reconcile_attempt   smallint    NOT NULL DEFAULT 0,
    reconcile_lane      smallint    NOT NULL DEFAULT 2,
    restore_due         timestamptz,
    reconcile_due       timestamptz,
    restore_id          uuid,
    reconcile_id        uuid,
    restore_next        uuid,
    reconcile_next      uuid,
    restore_error       text,
    reconcile_error     text,
    restore_queued_at   timestamptz,
    reconcile_queued_at timestamptz
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);
-- The index has no column that a dequeue changes, so a dequeue stays a heap-only update.
CREATE INDEX queue_due ON queue (lane, due);
CREATE UNIQUE INDEX queue_restore ON queue (restore_id) WHERE restore_id IS NOT NULL;
CREATE UNIQUE INDEX queue_reconcile ON queue (reconcile_id) WHERE reconcile_id IS NOT NULL;
CREATE UNIQUE INDEX queue_restore_next ON queue (restore_next) WHERE restore_next IS NOT NULL;
CREATE UNIQUE INDEX queue_reconcile_next ON queue (reconcile_next) WHERE reconcile_next IS NOT NULL;
COMMENT ON COLUMN queue.lane IS '0 restore, 1 event, 2 background, 9 quarantine (rows whose workers kept dying)';
COMMENT ON COLUMN queue.active IS 'the job that a worker runs, or that is to be canceled: 0 the restore, 1 the reconcile; null: none';
COMMENT ON COLUMN queue.has_request IS 'a job of this row may have a row in job_request';
COMMENT ON COLUMN queue.restore_queued_at IS 'when the restore was queued again or followed another; null: when its id was made';
COMMENT ON COLUMN queue.reconcile_queued_at IS 'as restore_queued_at, for the reconcile';

-- What a request carried beside its user. There is no row if it carried nothing.
CREATE TABLE job_request (
    id           uuid   NOT NULL,
    proofs       jsonb,
    client_error text,
    product_ids  text[],
    origin       text,
    reason       text,
    sign_in_provider text,
    signed_in_at timestamptz
) PARTITION BY RANGE (id);
CREATE UNIQUE INDEX job_request_id ON job_request (id);
COMMENT ON COLUMN job_request.sign_in_provider IS 'how the user had signed in to the app, as the ID token of the request says';
COMMENT ON COLUMN job_request.signed_in_at IS 'when the user had last signed in, as that token says';

CREATE TABLE job_history (
    id          uuid        NOT NULL,
    user_key    bigint      NOT NULL,
    ticket_id   bigint,
    finished_at timestamptz NOT NULL,
    kind        smallint    NOT NULL,
    attempt     smallint    NOT NULL,
    state       text        NOT NULL,
    outcome     text,
    message_key text,
    last_error  text,
    decision_id bigint,
    confirms    bigint
) PARTITION BY RANGE (id);
CREATE UNIQUE INDEX job_history_id ON job_history (id);
CREATE INDEX job_history_dead ON job_history (last_error) WHERE state = 'dead';
-- A restore's reference is made of the last bits of its id: agents search by it.
CREATE INDEX job_history_reference ON job_history (substring(uuid_send(id) FROM 13)) WHERE kind = 0;
-- The newest jobs of a user are selected by id: without the id in this index, PostgreSQL walks the ids of each day backwards.
CREATE INDEX job_history_user_id ON job_history (user_key, id);
CREATE INDEX job_history_dead_end ON job_history (finished_at DESC, id DESC) INCLUDE (user_key, kind) WHERE state = 'dead';
COMMENT ON COLUMN job_history.confirms IS 'the decision that this check confirmed: it has no row of its own in decision and observation';
COMMENT ON COLUMN job_history.decision_id IS 'the id of the decision to confirm it';

CREATE TABLE idempotency (
    user_key   bigint      NOT NULL,
    key        text        NOT NULL,
    request    bytea       NOT NULL,
    job_id     uuid        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_key, key)
);
CREATE INDEX idempotency_created_at ON idempotency USING brin (created_at);

-- Worker processes. The lease belongs to the process and not to each job, so a heartbeat is one small update.
CREATE SEQUENCE worker_epoch AS integer;

CREATE TABLE worker (
    epoch      integer     PRIMARY KEY,
    host       text        NOT NULL,
    pid        integer     NOT NULL,
    version    text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    backfills  text[]      NOT NULL DEFAULT '{}',
    mode       text,
    stores     text[],
    sandbox    text        CHECK (sandbox IN ('off', 'listed')),
    rests      boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);
COMMENT ON COLUMN worker.version IS 'the build that it runs';
COMMENT ON COLUMN worker.backfills IS 'the backfills that the worker can read';
COMMENT ON COLUMN worker.mode IS 'its MODE; null: the build does not state it';
COMMENT ON COLUMN worker.rests IS 'it reads only now and then, as nothing has happened for a while, until it is notified (stir)';
COMMENT ON COLUMN worker.sandbox IS 'its SANDBOX; null: the build does not state it';
COMMENT ON COLUMN worker.stores IS 'the stores that it asks; null: the build does not state them';

-- How many requests an address or a user made in the minute that the first of them began. Unlogged: a crash forgets a minute.
-- The key is a digest, so the table does not reveal the caller.
CREATE UNLOGGED TABLE request_count (
    key   bytea       PRIMARY KEY,
    began timestamptz NOT NULL,
    taken integer     NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX request_count_began ON request_count USING brin (began);

-- When maintenance that locks tables may be tried again, by any process.
CREATE TABLE upkeep (
    name    text        PRIMARY KEY,
    next_at timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON COLUMN upkeep.next_at IS 'after a failed try, every process waits until then';

-- ---- Store events and messages ---------------------------------------------------------------------------------------

CREATE TABLE inbox (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source      text        NOT NULL,
    event_id    text        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    state       text        NOT NULL DEFAULT 'received',
    kind        text,
    occurred_at timestamptz,
    due         timestamptz NOT NULL DEFAULT now(),
    attempt     smallint    NOT NULL DEFAULT 0,
    is_access_event boolean     NOT NULL DEFAULT false,
    about       jsonb,
    user_keys   bigint[],
    is_backfilled   boolean     NOT NULL DEFAULT false,
    ask_due     timestamptz,
    UNIQUE (source, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX inbox_due ON inbox (due) WHERE state IN ('received', 'waiting');
CREATE INDEX inbox_users ON inbox USING gin (user_keys) WHERE user_keys IS NOT NULL;
CREATE INDEX inbox_about ON inbox (received_at) WHERE about IS NOT NULL;
CREATE INDEX inbox_received ON inbox (source, received_at);
CREATE INDEX inbox_asks ON inbox (ask_due) WHERE ask_due IS NOT NULL;
COMMENT ON COLUMN inbox.state IS 'received; waiting: no user is known yet, or a run is about to read the user; done; '
                                 'ignored: it concerns no user; parked: no user was found, or the user was erased';
COMMENT ON COLUMN inbox.is_access_event IS 'the event says that access begins or continues';
COMMENT ON COLUMN inbox.about IS 'what the event names, until its users are known: users, purchases, anonymous, blocked; '
                                 'after that, the purchases for which the next read has to ask';
COMMENT ON COLUMN inbox.is_backfilled IS 'a backfill found the event before the store delivered it';
COMMENT ON COLUMN inbox.ask_due IS 'when a worker asks the stores which user the event concerns; null: not now';

-- The body of an event, kept for a time. The schema's owner can read it; no decision uses it.
CREATE TABLE inbox_body (
    id          bigint      PRIMARY KEY,
    received_at timestamptz NOT NULL DEFAULT now(),
    body        bytea       NOT NULL
);
CREATE INDEX inbox_body_received ON inbox_body USING brin (received_at);

-- Messages for our webhooks. A row holds the user's key alone; the webhook sender fills in the user's id when it delivers.
CREATE TABLE outbox (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uid        uuid        NOT NULL DEFAULT new_id(),
    user_key   bigint      NOT NULL,
    topic      text        NOT NULL,
    data       jsonb       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    due        timestamptz NOT NULL DEFAULT now(),
    attempt    smallint    NOT NULL DEFAULT 0,
    is_dead    boolean     NOT NULL DEFAULT false,
    last_error text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX outbox_due ON outbox (due) WHERE NOT is_dead;
CREATE INDEX outbox_user ON outbox (user_key, id) WHERE NOT is_dead;
COMMENT ON COLUMN outbox.uid IS 'the message''s id for receivers: the same at every try';
COMMENT ON COLUMN outbox.is_dead IS 'given up after three days; to deliver it again, set is_dead to false and due to now()';

-- Users whose custom claims at Firebase are to be written or compared. What is written is read when it is their turn.
CREATE TABLE firebase_claims (
    user_key   bigint      PRIMARY KEY,
    version    bigint      GENERATED ALWAYS AS IDENTITY,
    is_check   boolean     NOT NULL,
    due        timestamptz NOT NULL DEFAULT now(),
    attempt    smallint    NOT NULL DEFAULT 0,
    last_error text
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX firebase_claims_due ON firebase_claims (is_check, due);
COMMENT ON COLUMN firebase_claims.version IS 'another one with each change and check';
COMMENT ON COLUMN firebase_claims.due IS 'infinity: only once there is another change or check';
COMMENT ON COLUMN firebase_claims.is_check IS 'nothing has changed: a check has the claims compared';

-- ---- Stores: rate limits, health, and what stops demotions -----------------------------------------------------------

-- One token bucket per credential, shared by all workers.
CREATE TABLE rate_budget (
    credential    text             PRIMARY KEY,
    tokens        double precision NOT NULL,
    refilled_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    per_minute    integer          NOT NULL,
    seen_limit    integer,
    seen_usage    integer,
    seen_at       timestamptz,
    blocked_until timestamptz
) WITH (fillfactor = 20);

-- When each store last answered or failed, and how far its clock is from the database's.
CREATE TABLE store_health (
    store           text             PRIMARY KEY,
    last_answer_at  timestamptz,
    last_error_at   timestamptz,
    last_error      text,
    skew_seconds    double precision,
    latency_seconds double precision
);
COMMENT ON COLUMN store_health.latency_seconds IS 'how long the store''s answers took lately; the newest count most';

CREATE TABLE store_knowledge (
    store text        NOT NULL,
    at    timestamptz NOT NULL,
    known bigint      NOT NULL,
    PRIMARY KEY (store, at)
);
COMMENT ON TABLE store_knowledge
    IS 'in how many answers each store knew the purchases that gave a user access, by ten minutes; kept for two days';

-- Users whose purchases a store did not list: one row per user and store, until a later read finds no absence or 30 days have passed.
CREATE TABLE store_absence (
    store    text        NOT NULL,
    user_key bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    unknown  boolean     NOT NULL,
    PRIMARY KEY (store, user_key)
);
CREATE INDEX store_absence_at ON store_absence (store, at);
COMMENT ON COLUMN store_absence.unknown IS 'true: the store does not know a purchase that has to exist; false: a first absence';

-- The credentials by which each store was asked last, as a digest with a salt of its own. The digest does not reveal them.
CREATE TABLE store_credential (
    store  text        PRIMARY KEY,
    salt   bytea       NOT NULL DEFAULT uuid_send(gen_random_uuid()),
    digest bytea,
    state  text        NOT NULL DEFAULT 'confirmed' CHECK (state IN ('confirmed', 'unchecked', 'doubted')),
    since  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN store_credential.state IS
    'confirmed; unchecked: changed, and not yet tried with known customers; doubted: the store knew none of the customers tried';

-- Switches that every worker obeys.
CREATE TABLE control (
    name   text        PRIMARY KEY CHECK (name IN ('demotions', 'transfers', 'all')),
    paused boolean     NOT NULL DEFAULT false,
    since  timestamptz NOT NULL DEFAULT now(),
    by     text        NOT NULL DEFAULT session_user,
    cause  text
);
COMMENT ON COLUMN control.cause IS 'why the product itself paused it (absences, credentials); null: an operator did';
INSERT INTO control (name) VALUES ('demotions'), ('transfers'), ('all');

-- Which installation this is: a process that serves several apps finds out by it that two of them reach one database.
CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  uuid    NOT NULL DEFAULT gen_random_uuid(),
    sandbox text NOT NULL DEFAULT 'listed' CHECK (sandbox IN ('off', 'listed'))
);
INSERT INTO installation DEFAULT VALUES;
COMMENT ON COLUMN installation.id IS 'drawn once, when the schema was made; a dump and a standby carry it on';
COMMENT ON COLUMN installation.sandbox
    IS 'SANDBOX as live workers last agreed: off means that no sandbox purchase counts, whatever the list says';

-- On which server and timeline workers last wrote, and whether commits waited for a standby. A server with another timeline was promoted,
-- and may lack what the former primary had not replicated.
CREATE TABLE server_watch (
    one         boolean     PRIMARY KEY DEFAULT true CHECK (one),
    server_id   bigint,
    timeline    bigint,
    is_waiting  boolean,
    noted_at    timestamptz,
    notes       bigint      NOT NULL DEFAULT 0,
    lacks_since timestamptz
) WITH (fillfactor = 50);
INSERT INTO server_watch DEFAULT VALUES;
COMMENT ON COLUMN server_watch.is_waiting IS 'whether a commit waits until a standby has it';
COMMENT ON COLUMN server_watch.noted_at IS 'a server that has this row has every commit before this instant';
COMMENT ON COLUMN server_watch.notes IS 'rises with each note: a server with a lower number than a worker has seen lacks commits';
COMMENT ON COLUMN server_watch.lacks_since IS 'commits from then on may be lost; null once an operator has resumed demotions';

-- The demotion brake. A worker that demotes locks the row, so the limit holds across workers.
CREATE TABLE brake (
    one         boolean     PRIMARY KEY DEFAULT true CHECK (one),
    subscribers bigint      NOT NULL DEFAULT 0,
    counted_at  timestamptz
);
INSERT INTO brake DEFAULT VALUES;

-- Demotions that count toward the brake, by minute: a day is a sum of at most 1,441 rows. Written while the row of `brake` is locked.
CREATE TABLE brake_minute (
    minute    timestamptz PRIMARY KEY,
    demotions integer     NOT NULL
) WITH (fillfactor = 50);

-- What an operator has to know. An alarm that is raised again is counted in its row.
CREATE TABLE alarm (
    name     text        PRIMARY KEY,
    detail   text        NOT NULL,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at  timestamptz NOT NULL DEFAULT now(),
    count    bigint      NOT NULL DEFAULT 1
);

-- How many records broke each invariant when a worker last counted them. `broken` is null while the count has not ended.
CREATE TABLE invariant_check (
    name       text        PRIMARY KEY,
    broken     bigint,
    checked_at timestamptz NOT NULL DEFAULT now()
);

-- ---- Users by a store's account id -----------------------------------------------------------------------------------

CREATE TABLE account_index (
    root    bigint NOT NULL,
    user_id text   COLLATE "C" NOT NULL,
    PRIMARY KEY (root, user_id)
);
COMMENT ON TABLE account_index IS 'finds a user by root: a part of a digest of the user''s id, as an app may give it to a store';

CREATE TABLE account_walk (
    fingerprint       bytea       PRIMARY KEY,
    holder            uuid,
    lease_until       timestamptz,
    began_at          timestamptz,
    complete_began_at timestamptz,
    complete_at       timestamptz,
    users             bigint,
    used_at           timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE account_walk IS 'walks over the host''s users that fill account_index, one row per set of derivations';
COMMENT ON COLUMN account_walk.complete_began_at IS 'when the last completed walk began: it answered every question asked before that';

CREATE TABLE account_question (
    fingerprint bytea       NOT NULL,
    root        bigint      NOT NULL,
    asked_at    timestamptz NOT NULL,
    since       timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    PRIMARY KEY (fingerprint, root)
);
CREATE INDEX account_question_asked ON account_question (fingerprint, asked_at);
COMMENT ON TABLE account_question IS 'account ids that the index did not know; a walk that began after asked_at answers them';
COMMENT ON COLUMN account_question.since IS 'since when jobs have waited for the answer without a break of more than 15 minutes';

-- ---- Runs ------------------------------------------------------------------------------------------------------------

-- `fence` rises with every change of the leader. Each step of a leader is one statement that first compares its number with `fence`:
-- so a process that stalled and lost the lead changes nothing.
CREATE TABLE leader (
    name       text        PRIMARY KEY CHECK (name IN ('scheduler', 'planner', 'claims')),
    fence      bigint      NOT NULL,
    holder     text        NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON COLUMN leader.holder IS 'host and process, for operators to read';

CREATE TABLE schedule (
    name          text        PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_-]{0,39}$'),
    cron          text        NOT NULL CHECK (length(cron) <= 200),
    zone          text        NOT NULL DEFAULT 'UTC' CHECK (length(zone) <= 100),
    scope         text        NOT NULL,
    is_dry        boolean     NOT NULL DEFAULT false,
    max_demotions integer     CHECK (max_demotions >= 0),
    slot_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    late_since    timestamptz,
    created_by    text        NOT NULL DEFAULT session_user,
    days          integer     CHECK (days BETWEEN 1 AND 180),
    CONSTRAINT schedule_scope_check
        CHECK (scope IN ('due', 'all') AND days IS NULL OR scope = 'since' AND days IS NOT NULL AND NOT is_dry AND max_demotions IS NULL)
);
COMMENT ON COLUMN schedule.slot_at IS 'slots up to here were started or skipped; of the slots missed after it, only the newest is started';
COMMENT ON COLUMN schedule.late_since IS 'the slot that waits because a run of its scope still goes on';
COMMENT ON COLUMN schedule.days IS 'for the scope since: how many days a backfill reaches back at least';

CREATE TABLE run (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    asked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at     timestamptz,
    ended_at       timestamptz,
    predicted_end  timestamptz,
    since          timestamptz,
    of_run         bigint,
    max_demotions  integer,
    scope          text        NOT NULL CHECK (scope IN ('due', 'all', 'since', 'diff')),
    state          text        NOT NULL DEFAULT 'reading'
        CHECK (state IN ('reading', 'stopped', 'applying', 'done', 'canceled')),
    is_dry         boolean     NOT NULL DEFAULT false,
    is_confirmed   boolean     NOT NULL DEFAULT false,
    is_paged       boolean     NOT NULL DEFAULT false,
    is_fed         boolean     NOT NULL DEFAULT false,
    schedule       text,
    asked_by       text        NOT NULL,
    confirmed_by   text,
    parts          integer     NOT NULL DEFAULT 0,
    fed            bigint      NOT NULL DEFAULT 0,
    ended          bigint      NOT NULL DEFAULT 0,
    skipped        bigint      NOT NULL DEFAULT 0,
    total          bigint,
    counted        bigint      NOT NULL DEFAULT 0,
    count_cursor   text,
    cursor_id      text,
    cursor_at      timestamptz,
    cursor_key     bigint,
    late           bigint[]    NOT NULL DEFAULT '{}',
    late_since     timestamptz,
    late_due       timestamptz,
    confirmed_at   timestamptz,
    settled_at     timestamptz,
    outcomes       jsonb       NOT NULL DEFAULT '{}',
    rules          jsonb       NOT NULL DEFAULT '{}',
    errors         jsonb       NOT NULL DEFAULT '{}',
    progress       jsonb       NOT NULL DEFAULT '[]',
    held           bigint      NOT NULL DEFAULT 0,
    demotion_limit bigint,
    subscribers    bigint,
    hash           bytea,
    listed         jsonb       NOT NULL DEFAULT '{}',
    is_backfill_only     boolean     NOT NULL DEFAULT false,
    -- Cursors hold users' ids: they are cleared as soon as the run needs them no more.
    CONSTRAINT run_cursor CHECK (cursor_id IS NULL OR NOT is_paged AND state IN ('reading', 'applying')),
    CONSTRAINT run_count_cursor CHECK (count_cursor IS NULL OR total IS NULL AND state IN ('reading', 'applying'))
);
-- Two runs of one scope never go on at once. A dry run may go on beside a real one.
CREATE UNIQUE INDEX run_open ON run (scope, is_dry) WHERE state IN ('reading', 'applying') AND scope <> 'diff' AND NOT is_confirmed;
-- A dry run that an operator approved is written once.
CREATE UNIQUE INDEX run_of_run ON run (of_run) WHERE state <> 'canceled';
CREATE INDEX run_going ON run (id) WHERE state IN ('reading', 'applying', 'stopped');
CREATE INDEX run_listed ON run (schedule, id) WHERE is_backfill_only;
COMMENT ON COLUMN run.is_confirmed IS 'an operator approved the changes by their hash: the limit does not apply to them';
COMMENT ON COLUMN run.skipped IS 'how many users the run does not read: not eligible, erased, or read after since already';
COMMENT ON COLUMN run.late IS 'users to try again: another transaction had locked them, or their job could not decide';
COMMENT ON COLUMN run.settled_at IS 'when every user had been read';
COMMENT ON COLUMN run.held IS 'how many demotions were held when every user had been read';
COMMENT ON COLUMN run.listed IS 'by backfill: from when, until when, how many events were listed, how many of them were new, and any error';
COMMENT ON COLUMN run.is_backfill_only IS 'the run reads only users that its backfills name';

-- A part of a run. In a real run: users, and the jobs that read them. In a dry run: users that one worker reads.
CREATE TABLE run_part (
    run_id   bigint      NOT NULL REFERENCES run ON DELETE CASCADE,
    number   integer     NOT NULL,
    made_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries    integer     NOT NULL DEFAULT 0,
    due      timestamptz,
    ended_at timestamptz,
    keys     bigint[]    NOT NULL,
    jobs     uuid[],
    outcomes text[],
    rules    text[],
    PRIMARY KEY (run_id, number)
) WITH (fillfactor = 80);
CREATE INDEX run_part_open ON run_part (run_id, number) WHERE ended_at IS NULL;
COMMENT ON COLUMN run_part.due IS 'in a dry run: when a worker may take the part';
COMMENT ON COLUMN run_part.outcomes IS 'in the order of keys';

-- Users that a run changes or would change.
CREATE TABLE run_change (
    run_id      bigint  NOT NULL REFERENCES run ON DELETE CASCADE,
    user_key    bigint  NOT NULL,
    epoch       bigint  NOT NULL,
    assets      bigint  NOT NULL DEFAULT 0,
    job_id      uuid,
    state       text    NOT NULL CHECK (state IN ('predicted', 'held', 'applied', 'void')),
    outcome     text    NOT NULL,
    rule        text    NOT NULL,
    announced   boolean NOT NULL DEFAULT false,
    type_before text,
    type_after  text,
    explanation text    NOT NULL,
    PRIMARY KEY (run_id, user_key)
);
-- A worker that would demote a user checks here whether a run holds the demotion.
CREATE INDEX run_change_held ON run_change (user_key) WHERE state = 'held';
COMMENT ON COLUMN run_change.epoch IS 'user_sync.epoch at the decision: a held demotion counts no more once the user''s epoch differs';

-- A backfill of a run, read one window of time after the other.
CREATE TABLE run_backfill (
    run_id   bigint      NOT NULL REFERENCES run ON DELETE CASCADE,
    -- With several apps of a store, its list of each is named for the app after a dot.
    list     text        NOT NULL CHECK (list ~ '^(app_store|app_store_sandbox|google_play)([.][!-~]{1,255})?$'),
    since    timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    reached  timestamptz NOT NULL,
    moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due      timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries    integer     NOT NULL DEFAULT 0,
    failures integer     NOT NULL DEFAULT 0,
    error    text,
    counts   jsonb       NOT NULL DEFAULT '{}',
    passing  jsonb       NOT NULL DEFAULT '{}',
    ended_at timestamptz,
    PRIMARY KEY (run_id, list)
) WITH (fillfactor = 50);
CREATE INDEX run_listing_open ON run_backfill (run_id, list) WHERE ended_at IS NULL;
COMMENT ON COLUMN run_backfill.reached IS 'everything before this time was listed';
COMMENT ON COLUMN run_backfill.moved_at IS 'when a worker last kept a page or finished a window';
COMMENT ON COLUMN run_backfill.tries IS 'rises when a worker takes the backfill; a worker with a lower number may write nothing';
COMMENT ON COLUMN run_backfill.failures IS 'how many tries failed in a row';
COMMENT ON COLUMN run_backfill.passing IS 'counts of the window in work; they are added to counts when the window ends';

-- An import: a file of purchases and their users. Each line is asked of its store; what an operator approved goes into the ledger.
CREATE TABLE import (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    asked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    ready_at      timestamptz,
    approved_at   timestamptz,
    ended_at      timestamptz,
    operator_id   bigint,
    lines         integer     NOT NULL DEFAULT 0,
    is_dry        boolean     NOT NULL,
    state         text        NOT NULL DEFAULT 'asking' CHECK (state IN ('asking', 'ready', 'applying', 'done', 'canceled')),
    asked_by      text        NOT NULL,
    approved_by   text,
    file_hash     bytea       NOT NULL CHECK (octet_length(file_hash) = 32),
    hash          bytea
);
-- Importing a file again while it is being imported goes on with that import.
CREATE UNIQUE INDEX import_open ON import (file_hash, is_dry) WHERE state IN ('asking', 'ready', 'applying');
CREATE INDEX import_going ON import (id) WHERE state IN ('asking', 'applying');
COMMENT ON COLUMN import.operator_id IS 'the operator who imports, who may not approve it; null: the schema''s owner, or a dry run';
COMMENT ON COLUMN import.ready_at IS 'when every line had an answer';
COMMENT ON COLUMN import.hash IS 'over all planned lines: an operator approves the import by it';

-- The lines of imports. A line without a result waits for its store; a planned line waits for the approval, and then to be written.
CREATE TABLE import_line (
    import_id    bigint      NOT NULL REFERENCES import ON DELETE CASCADE,
    due          timestamptz NOT NULL DEFAULT '-infinity',
    user_key     bigint,
    number       integer     NOT NULL,
    epoch        integer,
    turn         integer     NOT NULL DEFAULT 0,
    attempt      integer     NOT NULL DEFAULT 0,
    gives_access boolean,
    user_id      text,
    store        text,
    kind         text,
    value        text,
    result       text,
    detail       text,
    names        bytea[],
    PRIMARY KEY (import_id, number)
) WITH (fillfactor = 80);
CREATE INDEX import_line_asked ON import_line (import_id, due, number) WHERE result IS NULL;
CREATE INDEX import_line_planned ON import_line (import_id, due, number) WHERE result = 'planned';
CREATE INDEX import_line_taken ON import_line (epoch) WHERE epoch IS NOT NULL;
CREATE INDEX import_line_user ON import_line (user_key) WHERE user_key IS NOT NULL;
CREATE INDEX import_line_user_id ON import_line (user_id) WHERE user_id IS NOT NULL;
COMMENT ON COLUMN import_line.number IS 'the line''s number in the file';
COMMENT ON COLUMN import_line.epoch IS 'the worker that has taken the line';
COMMENT ON COLUMN import_line.turn IS 'rises when a worker takes the line; a worker with a lower number may write nothing';
COMMENT ON COLUMN import_line.user_id IS 'as the file has it; null once it is a known user''s, whose key stands instead';
COMMENT ON COLUMN import_line.value IS 'null once the store is asked no more';
COMMENT ON COLUMN import_line.names
    IS 'digests: of what the file calls the purchase, then of what the store does; lines that share one are of one purchase';

-- How far `plan_checks` has come in its pass over the known users. A walk by key needs no index that every job would have to write.
CREATE TABLE check_round (
    is_only   boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    after_key bigint      NOT NULL DEFAULT 0,
    began_at  timestamptz NOT NULL DEFAULT 'epoch'
);
COMMENT ON COLUMN check_round.after_key IS 'users up to this key were examined in the present pass; 0: the pass is over';
INSERT INTO check_round DEFAULT VALUES;

-- Dry runs of single users: each asks what a reconcile would do, and a worker writes the answer here. They are no jobs of the queue,
-- because a request for a real reconcile could join such a job, and a job writes a decision to `decision_log`.
CREATE TABLE dry_run (
    id          uuid        PRIMARY KEY DEFAULT new_id(),
    user_key    bigint      NOT NULL,
    asked_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    due         timestamptz DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    assets      bigint      NOT NULL DEFAULT 0,
    tries       integer     NOT NULL DEFAULT 0,
    is_paused   boolean     NOT NULL DEFAULT false,
    outcome     text,
    rule        text,
    explanation text,
    type_before text,
    type_after  text,
    error       text,
    CHECK ((due IS NULL) = (ended_at IS NOT NULL))
);
CREATE UNIQUE INDEX dry_run_open ON dry_run (user_key) WHERE due IS NOT NULL;
CREATE INDEX dry_run_due ON dry_run (due) WHERE due IS NOT NULL;
CREATE INDEX dry_run_user ON dry_run (user_key, asked_at);
CREATE INDEX dry_run_asked ON dry_run (asked_at);
COMMENT ON TABLE dry_run IS 'what reconciles would have done; nothing of it was written anywhere else; kept for 30 days';
COMMENT ON COLUMN dry_run.due IS 'when a worker may take it; null: it is answered';

-- ---- Operators -------------------------------------------------------------------------------------------------------

CREATE TABLE operator (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    role        text        NOT NULL CHECK (role IN ('viewer', 'agent', 'approver', 'senior', 'auditor', 'admin')),
    user_key    bigint      UNIQUE,
    created_at  timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz,
    held_until  timestamptz,
    held_by     bigint,
    lost_at     timestamptz,
    break_glass boolean     NOT NULL DEFAULT false CHECK (NOT break_glass OR role = 'admin')
);
COMMENT ON COLUMN operator.user_key IS 'the operator''s own account in the app: operators may not decide their own tickets';
COMMENT ON COLUMN operator.held_until IS 'until then the account may decide nothing, unless an admin other than held_by confirms it:'
    ' so an admin cannot create their own second approver';
COMMENT ON COLUMN operator.lost_at
    IS 'when the operator role last changed or was lost, or the account was disabled, enabled or reset: earlier approvals count no more';
COMMENT ON COLUMN operator.break_glass IS 'the operator may sign in with a password while an identity provider is in use';

-- Every app account that was ever an operator's. After it is erased or another is linked, the operator may still not decide its tickets.
CREATE TABLE operator_account (
    operator_id bigint      NOT NULL REFERENCES operator,
    user_key    bigint      NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (operator_id, user_key)
);

-- Secrets of operators, apart from `operator`, so that a database role that may read operators cannot read these.
CREATE TABLE operator_secret (
    operator_id bigint      PRIMARY KEY REFERENCES operator,
    cost        text        NOT NULL CHECK (cost ~ '^scrypt\$[0-9]{1,2}\$[0-9]{1,2}\$[0-9]{1,2}$'),
    salt        bytea       NOT NULL CHECK (octet_length(salt) = 16),
    verifier    bytea       NOT NULL CHECK (octet_length(verifier) = 32),
    expires_at  timestamptz,
    device      bytea       CHECK (octet_length(device) = 20),
    last_period bigint
);
COMMENT ON COLUMN operator_secret.verifier IS 'SHA-256 of what scrypt makes of the password: a reader of this column cannot sign in';
COMMENT ON COLUMN operator_secret.expires_at
    IS 'when a password that an admin gave expires; signing in with it requires a new one; null: the operator chose the password';
COMMENT ON COLUMN operator_secret.device IS 'the secret key of the one-time codes';
COMMENT ON COLUMN operator_secret.last_period IS 'the period of the last accepted code; a code is accepted once';

CREATE TABLE operator_session (
    digest      bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
    operator_id bigint      NOT NULL REFERENCES operator,
    kind        text        NOT NULL CHECK (kind IN ('console', 'terminal')),
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    proved_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ends_at     timestamptz
);
CREATE INDEX operator_session_operator ON operator_session (operator_id);
COMMENT ON COLUMN operator_session.digest IS 'SHA-256 of the session''s secret: a reader of this column cannot use the session';
COMMENT ON COLUMN operator_session.proved_at IS 'when the operator last gave password and code, or last signed in at the identity provider';
COMMENT ON COLUMN operator_session.ends_at IS 'the latest end that the identity provider allows; null: a password began the session';

-- What operators did, and what the desk refused them.
CREATE TABLE operator_event (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator_id bigint,
    kind        text        NOT NULL,
    about_id    bigint,
    detail      jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX operator_event_operator ON operator_event (operator_id, id);
COMMENT ON COLUMN operator_event.about_id IS 'the operator that the act concerns';

CREATE TABLE operator_ban (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No foreign key: its check would wait for a transaction that has locked the operator's row.
    operator_id bigint      NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    by_id       bigint
);
CREATE INDEX operator_ban_operator ON operator_ban (operator_id);
COMMENT ON TABLE operator_ban IS 'operators who are disabled: an insert waits for no open transaction;'
    ' operator.disabled_at follows as soon as the operator''s row is free; a reset of the account deletes the rows';

-- Clients with which an operator signed in before: a browser is known by its cookie, a terminal by a file beside its session.
CREATE TABLE known_client (
    digest      bytea       NOT NULL CHECK (octet_length(digest) = 32),
    operator_id bigint      NOT NULL REFERENCES operator,
    used_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (digest, operator_id)
);
CREATE INDEX known_client_operator ON known_client (operator_id, used_at);
COMMENT ON COLUMN known_client.digest IS 'SHA-256 of the client''s secret: a reader of this column cannot pose as the client';

-- One row per sign-in attempt. Its announcement inserts it, so attempts do not wait for each other.
CREATE TABLE sign_in_attempt (
    id      uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact    xid8        NOT NULL DEFAULT pg_current_xact_id(),
    digest  bytea       NOT NULL,
    name    bytea       NOT NULL,
    address bytea       NOT NULL,
    client  bytea,
    knows   boolean     NOT NULL DEFAULT false,
    result  text        CHECK (result IN ('tried', 'incomplete', 'good'))
);
CREATE INDEX sign_in_attempt_name ON sign_in_attempt (name, at);
CREATE INDEX sign_in_attempt_address ON sign_in_attempt (address, at);
CREATE INDEX sign_in_attempt_client ON sign_in_attempt (client, name, at) WHERE client IS NOT NULL;
CREATE INDEX sign_in_attempt_at ON sign_in_attempt (at);
COMMENT ON COLUMN sign_in_attempt.name IS 'SHA-256 of the name, whether an operator has it or not';
COMMENT ON COLUMN sign_in_attempt.address IS 'SHA-256 of the client''s address; of a terminal, that of its connection to the database';
COMMENT ON COLUMN sign_in_attempt.client IS 'the known client that it came from; null: none';
COMMENT ON COLUMN sign_in_attempt.knows
    IS 'the announcement had the right password: if the sign-in is rolled back, it still counts as a wrong code';
COMMENT ON COLUMN sign_in_attempt.result
    IS 'null: announced; tried: refused or postponed; incomplete: the right password, but something is missing; good: signed in';

-- Refused sign-ins. They are kept apart from `operator_event`, because any caller can fill this table.
CREATE TABLE sign_in_refusal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator_id bigint,
    reason      text        NOT NULL,
    address     bytea
);
CREATE INDEX sign_in_refusal_reason ON sign_in_refusal (reason, at);
COMMENT ON COLUMN sign_in_refusal.operator_id IS 'the operator who has the name; null: no operator has it';
COMMENT ON COLUMN sign_in_refusal.address IS 'SHA-256 of the client''s address';

-- Opaque ids of tickets are derived from this, and salts for names that no operator has: such a salt stays the same, as a real one does.
CREATE TABLE desk_secret (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    bytes bytea   NOT NULL
);
INSERT INTO desk_secret (bytes)
VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- The identity provider in use. While there is a row, only admins with `break_glass` may sign in with a password.
CREATE TABLE sign_in_provider (
    one    boolean     PRIMARY KEY DEFAULT true CHECK (one),
    issuer text        NOT NULL,
    since  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE operator_identity (
    operator_id bigint      PRIMARY KEY REFERENCES operator,
    issuer      text        NOT NULL,
    subject     text        NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 255),
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (issuer, subject)
);
COMMENT ON TABLE operator_identity
    IS 'which subject an operator is at the identity provider; a name there can be given to another account, a subject cannot';

-- Terminals that wait until their operator signs them in from a browser.
CREATE TABLE terminal_request (
    code       text        PRIMARY KEY CHECK (code ~ '^[BCDFGHJKLMNPQRSTVWXZ]{8}$'),
    digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
    asked_by   text        NOT NULL DEFAULT session_user,
    asked_from text        NOT NULL DEFAULT coalesce(host(inet_client_addr()), 'this machine'),
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN terminal_request.asked_by IS 'the database user';

-- ---- The desk: rules that a team may change --------------------------------------------------------------------------

-- Which operator role has which permission.
CREATE TABLE operator_permission (
    permission text NOT NULL,
    role text NOT NULL,
    PRIMARY KEY (permission, role)
);
INSERT INTO operator_permission (permission, role)
SELECT d.permission, unnest(d.roles)
  FROM (VALUES ('view', ARRAY['viewer', 'agent', 'approver', 'senior', 'auditor', 'admin']),
               ('reveal', ARRAY['agent', 'approver', 'senior', 'auditor']),
               ('audit', ARRAY['auditor', 'admin']),
               ('open', ARRAY['agent', 'approver', 'senior']),
               ('work', ARRAY['agent', 'approver', 'senior']),
               ('refuse', ARRAY['agent', 'approver', 'senior']),
               ('give_access', ARRAY['agent', 'approver', 'senior']),
               ('restore', ARRAY['agent', 'approver', 'senior']),
               ('approve', ARRAY['approver', 'senior']),
               ('transfer', ARRAY['approver', 'senior']),
               ('override', ARRAY['senior']),
               ('retry', ARRAY['senior', 'admin']),
               ('manage', ARRAY['admin'])) AS d(permission, roles);

-- Settings of the desk that a team may change.
CREATE TABLE desk_setting (
    name  text   PRIMARY KEY,
    value bigint NOT NULL CHECK (value > 0)
);
COMMENT ON TABLE desk_setting IS
    'answer_days: how long a claimant has to answer; replies_per_day, consents_per_day: how many replies and consents a user may '
    'send; consent_days: how long a consent counts; reveals_per_hour: how many ids an operator may see, a list counting as twenty';
INSERT INTO desk_setting (name, value) VALUES
    ('answer_days', 7), ('replies_per_day', 10), ('consents_per_day', 5), ('consent_days', 30);
INSERT INTO desk_setting (name, value) VALUES ('reveals_per_hour', 60);

-- Questions that an agent may ask a claimant. The app shows each in the user's language.
CREATE TABLE desk_question (
    key text PRIMARY KEY CHECK (key ~ '^[a-z][a-z_]{0,39}$')
);
INSERT INTO desk_question (key) VALUES
    ('proof_of_purchase'), ('order_number'), ('which_store'), ('other_account'), ('sign_in_there');

-- How long each stage of a ticket may take. A team may change the values.
CREATE TABLE desk_clock (
    stage     text     NOT NULL CHECK (stage IN ('first_response', 'decision', 'execution')),
    is_urgent boolean  NOT NULL,
    within    interval NOT NULL CHECK (within BETWEEN interval '1 minute' AND interval '90 days'),
    PRIMARY KEY (stage, is_urgent)
);
INSERT INTO desk_clock (stage, is_urgent, within) VALUES
    ('first_response', false, '8 hours'), ('first_response', true, '1 hour'),
    ('decision',   false, '3 days'),  ('decision',   true, '1 day'),
    ('execution',  false, '4 hours'), ('execution',  true, '1 hour');

-- Which tickets each lane of the console's ticket list holds: a lane says who has to act.
CREATE TABLE desk_lane (
    lane  text     NOT NULL,
    place smallint NOT NULL,
    state text     NOT NULL,
    PRIMARY KEY (lane, state)
);
INSERT INTO desk_lane (lane, place, state) VALUES
    ('desk', 1, 'new'), ('mine', 2, 'claimed'), ('others', 3, 'claimed'), ('second', 4, 'needs_second'),
    ('execute', 5, 'approved'), ('claimant', 6, 'waiting_claimant'), ('owner', 7, 'waiting_owner'), ('worker', 8, 'executing'),
    ('closed', 9, 'transferred'), ('closed', 9, 'refused'), ('closed', 9, 'expired'), ('closed', 9, 'auto_resolved'),
    ('closed', 9, 'duplicate');

-- Every change of a ticket's state. A change without a row here does not happen.
CREATE TABLE ticket_move (
    state text NOT NULL,
    event text NOT NULL,
    next  text NOT NULL,
    PRIMARY KEY (state, event)
);
INSERT INTO ticket_move (state, event, next) VALUES
    ('new',              'claim',            'claimed'),
    ('new',              'cause_gone',       'auto_resolved'),
    ('new',              'superseded',       'duplicate'),
    ('new',              'expire',           'expired'),
    ('claimed',          'release',          'new'),
    ('claimed',          'ask_claimant',     'waiting_claimant'),
    ('claimed',          'approve_part',     'needs_second'),
    ('claimed',          'approve_early',    'waiting_owner'),
    ('claimed',          'approve_all',      'approved'),
    ('claimed',          'refuse',           'refused'),
    ('claimed',          'cause_gone',       'auto_resolved'),
    ('claimed',          'superseded',       'duplicate'),
    ('waiting_claimant', 'claim',            'claimed'),
    ('waiting_claimant', 'claimant_replied', 'new'),
    ('waiting_claimant', 'refuse',           'refused'),
    ('waiting_claimant', 'cause_gone',       'auto_resolved'),
    ('waiting_claimant', 'superseded',       'duplicate'),
    ('waiting_claimant', 'expire',           'expired'),
    ('needs_second',     'approve_part',     'needs_second'),
    ('needs_second',     'approve_early',    'waiting_owner'),
    ('needs_second',     'approve_all',      'approved'),
    ('needs_second',     'approvals_voided', 'new'),
    ('needs_second',     'refuse',           'refused'),
    ('needs_second',     'cause_gone',       'auto_resolved'),
    ('needs_second',     'superseded',       'duplicate'),
    ('waiting_owner',    'window_ended',     'approved'),
    ('waiting_owner',    'approvals_voided', 'new'),
    ('waiting_owner',    'refuse',           'refused'),
    ('waiting_owner',    'cause_gone',       'auto_resolved'),
    ('waiting_owner',    'superseded',       'duplicate'),
    ('approved',         'execute',          'executing'),
    ('approved',         'approvals_voided', 'new'),
    ('approved',         'refuse',           'refused'),
    ('approved',         'cause_gone',       'auto_resolved'),
    ('approved',         'superseded',       'duplicate'),
    -- A transfer that has begun is carried to its end: nothing else closes its ticket.
    ('executing',        'executed',         'transferred'),
    ('executing',        'stopped',          'new'),
    ('refused',          'reopen',           'new'),
    ('expired',          'reopen',           'new');

-- ---- Tickets ---------------------------------------------------------------------------------------------------------

CREATE SEQUENCE ticket_number;

CREATE TABLE ticket (
    id                 bigint      PRIMARY KEY DEFAULT nextval('ticket_number'),
    uid                uuid        NOT NULL DEFAULT new_id(),
    claimant_key       bigint      NOT NULL,
    owner_key          bigint,
    purchase_id        bigint,
    subject_id         bigint,
    kind               text        NOT NULL,
    state              text        NOT NULL DEFAULT 'new',
    store              text,
    original_id        text,
    visible            boolean     NOT NULL,
    priority           smallint    NOT NULL DEFAULT 1,
    touches            integer     NOT NULL DEFAULT 0,
    created_at         timestamptz NOT NULL DEFAULT now(),
    deadline           timestamptz,
    assignee_id        bigint,
    assigned_until     timestamptz,
    assigned_at        timestamptz,
    evidence_id        bigint,
    verdict            text,
    decided_at         timestamptz,
    temporary_grant_id bigint,
    closed_at          timestamptz,
    state_since        timestamptz NOT NULL DEFAULT now(),
    clock_from         timestamptz NOT NULL DEFAULT now(),
    waited             interval    NOT NULL DEFAULT '0',
    due_at             timestamptz,
    CONSTRAINT ticket_state
        CHECK (state IN ('new', 'claimed', 'waiting_claimant', 'waiting_owner', 'needs_second', 'approved', 'executing',
            'transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')),
    CONSTRAINT ticket_closed
        CHECK ((state IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')) = (closed_at IS NOT NULL)),
    CONSTRAINT ticket_assigned CHECK (assignee_id IS NULL OR state = 'claimed')
);
-- At most one open ticket per claimant and purchase, and one per claimant without a purchase.
CREATE UNIQUE INDEX ticket_open ON ticket (claimant_key, coalesce(purchase_id, 0))
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_purchase ON ticket (purchase_id);
CREATE INDEX ticket_state ON ticket (state, priority, id);
CREATE INDEX ticket_owner ON ticket (owner_key);
CREATE INDEX ticket_reference ON ticket (reference_of('T', uid));
CREATE INDEX ticket_subject ON ticket (subject_id) WHERE subject_id IS NOT NULL;
CREATE INDEX ticket_temporary_grant ON ticket (temporary_grant_id) WHERE temporary_grant_id IS NOT NULL;
CREATE INDEX ticket_claimant ON ticket (claimant_key);
CREATE INDEX ticket_queue ON ticket (state, coalesce(due_at, 'infinity'), id)
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_queue_kind ON ticket (state, kind, coalesce(due_at, 'infinity'), id)
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_closed ON ticket (closed_at DESC, id DESC) WHERE closed_at IS NOT NULL;
CREATE INDEX ticket_assignee ON ticket (assignee_id) WHERE assignee_id IS NOT NULL;
CREATE INDEX ticket_original ON ticket (original_id) WHERE original_id IS NOT NULL;
CREATE INDEX ticket_created ON ticket (created_at);
-- `-id`, so that PostgreSQL does not use the primary key instead: for a rare state it would walk that key back to its beginning.
CREATE INDEX ticket_state_newest ON ticket (state, (-id));
CREATE INDEX ticket_closed_kind ON ticket (kind, closed_at DESC, id DESC) WHERE closed_at IS NOT NULL;
COMMENT ON COLUMN ticket.subject_id IS 'the purchase that the desk found by a reported or original id, if purchase_id is null';
COMMENT ON COLUMN ticket.deadline IS 'when the store reverses the sale: the ticket has to be decided before';
COMMENT ON COLUMN ticket.assignee_id IS 'the operator who has the ticket assigned, until assigned_until';
COMMENT ON COLUMN ticket.temporary_grant_id IS 'the grant that gives the claimant temporary access; it ends with the ticket';
COMMENT ON COLUMN ticket.clock_from IS 'when the ticket was opened, or last reopened';
COMMENT ON COLUMN ticket.waited IS 'how long the ticket waited for claimant or owner: the desk''s clocks do not count this time';
COMMENT ON COLUMN ticket.due_at IS 'until when the desk has to take the next step; null: it has none to take';

-- When a ticket's evidence is collected again. Requests are counted, and the collecting worker notes the count: so a request that
-- commits meanwhile is noticed.
CREATE TABLE evidence_request (
    ticket_id bigint      PRIMARY KEY REFERENCES ticket,
    due_at    timestamptz,
    tries     smallint    NOT NULL DEFAULT 0,
    error     text,
    requests  bigint      NOT NULL DEFAULT 0,
    answers   bigint      NOT NULL DEFAULT 0,
    taken_at  timestamptz
) WITH (fillfactor = 50);
CREATE INDEX evidence_request_due ON evidence_request (due_at) WHERE due_at IS NOT NULL;
COMMENT ON COLUMN evidence_request.due_at IS 'when a worker collects the evidence; null: only when it is requested';
COMMENT ON COLUMN evidence_request.error IS 'why the last collection failed';
COMMENT ON COLUMN evidence_request.requests IS 'how many times evidence was requested';
COMMENT ON COLUMN evidence_request.answers IS 'requests when a worker last began to collect';
COMMENT ON COLUMN evidence_request.taken_at IS 'since when a worker collects evidence; after two minutes another worker may';

-- The owner window of a ticket: when the present owner was asked about the transfer, and what they answered.
CREATE TABLE owner_window (
    ticket_id    bigint PRIMARY KEY REFERENCES ticket,
    asked_at     timestamptz,
    ends_at      timestamptz,
    consented_at timestamptz,
    objected_at  timestamptz,
    notified_at  timestamptz,
    CHECK (num_nulls(asked_at, ends_at) IN (0, 2)),
    CHECK (consented_at IS NULL OR asked_at IS NOT NULL)
);
COMMENT ON COLUMN owner_window.asked_at IS 'when the owner was asked about a transfer; null: not asked on the present evidence';
COMMENT ON COLUMN owner_window.ends_at
    IS 'until when a transfer waits for the owner''s objection; equal to asked_at: the owner was not asked';
COMMENT ON COLUMN owner_window.consented_at IS 'when the owner consented to what they are asked now';
COMMENT ON COLUMN owner_window.objected_at IS 'when the owner objected';
COMMENT ON COLUMN owner_window.notified_at
    IS 'since when the owner knows of the ticket: from then on they may object, whatever became of the question';

-- Waivers: a senior skipped the rest of a ticket's owner window. A waiver is no consent.
CREATE TABLE owner_waiver (
    ticket_id   bigint      PRIMARY KEY REFERENCES owner_window ON DELETE CASCADE,
    operator_id bigint      NOT NULL REFERENCES operator,
    hash        bytea       NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN owner_waiver.hash IS 'the hash of the evidence on which the window was skipped';

-- The question that a claimant was asked last.
CREATE TABLE ticket_question (
    ticket_id    bigint      PRIMARY KEY REFERENCES ticket,
    question     text        NOT NULL REFERENCES desk_question,
    asked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    answer_until timestamptz NOT NULL
);
COMMENT ON COLUMN ticket_question.answer_until IS 'until when the desk waits for the claimant''s answer';

CREATE TABLE ticket_event (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint      NOT NULL,
    at          timestamptz NOT NULL DEFAULT now(),
    kind        text        NOT NULL,
    job_id      uuid,
    detail      jsonb       NOT NULL DEFAULT '{}',
    operator_id bigint
);
CREATE INDEX ticket_event_ticket ON ticket_event (ticket_id, id);

-- Notes of operators. They are kept apart from the events, so that an erasure can remove their text.
CREATE TABLE ticket_note (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    words       text        CHECK (length(words) BETWEEN 1 AND 4000)
);
CREATE INDEX ticket_note_ticket ON ticket_note (ticket_id, id);

-- Notifications to claimants and owners about their tickets. A worker that sends webhooks moves them to `outbox`; others leave them.
CREATE TABLE ticket_news (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic    text        NOT NULL,
    data     jsonb       NOT NULL
);
CREATE INDEX ticket_news_user ON ticket_news (user_key);
COMMENT ON COLUMN ticket_news.data IS 'names no user: an owner does not learn who the claimant is';

-- Kept apart from the events, so that an erasure can remove them: a reported id may hold any text.
CREATE TABLE ticket_reported_id (
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    kind        text        NOT NULL CHECK (kind IN ('order_id', 'transaction_id', 'onside_order_id')),
    value       text        NOT NULL CHECK (length(value) BETWEEN 1 AND 255),
    store       text,
    by_claimant boolean     NOT NULL,
    by_agent_at timestamptz,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (ticket_id, kind, value)
);
CREATE INDEX ticket_claim_at ON ticket_reported_id (at);
COMMENT ON TABLE ticket_reported_id
    IS 'reported ids: a claimant sent them with a restore, or an agent read them in a mail; what the stores answered is in the evidence';
COMMENT ON COLUMN ticket_reported_id.store IS 'the store that the app named; null: the form of the id decides which store is asked';
COMMENT ON COLUMN ticket_reported_id.by_claimant IS 'the claimant sent it; an id that they did not send does not count against them';
COMMENT ON COLUMN ticket_reported_id.by_agent_at
    IS 'when an agent last gave it: the newest of these says which purchase is meant; null: no agent gave it';

-- The evidence of a ticket, as collected at one time.
CREATE TABLE ticket_evidence (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id    bigint      NOT NULL REFERENCES ticket,
    asked_at     timestamptz NOT NULL,
    collected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    hash         bytea       NOT NULL CHECK (octet_length(hash) = 32),
    facts        text[]      NOT NULL,
    hindrance    text        NOT NULL CHECK (hindrance IN ('none', 'needs_senior', 'forbids', 'closes')),
    suggested    text,
    reason       text        NOT NULL,
    approvals    smallint    NOT NULL CHECK (approvals >= 1),
    also_moves   text[]      NOT NULL,
    owner_window interval    NOT NULL,
    holds        interval    NOT NULL,
    document     jsonb       NOT NULL,
    UNIQUE (ticket_id, id)
);
COMMENT ON COLUMN ticket_evidence.asked_at IS 'when the first store request for it began';
COMMENT ON COLUMN ticket_evidence.hash IS 'SHA-256 over everything on which a decision rests: the same facts have the same hash';
COMMENT ON COLUMN ticket_evidence.approvals IS 'how many operators have to approve a transfer';
COMMENT ON COLUMN ticket_evidence.also_moves IS 'what a transfer would move beside the purchase in question';
COMMENT ON COLUMN ticket_evidence.holds IS 'how long an approval on this evidence holds';
COMMENT ON COLUMN ticket_evidence.document IS 'names users by their keys alone';
ALTER TABLE ticket ADD FOREIGN KEY (id, evidence_id) REFERENCES ticket_evidence (ticket_id, id);

-- Approvals of transfers: which operator, on which evidence.
CREATE TABLE ticket_approval (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    operator_id bigint      NOT NULL REFERENCES operator,
    evidence_id bigint      NOT NULL REFERENCES ticket_evidence,
    hash        bytea       NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    ended_by    text        CHECK (ended_by IN ('evidence_changed', 'expired', 'role_lost', 'owner_objected', 'withdrawn', 'used',
        'stopped', 'decided')),
    CHECK ((ended_at IS NULL) = (ended_by IS NULL))
);
-- An operator has at most one approval of a ticket in force, from whatever client.
CREATE UNIQUE INDEX ticket_approval_once ON ticket_approval (ticket_id, operator_id) WHERE ended_at IS NULL;
CREATE INDEX ticket_approval_ticket ON ticket_approval (ticket_id, id);
CREATE INDEX ticket_approval_operator ON ticket_approval (operator_id) WHERE ended_at IS NULL;

CREATE TABLE grant_approval (
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    operator_id bigint      NOT NULL REFERENCES operator,
    hash        bytea       NOT NULL,
    purchase_id bigint      NOT NULL,
    until       timestamptz NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (ticket_id, operator_id)
);
COMMENT ON TABLE grant_approval IS 'approvals of access until the end of a paid period: on which evidence, for which purchase, until when';

-- Replies of claimants and owners. They are kept apart from the events, so that an erasure can remove their text.
CREATE TABLE ticket_reply (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id bigint      NOT NULL REFERENCES ticket,
    user_key  bigint      NOT NULL,
    side      text        NOT NULL CHECK (side IN ('claimant', 'owner')),
    decision  text        CHECK (decision IN ('object', 'agree')),
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    words     text        CHECK (length(words) BETWEEN 1 AND 2000),
    key       text        CHECK (length(key) BETWEEN 1 AND 255),
    request   bytea
);
CREATE INDEX ticket_reply_ticket ON ticket_reply (ticket_id, id);
CREATE INDEX ticket_reply_user ON ticket_reply (user_key, at);
CREATE UNIQUE INDEX ticket_reply_key ON ticket_reply (user_key, key) WHERE key IS NOT NULL;
COMMENT ON COLUMN ticket_reply.request IS 'a digest of what the user sent with the key';

-- Requests of operators to see the users' ids of a ticket. Only a later transaction shows them, so that the request stays on record.
CREATE TABLE ticket_reveal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact        xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX ticket_reveal_operator ON ticket_reveal (operator_id, at);
COMMENT ON COLUMN ticket_reveal.ticket_id IS 'null: a list of tickets, see list_reveal';

-- Requests of operators to see a user's id. A later transaction shows it, within a minute.
CREATE TABLE user_reveal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key    bigint      NOT NULL,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact        xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX user_reveal_operator ON user_reveal (operator_id, at);

-- Which tickets a revealed list shows with ids: only those on the page when the operator requested it.
CREATE TABLE list_reveal (
    reveal_id bigint   PRIMARY KEY,
    tickets   bigint[] NOT NULL
);
COMMENT ON TABLE list_reveal IS 'tickets whose users'' ids a list may show, for a row of ticket_reveal';

-- ---- Transfers -------------------------------------------------------------------------------------------------------

-- Transfers. Steps: `begun`; `calling` (the call to RevenueCat was begun, and only a read shows whether it took effect); `confirmed`
-- (a read shows the purchases with the claimant, or no call was needed); `done`; `stopped` before a purchase was moved.
CREATE TABLE transfer (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    from_key    bigint,
    to_key      bigint      NOT NULL,
    purchase_id bigint      NOT NULL,
    begun_by    bigint      NOT NULL REFERENCES operator,
    begun_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    step        text        NOT NULL DEFAULT 'begun' CHECK (step IN ('begun', 'calling', 'confirmed', 'done', 'stopped')),
    evidence_id bigint,
    calls       smallint    NOT NULL DEFAULT 0,
    called_at   timestamptz,
    moves       text[]      NOT NULL DEFAULT '{}',
    due         timestamptz NOT NULL DEFAULT now(),
    tries       integer     NOT NULL DEFAULT 0,
    last_error  text,
    ended_at    timestamptz,
    FOREIGN KEY (ticket_id, evidence_id) REFERENCES ticket_evidence (ticket_id, id)
);
CREATE UNIQUE INDEX transfer_once ON transfer (ticket_id) WHERE step <> 'stopped';
-- A call moves everything that a customer has: so only one transfer at a time goes on for a purchase, and one for its former owner.
CREATE UNIQUE INDEX transfer_purchase ON transfer (purchase_id) WHERE step NOT IN ('done', 'stopped');
CREATE UNIQUE INDEX transfer_from ON transfer (from_key) WHERE step NOT IN ('done', 'stopped');
CREATE INDEX transfer_due ON transfer (due) WHERE step NOT IN ('done', 'stopped');
CREATE INDEX transfer_parties ON transfer (to_key);
CREATE INDEX transfer_from_all ON transfer (from_key);
COMMENT ON COLUMN transfer.from_key IS 'who owned the purchase when the transfer began; later changes of the records do not change it';
COMMENT ON COLUMN transfer.evidence_id IS 'the evidence on which the last step was allowed';
COMMENT ON COLUMN transfer.called_at IS 'when the last call began; null: none did, or RevenueCat refused it';
COMMENT ON COLUMN transfer.moves IS 'RevenueCat''s ids of everything that the call moves';

CREATE TABLE transfer_step (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id bigint      NOT NULL REFERENCES transfer,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    step        text        NOT NULL,
    detail      jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX transfer_step_transfer ON transfer_step (transfer_id, id);

-- After a transfer the App Store still names the former owner, until a worker sets another account token: one row per moved purchase.
-- States: `due`; `set`; `skipped`, if there is nothing to set; `refused` by the App Store; `given_up`, without an answer.
-- The transfer is done in each of these states.
CREATE TABLE transfer_token (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id bigint      NOT NULL REFERENCES transfer ON DELETE CASCADE,
    purchase_id bigint      NOT NULL,
    state       text        NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'set', 'skipped', 'refused', 'given_up')),
    reason      text,
    due         timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries       smallint    NOT NULL DEFAULT 0,
    turn        bigint      NOT NULL DEFAULT 0,
    ended_at    timestamptz,
    UNIQUE (transfer_id, purchase_id),
    CHECK ((state = 'due') = (ended_at IS NULL))
);
CREATE INDEX transfer_token_due ON transfer_token (due) WHERE state = 'due';
CREATE INDEX transfer_token_purchase ON transfer_token (purchase_id, id) WHERE state = 'due';
COMMENT ON COLUMN transfer_token.reason IS 'a code: why the token is not set, or why the last try failed';
COMMENT ON COLUMN transfer_token.tries IS 'how many times a worker tried since the last request';
COMMENT ON COLUMN transfer_token.turn IS 'how many times a worker tried in all; a worker with a lower number may write nothing';

-- ---- Privileges ------------------------------------------------------------------------------------------------------

CREATE TABLE role_privilege (
    role      text NOT NULL,
    kind      text NOT NULL CHECK (kind IN ('schema', 'table', 'sequence', 'function')),
    object    text NOT NULL,
    -- A column; empty: the whole object.
    part      text NOT NULL DEFAULT '',
    privilege text NOT NULL,
    PRIMARY KEY (role, kind, object, part, privilege)
);
COMMENT ON TABLE role_privilege IS 'what each database role of entitlement-sync may do; migrate grants it, doctor compares';

