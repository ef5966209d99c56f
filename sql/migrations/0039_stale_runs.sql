-- compatible_from: 11
-- A stopped run is for a person for 72 hours, as `release_run` says. After that it holds no demotion.
CREATE OR REPLACE FUNCTION runs_of(wanted uuid[], users bigint[])
RETURNS TABLE (job uuid, run_id bigint, is_held boolean, is_confirmed boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
    SELECT w.id, r.id, NOT (r.state = 'applying' AND c.user_key IS NOT NULL), r.is_confirmed
      FROM run AS r
      JOIN run_part AS p ON p.run_id = r.id AND p.ended_at IS NULL
     CROSS JOIN LATERAL (SELECT x.key FROM unnest(p.keys) AS x(key) WHERE x.key = ANY (users)) AS j
      JOIN unnest(wanted, users) AS w(id, user_key) ON w.user_key = j.key
     CROSS JOIN LATERAL (SELECT x.epoch FROM user_sync AS x WHERE x.user_key = j.key OFFSET 0) AS u
      LEFT JOIN run_change AS c
        ON c.run_id = r.id AND c.user_key = j.key AND c.state = 'held' AND c.epoch = u.epoch
     WHERE NOT r.is_dry
       AND NOT (r.state = 'stopped' AND coalesce(r.settled_at, 'infinity') < clock_timestamp() - interval '72 hours')
     UNION ALL
    SELECT w.id, r.id, true, false
      FROM unnest(wanted, users) AS w(id, user_key)
     CROSS JOIN LATERAL (SELECT x.epoch FROM user_sync AS x WHERE x.user_key = w.user_key OFFSET 0) AS u
      JOIN run_change AS c ON c.user_key = w.user_key AND c.state = 'held' AND c.epoch = u.epoch
      JOIN run AS r ON r.id = c.run_id
     WHERE r.state = 'reading'
        OR r.state = 'stopped' AND coalesce(r.settled_at, 'infinity') >= clock_timestamp() - interval '72 hours'
$$;
