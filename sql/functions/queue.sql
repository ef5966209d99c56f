-- The job queue: how jobs get into a user's row, how dead jobs come back, and how the table stays small.

-- Queues a job of a user, or joins the one that is queued. Returns the id of the job that does the work: `fresh`, or that of the
-- queued one. `job_kind`: 0 restore, 1 reconcile; `says`: the request carries content for `job_request`. A restore ignores `job_lane`.
CREATE OR REPLACE FUNCTION enqueue(
    for_user bigint,
    job_kind smallint,
    job_lane smallint,
    fresh    uuid,
    says     boolean DEFAULT false
) RETURNS uuid
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at          timestamptz := clock_timestamp();
    answered_by uuid;
BEGIN
    IF job_kind <> 0 THEN
        SELECT e.answered_by INTO answered_by FROM enqueue_reconciles(ARRAY[for_user], job_lane, ARRAY[fresh], says) AS e;
        RETURN answered_by;
    END IF;
    INSERT INTO queue AS q (user_key, due, lane, restore_id, restore_due, has_request) VALUES (for_user, at, 0, fresh, at, says)
    ON CONFLICT (user_key) DO UPDATE SET
        restore_id   = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_id
                            ELSE coalesce(q.restore_id, excluded.restore_id) END,
        restore_due  = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_due
                            ELSE least(q.restore_due, at) END,
        restore_next = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0
                            THEN coalesce(q.restore_next, excluded.restore_id) ELSE q.restore_next END,
        has_request  = q.has_request OR says,
        lane         = CASE WHEN q.owner IS NOT NULL OR q.lane = 9 THEN q.lane ELSE 0 END,
        -- A row that waits in another lane is due now and not earlier: a dequeue reads restores from its watermark on.
        due          = CASE WHEN q.owner IS NOT NULL THEN q.due WHEN q.lane IN (1, 2) THEN at ELSE least(q.due, at) END
    RETURNING CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 0 THEN q.restore_next ELSE q.restore_id END
         INTO answered_by;
    RETURN answered_by;
END
$$;

-- Queues a reconcile for each user, or joins the one that is queued, as `enqueue` does. `fresh`: a new id for each user.
CREATE OR REPLACE FUNCTION enqueue_reconciles(keys bigint[], job_lane smallint, fresh uuid[], says boolean DEFAULT false)
RETURNS TABLE (user_key bigint, answered_by uuid)
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO queue AS q (user_key, due, lane, reconcile_id, reconcile_due, reconcile_lane, has_request)
    -- Sorted, because two callers that lock the same users in different orders could deadlock.
    SELECT w.key, at, job_lane, w.id, at, job_lane, says FROM unnest(keys, fresh) AS w(key, id) ORDER BY w.key
    ON CONFLICT (user_key) DO UPDATE SET
        reconcile_id   = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_id
                              ELSE coalesce(q.reconcile_id, excluded.reconcile_id) END,
        reconcile_due  = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_due
                              ELSE least(q.reconcile_due, at) END,
        reconcile_lane = least(q.reconcile_lane, job_lane),
        reconcile_next = CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1
                              THEN coalesce(q.reconcile_next, excluded.reconcile_id) ELSE q.reconcile_next END,
        due            = CASE WHEN q.owner IS NOT NULL THEN q.due ELSE least(q.due, at) END,
        has_request    = q.has_request OR says,
        lane           = CASE WHEN q.owner IS NOT NULL OR q.lane = 9 THEN q.lane ELSE least(q.lane, job_lane) END
    RETURNING q.user_key, CASE WHEN (q.owner IS NOT NULL OR q.cancel) AND q.active = 1 THEN q.reconcile_next
                               ELSE q.reconcile_id END;
END
$$;

-- Queues background reconciles of many users. Users whose queue rows stay locked are left out; after four of them, all that follow.
CREATE OR REPLACE FUNCTION enqueue_free(keys bigint[]) RETURNS TABLE (user_key bigint, job uuid)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    key   bigint;
    waits integer := 0;
    usual text := current_setting('lock_timeout');
BEGIN
    BEGIN
        PERFORM set_config('lock_timeout', '50ms', true);
        RETURN QUERY
        SELECT e.user_key, e.answered_by
          FROM enqueue_reconciles(keys, 2::smallint, ARRAY(SELECT new_id() FROM unnest(keys))) AS e;
        PERFORM set_config('lock_timeout', usual, true);
        RETURN;
    EXCEPTION
        WHEN lock_not_available THEN NULL;
    END;
    PERFORM set_config('lock_timeout', '10ms', true);
    FOREACH key IN ARRAY keys LOOP
        BEGIN
            RETURN QUERY
            SELECT e.user_key, e.answered_by FROM enqueue_reconciles(ARRAY[key], 2::smallint, ARRAY[new_id()]) AS e;
        EXCEPTION
            WHEN lock_not_available THEN
                -- The rows queued so far stay locked until this transaction ends, and restores may wait for them.
                waits := waits + 1;
                EXIT WHEN waits >= 4;
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', usual, true);
END
$$;

-- Makes users known; `dry`: for a dry run. Users that another transaction is making known are left out; after four, all that follow.
CREATE OR REPLACE FUNCTION meet_free(ids text[], dry boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    one   text;
    waits integer := 0;
    usual text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '50ms', true);
    BEGIN
        INSERT INTO user_sync (user_id, is_dry_run_only) SELECT x.id, dry FROM unnest(ids) AS x(id) ORDER BY 1
            ON CONFLICT (user_id) DO NOTHING;
    EXCEPTION
        WHEN lock_not_available THEN
            PERFORM set_config('lock_timeout', '10ms', true);
            FOREACH one IN ARRAY ids LOOP
                BEGIN
                    INSERT INTO user_sync (user_id, is_dry_run_only) VALUES (one, dry) ON CONFLICT (user_id) DO NOTHING;
                EXCEPTION
                    WHEN lock_not_available THEN
                        waits := waits + 1;
                        EXIT WHEN waits >= 4;
                END;
            END LOOP;
    END;
    PERFORM set_config('lock_timeout', usual, true);
END
$$;

-- Notifies, at commit, if any worker rests. Workers that do not rest find the work when they poll next.
CREATE OR REPLACE FUNCTION stir() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM worker AS w WHERE w.rests) THEN
        PERFORM pg_notify('entitlement_sync_wake', '');
    END IF;
END
$$;

-- Queues dead jobs again under their own ids, with no attempts and no age, and returns how many. A dead job stays dead if its user has a
-- job of its kind queued.
CREATE OR REPLACE FUNCTION requeue_dead(ids uuid[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    old   record;
    moved integer := 0;
    at    timestamptz := clock_timestamp();
BEGIN
    FOR old IN SELECT h.id, h.user_key, h.kind FROM job_history AS h
                WHERE h.id = ANY (ids) AND h.state = 'dead' ORDER BY h.user_key, h.id
                  FOR UPDATE LOOP
        IF enqueue(old.user_key, old.kind, 2::smallint, old.id, true) = old.id THEN
            -- A successor of a running job gets this time when the running job has ended.
            UPDATE queue AS q
               SET restore_queued_at = CASE WHEN q.restore_id = old.id THEN at ELSE q.restore_queued_at END,
                   reconcile_queued_at = CASE WHEN q.reconcile_id = old.id THEN at ELSE q.reconcile_queued_at END
             WHERE q.user_key = old.user_key;
            DELETE FROM job_history AS h WHERE h.id = old.id AND h.state = 'dead';
            moved := moved + 1;
        END IF;
    END LOOP;
    IF moved > 0 THEN
        PERFORM pg_notify('entitlement_sync_wake', '');
    END IF;
    RETURN moved;
END
$$;

-- Tries jobs again that failed because `product` had no row for a product.
CREATE OR REPLACE FUNCTION product_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    PERFORM requeue_dead(ARRAY(SELECT h.id FROM job_history AS h
                                WHERE h.state = 'dead' AND h.last_error = 'product_unmapped'));
    -- Jobs that wait for a retry begin again, even if the user's other job runs. A job that runs decides by the new rows, and keeps its
    -- count of attempts.
    UPDATE queue AS q
       SET due = CASE WHEN q.owner IS NULL THEN least(q.due, at) ELSE q.due END,
           restore_due = CASE WHEN w.restore THEN least(q.restore_due, at) ELSE q.restore_due END,
           restore_attempt = CASE WHEN w.restore THEN 0 ELSE q.restore_attempt END,
           restore_queued_at = CASE WHEN w.restore THEN at ELSE q.restore_queued_at END,
           reconcile_due = CASE WHEN w.reconcile THEN least(q.reconcile_due, at) ELSE q.reconcile_due END,
           reconcile_attempt = CASE WHEN w.reconcile THEN 0 ELSE q.reconcile_attempt END,
           reconcile_queued_at = CASE WHEN w.reconcile THEN at ELSE q.reconcile_queued_at END
      FROM (SELECT x.user_key,
                   x.restore_error = 'product_unmapped' AND (x.owner IS NULL OR x.active <> 0) AS restore,
                   x.reconcile_error = 'product_unmapped' AND (x.owner IS NULL OR x.active <> 1) AS reconcile
              FROM queue AS x
             WHERE 'product_unmapped' IN (x.restore_error, x.reconcile_error)
               FOR UPDATE) AS w
     WHERE q.user_key = w.user_key AND (w.restore OR w.reconcile);
    DELETE FROM alarm AS a WHERE a.name = 'product_unmapped';
    RETURN NULL;
END
$$;

-- Moves the queue to new files if it takes more than `above` bytes and has at most `at_most` rows. Returns whether it did. It does not
-- wait for the table lock if a transaction has locked the queue for longer than a request does; then no process tries again for two
-- minutes. A transaction with a snapshot from before the move, whose first read of the queue comes after it, sees the queue empty.
CREATE OR REPLACE FUNCTION compact_queue(above bigint DEFAULT 33554432, at_most integer DEFAULT 20000) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = entitlement_sync, pg_temp SET lock_timeout = '100ms' SET enable_seqscan = on AS $$
DECLARE
    kept queue[];
BEGIN
    IF pg_total_relation_size('entitlement_sync.queue') <= above
       OR EXISTS (SELECT 1 FROM upkeep AS u WHERE u.name = 'queue'
                  AND u.next_at BETWEEN clock_timestamp() AND clock_timestamp() + interval '10 minutes') THEN
        RETURN false;
    END IF;
    -- Counted first without the lock, so that requests do not wait for nothing.
    IF (SELECT count(*) FROM (SELECT 1 FROM queue LIMIT at_most + 1) AS q) > at_most
       OR NOT pg_try_advisory_xact_lock(7309940714432066) THEN
        RETURN false;
    END IF;
    BEGIN
        IF are_held(ARRAY['entitlement_sync.queue'::regclass::oid]) THEN
            RAISE lock_not_available;
        END IF;
        LOCK TABLE queue IN ACCESS EXCLUSIVE MODE;
    EXCEPTION
        WHEN lock_not_available THEN
            INSERT INTO upkeep AS u (name, next_at) VALUES ('queue', clock_timestamp() + interval '2 minutes')
            ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at;
            RETURN false;
    END;
    kept := ARRAY(SELECT q FROM queue AS q LIMIT at_most + 1);
    IF cardinality(kept) > at_most THEN
        RETURN false;
    END IF;
    TRUNCATE queue;
    INSERT INTO queue SELECT k.* FROM unnest(kept) AS k;
    RETURN true;
END
$$;
