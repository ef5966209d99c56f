-- Partitions without gaps, made ahead: daily ones of the history of jobs, dropped after retention; monthly ones of decisions and
-- observations, kept.

-- The partitioned tables, each by an id of version 7 (`key`). `ahead`: how far partitions are made; `is_kept`: none is dropped.
CREATE OR REPLACE FUNCTION partitioned_tables()
RETURNS TABLE (name text, key text, step interval, ahead interval, is_kept boolean)
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    VALUES ('job_history', 'id', interval '1 day', interval '31 days', false),
           ('job_request', 'id', interval '1 day', interval '31 days', false),
           ('decision', 'job_id', interval '1 month', interval '3 months', true),
           ('observation', 'job_id', interval '1 month', interval '3 months', true)
$$;

-- The first id of a day, in UTC.
CREATE OR REPLACE FUNCTION first_id_of(day date) RETURNS uuid
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT first_id_at(day::timestamp AT TIME ZONE 'UTC')
$$;

-- The partitions of a table with their bounds; a null bound is open. `first_day`: of a partition's day or month.
CREATE OR REPLACE FUNCTION partitions_of(parent text)
RETURNS TABLE (part name, first_day date, is_default boolean, is_pending boolean, low uuid, high uuid)
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT c.relname, CASE WHEN c.relname ~ ('^' || parent || '_\d{8}$') THEN (id_time(r.low) AT TIME ZONE 'UTC')::date END,
           b.bound = 'DEFAULT', i.inhdetachpending, r.low, r.high
      FROM pg_inherits AS i
      JOIN pg_class AS c ON c.oid = i.inhrelid
     CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) AS b
     CROSS JOIN LATERAL (SELECT substring(b.bound FROM 'FROM \(''([0-9a-f-]{36})''\)')::uuid AS low,
                                substring(b.bound FROM 'TO \(''([0-9a-f-]{36})''\)')::uuid AS high) AS r
     WHERE i.inhparent = format('entitlement_sync.%I', parent)::regclass
$$;

-- The name of the partition of a day or month, by its first day.
CREATE OR REPLACE FUNCTION name_by_day(parent text, day date) RETURNS text
LANGUAGE sql STABLE
RETURN parent || to_char(day, '_YYYYMMDD');

-- The name of a partition for a range of ids, by the time in its first id.
CREATE OR REPLACE FUNCTION name_by_range(parent text, low uuid) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN parent || '_from_' || left(low::text, 8) || substr(low::text, 10, 4);

-- The first days of the coming days or months that have no partition of their own. `within`: how far; null: as far as they are made.
CREATE OR REPLACE FUNCTION days_to_partition(parent text, within interval DEFAULT NULL) RETURNS SETOF date
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT d::date
      FROM partitioned_tables() AS t
     CROSS JOIN LATERAL (SELECT date_trunc(CASE t.step WHEN '1 day' THEN 'day' ELSE 'month' END, now() AT TIME ZONE 'UTC') AS start) AS n
     CROSS JOIN LATERAL generate_series(n.start + t.step, n.start + t.ahead, t.step) AS d
     WHERE t.name = parent AND d <= coalesce((now() AT TIME ZONE 'UTC') + within, 'infinity')
       AND NOT EXISTS (SELECT 1 FROM partitions_of(parent) AS p
                        WHERE p.first_day = d::date)
$$;

-- Attaches an empty partition for a range of ids; a null bound is open.
CREATE OR REPLACE FUNCTION cover_ids(parent text, part text, low uuid, high uuid) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING INDEXES)', part, parent);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', parent, part,
                   coalesce(quote_literal(low), 'MINVALUE'), coalesce(quote_literal(high), 'MAXVALUE'));
    PERFORM guard_partition(parent, part);
END
$$;

-- Attaches empty partitions where ids have none: before the first partition, in gaps, and after the last.
CREATE OR REPLACE FUNCTION close_gaps(parent text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    p     record;
    low   uuid;
    -- Null after the first.
    title text := parent || '_before';
BEGIN
    FOR p IN SELECT x.low, x.high FROM partitions_of(parent) AS x ORDER BY x.low NULLS FIRST LOOP
        IF p.low > low OR (low IS NULL AND title IS NOT NULL AND p.low IS NOT NULL) THEN
            title := coalesce(title, name_by_range(parent, low));
            PERFORM cover_ids(parent, title, low, p.low);
        END IF;
        title := NULL;
        low := p.high;
    END LOOP;
    IF low IS NOT NULL OR title IS NOT NULL THEN
        PERFORM cover_ids(parent, parent || '_after', low, NULL);
    END IF;
END
$$;

-- Refuses TRUNCATE of a partition as of its parent. PostgreSQL copies a parent's triggers of rows to its partitions, and no others.
CREATE OR REPLACE FUNCTION guard_partition(parent text, part text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_trigger AS t
                WHERE t.tgrelid = format('entitlement_sync.%I', parent)::regclass AND t.tgname = 'no_truncate') THEN
        EXECUTE format('CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION append_only()',
                       part);
    END IF;
END
$$;

-- Whether a transaction keeps a lock on one of these tables for a third of a second, which no request does.
CREATE OR REPLACE FUNCTION are_held(tables oid[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    holders text[];
    held    text := 'SELECT array_agg(DISTINCT l.virtualtransaction) FROM pg_locks AS l
                      WHERE l.locktype = ''relation'' AND l.relation = ANY ($1)
                        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
                        AND l.pid IS DISTINCT FROM pg_backend_pid()';
    since   text[];
BEGIN
    EXECUTE held INTO holders USING tables;
    IF holders IS NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_sleep(0.3);
    EXECUTE held INTO since USING tables;
    RETURN holders && coalesce(since, '{}');
END
$$;

-- The partitions to drop: those whose ids are all below `floor`; null: none. Three a call, so that a clock that is ahead does not drop the
-- whole history at once. Partitions from the oldest queued job's on stay: for the requests of queued jobs, and for their history.
CREATE OR REPLACE FUNCTION partitions_to_drop(parent text, floor uuid) RETURNS name[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT ARRAY(SELECT x.part FROM partitions_of(parent) AS x
                  WHERE NOT x.is_default AND x.low IS NOT NULL AND x.high <= floor
                    AND (x.high <= (SELECT o.id FROM (SELECT least(q.restore_id, q.reconcile_id, q.restore_next, q.reconcile_next)
                                                        FROM queue AS q) AS o(id)
                                     WHERE o.id IS NOT NULL ORDER BY o.id LIMIT 1)) IS NOT FALSE
                  ORDER BY x.low LIMIT 3)
$$;

-- Makes the partitions that are missing, drops those older than `keep` days unless they are kept, and closes gaps. Returns how many it made
-- and dropped. Locks the table briefly. Error 55P03: a transaction has locked the table; nothing was changed.
CREATE OR REPLACE FUNCTION maintain_parent(parent text, keep integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp SET lock_timeout = '100ms'
-- No notices about the indexes that are made with a table.
SET client_min_messages = warning AS $$
DECLARE
    -- More rows than this are not moved, because that takes longer than a request should wait.
    few    CONSTANT integer := 1000;
    how    record;
    today  date := (now() AT TIME ZONE 'UTC')::date;
    cut    uuid;
    old    name[];
    mobile name[] := '{}';
    loose  name[] := '{}';
    days   date[];
    rows   bigint;
    made   integer := 0;
    p      record;
    d      date;
    later  uuid;
    title  text;
BEGIN
    SELECT t.* INTO STRICT how FROM partitioned_tables() AS t WHERE t.name = parent;
    IF how.step > '1 day' THEN
        today := date_trunc('month', today);
    END IF;
    cut := first_id_of((today + how.step)::date);
    old := partitions_to_drop(parent, CASE WHEN NOT how.is_kept THEN first_id_of(today - keep) END);
    IF old = '{}' AND NOT EXISTS (SELECT 1 FROM days_to_partition(parent))
       AND NOT EXISTS (SELECT 1 FROM partitions_of(parent) AS x WHERE x.is_default OR x.is_pending)
       -- Each lower bound is another partition's upper bound, except for the open one.
       AND (SELECT count(*) FROM partitions_of(parent) AS x
             WHERE x.low IS NULL
                OR EXISTS (SELECT 1 FROM partitions_of(parent) AS y WHERE y.high = x.low)) =
           (SELECT count(*) FROM partitions_of(parent))
       AND EXISTS (SELECT 1 FROM partitions_of(parent) AS x WHERE x.low IS NULL)
       AND EXISTS (SELECT 1 FROM partitions_of(parent) AS x WHERE x.high IS NULL) THEN
        RETURN 0;
    END IF;
    IF are_held(ARRAY(SELECT format('entitlement_sync.%I', x.part)::regclass::oid FROM partitions_of(parent) AS x)
                || format('entitlement_sync.%I', parent)::regclass::oid) THEN
        RAISE EXCEPTION USING ERRCODE = '55P03',
            MESSAGE = format('%I has been held by an open transaction; its partitions are left as they are', parent),
            HINT = 'It is tried again in some minutes. pg_locks shows the transaction.';
    END IF;

    -- Ranges that are made again: those with few rows, the default and the last. A full range stays, and days follow it.
    FOR p IN SELECT x.* FROM partitions_of(parent) AS x WHERE x.first_day IS NULL AND x.part <> ALL (old) LOOP
        EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I LIMIT %s) AS r', p.part, few + 1) INTO rows;
        IF rows <= few OR p.is_default OR p.high IS NULL THEN
            mobile := mobile || p.part;
        END IF;
    END LOOP;
    days := ARRAY(SELECT x FROM (SELECT today AS x UNION SELECT m FROM days_to_partition(parent) AS m) AS w
                   WHERE NOT EXISTS (SELECT 1 FROM partitions_of(parent) AS y
                                      WHERE y.part <> ALL (mobile) AND coalesce(y.low < first_id_of((x + how.step)::date), true)
                                        AND coalesce(y.high > first_id_of(x), true))
                   ORDER BY x);
    FOREACH d IN ARRAY days LOOP
        title := name_by_day(parent, d);
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I (LIKE %I INCLUDING DEFAULTS INCLUDING INDEXES)', title, parent);
    END LOOP;

    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', parent);
    -- Only vacuum may still hold locks on the partitions.
    PERFORM set_config('lock_timeout', '20ms', true);
    FOR p IN SELECT x.part FROM partitions_of(parent) AS x WHERE x.is_pending LOOP
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I FINALIZE', parent, p.part);
    END LOOP;
    FOREACH title IN ARRAY old LOOP
        EXECUTE format('DROP TABLE %I', title);
    END LOOP;
    FOR p IN SELECT x.* FROM partitions_of(parent) AS x WHERE x.part = ANY (mobile) LOOP
        EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, p.part);
        title := parent || '_loose_' || cardinality(loose);
        EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM %I LIMIT %s) AS r', p.part, few + 1) INTO rows;
        IF rows > few AND p.low < cut AND p.high IS NULL THEN
            EXECUTE format('CREATE TABLE %I AS WITH later AS (DELETE FROM %I AS x WHERE x.%I >= %L RETURNING *)
                            SELECT * FROM later', title, p.part, how.key, cut);
            EXECUTE format('ALTER TABLE %I RENAME TO %I', p.part, name_by_range(parent, p.low));
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, name_by_range(parent, p.low),
                           p.low, cut);
            IF today = ANY (days) THEN
                -- The range before the cut includes today.
                EXECUTE format('DROP TABLE %I', name_by_day(parent, today));
                days := array_remove(days, today);
            END IF;
        ELSIF rows > few AND p.low >= cut AND p.high IS NULL THEN
            -- A clock was far ahead: the range begins later, and the rows before its new beginning are moved.
            later := first_id_of((today + how.ahead + how.step)::date);
            EXECUTE format('CREATE TABLE %I AS WITH sooner AS (DELETE FROM %I AS x WHERE x.%I < %L RETURNING *)
                            SELECT * FROM sooner', title, p.part, how.key, later);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (MAXVALUE)', parent, p.part,
                           later);
        ELSE
            EXECUTE format('ALTER TABLE %I RENAME TO %I', p.part, title);
        END IF;
        loose := loose || title::name;
    END LOOP;
    FOREACH d IN ARRAY days LOOP
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent,
                       name_by_day(parent, d), first_id_of(d), first_id_of((d + how.step)::date));
        PERFORM guard_partition(parent, name_by_day(parent, d));
        made := made + 1;
    END LOOP;
    PERFORM close_gaps(parent);
    FOREACH title IN ARRAY loose LOOP
        EXECUTE format('INSERT INTO %I SELECT * FROM %I', parent, title);
        EXECUTE format('DROP TABLE %I', title);
    END LOOP;
    RETURN made + cardinality(old);
END
$$;

-- Calls `maintain_parent` for one table, or for all. A worker does so every hour, with HISTORY_RETENTION_DAYS as `keep`. Returns the sum;
-- 0 also if another process does this at the moment.
CREATE OR REPLACE FUNCTION maintain_partitions(keep integer DEFAULT 90, parent text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    made integer := 0;
    name text;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7309940714432065) THEN
        RETURN 0;
    END IF;
    FOR name IN SELECT t.name FROM partitioned_tables() AS t WHERE parent IS NULL OR t.name = parent LOOP
        made := made + maintain_parent(name, keep);
    END LOOP;
    RETURN made;
END
$$;
