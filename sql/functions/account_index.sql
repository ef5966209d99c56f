-- Which user a store's account id names. The id may be a digest, so a walk over all users of the host fills an index of digests.

-- When the last complete walk began; null: there was none, or a clock that was ahead dated its end to the future.
CREATE OR REPLACE FUNCTION walked_since(w account_walk) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT w.complete_began_at WHERE w.complete_at <= clock_timestamp()
$$;

-- Whether a job has waited within the last 15 minutes for a walk that begins after its question. `began`: when the last walk began.
CREATE OR REPLACE FUNCTION awaits_accounts(fp bytea, began timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM account_question AS q
                    WHERE q.fingerprint = fp AND q.asked_at >= coalesce(began, '-infinity')
                      AND q.seen_at > clock_timestamp() - interval '15 minutes')
$$;

-- The state of roots that are not in the index; questions that need a walk are noted. `absent`: a walk that began after the question
-- found no user; `late`: jobs have waited for longer than `patience`; `pending`: neither. After a break of 15 minutes a root is asked
-- again, because the app may have created the user meanwhile.
CREATE OR REPLACE FUNCTION ask_accounts(fp bytea, roots bigint[], patience interval)
RETURNS TABLE (root bigint, standing text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at   timestamptz := clock_timestamp();
    done timestamptz := (SELECT walked_since(w) FROM account_walk AS w WHERE w.fingerprint = fp);
    open bigint[];
BEGIN
    open := ARRAY(SELECT DISTINCT r.root FROM unnest(roots) AS r(root)
                   WHERE NOT EXISTS (SELECT 1 FROM account_question AS q
                                      WHERE q.fingerprint = fp AND q.root = r.root AND q.asked_at < done
                                        AND q.seen_at > at - interval '15 minutes')
                   ORDER BY 1);
    INSERT INTO account_question AS q (fingerprint, root, asked_at, since, seen_at)
    SELECT fp, o.root, at, at, at FROM unnest(open) AS o(root)
    ON CONFLICT (fingerprint, root) DO UPDATE
       SET asked_at = CASE WHEN q.asked_at < done OR q.asked_at > at THEN at ELSE q.asked_at END,
           since = CASE WHEN q.asked_at < done OR q.seen_at NOT BETWEEN at - interval '15 minutes' AND at THEN at
                        ELSE q.since END,
           seen_at = at
     WHERE q.seen_at NOT BETWEEN at - interval '1 second' AND at OR q.asked_at < done OR q.asked_at > at;
    RETURN QUERY
    SELECT r.root, CASE WHEN r.root <> ALL (open) THEN 'absent' WHEN q.since < at - patience THEN 'late' ELSE 'pending' END
      FROM unnest(roots) AS r(root)
      LEFT JOIN account_question AS q ON q.fingerprint = fp AND q.root = r.root;
END
$$;

-- Begins a walk if a job waits for one, if there was none, or if the last one ended over six hours ago. Returns whether a job waits;
-- null: no walk is begun, also because another process (not `me`) has the lease.
CREATE OR REPLACE FUNCTION begin_account_walk(fp bytea, me uuid, lease interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    at      timestamptz;
    w       account_walk;
    awaited boolean;
BEGIN
    SELECT x.* INTO w FROM account_walk AS x WHERE x.fingerprint = fp;
    IF NOT FOUND THEN
        INSERT INTO account_walk (fingerprint) VALUES (fp) ON CONFLICT DO NOTHING;
    ELSIF w.lease_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 hour' AND w.holder IS DISTINCT FROM me
       OR w.complete_at BETWEEN clock_timestamp() - interval '6 hours' AND clock_timestamp()
          AND NOT awaits_accounts(fp, walked_since(w)) THEN
        RETURN NULL;
    END IF;
    SELECT x.* INTO w FROM account_walk AS x WHERE x.fingerprint = fp FOR UPDATE SKIP LOCKED;
    -- No lease is longer than an hour: a later end was written by a clock that was ahead.
    IF NOT FOUND OR w.lease_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 hour' AND w.holder IS DISTINCT FROM me THEN
        RETURN NULL;
    END IF;
    at := clock_timestamp();
    awaited := awaits_accounts(fp, walked_since(w));
    IF NOT awaited AND w.complete_at BETWEEN at - interval '6 hours' AND at THEN
        RETURN NULL;
    END IF;
    UPDATE account_walk AS x SET holder = me, lease_until = at + lease, began_at = at, used_at = at WHERE x.fingerprint = fp;
    RETURN awaited;
END
$$;

-- Adds users to the index, and extends the walk's lease. Returns whether a job waits; null: the caller has lost the lease.
CREATE OR REPLACE FUNCTION add_accounts(fp bytea, me uuid, lease interval, roots bigint[], user_ids text[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    done timestamptz;
BEGIN
    UPDATE account_walk AS w SET lease_until = clock_timestamp() + lease
     WHERE w.fingerprint = fp AND w.holder = me AND w.lease_until > clock_timestamp()
    RETURNING walked_since(w) INTO done;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO account_index (root, user_id)
    SELECT n.root, n.user_id FROM unnest(roots, user_ids) AS n(root, user_id) ORDER BY n.root, n.user_id
    ON CONFLICT DO NOTHING;
    RETURN awaits_accounts(fp, done);
END
$$;

CREATE OR REPLACE FUNCTION end_account_walk(fp bytea, me uuid, walked bigint) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE account_walk AS w
       SET complete_began_at = w.began_at, complete_at = clock_timestamp(), users = walked, holder = NULL, lease_until = NULL
     WHERE w.fingerprint = fp AND w.holder = me
$$;

-- Deletes questions older than 180 days, and walks and questions of configurations that were not used for 30 days.
CREATE OR REPLACE FUNCTION forget_accounts() RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    DELETE FROM account_walk AS w WHERE w.used_at < now() - interval '30 days';
    DELETE FROM account_question AS q
     WHERE q.asked_at < now() - interval '180 days'
        OR NOT EXISTS (SELECT 1 FROM account_walk AS w WHERE w.fingerprint = q.fingerprint)
           AND q.seen_at < now() - interval '30 days'
$$;

-- The purchases without an owner that the newest such read of a user found in the user's own store account; no row if a later full read
-- found none there. Without SET clauses, so that PostgreSQL can inline it.
CREATE OR REPLACE FUNCTION account_lines(known bigint) RETURNS SETOF purchase
LANGUAGE sql STABLE AS $$
    SELECT p.*
      FROM (SELECT o.asked_at FROM entitlement_sync.observation AS o
             WHERE o.user_key = known AND o.attribution = 'same_account'
             ORDER BY o.asked_at DESC LIMIT 1) AS newest
      JOIN entitlement_sync.user_sync AS u
        ON u.user_key = known AND newest.asked_at >= coalesce(u.recorded_at, newest.asked_at)
      JOIN entitlement_sync.observation AS x
        ON x.user_key = known AND x.attribution = 'same_account' AND x.asked_at = newest.asked_at
      JOIN entitlement_sync.purchase AS p ON p.id = x.purchase_id AND p.owner_key IS NULL AND p.merged_into IS NULL
$$;
