-- Messages for our webhooks: in order for each user, and leased to one webhook sender at a time.

-- Leases the next due message of each user, at most `most`. If the webhook sender dies, another takes its messages when the lease ends.
CREATE OR REPLACE FUNCTION take_outbox(most integer, hold_seconds integer)
RETURNS TABLE (id bigint, uid uuid, user_id text, topic text, data text, created_at timestamptz, attempt smallint,
               age double precision)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH next AS MATERIALIZED (
        SELECT o.id FROM outbox AS o
         WHERE NOT o.is_dead AND o.due <= clock_timestamp()
           AND NOT EXISTS (SELECT 1 FROM outbox AS e WHERE e.user_key = o.user_key AND e.id < o.id AND NOT e.is_dead)
         ORDER BY o.due LIMIT most FOR NO KEY UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE outbox AS o
           SET due = clock_timestamp() + hold_seconds * interval '1 second', attempt = least(o.attempt, 30000) + 1
          FROM next AS n WHERE o.id = n.id
        RETURNING o.*
    )
    SELECT t.id, t.uid, u.user_id, t.topic, t.data::text, t.created_at, t.attempt,
           extract(epoch FROM clock_timestamp() - t.created_at)::double precision
      FROM taken AS t LEFT JOIN user_sync AS u ON u.user_key = t.user_key
     ORDER BY t.id;
END
$$;

-- The next users whose custom claims at Firebase are to be written or compared, changes first; none while all is paused, and none for a
-- caller that leads no longer. `until`: the last end of what the user has, in seconds since 1970; 0 without access; where a store gives
-- access beyond what was paid for, no sooner than a day after the next check.
CREATE OR REPLACE FUNCTION due_claims(most integer, held bigint)
RETURNS TABLE (user_key bigint, version bigint, is_check boolean, attempt smallint, user_id text, entitlements text[], until bigint,
               is_beyond boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    IF NOT leads('claims', held) OR EXISTS (SELECT FROM control AS c WHERE c.name = 'all' AND c.paused) THEN RETURN; END IF;
    RETURN QUERY
    SELECT f.user_key, f.version, f.is_check, f.attempt, f.user_id, e.names,
           CASE WHEN e.until IS NULL THEN 0
                -- The last second of the year 9999: there is no end.
                ELSE extract(epoch FROM least(greatest(e.until, CASE WHEN e.is_beyond
                                                                     THEN greatest(f.next_check_at, now()) + interval '1 day' END),
                                              '9999-12-31 23:59:59+00'))::bigint END,
           coalesce(e.is_beyond, false)
      -- Two lists, each of them in its index's order.
      FROM (SELECT c.* FROM (
                   (SELECT n.*, u.user_id, u.next_check_at
                      FROM firebase_claims AS n JOIN user_sync AS u ON u.user_key = n.user_key AND u.user_id IS NOT NULL
                     WHERE NOT n.is_check AND n.due <= statement_timestamp() ORDER BY n.due LIMIT most)
                   UNION ALL
                   (SELECT n.*, u.user_id, u.next_check_at
                      FROM firebase_claims AS n JOIN user_sync AS u ON u.user_key = n.user_key AND u.user_id IS NOT NULL
                     WHERE n.is_check AND n.due <= statement_timestamp() ORDER BY n.due LIMIT most)) AS c
             ORDER BY c.is_check, c.due LIMIT most) AS f
     CROSS JOIN LATERAL (
           SELECT coalesce(array_agg(DISTINCT s.entitlement COLLATE "C") FILTER (WHERE s.entitlement IS NOT NULL), '{}') AS names,
                  max(coalesce(date_trunc('second', s.ends_at), 'infinity')) AS until, bool_or(s.ends_at <= now()) AS is_beyond
             FROM entitlement_status AS s WHERE s.user_id = f.user_id) AS e
     ORDER BY f.is_check, f.due;
END
$$;

-- Has the custom claims of everyone with access compared, the first time that they are kept.
CREATE OR REPLACE FUNCTION begin_claims() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO upkeep (name) VALUES ('firebase_claims') ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN RETURN; END IF;
    INSERT INTO firebase_claims (user_key, is_check)
    SELECT u.user_key, true FROM user_sync AS u WHERE u.entitlements IS NOT NULL ON CONFLICT DO NOTHING;
END
$$;
