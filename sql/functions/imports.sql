-- Imports: a file of purchases and their users, asked of the stores line by line, and written once an operator has approved it.

-- Begins the import of a file, or returns the one that goes on with the same file (`is_new`: false). `session`: the operator's; without one
-- only the schema's owner imports, save in a dry run, from which nothing can be written.
CREATE OR REPLACE FUNCTION ask_import(session bytea, content_hash bytea, dry boolean, who text, OUT id bigint, OUT is_new boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    asker operator;
BEGIN
    IF session IS NOT NULL THEN
        asker := acting(session, 'transfer');
    ELSIF NOT (dry OR is_schema_owner()) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'no operator is signed in',
            HINT = 'Sign in: entitlement-sync operator login NAME; without a session only the schema''s owner imports.';
    END IF;
    INSERT INTO import (is_dry, asked_by, operator_id, file_hash) VALUES (dry, left(coalesce(asker.name, who), 200), asker.id, content_hash)
        ON CONFLICT DO NOTHING RETURNING import.id INTO id;
    is_new := id IS NOT NULL;
    IF NOT is_new THEN
        SELECT i.id INTO id FROM import AS i
         WHERE i.file_hash = content_hash AND i.is_dry = dry AND i.state IN ('asking', 'ready', 'applying');
    END IF;
    PERFORM stir();
END
$$;

-- Adds lines to an import that the caller's transaction began. A line with a result has ended: it can't be read, or repeats another.
CREATE OR REPLACE FUNCTION add_import_lines(
    which bigint, numbers integer[], users text[], stores text[], kinds text[], "values" text[], results text[], details text[]
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM 1 FROM import AS i WHERE i.id = which AND i.state = 'asking' AND i.xmin::text = (pg_current_xact_id()::xid)::text;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'import: lines are added in the transaction that begins it',
            HINT = 'Use entitlement-sync import --file.';
    END IF;
    INSERT INTO import_line (import_id, number, user_id, store, kind, value, result, detail, names)
    SELECT which, l.number, l.user_id, l.store, l.kind, CASE WHEN l.result IS NULL THEN l.value END, l.result, l.detail,
           CASE WHEN l.value IS NOT NULL THEN ARRAY[sha256(convert_to(concat_ws(' ', l.store, l.kind, l.value), 'UTF8'))] END
      FROM unnest(numbers, users, stores, kinds, "values", results, details)
           AS l(number, user_id, store, kind, value, result, detail);
    UPDATE import AS i SET lines = i.lines + cardinality(numbers) WHERE i.id = which;
END
$$;

-- Leases lines to a worker: lines without a result, and planned lines of approved imports unless everything is paused. Lines of workers
-- that died are free again.
CREATE OR REPLACE FUNCTION take_import_lines(mine integer, most integer, ignores_pause boolean)
RETURNS TABLE (import_id bigint, number integer, turn integer, attempt integer, detail text, user_id text, user_key bigint, store text,
               kind text, value text, is_planned boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    going  record;
    at     timestamptz := clock_timestamp();
    -- Stores that other workers ask and this one does not.
    theirs text[] := ARRAY(SELECT s.name FROM worker AS w CROSS JOIN LATERAL unnest(w.stores) AS s(name)
                            WHERE w.epoch <> mine AND w.expires_at > at
                           EXCEPT
                           SELECT s.name FROM worker AS w CROSS JOIN LATERAL unnest(w.stores) AS s(name) WHERE w.epoch = mine);
BEGIN
    UPDATE import_line AS l SET epoch = NULL, due = '-infinity'
     WHERE l.epoch IS NOT NULL AND l.epoch <> mine
       AND NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.epoch = l.epoch AND w.expires_at > clock_timestamp());
    FOR going IN SELECT i.id, i.state FROM import AS i WHERE i.state IN ('asking', 'applying') ORDER BY i.id LOOP
        IF going.state = 'asking' THEN
            RETURN QUERY
            WITH free AS MATERIALIZED (
                SELECT x.import_id, x.number FROM import_line AS x
                 WHERE x.import_id = going.id AND x.result IS NULL AND x.due <= at AND coalesce(x.store, '') <> ALL (theirs)
                 ORDER BY x.due, x.number LIMIT most FOR UPDATE SKIP LOCKED
            )
            UPDATE import_line AS l SET epoch = mine, due = clock_timestamp() + interval '10 minutes', turn = l.turn + 1
              FROM free AS f WHERE l.import_id = f.import_id AND l.number = f.number
            RETURNING l.import_id, l.number, l.turn, l.attempt, l.detail, l.user_id, l.user_key, l.store, l.kind, l.value, false;
        ELSIF ignores_pause OR NOT EXISTS (SELECT 1 FROM control AS c WHERE c.name = 'all' AND c.paused) THEN
            RETURN QUERY
            WITH free AS MATERIALIZED (
                SELECT x.import_id, x.number FROM import_line AS x
                 WHERE x.import_id = going.id AND x.result = 'planned' AND x.due <= at AND coalesce(x.store, '') <> ALL (theirs)
                 ORDER BY x.due, x.number LIMIT most FOR UPDATE SKIP LOCKED
            )
            UPDATE import_line AS l SET epoch = mine, due = clock_timestamp() + interval '10 minutes', turn = l.turn + 1
              FROM free AS f WHERE l.import_id = f.import_id AND l.number = f.number
            RETURNING l.import_id, l.number, l.turn, l.attempt, l.detail, l.user_id, l.user_key, l.store, l.kind, l.value, true;
        END IF;
        EXIT WHEN FOUND;
    END LOOP;
END
$$;

-- Locks lines that a worker has taken, and their import, so that it is not canceled before the caller's transaction ends; prolongs leases
-- that are half over. Returns the lines that are still the worker's; none if the import has ended.
CREATE OR REPLACE FUNCTION hold_import_lines(mine integer, which bigint, numbers integer[], turns integer[]) RETURNS SETOF integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM FROM import AS i WHERE i.id = which AND i.state IN ('asking', 'applying') FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT l.number, l.due FROM import_line AS l
          JOIN unnest(numbers, turns) AS t(number, turn) ON t.number = l.number AND t.turn = l.turn
         WHERE l.import_id = which AND l.epoch = mine ORDER BY l.number FOR UPDATE OF l
    ), prolonged AS (
        UPDATE import_line AS l SET due = clock_timestamp() + interval '10 minutes'
          FROM held AS h WHERE l.import_id = which AND l.number = h.number AND h.due < clock_timestamp() + interval '5 minutes'
    )
    SELECT h.number FROM held AS h;
END
$$;

-- Gives lines their results, or plans their next try (no result), for the worker that has taken them. A line that it has no more stays.
-- `spellings`: what the stores call the purchases, parted by the unit separator. Returns how many lines were still the worker's.
CREATE OR REPLACE FUNCTION keep_import_lines(
    mine integer, imports bigint[], numbers integer[], turns integer[], keys bigint[], results text[], details text[], accesses boolean[],
    spellings text[], attempts integer[], waits double precision[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    kept integer;
BEGIN
    UPDATE import_line AS l
       SET epoch = NULL, due = CASE WHEN k.result IS NULL THEN clock_timestamp() + k.wait * interval '1 second' ELSE '-infinity' END,
           user_key = coalesce(k.user_key, l.user_key), user_id = CASE WHEN coalesce(k.user_key, l.user_key) IS NULL THEN l.user_id END,
           -- Until it is written, an approved line stays planned.
           result = coalesce(k.result, l.result), detail = k.detail, gives_access = coalesce(k.gives_access, l.gives_access),
           -- What the file calls the purchase, and then what the store does.
           names = coalesce(l.names[1:1] || (SELECT array_agg(sha256(convert_to(x.name, 'UTF8')))
                                               FROM unnest(string_to_array(nullif(k.names, ''), E'\x1f')) AS x(name)), l.names),
           -- A line that is asked no more needs no token.
           value = CASE WHEN coalesce(k.result, 'planned') = 'planned' THEN l.value END,
           attempt = CASE WHEN k.result IS NULL THEN k.attempt ELSE 0 END
      FROM unnest(imports, numbers, turns, keys, results, details, accesses, spellings, attempts, waits)
           AS k(import_id, number, turn, user_key, result, detail, gives_access, names, attempt, wait)
     WHERE l.import_id = k.import_id AND l.number = k.number AND l.turn = k.turn AND l.epoch = mine;
    GET DIAGNOSTICS kept = ROW_COUNT;
    RETURN kept;
END
$$;

-- The hash by which an operator approves an import: over every planned line, its user, and what the store calls the purchase.
CREATE OR REPLACE FUNCTION hash_of_import(which bigint) RETURNS bytea
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT sha256(convert_to(coalesce(string_agg(concat_ws('|', l.number, l.user_key, l.store,
                                                           (SELECT string_agg(encode(n.name, 'hex'), ',' ORDER BY n.name)
                                                              FROM unnest(l.names) AS n(name))), E'\n' ORDER BY l.number), ''), 'UTF8'))
      FROM import_line AS l WHERE l.import_id = which AND l.result = 'planned'
$$;

-- Moves each import to its next state once no line of it waits. If lines name one purchase for several users, none of these lines stays
-- planned; of lines that repeat each other the first does. Returns how many imports moved.
CREATE OR REPLACE FUNCTION settle_imports() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET enable_nestloop = off AS $$
DECLARE
    going   import;
    settled integer := 0;
BEGIN
    FOR going IN SELECT i.* FROM import AS i WHERE i.state IN ('asking', 'applying') ORDER BY i.id FOR NO KEY UPDATE SKIP LOCKED LOOP
        IF going.state = 'asking' THEN
            CONTINUE WHEN EXISTS (SELECT 1 FROM import_line AS l WHERE l.import_id = going.id AND l.result IS NULL);
            WITH RECURSIVE named AS MATERIALIZED (
                SELECT l.number, coalesce('key ' || l.user_key, 'id ' || l.user_id) AS who, n.name
                  FROM import_line AS l CROSS JOIN LATERAL unnest(l.names) AS n(name)
                 -- A line for another user than the store names does not make the others disputed.
                 WHERE l.import_id = going.id AND l.result NOT IN ('repeated', 'names_another')
            ), disputed (number) AS (
                SELECT n.number FROM named AS n
                  JOIN (SELECT x.name FROM named AS x GROUP BY x.name HAVING count(DISTINCT x.who) > 1) AS s ON s.name = n.name
                -- And the lines that share a name with these: they are of one purchase.
                UNION
                SELECT o.number FROM disputed AS d JOIN named AS n ON n.number = d.number JOIN named AS o ON o.name = n.name
            )
            UPDATE import_line AS l SET result = 'named_for_several', value = NULL
              FROM disputed AS d WHERE l.import_id = going.id AND l.number = d.number AND l.result = 'planned';
            WITH named AS MATERIALIZED (
                SELECT l.number, n.name FROM import_line AS l CROSS JOIN LATERAL unnest(l.names) AS n(name)
                 WHERE l.import_id = going.id AND l.result = 'planned'
            ), repeats AS (
                SELECT n.number, min(s.first) AS first
                  FROM named AS n JOIN (SELECT x.name, min(x.number) AS first FROM named AS x GROUP BY x.name) AS s ON s.name = n.name
                 GROUP BY n.number HAVING min(s.first) < n.number
            )
            UPDATE import_line AS l SET result = 'repeated', detail = r.first::text, value = NULL
              FROM repeats AS r WHERE l.import_id = going.id AND l.number = r.number;
            IF going.is_dry THEN
                UPDATE import_line AS l SET value = NULL WHERE l.import_id = going.id AND l.value IS NOT NULL;
            END IF;
            UPDATE import AS i
               SET state = CASE WHEN i.is_dry THEN 'done' ELSE 'ready' END, ready_at = clock_timestamp(), hash = hash_of_import(i.id),
                   ended_at = CASE WHEN i.is_dry THEN clock_timestamp() END
             WHERE i.id = going.id;
        ELSE
            CONTINUE WHEN EXISTS (SELECT 1 FROM import_line AS l WHERE l.import_id = going.id AND l.result = 'planned');
            UPDATE import AS i SET state = 'done', ended_at = clock_timestamp() WHERE i.id = going.id;
        END IF;
        settled := settled + 1;
    END LOOP;
    RETURN settled;
END
$$;

-- Approves an import by its hash: its planned lines are written. `session`: of an operator other than the one who imports; without one
-- only the schema's owner approves. Returns false if there is no such import, or it is not ready. Error 22023: the hash differs, or the
-- stores were asked over 72 hours ago.
CREATE OR REPLACE FUNCTION approve_import(session bytea, which bigint, seen bytea, who text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    r        import;
    approver operator;
BEGIN
    IF session IS NOT NULL THEN
        approver := acting(session, 'transfer', interval '10 minutes');
    ELSIF NOT is_schema_owner() THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'no operator is signed in',
            HINT = 'Sign in: entitlement-sync operator login NAME; without a session only the schema''s owner approves.';
    END IF;
    SELECT i.* INTO r FROM import AS i WHERE i.id = which AND i.state = 'ready' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF approver.id IS NOT NULL AND approver.id = r.operator_id THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'whose import it is does not approve it',
            HINT = 'Another operator approves it, or the schema''s owner.';
    END IF;
    IF r.hash IS DISTINCT FROM seen THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'hash: it is not that of this import''s lines',
            HINT = 'Check the lines again: entitlement-sync import show prints their hash.';
    END IF;
    IF r.ready_at < clock_timestamp() - interval '72 hours' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'import: its stores were asked more than 72 hours ago',
            HINT = 'Cancel it, import the file again, and check the result.';
    END IF;
    UPDATE import AS i SET state = 'applying', approved_at = clock_timestamp(), approved_by = left(coalesce(approver.name, who), 200)
     WHERE i.id = which;
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (approver.id, 'import_approved',
            jsonb_build_object('import', which, 'hash', encode(seen, 'hex'), 'database_user', session_user));
    PERFORM stir();
    RETURN true;
END
$$;

-- Cancels an import: lines that are written stay, no other is written. Returns false if it has ended.
CREATE OR REPLACE FUNCTION cancel_import(which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '5s' AS $$
BEGIN
    UPDATE import AS i SET state = 'canceled', ended_at = clock_timestamp()
     WHERE i.id = which AND i.state IN ('asking', 'ready', 'applying');
    RETURN FOUND;
END
$$;
