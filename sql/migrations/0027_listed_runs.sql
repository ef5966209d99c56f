-- compatible_from: 11
-- Runs that read no users, and only have stores list what they sent: cheap enough for every night. What the lists tell of is
-- read as after an event. They are runs of the scope `since`, so that processes of earlier versions go on with them.

ALTER TABLE run ADD COLUMN lists_only boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN run.lists_only IS 'no user is read but those whom stores'' lists lead to';
CREATE INDEX run_listed ON run (schedule, id) WHERE lists_only;

ALTER TABLE schedule ADD COLUMN days integer CHECK (days BETWEEN 1 AND 180);
COMMENT ON COLUMN schedule.days IS 'of the scope since: how far back stores list at least';
ALTER TABLE schedule DROP CONSTRAINT schedule_scope_check;
ALTER TABLE schedule ADD CONSTRAINT schedule_scope_check
    CHECK (scope IN ('due', 'all') AND days IS NULL
           OR scope = 'since' AND days IS NOT NULL AND NOT is_dry AND max_demotions IS NULL);

-- Asks for stores' lists since an instant. Returns null where a run of the scope `since` goes on.
CREATE FUNCTION ask_lists(starting timestamptz, who text, by_schedule text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    made bigint := ask_run('since', false, starting, NULL, who, by_schedule);
BEGIN
    UPDATE run AS r SET lists_only = true, is_paged = true, is_fed = true, total = 0, started_at = clock_timestamp()
     WHERE r.id = made;
    RETURN made;
END
$$;

CREATE OR REPLACE FUNCTION start_scheduled(held bigint, which text, slot timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    s    schedule;
    made bigint;
BEGIN
    IF NOT leads('scheduler', held) THEN
        RETURN NULL;
    END IF;
    SELECT x.* INTO s FROM schedule AS x WHERE x.name = which AND x.slot_at < slot FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF s.scope = 'since' THEN
        made := ask_lists(slot - make_interval(days => s.days), 'schedule ' || s.name, s.name);
    ELSE
        made := ask_run(s.scope, s.is_dry, NULL, s.max_demotions, 'schedule ' || s.name, s.name);
    END IF;
    UPDATE schedule AS x
       SET slot_at = CASE WHEN made IS NULL THEN x.slot_at ELSE slot END,
           late_since = CASE WHEN made IS NULL THEN coalesce(x.late_since, slot) END
     WHERE x.name = which;
    RETURN made;
END
$$;

-- Begins to list for a run what workers that live can list; what was begun goes on. Returns whether the run's end has to
-- wait for it: one that has failed a few times, or of which nothing is heard, is waited for no longer. Null: the caller leads
-- no more.
CREATE OR REPLACE FUNCTION plan_listings(fenced bigint, which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    r     run;
    fresh bigint;
    mute  bigint;
BEGIN
    IF NOT leads('planner', fenced) THEN
        RETURN NULL;
    END IF;
    -- Whoever lists writes the run's record as well, after this lock.
    SELECT x.* INTO r FROM run AS x
     WHERE x.id = which AND x.state = 'reading' AND x.scope = 'since' AND NOT x.is_dry FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO run_listing (run_id, list, since, until, reached)
    SELECT which, o.list, b.begins, clock_timestamp(), b.begins
      FROM (SELECT DISTINCT unnest(w.lists) AS list FROM worker AS w WHERE w.expires_at > clock_timestamp()) AS o
     CROSS JOIN LATERAL (
           -- By schedule from where the list was read to, however long ago: one that nobody could read leaves no gap, and
           -- keeps no other list back. What was never read is read for a month.
           SELECT CASE WHEN r.schedule IS NOT NULL AND r.lists_only
                       THEN least(r.since, coalesce((SELECT max((x.listed -> o.list ->> 'until')::timestamptz) FROM run AS x
                                                      WHERE x.schedule = r.schedule AND x.lists_only AND x.id <> which),
                                                    r.asked_at - interval '30 days'))
                       ELSE r.since END AS begins) AS b
     WHERE b.begins < clock_timestamp()
       AND NOT EXISTS (SELECT 1 FROM run_listing AS y WHERE y.run_id = which AND y.list = o.list)
        ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS fresh = ROW_COUNT;
    UPDATE run_listing AS y SET error = 'silent'
     WHERE y.run_id = which AND y.ended_at IS NULL AND y.error IS NULL AND greatest(y.moved_at, y.due) < clock_timestamp() - interval '5 minutes';
    GET DIAGNOSTICS mute = ROW_COUNT;
    IF fresh + mute > 0 THEN
        PERFORM note_listings(which);
    END IF;
    RETURN EXISTS (SELECT 1 FROM run_listing AS y
                    WHERE y.run_id = which AND y.ended_at IS NULL AND y.failures < 3
                      AND greatest(y.moved_at, y.due) >= clock_timestamp() - interval '5 minutes')
           -- Nobody has said yet what can be listed.
        OR NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.expires_at > clock_timestamp());
END
$$;

-- Takes a run that was read or written to its end on to what follows. `allowed`: how many demotions the brake allows now.
-- Returns its new state; null where it goes on as it does, or the caller leads no more.
CREATE OR REPLACE FUNCTION settle_run(fenced bigint, which bigint, allowed bigint, most bigint, of_subscribers bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
    r   run;
    n   bigint;
    new text;
BEGIN
    IF NOT leads('planner', fenced) THEN
        RETURN NULL;
    END IF;
    SELECT x.* INTO r FROM run AS x WHERE x.id = which AND x.state IN ('reading', 'applying') AND x.is_fed FOR NO KEY UPDATE;
    IF NOT FOUND OR EXISTS (SELECT 1 FROM run_part AS p WHERE p.run_id = which AND p.ended_at IS NULL) THEN
        RETURN NULL;
    END IF;
    -- Whoever was changed since is at stake no more.
    UPDATE run_change AS c
       SET state = CASE WHEN (SELECT d.outcome FROM decision AS d WHERE d.user_key = c.user_key ORDER BY d.id DESC LIMIT 1) = 'demoted'
                        THEN 'applied' ELSE 'void' END
      FROM user_sync AS u
     WHERE c.run_id = which AND c.state = 'held' AND u.user_key = c.user_key AND u.epoch <> c.epoch;
    SELECT count(*) INTO n FROM run_change AS c WHERE c.run_id = which AND c.state = 'held';
    -- Another run may be about to write what it was allowed.
    allowed := greatest(allowed - (SELECT count(*) FROM run AS x JOIN run_change AS c ON c.run_id = x.id AND c.state = 'held'
                                    WHERE x.state = 'applying' AND NOT x.is_confirmed AND x.id <> which), 0);
    IF r.state = 'reading' AND NOT r.is_dry AND NOT r.lists_only THEN
        -- Where an earlier one of its scope waits for people, the most careful of those who asked is heard.
        r.max_demotions := least(r.max_demotions,
                                 (SELECT min(x.max_demotions) FROM run AS x
                                   WHERE x.scope = r.scope AND NOT x.is_dry AND x.state = 'stopped' AND x.id < which));
        -- What it found stands for what that one has left to people, where all of them are among what it found, or something
        -- else was decided about them since. That demotions are switched off decides nothing.
        UPDATE run AS x SET state = 'canceled', ended_at = clock_timestamp()
         WHERE x.scope = r.scope AND NOT x.is_dry AND x.state = 'stopped' AND x.id < which
           AND NOT EXISTS (SELECT 1 FROM run_change AS c JOIN user_sync AS u ON u.user_key = c.user_key
                            WHERE c.run_id = x.id AND c.state = 'held' AND c.epoch = u.epoch AND u.user_id IS NOT NULL
                              AND NOT EXISTS (SELECT 1 FROM run_change AS f
                                               WHERE f.run_id = which AND f.user_key = c.user_key
                                                 AND f.state IN ('held', 'applied'))
                              AND NOT EXISTS (SELECT 1 FROM decision AS y
                                               WHERE y.user_key = c.user_key AND NOT y.observed
                                                 AND y.rule NOT IN ('proposed', 'brake', 'demotions_paused', 'promote_only')
                                                 AND y.id > (SELECT d.id FROM decision AS d WHERE d.job_id = c.job_id)));
    END IF;
    IF r.state = 'applying' OR r.is_dry OR n = 0 THEN
        new := 'done';
        -- Read anew they came to something else, or the brake held them back.
        UPDATE run_change AS c SET state = 'void' WHERE c.run_id = which AND c.state = 'held';
    ELSIF n <= least(allowed, r.max_demotions) THEN
        new := 'applying';
    ELSE
        new := 'stopped';
        INSERT INTO alarm AS a (name, detail)
        VALUES ('run_stopped', format('Run %s would demote %s users, more than its limit of %s: none of them was demoted. See entitlement-sync '
                                      'runs show %s.', which, n, least(allowed, r.max_demotions), which))
        ON CONFLICT (name) DO UPDATE SET detail = excluded.detail, last_at = now(), count = a.count + 1;
    END IF;
    UPDATE run AS x
       SET state = new, is_fed = new <> 'applying', is_paged = new <> 'applying', cursor_key = NULL,
           settled_at = coalesce(x.settled_at, clock_timestamp()),
           held = CASE WHEN x.state = 'reading' THEN n ELSE x.held END,
           total = CASE WHEN x.state = 'reading' THEN x.fed + x.skipped ELSE x.total END,
           demotion_limit = CASE WHEN x.state = 'reading' AND NOT x.is_dry THEN least(allowed, r.max_demotions)
                                 ELSE coalesce(x.demotion_limit, most) END,
           max_demotions = r.max_demotions, subscribers = coalesce(x.subscribers, of_subscribers),
           hash = CASE WHEN x.state = 'reading' THEN hash_of_run(which) ELSE x.hash END,
           ended_at = CASE WHEN new = 'done' THEN clock_timestamp() END
     WHERE x.id = which;
    PERFORM clear_run_alarm();
    RETURN new;
END
$$;

REVOKE ALL ON FUNCTION ask_lists FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION ask_lists TO %I']);
SELECT grant_to(r.name, ARRAY['GRANT SELECT (lists_only) ON run TO %I'])
  FROM unnest(ARRAY['entitlement_sync_support', 'entitlement_sync_auditor']) AS r(name);
