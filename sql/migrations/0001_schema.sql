-- The tables of entitlement-sync. Times are timestamptz and are compared in the database alone.

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

-- The smallest id of an instant, for range bounds.
CREATE FUNCTION first_id_at(at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3), 'hex')
            || '00000000000000000000')::uuid
$$;

-- The instant at which an id was made, to the millisecond.
CREATE FUNCTION id_time(id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_timestamp(('x' || lpad(substr(replace(id::text, '-', ''), 1, 12), 16, '0'))::bit(64)::bigint / 1000.0)
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

-- One row a known user. The identity stands here alone; every other table carries the key.
CREATE TABLE user_sync (
    user_key       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id        text        UNIQUE,
    epoch          bigint      NOT NULL DEFAULT 0,
    read_at        timestamptz,
    full_read_at   timestamptz,
    absent_since   timestamptz,
    next_look      timestamptz,
    flips_since    timestamptz,
    flips          smallint    NOT NULL DEFAULT 0,
    ever_observed  boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON COLUMN user_sync.epoch IS 'rises with every change of type; asset batches of an older epoch are void';
COMMENT ON COLUMN user_sync.flips IS 'changes of type within a day of flips_since';
COMMENT ON COLUMN user_sync.read_at IS 'when the request of the newest applied read began';
COMMENT ON COLUMN user_sync.absent_since IS 'the first full read without access and without a word of the store';

-- The hot queue: one row a user, so that one job of a user runs at a time by the primary key itself. A row holds at
-- most one queued or running restore and reconcile, and one successor of each.
CREATE TABLE queue (
    user_key          bigint      PRIMARY KEY,
    due               timestamptz NOT NULL,
    lane              smallint    NOT NULL,
    owner             integer,
    active            smallint,
    crashes           smallint    NOT NULL DEFAULT 0,
    cancel            boolean     NOT NULL DEFAULT false,
    said              boolean     NOT NULL DEFAULT false,
    restore_attempt   smallint    NOT NULL DEFAULT 0,
    reconcile_attempt smallint    NOT NULL DEFAULT 0,
    reconcile_lane    smallint    NOT NULL DEFAULT 2,
    restore_due       timestamptz,
    reconcile_due     timestamptz,
    restore_id        uuid,
    reconcile_id      uuid,
    restore_next      uuid,
    reconcile_next    uuid,
    restore_error     text,
    reconcile_error   text
) WITH (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_threshold = -1);
-- Nothing that a claim changes stands in this index: a claim stays a heap-only update.
CREATE INDEX queue_due ON queue (lane, due);
COMMENT ON COLUMN queue.lane IS '0 restore, 1 event, 2 sweep, 9 quarantine (rows whose workers kept dying)';
COMMENT ON COLUMN queue.said IS 'a job of this row may have a row in job_request';
COMMENT ON COLUMN queue.active IS 'while owned: 0 the restore runs, 1 the reconcile runs';

-- What a request said beyond its user; absent where it said nothing.
CREATE TABLE job_request (
    id           uuid NOT NULL,
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
    last_error  text
) PARTITION BY RANGE (id);
CREATE UNIQUE INDEX job_history_id ON job_history (id);
CREATE INDEX job_history_dead ON job_history (last_error) WHERE state = 'dead';
CREATE INDEX job_history_user ON job_history (user_key);

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
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The ledger: one row a lineage, one owner.
CREATE SEQUENCE purchase_id_block INCREMENT BY 1000 START WITH 1000;
CREATE TABLE purchase (
    id             bigint      PRIMARY KEY,
    owner_key      bigint,
    former_owner_key bigint,
    first_seen_at  timestamptz NOT NULL DEFAULT now(),
    owner_since    timestamptz NOT NULL DEFAULT now(),
    observed_at    timestamptz NOT NULL,
    period_ends_at timestamptz,
    transferred_at timestamptz,
    merged_into    bigint,
    gives_access   boolean,
    end_announced  boolean     NOT NULL DEFAULT false,
    source         text        NOT NULL,
    store          text        NOT NULL,
    environment    text        NOT NULL,
    kind           text        NOT NULL,
    status         text        NOT NULL,
    ownership      text        NOT NULL,
    renewal        text,
    product_id     text,
    owner_rule     text        NOT NULL,
    entitlements   text[]      NOT NULL DEFAULT '{}'
) WITH (fillfactor = 80);
CREATE INDEX purchase_owner ON purchase (owner_key);
CREATE INDEX purchase_former_owner ON purchase (former_owner_key) WHERE former_owner_key IS NOT NULL;
COMMENT ON COLUMN purchase.former_owner_key IS 'from whom it came, until a reading of either owner no longer shows it';
COMMENT ON COLUMN purchase.observed_at IS 'when the request of the newest observation began';
COMMENT ON COLUMN purchase.end_announced IS 'the store said before the period''s end that it would not renew';

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

-- What a store said, when we asked, and a hash of the words. Never changed, never deleted while a decision rests on it.
CREATE TABLE observation (
    id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
);
CREATE INDEX observation_user ON observation (user_key, id);

CREATE TABLE decision (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key       bigint      NOT NULL,
    job_id         uuid        NOT NULL,
    at             timestamptz NOT NULL DEFAULT now(),
    assets_changed integer     NOT NULL DEFAULT 0,
    version        smallint    NOT NULL DEFAULT 1,
    observed       boolean     NOT NULL DEFAULT false,
    braked         boolean     NOT NULL DEFAULT false,
    kind           smallint    NOT NULL,
    rule           text        NOT NULL,
    outcome        text        NOT NULL,
    type_before    text,
    type_after     text,
    explanation    text        NOT NULL
);
CREATE UNIQUE INDEX decision_job ON decision (job_id);
CREATE INDEX decision_user ON decision (user_key, id);
CREATE INDEX decision_braked ON decision (at) WHERE braked;
COMMENT ON COLUMN decision.observed IS 'computed in observe mode: nothing else was written';
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
COMMENT ON COLUMN asset_run.parked IS 'the host refuses what is left; tried again every hour';

CREATE SEQUENCE ticket_number;
CREATE TABLE ticket (
    id           bigint      PRIMARY KEY DEFAULT nextval('ticket_number'),
    uid          uuid        NOT NULL DEFAULT new_id(),
    claimant_key bigint      NOT NULL,
    owner_key    bigint,
    purchase_id  bigint,
    kind         text        NOT NULL,
    state        text        NOT NULL DEFAULT 'new',
    store        text,
    original_id  text,
    visible      boolean     NOT NULL,
    priority     smallint    NOT NULL DEFAULT 1,
    touches      integer     NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now()
);
-- At most one open ticket for (purchase, claimant), and for (no purchase yet, claimant).
CREATE UNIQUE INDEX ticket_open ON ticket (claimant_key, coalesce(purchase_id, 0))
 WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
CREATE INDEX ticket_purchase ON ticket (purchase_id);

CREATE TABLE ticket_event (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id bigint      NOT NULL,
    at        timestamptz NOT NULL DEFAULT now(),
    kind      text        NOT NULL,
    job_id    uuid,
    detail    jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX ticket_event_ticket ON ticket_event (ticket_id, id);

CREATE TABLE inbox (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source      text        NOT NULL,
    event_id    text        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    state       text        NOT NULL DEFAULT 'received',
    UNIQUE (source, event_id)
);

-- Which of a store's products mean access. A team writes it.
CREATE TABLE product (
    store         text     NOT NULL,
    product_id    text     NOT NULL,
    base_plan_id  text,
    entitlement   text     NOT NULL,
    grants_access boolean  NOT NULL DEFAULT true,
    duration      interval,
    UNIQUE NULLS NOT DISTINCT (store, product_id, base_plan_id)
);

-- Users whose sandbox purchases count, until a day.
CREATE TABLE sandbox_user (
    user_id text        PRIMARY KEY,
    until   timestamptz NOT NULL
);

-- Switches that hold for every worker.
CREATE TABLE control (
    name   text        PRIMARY KEY CHECK (name IN ('demotions', 'transfers', 'all')),
    paused boolean     NOT NULL DEFAULT false,
    since  timestamptz NOT NULL DEFAULT now(),
    by     text        NOT NULL DEFAULT session_user
);
INSERT INTO control (name) VALUES ('demotions'), ('transfers'), ('all');

-- The demotion brake: the row is locked by whoever demotes, so that the limit holds across workers.
CREATE TABLE brake (
    one         boolean     PRIMARY KEY DEFAULT true CHECK (one),
    subscribers bigint      NOT NULL DEFAULT 0,
    counted_at  timestamptz
);
INSERT INTO brake DEFAULT VALUES;

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

-- How far the stores' clocks stand from the database's, by store.
CREATE TABLE store_health (
    store          text        PRIMARY KEY,
    last_answer_at timestamptz,
    last_error_at  timestamptz,
    last_error     text,
    skew_seconds   double precision
);

-- Makes the partitions of the coming days and drops those beyond retention. Names carry the day.
CREATE FUNCTION maintain_partitions(ahead integer DEFAULT 7, keep integer DEFAULT 90) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    parent text;
    part   text;
    low    uuid;
    high   uuid;
    day    date;
    made   integer := 0;
    old    record;
BEGIN
    -- One at a time: two workers would make the same table.
    PERFORM pg_advisory_xact_lock(7309940714432065);
    FOREACH parent IN ARRAY ARRAY['job_history', 'job_request'] LOOP
        FOR day IN SELECT d::date FROM generate_series((now() AT TIME ZONE 'UTC')::date - 1,
                                                       (now() AT TIME ZONE 'UTC')::date + ahead, interval '1 day') AS d LOOP
            part := parent || to_char(day, '_YYYYMMDD');
            IF to_regclass(format('entitlement_sync.%I', part)) IS NULL THEN
                low := first_id_at(day::timestamp AT TIME ZONE 'UTC');
                high := first_id_at((day + 1)::timestamp AT TIME ZONE 'UTC');
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS)', part, parent);
                -- Rows of a day that had no partition yet wait in the default one.
                EXECUTE format('WITH moved AS (DELETE FROM %I WHERE id >= %L AND id < %L RETURNING *)
                                INSERT INTO %I SELECT * FROM moved', parent || '_other', low, high, part);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, low, high);
                made := made + 1;
            END IF;
        END LOOP;
        FOR old IN
            SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
             WHERE i.inhparent = format('entitlement_sync.%I', parent)::regclass
               AND c.relname ~ '_\d{8}$'
               AND to_date(right(c.relname, 8), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - keep
        LOOP
            EXECUTE format('DROP TABLE %I', old.relname);
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;
-- Ids outside every day (a clock far off) still land somewhere.
CREATE TABLE job_history_other PARTITION OF job_history DEFAULT;
CREATE TABLE job_request_other PARTITION OF job_request DEFAULT;
SELECT maintain_partitions();
