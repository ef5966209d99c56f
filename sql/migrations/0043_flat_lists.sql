-- compatible_from: 11
-- What the console shows of dead jobs costs the same however much history there is.

CREATE INDEX job_history_dead_end ON job_history (finished_at DESC, id DESC) INCLUDE (user_key) WHERE state = 'dead';

-- Dead jobs, the newest first.
CREATE OR REPLACE FUNCTION desk_dead(session bytea, most integer DEFAULT 100)
RETURNS TABLE(id text, reference text, kind text, user_key bigint, user_id text, attempt integer, finished_at timestamp with time zone, last_error text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who  operator := acting(session, 'view');
    owns boolean := has_account(who.id);
    rows integer := least(greatest(coalesce(most, 100), 1), 500);
BEGIN
    RETURN QUERY
    SELECT h.id::text, reference_of('R', h.id), CASE h.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END, h.user_key,
           masked(u.user_id, false), h.attempt::integer, h.finished_at, h.last_error
      FROM job_history AS h
      LEFT JOIN user_sync AS u ON u.user_key = h.user_key
     WHERE h.state = 'dead' AND (NOT owns OR NOT is_own_account(who.id, h.user_key))
     ORDER BY h.finished_at DESC, h.id DESC LIMIT rows;
END
$$;

-- What the console's first page draws: how old open tickets are, what was decided of them, the last day's outcomes, the queue.
CREATE OR REPLACE FUNCTION desk_figures(session bytea)
RETURNS TABLE(series text, bar text, part text, place integer, figure bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who  operator := acting(session, 'view');
    own  bigint[] := own_cases(who.id);
    owns boolean := has_account(who.id);
BEGIN
    RETURN QUERY
    WITH age AS MATERIALIZED (
        SELECT width_bucket(clock_timestamp() - t.clock_from, ARRAY['1 hour', '8 hours', '1 day', '3 days', '7 days']::interval[]) AS place,
               coalesce(t.due_at < clock_timestamp(), false) AS is_late, count(*) AS found
          FROM ticket AS t
         WHERE t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate') AND t.id <> ALL (own)
         GROUP BY 1, 2
    ), ended AS MATERIALIZED (
        SELECT date_trunc('day', t.closed_at) AS day,
               CASE t.state WHEN 'transferred' THEN 'transferred'
                            WHEN 'refused' THEN CASE t.verdict WHEN 'refuse' THEN 'refused' ELSE 'other help' END
                            ELSE 'closed itself' END AS part, count(*) AS found
          FROM ticket AS t WHERE t.closed_at >= date_trunc('day', clock_timestamp()) - interval '13 days' AND t.id <> ALL (own)
         GROUP BY 1, 2
    )
    SELECT 'age', b.bar, x.part, b.place::integer,
           (SELECT coalesce(sum(a.found), 0)::bigint FROM age AS a WHERE a.place = b.place - 1 AND a.is_late = (x.part = 'late'))
      FROM unnest(ARRAY['under 1 h', '1 to 8 h', '8 to 24 h', '1 to 3 d', '3 to 7 d', 'over 7 d']) WITH ORDINALITY AS b(bar, place)
     CROSS JOIN (VALUES ('in time'), ('late')) AS x(part)
    UNION ALL
    SELECT 'verdict', to_char(d.day, 'MM-DD'), v.part, (extract(epoch FROM d.day) / 86400)::integer,
           coalesce((SELECT n.found FROM ended AS n WHERE n.day = d.day AND n.part = v.part), 0)
      FROM generate_series(date_trunc('day', clock_timestamp()) - interval '13 days', date_trunc('day', clock_timestamp()), interval '1 day') AS d(day)
     CROSS JOIN (VALUES ('transferred'), ('other help'), ('refused'), ('closed itself')) AS v(part)
    UNION ALL
    SELECT 'outcome', d.outcome || CASE WHEN d.observed THEN ', only observed' ELSE '' END, '', d.observed::integer, count(*)
      FROM decision AS d
     WHERE d.at >= clock_timestamp() - interval '1 day' GROUP BY d.outcome, d.observed
    UNION ALL
    SELECT 'queue', x.bar, '', x.place, x.figure
      FROM (SELECT count(*) FILTER (WHERE q.owner IS NULL AND q.due <= clock_timestamp()) AS queued,
                   count(*) FILTER (WHERE q.owner IS NOT NULL) AS running,
                   count(*) FILTER (WHERE q.owner IS NULL AND q.due > clock_timestamp()) AS delayed
              FROM queue AS q) AS n
     CROSS JOIN LATERAL (VALUES ('due now', 1, n.queued), ('running', 2, n.running), ('waiting for their time', 3, n.delayed),
                                ('dead', 4, (SELECT count(*) FROM job_history AS h
                                             WHERE h.state = 'dead' AND (NOT owns OR NOT is_own_account(who.id, h.user_key))))) AS x(bar, place, figure);
END
$$;

