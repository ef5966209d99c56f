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
