-- compatible_from: 11
-- What is read of a user's history, and of due asset work, costs the same however much there is.

-- The newest of a user's jobs are asked for by id: without it in the index, each day's ids are walked backwards.
CREATE INDEX job_history_user_id ON job_history (user_key, id);
DROP INDEX job_history_user;
CREATE INDEX asset_run_due ON asset_run (due);

-- Restores as the app sees them; ids that are no restore's are left out. `age`: seconds since it was asked for.
CREATE OR REPLACE FUNCTION restore_answers(ids uuid[])
RETURNS TABLE (id uuid, user_id text, state text, outcome text, message_key text,
               age double precision, products jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    wanted uuid;
    known  bigint;
BEGIN
    -- One by one: a statement that looks for one id opens one day.
    FOREACH wanted IN ARRAY ids LOOP
        -- Most are asked about because they have ended.
        SELECT h.id, h.user_key, h.state, h.outcome, h.message_key INTO id, known, state, outcome, message_key
          FROM job_history AS h WHERE h.id = wanted AND h.kind = 0;
        IF NOT FOUND THEN
            -- Of the function's snapshot: what had not ended is in the queue. The view joins every user to it while few
            -- are known.
            SELECT q.user_key, CASE WHEN q.restore_id = wanted AND q.owner IS NOT NULL AND q.active = 0
                                    THEN 'running' ELSE 'queued' END,
                   (SELECT 'still_checking' FROM control AS c WHERE c.name = 'all' AND c.paused)
              INTO known, state, message_key
              FROM queue AS q WHERE q.restore_id = wanted OR q.restore_next = wanted LIMIT 1;
            CONTINUE WHEN NOT FOUND;
            id := wanted;
            outcome := NULL;
        END IF;
        -- Not joined: while few users are known, all of them would be read for each job ever after.
        SELECT u.user_id INTO user_id FROM user_sync AS u WHERE u.user_key = known;
        age := extract(epoch FROM clock_timestamp() - id_time(id))::double precision;
        -- An erased user has no answer.
        products := CASE WHEN user_id IS NOT NULL AND outcome IN ('restored', 'already_subscriber')
                         THEN restored_products(known, id) ELSE '[]' END;
        RETURN NEXT;
    END LOOP;
END
$$;
