-- compatible_from: 11
-- A job that is put back is as old as its new place in the queue, not as old as its request.

ALTER TABLE queue ADD COLUMN restore_queued_at timestamptz, ADD COLUMN reconcile_queued_at timestamptz;
COMMENT ON COLUMN queue.restore_queued_at IS 'when the restore was put back, or had its turn behind another; null: when its id was made';
COMMENT ON COLUMN queue.reconcile_queued_at IS 'the same of the reconcile';

-- Puts dead jobs back into the queue under their own ids; those whose user has such a job queued already stay. What is put
-- back begins again: neither its attempts nor its age count.
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
            -- One that waits behind a job that runs gets its time when its turn comes.
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

CREATE OR REPLACE FUNCTION product_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at timestamptz := clock_timestamp();
BEGIN
    PERFORM requeue_dead(ARRAY(SELECT h.id FROM job_history AS h
                                WHERE h.state = 'dead' AND h.last_error = 'product_unmapped'));
    -- Those that still wait for it begin again as well, also where the user's other job is due or runs already. One that
    -- runs decides by the new catalogue, and keeps its count.
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
