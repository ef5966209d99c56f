-- How the product itself pauses demotions: if a store knows too few of our users, the credentials are of another project, or a failover
-- may have lost commits; and alarms.

-- Pauses demotions on behalf of the product; an operator's pause stays as it is. Returns whether this call changed the switch.
CREATE OR REPLACE FUNCTION pause_demotions(why text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- Any other cause replaces `credentials`, because only an operator ends such a pause. `commits_lost` replaces an operator's pause as
    -- well, because the operator has to learn of it.
    UPDATE control AS c SET paused = true, since = clock_timestamp(), by = 'entitlement-sync', cause = why
     WHERE c.name = 'demotions'
       AND (NOT c.paused OR c.cause = 'credentials' AND why <> 'credentials' OR why = 'commits_lost');
    RETURN FOUND;
END
$$;

-- Notes users whose purchases a store does not list, and returns the alarms that it raised. `hints`: the text of an alarm, by place.
-- It pauses demotions if, in an hour or a day, these users are at least five and over a tenth of the store's answers since the switch was
-- last set. Fewer than five are no pattern. In its worst hours a store loses far less than a tenth; with wrong credentials it loses all.
-- The hour serves hosts with many users, the day those with few: both are shorter than an absence margin.
CREATE OR REPLACE FUNCTION note_absences(names text[], users bigint[], unknowns boolean[], hints text[]) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    switch control%ROWTYPE;
    item   record;
BEGIN
    INSERT INTO store_absence AS a (store, user_key, unknown)
    SELECT n.name, n.who, bool_or(n.unknown) FROM unnest(names, users, unknowns) AS n(name, who, unknown)
     GROUP BY n.name, n.who ORDER BY n.name, n.who
    ON CONFLICT (store, user_key) DO UPDATE SET unknown = true WHERE NOT a.unknown AND excluded.unknown;
    FOR item IN SELECT n.name, min(n.hint) AS hint FROM unnest(names, unknowns, hints) AS n(name, unknown, hint)
                 WHERE n.unknown GROUP BY n.name ORDER BY n.name LOOP
        PERFORM raise_alarm('unknown_to_store.' || item.name, format(item.hint, count(*)))
           FROM (SELECT 1 FROM store_absence AS s WHERE s.store = item.name AND s.unknown LIMIT 10000) AS s;
        RETURN NEXT 'unknown_to_store.' || item.name;
    END LOOP;
    SELECT * INTO switch FROM control AS c WHERE c.name = 'demotions';
    -- The pause and its alarm are there: counting goes on once an operator has resumed demotions.
    IF switch.paused AND switch.cause = 'absences' THEN
        RETURN;
    END IF;
    FOR item IN
        SELECT s.store, w.span, count(*) AS absent,
               (SELECT coalesce(sum(k.known), 0) FROM store_knowledge AS k
                 WHERE k.store = s.store AND k.at >= date_bin('10 minutes', greatest(now() - w.span, switch.since), '2000-01-01')) AS known
          FROM store_absence AS s
         CROSS JOIN (VALUES (interval '1 hour'), (interval '1 day')) AS w(span)
         WHERE s.store = ANY (names) AND s.at >= greatest(now() - w.span, switch.since)
         GROUP BY s.store, w.span ORDER BY s.store, w.span
    LOOP
        CONTINUE WHEN item.absent < 5 OR item.absent * 10 <= item.absent + item.known;
        PERFORM raise_alarm('absences',
                          format('%s does not list purchases of %s of %s users that it knew before: demotions are paused. Check its '
                                 'variables and its status page, then entitlement-sync resume demotions.',
                                 item.store, item.absent, item.absent + item.known));
        PERFORM pause_demotions('absences');
        RETURN NEXT 'absences';
        RETURN;
    END LOOP;
END
$$;

-- Counts in how many answers a store knew purchases that gave access.
CREATE OR REPLACE FUNCTION note_known(names text[], counts bigint[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO store_knowledge AS k (store, at, known)
    SELECT n.name, date_bin('10 minutes', now(), '2000-01-01'), n.known
      FROM unnest(names, counts) AS n(name, known) ORDER BY n.name
    ON CONFLICT (store, at) DO UPDATE SET known = k.known + excluded.known
$$;

-- Deletes absences that a later read has ended, and what is too old to count. Raises the alarm of a pause by the product again every
-- ten minutes while the pause lasts.
CREATE OR REPLACE FUNCTION forget_absences() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE alarm AS a SET last_at = now(), count = a.count + 1
      FROM control AS c
     WHERE c.name = 'demotions' AND c.paused AND a.last_at < now() - interval '10 minutes'
       AND (c.cause IN ('absences', 'commits_lost') AND a.name = c.cause
            OR c.cause = 'credentials' AND a.name LIKE 'credentials\_unknown.%');
    DELETE FROM store_knowledge AS k WHERE k.at < now() - interval '2 days';
    -- User by user, because a join might read all users for few absences.
    DELETE FROM store_absence AS a
     WHERE a.ctid = ANY (ARRAY(
           SELECT x.ctid FROM store_absence AS x
            CROSS JOIN LATERAL (SELECT y.read_at, y.absent_since FROM user_sync AS y
                                 WHERE y.user_key = x.user_key OFFSET 0) AS u
            WHERE u.read_at > x.at AND u.absent_since IS NULL OR x.at < now() - interval '30 days'
            LIMIT 1000 FOR UPDATE OF x SKIP LOCKED))
$$;

-- Notes the credentials by which a store is asked, and returns their state: `confirmed`, `unchecked` (they have changed) or `doubted`.
CREATE OR REPLACE FUNCTION note_credentials(which text, used bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    known store_credential%ROWTYPE;
BEGIN
    SELECT * INTO known FROM store_credential AS c WHERE c.store = which FOR UPDATE;
    IF known.digest IS NULL THEN
        -- The first credentials on record.
        UPDATE store_credential AS c SET digest = used, state = 'confirmed', since = now() WHERE c.store = which;
        RETURN 'confirmed';
    END IF;
    IF known.digest <> used THEN
        UPDATE store_credential AS c SET digest = used, state = 'unchecked', since = now() WHERE c.store = which;
        RETURN 'unchecked';
    END IF;
    RETURN known.state;
END
$$;

-- Settles whether the store knows our customers by the credentials in use. If it knows none, raises an alarm and pauses demotions; if it
-- knows one, ends both. Returns whether the credentials' state changed.
CREATE OR REPLACE FUNCTION judge_credentials(which text, used bytea, knows boolean, detail text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- Locks in the order in which an operator resumes demotions: the switch, then the credentials.
    PERFORM FROM control AS c WHERE c.name = 'demotions' FOR NO KEY UPDATE;
    UPDATE store_credential AS c SET state = CASE WHEN knows THEN 'confirmed' ELSE 'doubted' END, since = now()
     WHERE c.store = which AND c.digest = used
       AND (knows AND c.state <> 'confirmed' OR NOT knows AND c.state = 'unchecked');
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF knows THEN
        DELETE FROM alarm AS a WHERE a.name = 'credentials_unknown.' || which;
        UPDATE control AS c SET paused = false, since = now(), by = 'entitlement-sync', cause = NULL
         WHERE c.name = 'demotions' AND c.paused AND c.cause = 'credentials'
           AND NOT EXISTS (SELECT 1 FROM store_credential AS x WHERE x.state = 'doubted');
    ELSE
        PERFORM raise_alarm('credentials_unknown.' || which, detail);
        PERFORM pause_demotions('credentials');
    END IF;
    RETURN true;
END
$$;

-- Physical standbys that follow, programs that only copy the log among them.
CREATE OR REPLACE FUNCTION standbys() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    -- The state is hidden from those who may not monitor the server.
    SELECT count(*) FROM pg_stat_replication AS r
     WHERE coalesce(r.state, 'streaming') = 'streaming'
       AND NOT EXISTS (SELECT 1 FROM pg_replication_slots AS s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
$$;

-- Notes the server, its timeline and whether its commits wait for a standby. `seen`: the number of the newest note that the caller has
-- seen. Returns the number of the newest note, and the alarms that it raised. `commits_at_risk`: standbys follow, and no commit waits for
-- one. `commits_lost`: a server has taken over from one whose commits did not wait, or lacks a note; it pauses demotions, because the
-- records may lack the newest decisions.
CREATE OR REPLACE FUNCTION note_server(seen bigint, OUT newest bigint, OUT raised text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    known  server_watch;
    server bigint  := (SELECT c.system_identifier FROM pg_control_system() AS c);
    branch bigint  := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    waits  boolean := current_setting('synchronous_standby_names') <> ''
                      AND current_setting('synchronous_commit') NOT IN ('off', 'local');
    moment timestamptz;
BEGIN
    raised := '{}';
    SELECT w.* INTO known FROM server_watch AS w;
    newest := known.notes;
    -- Takes no lock if another worker wrote this within four seconds.
    IF (known.server_id, known.timeline, known.is_waiting) IS NOT DISTINCT FROM (server, branch, waits) AND known.notes >= seen
       AND known.noted_at BETWEEN clock_timestamp() - interval '4 seconds' AND clock_timestamp() THEN
        RETURN;
    END IF;
    -- Locks in the order in which an operator resumes demotions: the switch, then this row.
    IF known.timeline <> branch OR known.notes < seen THEN
        PERFORM FROM control AS c WHERE c.name = 'demotions' FOR NO KEY UPDATE;
    END IF;
    SELECT w.* INTO known FROM server_watch AS w FOR UPDATE;
    moment := clock_timestamp();
    -- A copy on another server, as after a move, has another id.
    IF known.server_id = server AND (known.timeline <> branch AND NOT known.is_waiting OR known.notes < seen) THEN
        known.lacks_since := least(known.lacks_since, known.noted_at, moment);
        -- Users read on this server are current; all others have to be read again. Backfills begin at `lacks_since` (`plan_backfills`).
        PERFORM raise_alarm('commits_lost', format(
            'A database server was promoted or restored, and commits from %s on may be lost: demotions are paused. Read again all users '
            'who were not read since: entitlement-sync reconcile --since %s; then entitlement-sync resume demotions. Users who became '
            'known in that time are found by entitlement-sync reconcile --all alone.',
            to_char(known.lacks_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
            to_char((moment + interval '1 second') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')));
        PERFORM pause_demotions('commits_lost');
        raised := raised || 'commits_lost'::text;
    END IF;
    newest := greatest(known.notes, seen) + 1;
    UPDATE server_watch AS w
       SET server_id = server, timeline = branch, is_waiting = waits, noted_at = moment, notes = newest, lacks_since = known.lacks_since;
    IF waits OR standbys() = 0 THEN
        DELETE FROM alarm AS a WHERE a.name = 'commits_at_risk';
    ELSIF NOT EXISTS (SELECT 1 FROM alarm AS a
                       WHERE a.name = 'commits_at_risk' AND a.last_at > clock_timestamp() - interval '10 minutes') THEN
        PERFORM raise_alarm('commits_at_risk', 'Standbys follow the database server, and no commit waits for one: a failover may lose the '
                            'last commits. Set synchronous_standby_names (with Patroni: synchronous_mode and synchronous_mode_strict), '
                            'and leave synchronous_commit on.');
        raised := raised || 'commits_at_risk'::text;
    END IF;
END
$$;

-- Sets a switch for an operator.
CREATE OR REPLACE FUNCTION set_switch(wanted text, pause boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    was_paused boolean := (SELECT c.paused FROM control AS c WHERE c.name = wanted FOR NO KEY UPDATE);
BEGIN
    UPDATE control AS c SET paused = pause, since = now(), by = session_user, cause = NULL WHERE c.name = wanted;
    -- An operator who resumes demotions has checked the credentials that were doubted, and has read again what was lost.
    IF wanted = 'demotions' AND was_paused AND NOT pause THEN
        UPDATE store_credential AS c SET state = 'confirmed', since = now() WHERE c.state = 'doubted';
        UPDATE server_watch AS w SET lacks_since = NULL WHERE w.lacks_since IS NOT NULL;
    END IF;
END
$$;

-- Raises an alarm, or counts it once more.
CREATE OR REPLACE FUNCTION raise_alarm(wanted text, said text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO alarm AS a (name, detail) VALUES (wanted, said)
    ON CONFLICT (name) DO UPDATE SET detail = excluded.detail, last_at = now(), count = a.count + 1
$$;

-- Raises an alarm, or clears it if `said` is null, for acts that must not wait for it: if another transaction has locked the alarm's row,
-- the alarm stays as it is.
CREATE OR REPLACE FUNCTION set_alarm(wanted text, said text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp SET lock_timeout = '200ms' AS $$
BEGIN
    IF said IS NULL THEN
        DELETE FROM alarm AS a WHERE a.name = wanted;
    ELSE
        PERFORM raise_alarm(wanted, said);
    END IF;
EXCEPTION WHEN lock_not_available THEN NULL;
END
$$;

-- Puts on record whether sandbox purchases of listed users count, once a worker has begun or ended. If that changes, the listed users are
-- checked at once.
CREATE OR REPLACE FUNCTION settle_sandbox() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    keys bigint[];
BEGIN
    -- Of two workers that begin at once the second one sees the first.
    PERFORM FROM installation FOR NO KEY UPDATE;
    UPDATE installation AS i SET sandbox = m.mode FROM sandbox_mode AS m WHERE i.sandbox <> m.mode;
    IF FOUND THEN
        keys := ARRAY(SELECT u.user_key FROM sandbox_user AS s JOIN user_sync AS u ON u.user_id = s.user_id ORDER BY 1);
        PERFORM enqueue_reconciles(keys, 1::smallint, ARRAY(SELECT new_id() FROM unnest(keys)));
        PERFORM stir();
    END IF;
END
$$;
