-- compatible_from: 11
-- Which of the host's users the ids stand for that apps gave to stores. An app may give a store a digest of a user's id; it leads
-- back to the user through the digests of all users alone, which walks through the host's users put into an index.

CREATE TABLE account_index (
    root    bigint NOT NULL,
    user_id text   COLLATE "C" NOT NULL,
    PRIMARY KEY (root, user_id)
);
COMMENT ON TABLE account_index IS 'a part of each digest of a user''s id that an app may give to a store';

CREATE TABLE account_walk (
    fingerprint       bytea       PRIMARY KEY,
    holder            uuid,
    lease_until       timestamptz,
    began_at          timestamptz,
    complete_began_at timestamptz,
    complete_at       timestamptz,
    users             bigint,
    used_at           timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE account_walk IS 'walks through the host''s users that fill account_index, one row a configuration of derivations';
COMMENT ON COLUMN account_walk.complete_began_at IS 'when the last walk began that came to its end: every id asked for before was resolved';

CREATE TABLE account_question (
    fingerprint bytea       NOT NULL,
    root        bigint      NOT NULL,
    asked_at    timestamptz NOT NULL,
    since       timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    PRIMARY KEY (fingerprint, root)
);
CREATE INDEX account_question_asked ON account_question (fingerprint, asked_at);
COMMENT ON TABLE account_question IS 'account ids that the index did not know; answered by a walk that began after asked_at';
COMMENT ON COLUMN account_question.since IS 'from when on a job has waited for the answer without a longer break';

-- When the last whole walk began; null: none was made, or a clock that was ahead has dated it to a time that is still to come.
CREATE FUNCTION walked_since(w account_walk) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT w.complete_began_at WHERE w.complete_at <= clock_timestamp()
$$;

-- What is known of roots that no user was found by; those that need a walk are noted. A root is `absent` for those who have
-- waited for a walk that began after they asked, and `late` where a job has waited for `patience`. Whoever comes later asks
-- anew: the app may have created the user meanwhile.
CREATE FUNCTION ask_accounts(fp bytea, roots bigint[], patience interval)
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

-- Whether a job waits for a walk that began after its question.
CREATE FUNCTION awaits_accounts(fp bytea, began timestamptz) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM account_question AS q
                    WHERE q.fingerprint = fp AND q.asked_at >= coalesce(began, '-infinity')
                      AND q.seen_at > clock_timestamp() - interval '15 minutes')
$$;

-- Begins a walk where a job waits for one, none was ever made, or the last one was a while ago. Null: none is begun; else
-- whether a job waits.
CREATE FUNCTION begin_account_walk(fp bytea, me uuid, lease interval) RETURNS boolean
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

-- Adds users to the index, and prolongs the walk. Null: the walk is another's by now; else whether a job waits.
CREATE FUNCTION add_accounts(fp bytea, me uuid, lease interval, roots bigint[], user_ids text[]) RETURNS boolean
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

CREATE FUNCTION end_account_walk(fp bytea, me uuid, walked bigint) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE account_walk AS w
       SET complete_began_at = w.began_at, complete_at = clock_timestamp(), users = walked, holder = NULL, lease_until = NULL
     WHERE w.fingerprint = fp AND w.holder = me
$$;

-- Forgets questions that were asked half a year ago, and configurations that were not used for a month.
CREATE FUNCTION forget_accounts() RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    DELETE FROM account_walk AS w WHERE w.used_at < now() - interval '30 days';
    DELETE FROM account_question AS q
     WHERE q.asked_at < now() - interval '180 days'
        OR NOT EXISTS (SELECT 1 FROM account_walk AS w WHERE w.fingerprint = q.fingerprint)
           AND q.seen_at < now() - interval '30 days'
$$;

-- Forgets who a user is, in all our records: what was decided stands, with nobody's name to it. The purchases stay with
-- the account that there was, so that nobody else can claim them. Returns what was changed; no row for an unknown user.
CREATE OR REPLACE FUNCTION erase_user(wanted text)
RETURNS TABLE (purchases bigint, tickets bigint, events bigint, messages bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    known bigint;
    jobs  uuid[];
BEGIN
    -- By the host's spelling, or by that of the records where the host has the user no more.
    wanted := coalesce(host_id(wanted), wanted);
    -- Whoever writes assets holds these rows in the same order.
    DELETE FROM asset_run AS r USING user_sync AS u WHERE u.user_id = wanted AND r.user_key = u.user_key;
    SELECT u.user_key INTO known FROM user_sync AS u WHERE u.user_id = wanted FOR UPDATE;
    DELETE FROM sandbox_user AS s WHERE s.user_id = wanted;
    DELETE FROM account_index AS i WHERE i.user_id = wanted;
    -- Events may name somebody who never was a user here. Each by its own index.
    DELETE FROM inbox_body AS b
     WHERE b.id = ANY (ARRAY(SELECT i.id FROM inbox AS i WHERE i.user_keys @> ARRAY[known]
                             UNION
                             SELECT i.id FROM inbox AS i WHERE i.about IS NOT NULL AND i.about -> 'users' ? wanted));
    GET DIAGNOSTICS events = ROW_COUNT;
    UPDATE inbox AS i SET about = NULL, state = CASE WHEN i.state = 'done' THEN i.state ELSE 'parked' END
     WHERE i.about IS NOT NULL AND i.about -> 'users' ? wanted;
    IF known IS NULL THEN
        IF events > 0 THEN
            purchases := 0;
            tickets := 0;
            messages := 0;
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    UPDATE user_sync AS u SET user_id = NULL, next_look = NULL, promised_at = NULL WHERE u.user_key = known;
    DELETE FROM idempotency AS i WHERE i.user_key = known;
    DELETE FROM shown_proof AS s WHERE s.user_key = known;
    UPDATE "grant" AS g SET reason = '(erased)' WHERE g.user_key = known;

    jobs := ARRAY(SELECT h.id FROM job_history AS h WHERE h.user_key = known)
         || ARRAY(SELECT x.id FROM queue AS q
                   CROSS JOIN LATERAL unnest(ARRAY[q.restore_id, q.restore_next, q.reconcile_id, q.reconcile_next]) AS x(id)
                   WHERE q.user_key = known AND x.id IS NOT NULL);
    UPDATE job_request AS r SET proofs = NULL, client_error = NULL, product_ids = NULL, reason = NULL
     WHERE r.id = ANY (jobs);

    DELETE FROM outbox AS o WHERE o.user_key = known;
    GET DIAGNOSTICS messages = ROW_COUNT;
    SELECT count(*) INTO purchases FROM purchase AS p WHERE p.owner_key = known AND p.merged_into IS NULL;
    SELECT count(*) INTO tickets FROM ticket AS t WHERE known IN (t.claimant_key, t.owner_key);
    RETURN NEXT;
END
$$;

REVOKE ALL ON TABLE account_index, account_walk, account_question FROM PUBLIC;
REVOKE ALL ON FUNCTION ask_accounts, awaits_accounts, begin_account_walk, add_accounts, end_account_walk, forget_accounts
  FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT ON account_index, account_walk TO %I',
    'GRANT EXECUTE ON FUNCTION ask_accounts, begin_account_walk, add_accounts, end_account_walk, forget_accounts TO %I']);
