-- The tables of entitlement-sync, with what stands on nothing else. Times are timestamptz and are compared in the database alone.
-- Functions, views, triggers and grants have files of their own, which hold their current text. The functions here are those that a
-- default, an index or the database's own extensions are bound to: a change of one is a migration.

REVOKE ALL ON SCHEMA entitlement_sync FROM PUBLIC;

-- A random id whose first 48 bits are the milliseconds since 1970 (RFC 9562, version 7): new ids land on the right
-- edge of their index, and a day of ids is a range, so that history can be partitioned by id.
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

-- Thirty random bits of an id as words a person can read out: six signs without I, L, O and U.
CREATE FUNCTION reference_of(prefix text, id uuid) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT prefix || '-' || substr(s, 1, 4) || '-' || substr(s, 5, 2)
      FROM (SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                                     (bits >> (5 * (5 - n)) & 31)::integer + 1, 1), '' ORDER BY n) AS s
              FROM (SELECT ('x' || right(replace(id::text, '-', ''), 8))::bit(32)::bigint AS bits) AS b,
                   generate_series(0, 5) AS n) AS spelled
$$;

-- One-time codes are HMAC-SHA-1, which PostgreSQL has in pgcrypto. The application may have the extension already, in a schema of its
-- choice; where it has not, the schema `public` is where it would search for it later.
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

-- One row a known user. The identity stands here alone; every other table carries the key.
CREATE TABLE user_sync (
    user_key           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id            text        UNIQUE,
    epoch              bigint      NOT NULL DEFAULT 0,
    read_at            timestamptz,
    full_read_at       timestamptz,
    absent_since       timestamptz,
    next_look          timestamptz,
    flips_since        timestamptz,
    flips              smallint    NOT NULL DEFAULT 0,
    ever_observed      boolean     NOT NULL DEFAULT false,
    promised_at        timestamptz,
    -- A subscriber whose purchase was moved away by our own people: no store has to be silent twice before that is believed.
    moved_away_at      timestamptz,
    shut_out           boolean     NOT NULL DEFAULT false,
    met_dry            boolean     NOT NULL DEFAULT false,
    -- Users before purchases, as batches lock them; and nothing that reads or writes whole tables while they are locked.
    decided_subscriber boolean,
    decision_id        bigint,
    fingerprint        uuid,
    recorded_at        timestamptz,
    confirmed          integer     NOT NULL DEFAULT 0,
    confirmed_id       bigint      NOT NULL DEFAULT 0,
    confirmed_first_at timestamptz NOT NULL DEFAULT '-infinity',
    confirmed_at       timestamptz NOT NULL DEFAULT '-infinity',
    confirmed_asked_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
-- Users to be looked at again: stores that send no word are asked around the ends of what they sold.
CREATE INDEX user_sync_next_look ON user_sync (next_look) WHERE next_look IS NOT NULL;
COMMENT ON COLUMN user_sync.epoch IS 'rises with every change of type; asset batches of an older epoch are void';
COMMENT ON COLUMN user_sync.read_at IS 'when the request of the newest applied read began';
COMMENT ON COLUMN user_sync.absent_since IS 'the first full read without access and without a word of the store';
COMMENT ON COLUMN user_sync.flips IS 'changes of type within a day of flips_since';
COMMENT ON COLUMN user_sync.promised_at IS 'the newest event that spoke of access: what is read within minutes may not show it yet';
COMMENT ON COLUMN user_sync.moved_away_at IS 'when support moved a purchase to another user; until a full read has settled it';
COMMENT ON COLUMN user_sync.shut_out IS 'the account''s status decided against the user: nobody looks until it changes';
COMMENT ON COLUMN user_sync.met_dry IS 'a dry run made the user known: that alone has nobody looked at';
COMMENT ON COLUMN user_sync.decided_subscriber IS
    'whether the type that our last decision gave the user or found right is subscriber; null: none has settled it yet';
COMMENT ON COLUMN user_sync.decision_id IS 'the newest row of decision, once a check has confirmed it';
COMMENT ON COLUMN user_sync.fingerprint IS 'a digest of what that decision and its reading say: a check with the same confirms it';
COMMENT ON COLUMN user_sync.recorded_at IS 'when the newest full reading began whose observations were written';
COMMENT ON COLUMN user_sync.confirmed IS 'how many checks have confirmed it; job_history has each of them until retention';
COMMENT ON COLUMN user_sync.confirmed_id IS 'the last of them, as an id of a decision; its time and the first one''s are beside it';
COMMENT ON COLUMN user_sync.confirmed_asked_at IS 'when the last of them began to read';

-- Which of a store's products mean access. A team writes it.
CREATE TABLE product (
    store         text     NOT NULL,
    product_id    text     NOT NULL,
    base_plan_id  text,
    entitlement   text     NOT NULL,
    grants_access boolean  NOT NULL DEFAULT true,
    duration      interval,
    UNIQUE NULLS NOT DISTINCT (store, product_id, base_plan_id),
    -- NOT VALID: what a table holds already does not stop a migration; doctor names such rows.
    CONSTRAINT product_store_known CHECK (store IN ('revenuecat', 'app_store', 'google_play', 'play_store', 'onside')) NOT VALID,
    CONSTRAINT product_id_given CHECK (btrim(product_id) <> '') NOT VALID
);

-- Users whose sandbox purchases count, until a day.
CREATE TABLE sandbox_user (
    user_id text        PRIMARY KEY,
    until   timestamptz NOT NULL
);

-- The ledger: one row a lineage, one owner.
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
    carried          text[]
) WITH (fillfactor = 80);
CREATE INDEX purchase_owner ON purchase (owner_key);
CREATE INDEX purchase_former_owner ON purchase (former_owner_key) WHERE former_owner_key IS NOT NULL;
-- Money that nobody claims: purchases without an owner are few, and people have to find them.
CREATE INDEX purchase_unowned ON purchase (first_seen_at) WHERE owner_key IS NULL AND merged_into IS NULL;
CREATE INDEX purchase_merged ON purchase (merged_into) WHERE merged_into IS NOT NULL;
COMMENT ON COLUMN purchase.former_owner_key IS 'from whom it came, until a reading of either owner no longer shows it';
COMMENT ON COLUMN purchase.observed_at IS 'when the request of the newest observation began';
COMMENT ON COLUMN purchase.end_announced IS 'the store said before the period''s end that it would not renew';
COMMENT ON COLUMN purchase.lookup_id IS 'by which of its identifiers the store itself is asked; absent: only RevenueCat knows it';
COMMENT ON COLUMN purchase.account_key
    IS 'the user whom the id that the app gave the store names, where another witness named somebody else';
COMMENT ON COLUMN purchase.stated_at IS 'the store''s own version of what stands here: when it signed or fetched it';
COMMENT ON COLUMN purchase.carried IS
    'the entitlements that last gave access, where the store lists others by now or none; null: those that it lists';

CREATE TABLE purchase_identifier (
    value       text   NOT NULL,
    store       text   NOT NULL,
    environment text   NOT NULL,
    kind        text   NOT NULL,
    purchase_id bigint NOT NULL,
    PRIMARY KEY (value, store, environment)
);
CREATE INDEX purchase_identifier_purchase ON purchase_identifier (purchase_id);

-- Access given by our own people.
CREATE TABLE "grant" (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key   bigint      NOT NULL,
    until      timestamptz NOT NULL,
    reason     text        NOT NULL,
    granted_by text        NOT NULL DEFAULT session_user,
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);
CREATE INDEX grant_user ON "grant" (user_key);

-- Proofs that a user's app has shown within a day, by digest: a restore that shows nothing new can be told from one that does.
CREATE TABLE shown_proof (
    user_key bigint      NOT NULL,
    digest   bytea       NOT NULL,
    shown_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_key, digest)
);
CREATE INDEX shown_proof_at ON shown_proof USING brin (shown_at);

CREATE TABLE chargeback (
    purchase_id bigint      PRIMARY KEY REFERENCES purchase ON DELETE CASCADE,
    at          timestamptz NOT NULL,
    noted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    entries     bytea[]     NOT NULL DEFAULT '{}',
    lifted_at   timestamptz,
    lifted_by   text,
    lifted_for  text        CHECK (length(lifted_for) <= 200)
);
COMMENT ON TABLE chargeback IS 'purchases whose money was taken back as fraud or by a chargeback, as a store''s list says';
COMMENT ON COLUMN chargeback.at IS 'when, by the store''s word; the last one';
COMMENT ON COLUMN chargeback.entries IS 'of chargeback_name: what the list gave it under';
COMMENT ON COLUMN chargeback.lifted_at IS 'a person said that it does not count; the next one does';

-- A purchase may become known after it was charged back: names that a list gave are kept, as hashes. A token can't be found by
-- its hash; an order's number could be by somebody with much time, so the desk's roles see no hash.
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
COMMENT ON TABLE chargeback_name IS 'tokens and orders that a store''s list gave as charged back';
COMMENT ON COLUMN chargeback_name.hash IS 'SHA-256 of the store, a space, and the token or order';
COMMENT ON COLUMN chargeback_name.entry IS 'the hash of the first name that stood in the same place, the token: they are lifted together';
COMMENT ON COLUMN chargeback_name.lifted_at IS 'a person said that it does not count; the next one does';

-- Owners' word that a purchase of theirs may go to the account whose app shows a reference. Kept whatever the reference leads to.
CREATE TABLE purchase_release (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_key    bigint      NOT NULL,
    reference    text        NOT NULL CHECK (reference ~ '^[RT]-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$'),
    claimant_key bigint,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,
    UNIQUE (owner_key, reference)
);
COMMENT ON COLUMN purchase_release.claimant_key IS 'whose case it was, where there was one at that time';
COMMENT ON COLUMN purchase_release.ended_at IS 'when the owner took it back by objecting';

-- ---- What was read and decided ---------------------------------------------------------------------------------------

-- What a store said, when we asked, and a hash of the words. Never changed, never deleted while a decision rests on it.
-- By months of the job's id; see `maintain_partitions`.
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

-- By months of the job's id, so that one decision a job is a constraint.
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
CREATE INDEX decision_at ON decision USING brin (at) WITH (pages_per_range = 16);
COMMENT ON COLUMN decision.observed IS 'computed in observe mode: nothing else was written';
COMMENT ON COLUMN decision.previous_id IS
    'the user''s decision before, where checks had confirmed it; the other columns say how often and when';
COMMENT ON COLUMN decision.braked IS 'a demotion that counts toward the brake';

-- Later asset batches of a decision.
CREATE TABLE asset_batch (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    decision_id bigint      NOT NULL,
    changed     integer     NOT NULL,
    failed      text,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX asset_batch_decision ON asset_batch (decision_id);

-- Unfinished asset work of a user; a newer change of type replaces it.
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
COMMENT ON COLUMN asset_run.parked IS 'the host refuses what is left; tried again every hour';

-- Written with the grant, deleted once Google Play has taken the call. `called`: a call was begun, and only a read can tell
-- what came of it.
CREATE TABLE acknowledgement (
    token      text        PRIMARY KEY,
    product_id text        NOT NULL,
    kind       text        NOT NULL,
    deadline   timestamptz NOT NULL,
    due        timestamptz NOT NULL DEFAULT now(),
    attempt    integer     NOT NULL DEFAULT 0,
    called     boolean     NOT NULL DEFAULT false,
    last_error text,
    -- Google Play drops the ids of the purchase before a resubscription with its acknowledgement, unless the call names them.
    account_id text,
    profile_id text
);
CREATE INDEX acknowledgement_due ON acknowledgement (due);
COMMENT ON COLUMN acknowledgement.account_id IS 'the obfuscated account id that Google Play is asked to keep';

-- ---- Jobs ------------------------------------------------------------------------------------------------------------

-- The hot queue: one row a user, so that one job of a user runs at a time by the primary key itself. A row holds at
-- most one queued or running restore and reconcile, and one successor of each.
CREATE TABLE queue (
    user_key            bigint      PRIMARY KEY,
    due                 timestamptz NOT NULL,
    lane                smallint    NOT NULL,
    owner               integer,
    active              smallint,
    crashes             smallint    NOT NULL DEFAULT 0,
    cancel              boolean     NOT NULL DEFAULT false,
    said                boolean     NOT NULL DEFAULT false,
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
-- Nothing that a claim changes stands in this index: a claim stays a heap-only update.
CREATE INDEX queue_due ON queue (lane, due);
CREATE UNIQUE INDEX queue_restore ON queue (restore_id) WHERE restore_id IS NOT NULL;
CREATE UNIQUE INDEX queue_reconcile ON queue (reconcile_id) WHERE reconcile_id IS NOT NULL;
CREATE UNIQUE INDEX queue_restore_next ON queue (restore_next) WHERE restore_next IS NOT NULL;
CREATE UNIQUE INDEX queue_reconcile_next ON queue (reconcile_next) WHERE reconcile_next IS NOT NULL;
COMMENT ON COLUMN queue.lane IS '0 restore, 1 event, 2 sweep, 9 quarantine (rows whose workers kept dying)';
COMMENT ON COLUMN queue.active IS 'while owned: 0 the restore runs, 1 the reconcile runs';
COMMENT ON COLUMN queue.said IS 'a job of this row may have a row in job_request';
COMMENT ON COLUMN queue.restore_queued_at IS 'when the restore was put back, or had its turn behind another; null: when its id was made';
COMMENT ON COLUMN queue.reconcile_queued_at IS 'the same of the reconcile';

-- What a request said beyond its user; absent where it said nothing.
CREATE TABLE job_request (
    id           uuid   NOT NULL,
    proofs       jsonb,
    client_error text,
    product_ids  text[],
    origin       text,
    reason       text
) PARTITION BY RANGE (id);
CREATE UNIQUE INDEX job_request_id ON job_request (id);

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
-- A restore's reference is spelled from the last bits of its id: people read it out to support.
CREATE INDEX job_history_reference ON job_history (substring(uuid_send(id) FROM 13)) WHERE kind = 0;
-- The newest of a user's jobs are asked for by id: without it in the index, each day's ids are walked backwards.
CREATE INDEX job_history_user_id ON job_history (user_key, id);
CREATE INDEX job_history_dead_end ON job_history (finished_at DESC, id DESC) INCLUDE (user_key) WHERE state = 'dead';
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

-- Processes that may hold jobs. A lease is the process's, not the job's: one small update a heartbeat.
CREATE SEQUENCE worker_epoch AS integer;

CREATE TABLE worker (
    epoch      integer     PRIMARY KEY,
    host       text        NOT NULL,
    pid        integer     NOT NULL,
    version    text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    lists      text[]      NOT NULL DEFAULT '{}',
    mode       text
) WITH (fillfactor = 50);
COMMENT ON COLUMN worker.version IS 'the build that it runs';
COMMENT ON COLUMN worker.lists IS 'the stores'' lists that it can read';
COMMENT ON COLUMN worker.mode IS 'its MODE; absent: a build that does not say';

-- Requests of an address or a user within a minute that begins with its first request. Unlogged: a crash forgets a minute.
-- The key is a digest: nobody learns from here who called.
CREATE UNLOGGED TABLE request_count (
    key   bytea       PRIMARY KEY,
    began timestamptz NOT NULL,
    taken integer     NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX request_count_began ON request_count USING brin (began);

-- When work that locks tables may be tried again, by any process.
CREATE TABLE upkeep (
    name    text        PRIMARY KEY,
    next_at timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON COLUMN upkeep.next_at IS 'a failed try waits for minutes, whichever process made it';

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
    promises    boolean     NOT NULL DEFAULT false,
    about       jsonb,
    user_keys   bigint[],
    is_listed   boolean     NOT NULL DEFAULT false,
    ask_due     timestamptz,
    UNIQUE (source, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX inbox_due ON inbox (due) WHERE state IN ('received', 'waiting');
CREATE INDEX inbox_users ON inbox USING gin (user_keys) WHERE user_keys IS NOT NULL;
CREATE INDEX inbox_about ON inbox (received_at) WHERE about IS NOT NULL;
CREATE INDEX inbox_received ON inbox (source, received_at);
CREATE INDEX inbox_asks ON inbox (ask_due) WHERE ask_due IS NOT NULL;
COMMENT ON COLUMN inbox.state IS 'received; waiting: its user is not known yet; done; ignored: it is about nobody; parked';
COMMENT ON COLUMN inbox.promises IS 'it speaks of access that begins or goes on';
COMMENT ON COLUMN inbox.about IS 'the users it may be about, until they are known: users, purchases, anonymous customers, blocked; '
                                 'then the purchases that our records do not hold yet';
COMMENT ON COLUMN inbox.is_listed IS 'nobody delivered it: it was found in a store''s list';
COMMENT ON COLUMN inbox.ask_due IS 'when the stores are to be asked who it is about; NULL: not now';

-- The words of an event, for a while: what support reads, and nothing decides by.
CREATE TABLE inbox_body (
    id          bigint      PRIMARY KEY,
    received_at timestamptz NOT NULL DEFAULT now(),
    body        bytea       NOT NULL
);
CREATE INDEX inbox_body_received ON inbox_body USING brin (received_at);

-- Who it is about stands in one place alone: the identity is filled in at the delivery.
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
COMMENT ON COLUMN outbox.uid IS 'the message''s own id: the same at every try';
COMMENT ON COLUMN outbox.is_dead IS 'given up after three days; deliver it again by setting is_dead to false and due to now()';

-- ---- Stores: budgets, health, and what stops demotions ---------------------------------------------------------------

-- One token bucket a credential, shared by all workers.
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

-- How far the stores' clocks stand from the database's, by store.
CREATE TABLE store_health (
    store           text             PRIMARY KEY,
    last_answer_at  timestamptz,
    last_error_at   timestamptz,
    last_error      text,
    skew_seconds    double precision,
    latency_seconds double precision
);
COMMENT ON COLUMN store_health.latency_seconds IS 'how long the store''s answers took lately, the newest counting most';

-- Answers about purchases that gave access, by store and ten minutes: in how many the store knew them.
CREATE TABLE store_knowledge (
    store text        NOT NULL,
    at    timestamptz NOT NULL,
    known bigint      NOT NULL,
    PRIMARY KEY (store, at)
);
COMMENT ON TABLE store_knowledge IS 'how many users'' purchases each store knew, by ten minutes; kept for two days';

-- Users whose purchases a store did not list: once each, until the store knows the user again.
CREATE TABLE store_absence (
    store    text        NOT NULL,
    user_key bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT now(),
    unknown  boolean     NOT NULL,
    PRIMARY KEY (store, user_key)
);
CREATE INDEX store_absence_at ON store_absence (store, at);
COMMENT ON COLUMN store_absence.unknown IS 'a purchase that has to exist; otherwise a first absence';

-- By which credentials each store was asked last: a digest under a salt of its own, which tells nothing of them.
CREATE TABLE store_credential (
    store  text        PRIMARY KEY,
    salt   bytea       NOT NULL DEFAULT uuid_send(gen_random_uuid()),
    digest bytea,
    state  text        NOT NULL DEFAULT 'confirmed' CHECK (state IN ('confirmed', 'unchecked', 'doubted')),
    since  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON COLUMN store_credential.state IS
    'unchecked: changed, and no known customer was asked for yet; doubted: the store knew none of those who were asked for';

-- Switches that hold for every worker.
CREATE TABLE control (
    name   text        PRIMARY KEY CHECK (name IN ('demotions', 'transfers', 'all')),
    paused boolean     NOT NULL DEFAULT false,
    since  timestamptz NOT NULL DEFAULT now(),
    by     text        NOT NULL DEFAULT session_user,
    cause  text
);
COMMENT ON COLUMN control.cause IS 'why the product paused it by itself (absences, credentials); null where a person did';
INSERT INTO control (name) VALUES ('demotions'), ('transfers'), ('all');

-- The demotion brake: the row is locked by whoever demotes, so that the limit holds across workers.
CREATE TABLE brake (
    one         boolean     PRIMARY KEY DEFAULT true CHECK (one),
    subscribers bigint      NOT NULL DEFAULT 0,
    counted_at  timestamptz
);
INSERT INTO brake DEFAULT VALUES;

-- Demotions that count toward the brake, by the minute: the last day is a sum of 1,441 rows at the most. Written under the brake's lock.
CREATE TABLE brake_minute (
    minute    timestamptz PRIMARY KEY,
    demotions integer     NOT NULL
) WITH (fillfactor = 50);

-- What an operator has to know: written once a kind, counted afterwards.
CREATE TABLE alarm (
    name     text        PRIMARY KEY,
    detail   text        NOT NULL,
    first_at timestamptz NOT NULL DEFAULT now(),
    last_at  timestamptz NOT NULL DEFAULT now(),
    count    bigint      NOT NULL DEFAULT 1
);

-- How often the records were found to break a law at its last check.
CREATE TABLE law_check (
    name       text        PRIMARY KEY,
    broken     bigint,
    checked_at timestamptz NOT NULL DEFAULT now()
);

-- ---- RevenueCat customers by account id ------------------------------------------------------------------------------

CREATE TABLE account_index (
    root    bigint NOT NULL,
    user_id text   COLLATE "C" NOT NULL,
    PRIMARY KEY (root, user_id)
);
COMMENT ON TABLE account_index IS 'a part of each digest of a user''s id that an app may give to a store';

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
COMMENT ON TABLE account_walk IS 'walks through the host''s users that fill account_index, one row a configuration of derivations';
COMMENT ON COLUMN account_walk.complete_began_at IS 'when the last walk began that came to its end: every id asked for before was resolved';

CREATE TABLE account_question (
    fingerprint bytea       NOT NULL,
    root        bigint      NOT NULL,
    asked_at    timestamptz NOT NULL,
    since       timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    PRIMARY KEY (fingerprint, root)
);
CREATE INDEX account_question_asked ON account_question (fingerprint, asked_at);
COMMENT ON TABLE account_question IS 'account ids that the index did not know; answered by a walk that began after asked_at';
COMMENT ON COLUMN account_question.since IS 'from when on a job has waited for the answer without a longer break';

-- ---- Runs ------------------------------------------------------------------------------------------------------------

-- The number rises with every change of hands. Whoever wrote it down before may write nothing more: each step of a leader
-- is one statement that asks for it first, so that a process that stood still for a while holds nothing and changes nothing.
CREATE TABLE leader (
    name       text        PRIMARY KEY CHECK (name IN ('scheduler', 'planner')),
    fence      bigint      NOT NULL,
    holder     text        NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON COLUMN leader.holder IS 'host and process, for people';

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
COMMENT ON COLUMN schedule.slot_at IS 'slots up to here were started or passed over; of those missed since the newest is caught up';
COMMENT ON COLUMN schedule.late_since IS 'the slot that waits, because a run of its scope still goes on';
COMMENT ON COLUMN schedule.days IS 'of the scope since: how far back stores list at least';

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
    lists_only     boolean     NOT NULL DEFAULT false
);
-- Never two runs of one scope; a dry run may look beside a real one.
CREATE UNIQUE INDEX run_open ON run (scope, is_dry) WHERE state IN ('reading', 'applying') AND scope <> 'diff' AND NOT is_confirmed;
-- What was reviewed is written once.
CREATE UNIQUE INDEX run_of_run ON run (of_run) WHERE state <> 'canceled';
CREATE INDEX run_going ON run (id) WHERE state IN ('reading', 'applying', 'stopped');
CREATE INDEX run_listed ON run (schedule, id) WHERE lists_only;
COMMENT ON COLUMN run.is_confirmed IS 'a person has confirmed the changes by their hash: they are not measured by the limit';
COMMENT ON COLUMN run.skipped IS 'users whose account''s status lets nothing be decided; no store is asked about them';
COMMENT ON COLUMN run.late IS 'users whom transactions of the host held when their turn came; they are tried again';
COMMENT ON COLUMN run.settled_at IS 'when everybody had been read';
COMMENT ON COLUMN run.held IS 'demotions that wait until everybody was read';
COMMENT ON COLUMN run.listed IS 'by list: from when on, up to when, how many were listed, and how many of them were new';
COMMENT ON COLUMN run.lists_only IS 'no user is read but those whom stores'' lists lead to';

-- A stretch of a run. Of a real run: users with the jobs that read them; of a dry run: users whom a worker reads at once.
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
COMMENT ON COLUMN run_part.due IS 'of a dry run: when a worker may take it up';
COMMENT ON COLUMN run_part.outcomes IS 'in the order of the keys';

-- Users whom a run changes, or would change.
CREATE TABLE run_change (
    run_id      bigint  NOT NULL REFERENCES run ON DELETE CASCADE,
    user_key    bigint  NOT NULL,
    epoch       bigint  NOT NULL,
    assets      bigint  NOT NULL DEFAULT 0,
    job_id      uuid,
    state       text    NOT NULL CHECK (state IN ('foreseen', 'held', 'applied', 'void')),
    outcome     text    NOT NULL,
    rule        text    NOT NULL,
    announced   boolean NOT NULL DEFAULT false,
    type_before text,
    type_after  text,
    explanation text    NOT NULL,
    PRIMARY KEY (run_id, user_key)
);
-- A demotion that is held is held from whoever reads the user meanwhile.
CREATE INDEX run_change_held ON run_change (user_key) WHERE state = 'held';
COMMENT ON COLUMN run_change.epoch IS 'user_sync.epoch when it was decided: whoever was changed since is decided anew';

-- A store's list that a run reads, a window after the other.
CREATE TABLE run_listing (
    run_id   bigint      NOT NULL REFERENCES run ON DELETE CASCADE,
    list     text        NOT NULL CHECK (list IN ('app_store', 'app_store_sandbox', 'google_play')),
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
CREATE INDEX run_listing_open ON run_listing (run_id, list) WHERE ended_at IS NULL;
COMMENT ON COLUMN run_listing.reached IS 'whatever came before was listed';
COMMENT ON COLUMN run_listing.moved_at IS 'when somebody last heard of it';
COMMENT ON COLUMN run_listing.tries IS 'whoever takes it up shuts the turn before out';
COMMENT ON COLUMN run_listing.failures IS 'in a row';
COMMENT ON COLUMN run_listing.passing IS 'of the window that is being listed: counted once it was listed to its end';

-- Where the round through the known users stands, who have no look planned. A walk by key needs no index that every job would
-- have to write.
CREATE TABLE look_round (
    is_only   boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    after_key bigint      NOT NULL DEFAULT 0,
    began_at  timestamptz NOT NULL DEFAULT 'epoch'
);
COMMENT ON COLUMN look_round.after_key IS 'users up to this key were looked through in the round; 0: it is over';
INSERT INTO look_round DEFAULT VALUES;

-- Questions what a reconcile of a user would do now, and the answers of workers. They stand beside the queue: a job there may be
-- joined by whoever asks for a true one, and has a decision in `decision_log` for itself.
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
COMMENT ON TABLE dry_run IS 'what reconciles would have done: nothing of it was written anywhere else; kept for 30 days';
COMMENT ON COLUMN dry_run.due IS 'when a worker takes it up; absent: it is answered';

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
COMMENT ON COLUMN operator.user_key IS 'the account that the operator has in the app: nobody decides their own case';
COMMENT ON COLUMN operator.held_until IS 'until then the account decides nothing, unless an admin other than held_by confirms it:'
    ' nobody makes themselves a second pair of eyes';
COMMENT ON COLUMN operator.lost_at
    IS 'when the role was last changed, or the account disabled or reset: what was agreed to before counts no more';
COMMENT ON COLUMN operator.break_glass IS 'signs in with a password here also while an identity provider is in use';

-- Every account in the app that ever was an operator's: to have it erased, or to link another, opens no case to them.
CREATE TABLE operator_account (
    operator_id bigint      NOT NULL REFERENCES operator,
    user_key    bigint      NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (operator_id, user_key)
);

-- Apart from the operators, so that whoever may read those reads none of these.
CREATE TABLE operator_secret (
    operator_id bigint      PRIMARY KEY REFERENCES operator,
    cost        text        NOT NULL CHECK (cost ~ '^scrypt\$[0-9]{1,2}\$[0-9]{1,2}\$[0-9]{1,2}$'),
    salt        bytea       NOT NULL CHECK (octet_length(salt) = 16),
    verifier    bytea       NOT NULL CHECK (octet_length(verifier) = 32),
    expires_at  timestamptz,
    device      bytea       CHECK (octet_length(device) = 20),
    last_period bigint
);
COMMENT ON COLUMN operator_secret.verifier IS 'SHA-256 of what scrypt makes of the password: who reads it can show nothing';
COMMENT ON COLUMN operator_secret.expires_at IS 'of a password that somebody else gave: signing in needs one of the operator''s own';
COMMENT ON COLUMN operator_secret.device IS 'the key of one-time codes';
COMMENT ON COLUMN operator_secret.last_period IS 'the period of the last code that was taken; no code is taken twice';

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
COMMENT ON COLUMN operator_session.digest IS 'SHA-256 of what the functions take for a session: who reads it can show nothing';
COMMENT ON COLUMN operator_session.proved_at IS 'when password and code were given last';
COMMENT ON COLUMN operator_session.ends_at IS 'the session ends then, whatever happens: the identity provider is asked again';

-- What operators did, and what was refused to them.
CREATE TABLE operator_event (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator_id bigint,
    kind        text        NOT NULL,
    about_id    bigint,
    detail      jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX operator_event_operator ON operator_event (operator_id, id);
COMMENT ON COLUMN operator_event.about_id IS 'the operator that it was done to';

CREATE TABLE operator_ban (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No foreign key: its check would wait for the transaction that has the operator's row locked.
    operator_id bigint      NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    by_id       bigint
);
CREATE INDEX operator_ban_operator ON operator_ban (operator_id);
COMMENT ON TABLE operator_ban IS 'operators who are disabled: only ever inserted into, so that no open transaction is waited for;'
    ' operator.disabled_at follows as soon as the row is free';

-- What an operator has signed in with before: a browser by its cookie, a terminal by a file beside its session.
CREATE TABLE known_client (
    digest      bytea       NOT NULL CHECK (octet_length(digest) = 32),
    operator_id bigint      NOT NULL REFERENCES operator,
    used_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (digest, operator_id)
);
CREATE INDEX known_client_operator ON known_client (operator_id, used_at);
COMMENT ON COLUMN known_client.digest IS 'SHA-256 of what the browser or the terminal shows: who reads it can show nothing';

-- One row a try, only ever inserted by an announcement: tries wait for no other's. A try that has ended well counts no more.
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
COMMENT ON COLUMN sign_in_attempt.address IS 'SHA-256 of where it came from; a terminal''s is that of its connection to the database';
COMMENT ON COLUMN sign_in_attempt.client IS 'the known client that it came from, if any';
COMMENT ON COLUMN sign_in_attempt.knows IS 'it was announced with the right password: to undo the try undoes no count of wrong codes';
COMMENT ON COLUMN sign_in_attempt.result IS 'null: announced; tried: refused; incomplete: the right password, and something missing';

-- Sign-ins that were refused; kept apart from what operators did, because anybody can fill it.
CREATE TABLE sign_in_refusal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator_id bigint,
    reason      text        NOT NULL,
    address     bytea
);
CREATE INDEX sign_in_refusal_reason ON sign_in_refusal (reason, at);
COMMENT ON COLUMN sign_in_refusal.operator_id IS 'whose name it was, if anybody''s';
COMMENT ON COLUMN sign_in_refusal.address IS 'SHA-256 of whence';

-- Salts of names that are nobody's come from here: they stay the same, as an operator's would.
CREATE TABLE desk_secret (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    bytes bytea   NOT NULL
);
INSERT INTO desk_secret (bytes)
VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- The provider in use. While there is one, passwords of operators' own are taken from admins alone who are marked for the case that it
-- fails.
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
    IS 'who an operator is at the identity provider; a name can pass to another person, a subject never does';

-- A terminal that asks to be signed in by its operator's browser.
CREATE TABLE terminal_request (
    code       text        PRIMARY KEY CHECK (code ~ '^[BCDFGHJKLMNPQRSTVWXZ]{8}$'),
    digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
    asked_by   text        NOT NULL DEFAULT session_user,
    asked_from text        NOT NULL DEFAULT coalesce(host(inet_client_addr()), 'this machine'),
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN terminal_request.asked_by IS 'the database user';

-- ---- The desk: rules that a team may change --------------------------------------------------------------------------

-- Which role has which duty.
CREATE TABLE desk_duty (
    duty text NOT NULL,
    role text NOT NULL,
    PRIMARY KEY (duty, role)
);
INSERT INTO desk_duty (duty, role)
SELECT d.duty, unnest(d.roles)
  FROM (VALUES ('view', ARRAY['viewer', 'agent', 'approver', 'senior', 'auditor', 'admin']),
               ('reveal', ARRAY['agent', 'approver', 'senior', 'auditor']),
               ('audit', ARRAY['auditor', 'admin']),
               ('open', ARRAY['agent', 'approver', 'senior']),
               ('work', ARRAY['agent', 'approver', 'senior']),
               ('refuse', ARRAY['agent', 'approver', 'senior']),
               ('lend', ARRAY['agent', 'approver', 'senior']),
               ('restore', ARRAY['agent', 'approver', 'senior']),
               ('approve', ARRAY['approver', 'senior']),
               ('transfer', ARRAY['approver', 'senior']),
               ('override', ARRAY['senior']),
               ('retry', ARRAY['senior', 'admin']),
               ('manage', ARRAY['admin'])) AS d(duty, roles);

-- Numbers of the desk that a team may change.
CREATE TABLE desk_setting (
    name  text   PRIMARY KEY,
    value bigint NOT NULL CHECK (value > 0)
);
COMMENT ON TABLE desk_setting IS
    'answer_days: how long a claimant has to answer; release_days: how long a release counts; reveals_per_hour: how often an '
    'operator sees ids, a list counting twenty times';
INSERT INTO desk_setting (name, value) VALUES
    ('answer_days', 7), ('replies_per_day', 10), ('releases_per_day', 5), ('release_days', 30);
INSERT INTO desk_setting (name, value) VALUES ('reveals_per_hour', 60);

-- What support may ask a claimant; the apps' users read it in their own language.
CREATE TABLE desk_question (
    key text PRIMARY KEY CHECK (key ~ '^[a-z][a-z_]{0,39}$')
);
INSERT INTO desk_question (key) VALUES
    ('proof_of_purchase'), ('order_number'), ('which_store'), ('other_account'), ('sign_in_there');

-- How long each stage of a case may take; a team may change the figures.
CREATE TABLE desk_clock (
    stage     text     NOT NULL CHECK (stage IN ('first_look', 'decision', 'execution')),
    is_urgent boolean  NOT NULL,
    within    interval NOT NULL CHECK (within BETWEEN interval '1 minute' AND interval '90 days'),
    PRIMARY KEY (stage, is_urgent)
);
INSERT INTO desk_clock (stage, is_urgent, within) VALUES
    ('first_look', false, '8 hours'), ('first_look', true, '1 hour'),
    ('decision',   false, '3 days'),  ('decision',   true, '1 day'),
    ('execution',  false, '4 hours'), ('execution',  true, '1 hour');

-- Who has to act: the rows of the queue's filter.
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

-- Every way that a ticket can go; what has no row does not happen.
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
    ('claimed',          'claim',            'claimed'),
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
    -- What has begun is carried to its end: nothing else closes it.
    ('executing',        'executed',         'transferred'),
    ('executing',        'stopped',          'new'),
    ('refused',          'reopen',           'new'),
    ('expired',          'reopen',           'new');

-- ---- Tickets ---------------------------------------------------------------------------------------------------------

CREATE SEQUENCE ticket_number;

CREATE TABLE ticket (
    id                bigint      PRIMARY KEY DEFAULT nextval('ticket_number'),
    uid               uuid        NOT NULL DEFAULT new_id(),
    claimant_key      bigint      NOT NULL,
    owner_key         bigint,
    purchase_id       bigint,
    kind              text        NOT NULL,
    state             text        NOT NULL DEFAULT 'new',
    store             text,
    original_id       text,
    visible           boolean     NOT NULL,
    priority          smallint    NOT NULL DEFAULT 1,
    touches           integer     NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL DEFAULT now(),
    deadline          timestamptz,
    state_since       timestamptz NOT NULL DEFAULT now(),
    subject_id        bigint,
    holder_id         bigint,
    holder_until      timestamptz,
    evidence_id       bigint,
    -- Where a claimant taps several times in a row, the evidence is collected once.
    evidence_due      timestamptz DEFAULT now() + interval '10 seconds',
    evidence_tries    smallint    NOT NULL DEFAULT 0,
    evidence_error    text,
    owner_asked_at    timestamptz,
    owner_until       timestamptz,
    owner_no_at       timestamptz,
    verdict           text,
    lent_grant_id     bigint,
    looked_at         timestamptz,
    decided_at        timestamptz,
    closed_at         timestamptz,
    question          text        REFERENCES desk_question,
    question_at       timestamptz,
    answer_until      timestamptz,
    owner_yes_at      timestamptz,
    clock_from        timestamptz NOT NULL DEFAULT now(),
    waited            interval    NOT NULL DEFAULT '0',
    due_at            timestamptz,
    owner_heard_at    timestamptz,
    -- Each request is counted, and whoever collects notes how many there were: one that comes meanwhile is seen, whenever it began.
    evidence_asks     bigint      NOT NULL DEFAULT 0,
    evidence_seen     bigint      NOT NULL DEFAULT 0,
    evidence_taken_at timestamptz,
    owner_waived_at   timestamptz,
    owner_waived_by   bigint,
    owner_waived_hash bytea,
    CONSTRAINT ticket_state
        CHECK (state IN ('new', 'claimed', 'waiting_claimant', 'waiting_owner', 'needs_second', 'approved', 'executing',
            'transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')),
    CONSTRAINT ticket_question CHECK (num_nulls(question, question_at, answer_until) IN (0, 3)),
    CONSTRAINT ticket_waiver CHECK (num_nulls(owner_waived_at, owner_waived_by, owner_waived_hash) IN (0, 3))
);
-- At most one open ticket for (purchase, claimant), and for (no purchase yet, claimant).
CREATE UNIQUE INDEX ticket_open ON ticket (claimant_key, coalesce(purchase_id, 0))
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_purchase ON ticket (purchase_id);
CREATE INDEX ticket_evidence_due ON ticket (evidence_due) WHERE evidence_due IS NOT NULL;
CREATE INDEX ticket_state ON ticket (state, priority, id);
CREATE INDEX ticket_owner ON ticket (owner_key);
CREATE INDEX ticket_reference ON ticket (reference_of('T', uid));
CREATE INDEX ticket_subject ON ticket (subject_id) WHERE subject_id IS NOT NULL;
CREATE INDEX ticket_lent ON ticket (lent_grant_id) WHERE lent_grant_id IS NOT NULL;
CREATE INDEX ticket_claimant ON ticket (claimant_key);
CREATE INDEX ticket_unanswered ON ticket (answer_until) WHERE state = 'waiting_claimant';
CREATE INDEX ticket_queue ON ticket (state, coalesce(due_at, 'infinity'), id)
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_queue_kind ON ticket (state, kind, coalesce(due_at, 'infinity'), id)
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_closed ON ticket (closed_at DESC, id DESC) WHERE closed_at IS NOT NULL;
CREATE INDEX ticket_holder ON ticket (holder_id) WHERE holder_id IS NOT NULL;
CREATE INDEX ticket_original ON ticket (original_id) WHERE original_id IS NOT NULL;
CREATE INDEX ticket_created ON ticket USING brin (created_at);
-- By `-id`, an order that the primary key can't give: walked back for a rare state, it would be read to its beginning.
CREATE INDEX ticket_state_newest ON ticket (state, (-id));
CREATE INDEX ticket_closed_kind ON ticket (kind, closed_at DESC, id DESC) WHERE closed_at IS NOT NULL;
COMMENT ON COLUMN ticket.deadline IS 'when the store takes the sale back: to be decided before';
COMMENT ON COLUMN ticket.subject_id IS 'the purchase that the desk found behind original_id, where the verdict knew none';
COMMENT ON COLUMN ticket.holder_id IS 'the operator who works on it, until holder_until';
COMMENT ON COLUMN ticket.evidence_due IS 'when the evidence is to be collected anew; absent: not before somebody asks';
COMMENT ON COLUMN ticket.owner_asked_at IS 'when the owner was first told that a transfer was asked for';
COMMENT ON COLUMN ticket.owner_until IS 'until when the owner may object to a transfer';
COMMENT ON COLUMN ticket.owner_no_at IS 'when the owner said no';
COMMENT ON COLUMN ticket.lent_grant_id IS 'the access that was given while the case is open; it ends with the case';
COMMENT ON COLUMN ticket.question IS 'what the claimant was asked last';
COMMENT ON COLUMN ticket.answer_until IS 'until when an answer is awaited';
COMMENT ON COLUMN ticket.owner_yes_at IS 'when the owner who is asked now agreed';
COMMENT ON COLUMN ticket.clock_from IS 'when the case was opened, or opened again';
COMMENT ON COLUMN ticket.waited IS 'how long somebody outside the desk had to act; counts for none of its clocks';
COMMENT ON COLUMN ticket.due_at IS 'until when the desk has to take the next step; absent: it is not the desk''s turn';
COMMENT ON COLUMN ticket.owner_heard_at
    IS 'since when the present owner knows of the case: they may object, whatever became of the question';
COMMENT ON COLUMN ticket.evidence_asks IS 'how often evidence was asked for';
COMMENT ON COLUMN ticket.evidence_seen IS 'how many of evidence_asks there were when it was last begun to collect it';
COMMENT ON COLUMN ticket.evidence_taken_at IS 'since when somebody collects it; whoever takes longer than two minutes is given up';
COMMENT ON COLUMN ticket.owner_waived_at IS 'when a senior skipped the rest of the owner''s time; nobody has agreed by that';
COMMENT ON COLUMN ticket.owner_waived_by IS 'which operator';
COMMENT ON COLUMN ticket.owner_waived_hash IS 'on which evidence';

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

-- What operators write in their own words; apart from the events, so that an erasure can take it away.
CREATE TABLE ticket_note (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    words       text        CHECK (length(words) BETWEEN 1 AND 4000)
);
CREATE INDEX ticket_note_ticket ON ticket_note (ticket_id, id);

-- What people are to hear of their tickets: a worker that tells others passes it on, and one that does not leaves it.
CREATE TABLE ticket_news (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic    text        NOT NULL,
    data     jsonb       NOT NULL
);
CREATE INDEX ticket_news_user ON ticket_news (user_key);
COMMENT ON COLUMN ticket_news.data IS 'names nobody; what an owner hears does not tell who asks';

-- Apart from the events, so that an erasure can take it away: anything may have been typed.
CREATE TABLE ticket_claim (
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    kind        text        NOT NULL CHECK (kind IN ('order_id', 'transaction_id', 'onside_order_id')),
    value       text        NOT NULL CHECK (length(value) BETWEEN 1 AND 255),
    store       text,
    by_claimant boolean     NOT NULL,
    by_agent_at timestamptz,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (ticket_id, kind, value)
);
CREATE INDEX ticket_claim_at ON ticket_claim (at);
COMMENT ON TABLE ticket_claim
    IS 'ids that a claimant sent with a restore, or an agent read in a mail; what looking them up found stands in the evidence';
COMMENT ON COLUMN ticket_claim.store IS 'which the app named; absent: what the id looks like decides who is asked';
COMMENT ON COLUMN ticket_claim.by_claimant IS 'the claimant sent it: what they never sent does not speak against them';
COMMENT ON COLUMN ticket_claim.by_agent_at
    IS 'when an agent gave it last: the newest of these says which purchase is meant; absent: none did';

-- What was found out about a case at one time.
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
COMMENT ON COLUMN ticket_evidence.asked_at IS 'when the first request for it began';
COMMENT ON COLUMN ticket_evidence.hash IS 'SHA-256 over all that a decision rests on; the same words, the same hash';
COMMENT ON COLUMN ticket_evidence.approvals IS 'how many people have to agree to a transfer';
COMMENT ON COLUMN ticket_evidence.also_moves IS 'what a transfer would move besides the purchase in question';
COMMENT ON COLUMN ticket_evidence.holds IS 'how long an approval on it holds';
COMMENT ON COLUMN ticket_evidence.document IS 'names users by their keys alone';
ALTER TABLE ticket ADD FOREIGN KEY (id, evidence_id) REFERENCES ticket_evidence (ticket_id, id);

-- Who agreed, on which evidence.
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
-- Nobody agrees twice, from wherever they do it.
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
COMMENT ON TABLE grant_approval IS 'who agrees to access until a paid period ends: on which evidence, for which purchase, until when';

-- What claimants and owners said in their own words; apart from the events, so that an erasure can take it away.
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
COMMENT ON COLUMN ticket_reply.request IS 'a digest of what was sent with the key';

-- Who asked to see the accounts of a ticket unmasked; shown in a later transaction alone, so that the trace stays.
CREATE TABLE ticket_reveal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact        xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX ticket_reveal_operator ON ticket_reveal (operator_id, at);
COMMENT ON COLUMN ticket_reveal.ticket_id IS 'absent: a list of them';

-- Asks to see a user's id; it is shown in a later transaction within the minute.
CREATE TABLE user_reveal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key    bigint      NOT NULL,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact        xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX user_reveal_operator ON user_reveal (operator_id, at);

-- Which tickets a list was shown of with ids: those alone that were on the page when it was asked for.
CREATE TABLE list_reveal (
    reveal_id bigint   PRIMARY KEY,
    tickets   bigint[] NOT NULL
);
COMMENT ON TABLE list_reveal IS 'tickets whose ids a list has shown, for a row of ticket_reveal';

-- ---- Transfers -------------------------------------------------------------------------------------------------------

-- A transfer on its way. Steps: `begun`; `calling` (RevenueCat's call was begun, and only a reading tells what came of it);
-- `confirmed` (a reading shows the purchases with the claimant, or there was nothing to call for); `done`; `stopped` before
-- anything was moved.
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
-- A call moves all that a customer has: one at a time for a purchase, and for whom it is taken from.
CREATE UNIQUE INDEX transfer_purchase ON transfer (purchase_id) WHERE step NOT IN ('done', 'stopped');
CREATE UNIQUE INDEX transfer_from ON transfer (from_key) WHERE step NOT IN ('done', 'stopped');
CREATE INDEX transfer_due ON transfer (due) WHERE step NOT IN ('done', 'stopped');
CREATE INDEX transfer_parties ON transfer (to_key);
CREATE INDEX transfer_from_all ON transfer (from_key);
COMMENT ON COLUMN transfer.from_key IS 'who owned the purchase when it was begun; what the records say later changes nothing';
COMMENT ON COLUMN transfer.evidence_id IS 'on what it was allowed';
COMMENT ON COLUMN transfer.called_at IS 'when the last call was begun';
COMMENT ON COLUMN transfer.moves IS 'RevenueCat''s ids of all that the call moves';

CREATE TABLE transfer_step (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id bigint      NOT NULL REFERENCES transfer,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    step        text        NOT NULL,
    detail      jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX transfer_step_transfer ON transfer_step (transfer_id, id);

-- The App Store goes on naming whoever it was told of, until it is told of somebody else: once for each purchase that was moved.
-- States: `due`; `set`; `skipped`, where there is nothing to tell it; `refused`, by the App Store; `given_up`, without an answer.
-- The transfer is done whatever becomes of it.
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
COMMENT ON COLUMN transfer_token.reason IS 'a code: why it is not set, or why the last try failed';
COMMENT ON COLUMN transfer_token.tries IS 'how often it was taken up since somebody asked for it';
COMMENT ON COLUMN transfer_token.turn IS 'how often it was taken up at all: whoever was shut out writes nothing any more';

-- ---- Privileges ------------------------------------------------------------------------------------------------------

CREATE TABLE role_privilege (
    role      text NOT NULL,
    kind      text NOT NULL CHECK (kind IN ('schema', 'table', 'sequence', 'function')),
    object    text NOT NULL,
    -- A column; empty: the whole.
    part      text NOT NULL DEFAULT '',
    privilege text NOT NULL,
    PRIMARY KEY (role, kind, object, part, privilege)
);
COMMENT ON TABLE role_privilege IS 'what each role of entitlement-sync may do; migrate grants it, doctor compares';

