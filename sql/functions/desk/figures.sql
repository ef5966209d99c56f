-- The console's causes and charts of the last days, and the log of what operators did.

-- Decisions and tickets of the last days by cause; `observed`: decisions of which nothing was written.
CREATE OR REPLACE FUNCTION desk_causes(session bytea, days integer)
    RETURNS TABLE (what text, cause text, found bigint, users bigint, last_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    who   operator := acting(session, 'view');
    own   bigint[] := own_cases(who.id);
    since timestamptz := clock_timestamp() - make_interval(days => least(greatest(coalesce(days, 7), 1), 90));
BEGIN
    RETURN QUERY
    SELECT CASE WHEN d.observed THEN 'observed' ELSE 'decision' END, 
           d.rule || CASE WHEN d.type_after = 'subscriber' THEN ':promoted' ELSE ':demoted' END, count(*),
           count(DISTINCT d.user_key), max(d.at)
      FROM decision AS d
     WHERE d.at >= since AND d.type_before IS DISTINCT FROM d.type_after
     GROUP BY 1, 2
    UNION ALL
    SELECT 'ticket', t.kind, count(*), count(DISTINCT t.claimant_key), max(t.created_at)
      FROM ticket AS t WHERE t.created_at >= since AND t.id <> ALL (own) GROUP BY t.kind
     ORDER BY 3 DESC, 2;
END
$$;

-- The numbers of the charts. `series` names the chart, `bar` the bar, `part` a part of the bar; `place` orders the bars.
CREATE OR REPLACE FUNCTION desk_figures(session bytea) RETURNS TABLE (series text, bar text, part text, place integer, figure bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET jit = off SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who  operator := acting(session, 'view');
    own  bigint[] := own_cases(who.id);
    owns boolean := has_account(who.id);
    -- A constant, because a value that may change from row to row cannot be searched in an index.
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH age AS MATERIALIZED (
        SELECT width_bucket(clock_timestamp() - t.clock_from, ARRAY['1 hour', '8 hours', '1 day', '3 days', '7 days']::interval[]) AS place,
               coalesce(t.due_at < clock_timestamp(), false) AS is_late, count(*) AS found
          FROM ticket AS t
         WHERE is_open(t.state) AND t.id <> ALL (own)
         GROUP BY 1, 2
    ), ended AS MATERIALIZED (
        SELECT date_trunc('day', t.closed_at) AS day,
               CASE t.state WHEN 'transferred' THEN 'transferred'
                            WHEN 'refused' THEN CASE t.verdict WHEN 'refuse' THEN 'refused' ELSE 'other help' END
                            ELSE 'closed itself' END AS part, count(*) AS found
          FROM ticket AS t WHERE t.closed_at >= date_trunc('day', moment) - interval '13 days' AND t.id <> ALL (own)
         GROUP BY 1, 2
    )
    SELECT 'age', b.bar, x.part, b.place::integer,
           (SELECT coalesce(sum(a.found), 0)::bigint FROM age AS a WHERE a.place = b.place - 1 AND a.is_late = (x.part = 'late'))
      FROM unnest(ARRAY['under 1 h', '1 to 8 h', '8 to 24 h', '1 to 3 d', '3 to 7 d', 'over 7 d']) WITH ORDINALITY AS b(bar, place)
     CROSS JOIN (VALUES ('in time'), ('late')) AS x(part)
    UNION ALL
    SELECT 'verdict', to_char(d.day, 'MM-DD'), v.part, (extract(epoch FROM d.day) / 86400)::integer,
           coalesce((SELECT n.found FROM ended AS n WHERE n.day = d.day AND n.part = v.part), 0)
      FROM generate_series(date_trunc('day', clock_timestamp()) - interval '13 days', date_trunc('day', clock_timestamp()),
          interval '1 day') AS d(day)
     CROSS JOIN (VALUES ('transferred'), ('other help'), ('refused'), ('closed itself')) AS v(part)
    UNION ALL
    SELECT 'outcome', d.outcome || CASE WHEN d.observed THEN ', only observed' ELSE '' END, '', d.observed::integer, count(*)
      FROM (SELECT x.outcome, x.observed FROM decision AS x WHERE x.at >= moment - interval '1 day'
             UNION ALL
            SELECT h.outcome, EXISTS (SELECT 1 FROM worker AS w WHERE w.mode = 'observe' AND w.expires_at > moment)
              FROM job_history AS h
             WHERE h.confirms IS NOT NULL AND h.id >= first_id_at(moment - interval '2 days')
               AND h.finished_at >= moment - interval '1 day') AS d
     GROUP BY d.outcome, d.observed
    UNION ALL
    SELECT 'queue', x.bar, '', x.place, x.figure
      FROM (SELECT count(*) FILTER (WHERE q.owner IS NULL AND q.due <= clock_timestamp()) AS queued,
                   count(*) FILTER (WHERE q.owner IS NOT NULL) AS running,
                   count(*) FILTER (WHERE q.owner IS NULL AND q.due > clock_timestamp()) AS delayed
              FROM queue AS q) AS n
     CROSS JOIN LATERAL (VALUES ('due now', 1, n.queued), ('running', 2, n.running), ('waiting for their time', 3, n.delayed),
                                ('dead', 4, (SELECT count(*) FROM job_history AS h
                                             WHERE h.state = 'dead' AND (NOT owns OR NOT is_own_account(who.id, h.user_key))))) 
           AS x(bar, place, figure);
END
$$;

-- What operators did, the latest first, for an operator with the permission `audit`.
CREATE OR REPLACE FUNCTION desk_log(session bytea, before bigint, most integer)
RETURNS TABLE (id bigint, at timestamptz, operator text, kind text, about text, detail text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'audit');
BEGIN
    RETURN QUERY
    SELECT e.id, e.at, o.name, e.kind, a.name, CASE WHEN e.detail <> '{}' THEN e.detail::text END
      FROM (SELECT * FROM operator_event AS y WHERE y.id < coalesce(before, 9223372036854775807) ORDER BY y.id DESC
             LIMIT least(greatest(coalesce(most, 100), 1), 500)) AS e
      LEFT JOIN operator AS o ON o.id = e.operator_id
      LEFT JOIN operator AS a ON a.id = e.about_id
     ORDER BY e.id DESC;
END
$$;
