-- The host adapter for tables whose keys are uuid, written for these:
--
--     accounts (uid uuid PRIMARY KEY, plan text, state text, created_at timestamptz, updated_at timestamptz)
--     items    (item_id uuid PRIMARY KEY, account_uid uuid REFERENCES accounts, locked_for text[], locked_at timestamptz)
--     CREATE INDEX items_account_uid_item_id ON items (account_uid, item_id);     -- needed: without it each batch reads all items
--
-- Copy this file, change what is marked EDIT, and run `entitlement-sync migrate --adapter FILE`. The rules for every adapter are in
-- adapter.sql. `EDIT names` marks the functions that name your tables (always with their schema) and columns. Rename by search and replace:
--   public.accounts with uid, plan, state, created_at, updated_at: the table of users
--   public.items with item_id, account_uid, locked_for, locked_at: the table of assets
-- but not the result columns of the functions (user_id, type, status, created_at and so on), which the worker reads by these names.
-- Leave the reason 'subscription_lapsed' as it is. `locked_for` may be NULL, which means the same as '{}'.

CREATE SCHEMA IF NOT EXISTS entitlement_sync_host;

-- Four translations that the functions below share. They read no table and have no settings, so that PostgreSQL puts their bodies into the
-- queries that call them. A word that they do not know is passed on, so that `migrate` and `doctor` name it.

-- EDIT: which plans are those of a subscriber.
CREATE OR REPLACE FUNCTION entitlement_sync_host.type_of(plan text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE plan WHEN 'pro' THEN 'subscriber' ELSE plan END
$$;

-- EDIT: which plan a user of this type gets.
CREATE OR REPLACE FUNCTION entitlement_sync_host.plan_of(type text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE type WHEN 'subscriber' THEN 'pro' WHEN 'free' THEN 'free' END
$$;

-- EDIT: what the states of an account mean.
CREATE OR REPLACE FUNCTION entitlement_sync_host.status_of(state text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE state WHEN 'enabled' THEN 'active'
                      WHEN 'signing_up' THEN 'onboarding'
                      WHEN 'blocked' THEN 'banned'
                      WHEN 'expelled' THEN 'banned_final'
                      WHEN 'leaving' THEN 'to_be_deleted'
                      ELSE state END
$$;

-- A user's id as a key; null for a text that is no uuid, since events and apps may name any text.
CREATE OR REPLACE FUNCTION entitlement_sync_host.key_of(id text) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN id ~ '^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$' THEN id::uuid END
$$;

-- Users by id; unknown ids are left out.
-- EDIT names. Without a column `created_at`: a constant, such as timestamptz '2020-01-01', never NULL; the same in page_users.
CREATE OR REPLACE FUNCTION entitlement_sync_host.read_users(ids text[])
RETURNS TABLE (id text, type text, status text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT a.uid::text, entitlement_sync_host.type_of(a.plan), entitlement_sync_host.status_of(a.state), a.created_at
      FROM unnest(ids) AS wanted(id)
     CROSS JOIN LATERAL (SELECT * FROM public.accounts AS x
                          WHERE x.uid = entitlement_sync_host.key_of(wanted.id) OFFSET 0) AS a;
END
$$;

-- Users by id, locked until the transaction ends. Unknown ids are left out, and so are users that another transaction has locked.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.lock_users(ids text[])
RETURNS TABLE (id text, type text, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT a.uid::text, entitlement_sync_host.type_of(a.plan), entitlement_sync_host.status_of(a.state)
      FROM public.accounts AS a
     WHERE a.uid = ANY (ARRAY(SELECT entitlement_sync_host.key_of(w.id) FROM unnest(ids) AS w(id)))
       FOR NO KEY UPDATE SKIP LOCKED;
END
$$;

-- Sets the type of users that the caller has locked. Returns the ids of those whose type changed.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.set_type(ids text[], new_type text)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    UPDATE public.accounts AS a
       SET plan = entitlement_sync_host.plan_of(new_type),
           updated_at = now()   -- EDIT: leave it out if there is no such column
     WHERE a.uid = ANY (ARRAY(SELECT entitlement_sync_host.key_of(w.id) FROM unnest(ids) AS w(id)))
       AND entitlement_sync_host.type_of(a.plan) IS DISTINCT FROM new_type
 RETURNING a.uid::text;
END
$$;

-- Adds the reason to at most `batch` assets after each user's cursor (null: from the first). Users without such assets are left out.
-- `more`: rows after the passed cursor were not changed, because they are beyond the batch, locked, or skipped by a trigger of the host.
-- `cursor`: the last of the batch's rows that has no locked one before it, or the passed cursor if there is none. It passes rows that a
-- trigger skips. PostgreSQL 15 has no min(uuid) and max(uuid), so the rows are gone through in their order; text with the collation "C"
-- has the order of uuid.
-- The settings make the plan follow the index (account_uid, item_id): to sort the rest for each batch would take long.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.freeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT entitlement_sync_host.key_of(w.id) AS account_uid, entitlement_sync_host.key_of(w.after) AS after
          FROM unnest(ids, after) AS w(id, after)
    ), picked AS MATERIALIZED (
        SELECT i.item_id, i.account_uid
          FROM wanted
         CROSS JOIN LATERAL (
               SELECT x.item_id, x.account_uid
                 FROM public.items AS x
                WHERE x.account_uid = wanted.account_uid
                  AND x.item_id >= coalesce(wanted.after, '00000000-0000-0000-0000-000000000000')
                  AND x.item_id IS DISTINCT FROM wanted.after
                  AND NOT coalesce(x.locked_for, '{}') @> '{subscription_lapsed}'
                  AND NOT (x.locked_at IS NOT NULL AND coalesce(x.locked_for, '{}') = '{}')
                ORDER BY x.account_uid, x.item_id
                LIMIT batch
                  FOR NO KEY UPDATE SKIP LOCKED) AS i
    ), written AS (
        UPDATE public.items AS i
           SET locked_for = coalesce(i.locked_for, '{}') || '{subscription_lapsed}',
               locked_at = coalesce(i.locked_at, now())
         WHERE i.item_id = ANY (ARRAY(SELECT p.item_id FROM picked AS p))
        RETURNING i.account_uid, i.item_id
    )
    SELECT found.account_uid::text, count(found.changed_id), max(found.cursor),
           coalesce(sum(found.candidates), 0) > count(found.changed_id)
      FROM (SELECT w.account_uid, w.item_id AS changed_id, NULL::bigint AS candidates, NULL::text AS cursor
              FROM written AS w
             UNION ALL
            SELECT wanted.account_uid, NULL, rest.candidates, coalesce(rest.cursor, wanted.after::text)
              FROM wanted
             CROSS JOIN LATERAL (
                   SELECT count(*) AS candidates, max(seen.item_id::text COLLATE "C") FILTER (WHERE seen.is_passed) AS cursor
                     FROM (SELECT r.item_id, bool_and(r.item_id IN (SELECT p.item_id FROM picked AS p))
                                                 OVER (ORDER BY r.item_id) AS is_passed
                             FROM (SELECT x.item_id
                                     FROM public.items AS x
                                    WHERE x.account_uid = wanted.account_uid
                                      AND x.item_id >= coalesce(wanted.after, '00000000-0000-0000-0000-000000000000')
                                      AND x.item_id IS DISTINCT FROM wanted.after
                                      AND NOT coalesce(x.locked_for, '{}') @> '{subscription_lapsed}'
                                      AND NOT (x.locked_at IS NOT NULL AND coalesce(x.locked_for, '{}') = '{}')
                                    ORDER BY x.account_uid, x.item_id
                                    LIMIT batch + 1) AS r) AS seen) AS rest
             WHERE rest.candidates > 0) AS found
     GROUP BY found.account_uid;
END
$$;

-- Removes the reason from assets after each user's cursor (null: from the first). Returns the same as freeze_assets.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.unfreeze_assets(ids text[], after text[], batch integer)
RETURNS TABLE (user_id text, changed bigint, cursor text, more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT entitlement_sync_host.key_of(w.id) AS account_uid, entitlement_sync_host.key_of(w.after) AS after
          FROM unnest(ids, after) AS w(id, after)
    ), picked AS MATERIALIZED (
        SELECT i.item_id, i.account_uid
          FROM wanted
         CROSS JOIN LATERAL (
               SELECT x.item_id, x.account_uid
                 FROM public.items AS x
                WHERE x.account_uid = wanted.account_uid
                  AND x.item_id >= coalesce(wanted.after, '00000000-0000-0000-0000-000000000000')
                  AND x.item_id IS DISTINCT FROM wanted.after
                  AND x.locked_for @> '{subscription_lapsed}'
                ORDER BY x.account_uid, x.item_id
                LIMIT batch
                  FOR NO KEY UPDATE SKIP LOCKED) AS i
    ), written AS (
        UPDATE public.items AS i
           SET locked_for = array_remove(i.locked_for, 'subscription_lapsed'),
               locked_at = CASE WHEN array_remove(i.locked_for, 'subscription_lapsed') = '{}' THEN NULL ELSE i.locked_at END
         WHERE i.item_id = ANY (ARRAY(SELECT p.item_id FROM picked AS p))
        RETURNING i.account_uid, i.item_id
    )
    SELECT found.account_uid::text, count(found.changed_id), max(found.cursor),
           coalesce(sum(found.candidates), 0) > count(found.changed_id)
      FROM (SELECT w.account_uid, w.item_id AS changed_id, NULL::bigint AS candidates, NULL::text AS cursor
              FROM written AS w
             UNION ALL
            SELECT wanted.account_uid, NULL, rest.candidates, coalesce(rest.cursor, wanted.after::text)
              FROM wanted
             CROSS JOIN LATERAL (
                   SELECT count(*) AS candidates, max(seen.item_id::text COLLATE "C") FILTER (WHERE seen.is_passed) AS cursor
                     FROM (SELECT r.item_id, bool_and(r.item_id IN (SELECT p.item_id FROM picked AS p))
                                                 OVER (ORDER BY r.item_id) AS is_passed
                             FROM (SELECT x.item_id
                                     FROM public.items AS x
                                    WHERE x.account_uid = wanted.account_uid
                                      AND x.item_id >= coalesce(wanted.after, '00000000-0000-0000-0000-000000000000')
                                      AND x.item_id IS DISTINCT FROM wanted.after
                                      AND x.locked_for @> '{subscription_lapsed}'
                                    ORDER BY x.account_uid, x.item_id
                                    LIMIT batch + 1) AS r) AS seen) AS rest
             WHERE rest.candidates > 0) AS found
     GROUP BY found.account_uid;
END
$$;

-- The cursor of the user's first unlocked asset after `after` that has the reason (`lapsed`) or has it not; null: there is none. With it
-- a worker steps over an asset that a trigger of the host refuses.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.next_asset(owner text, after text, lapsed boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
BEGIN
    RETURN (
        SELECT x.item_id::text
          FROM public.items AS x
         WHERE x.account_uid = entitlement_sync_host.key_of(owner)
           AND x.item_id >= coalesce(entitlement_sync_host.key_of(after), '00000000-0000-0000-0000-000000000000')
           AND x.item_id IS DISTINCT FROM entitlement_sync_host.key_of(after)
           AND coalesce(x.locked_for, '{}') @> '{subscription_lapsed}' = lapsed
           AND NOT (x.locked_at IS NOT NULL AND coalesce(x.locked_for, '{}') = '{}')
         ORDER BY x.account_uid, x.item_id
         LIMIT 1
           FOR NO KEY UPDATE SKIP LOCKED
    );
END
$$;

-- How many assets of each user have the reason, and how many do not. Users without assets are left out.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.count_assets(ids text[])
RETURNS TABLE (user_id text, lapsed bigint, others bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT i.account_uid::text,
           count(*) FILTER (WHERE coalesce(i.locked_for, '{}') @> '{subscription_lapsed}'),
           count(*) FILTER (WHERE NOT coalesce(i.locked_for, '{}') @> '{subscription_lapsed}')
      FROM public.items AS i
     WHERE i.account_uid = ANY (ARRAY(SELECT entitlement_sync_host.key_of(w.id) FROM unnest(ids) AS w(id)))
     GROUP BY i.account_uid;
END
$$;

-- At most `batch` users in the order of their ids, after a given one (null: from the first). Every plan for this condition begins at the
-- given id; with "after IS NULL OR ..." a generic plan would begin at the first user each time.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.page_users(after text, batch integer)
RETURNS TABLE (id text, type text, status text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT a.uid::text, entitlement_sync_host.type_of(a.plan), entitlement_sync_host.status_of(a.state), a.created_at
      FROM public.accounts AS a
     WHERE a.uid >= coalesce(entitlement_sync_host.key_of(after), '00000000-0000-0000-0000-000000000000')
       AND a.uid IS DISTINCT FROM entitlement_sync_host.key_of(after)
     ORDER BY a.uid
     LIMIT batch;
END
$$;

-- The users who were created last, newest first. An adapter may leave this function out. It reads the whole table, unless there is an
-- index: CREATE INDEX ON accounts (created_at).
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.newest_users(most integer)
RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT a.uid::text FROM public.accounts AS a ORDER BY a.created_at DESC LIMIT most;
END
$$;

-- How many eligible users are subscribers. Workers call it about every five minutes, for the demotion brake.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.count_subscribers()
RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
BEGIN
    RETURN (
        SELECT count(*)
          FROM public.accounts AS a
         WHERE entitlement_sync_host.type_of(a.plan) = 'subscriber'
           AND entitlement_sync_host.status_of(a.state) IN ('active', 'onboarding')
    );
END
$$;

-- At most `most` assets that are frozen without a recorded reason: for `doctor` and for operators. An adapter may leave this function
-- out. It may read the whole table. If that takes too long, an index helps:
-- CREATE INDEX ON items (item_id) WHERE locked_at IS NOT NULL AND coalesce(locked_for, '{}') = '{}'.
-- EDIT names.
CREATE OR REPLACE FUNCTION entitlement_sync_host.unexplained_assets(most integer)
RETURNS TABLE (user_id text, asset_id text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT i.account_uid::text, i.item_id::text
      FROM public.items AS i
     WHERE i.locked_at IS NOT NULL AND coalesce(i.locked_for, '{}') = '{}'
     LIMIT most;
END
$$;
