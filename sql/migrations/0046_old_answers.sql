-- compatible_from: 11
-- What was answered once grows old: that a digest is nobody's, for the app may create its user after the store has told of the
-- purchase; and an alarm whose cause goes on.

ALTER TABLE account_question ADD COLUMN first_at timestamptz NOT NULL DEFAULT clock_timestamp();
COMMENT ON COLUMN account_question.first_at IS 'when it was asked for the first time';
COMMENT ON COLUMN account_question.asked_at IS 'a walk that began later answers it; when the answer has grown old it is asked anew';

-- What is known of roots that no user was found by; those that need a walk are noted. A root is `absent` once a walk that began
-- after it was asked for has ended, and `late` where a job has waited for `patience`.
--
-- An answer holds for ten minutes after the newest walk, and for as long as the question had been asked before: a new user is
-- found soon, and an id that is nobody's for long costs a walk ever more seldom.
CREATE OR REPLACE FUNCTION ask_accounts(fp bytea, roots bigint[], patience interval)
RETURNS TABLE (root bigint, standing text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    at   timestamptz := clock_timestamp();
    walk account_walk;
    open bigint[];
BEGIN
    SELECT w.* INTO walk FROM account_walk AS w WHERE w.fingerprint = fp;
    open := ARRAY(SELECT DISTINCT r.root FROM unnest(roots) AS r(root)
                   WHERE NOT EXISTS (SELECT 1 FROM account_question AS q
                                      WHERE q.fingerprint = fp AND q.root = r.root AND q.asked_at < walk.complete_began_at
                                        AND (walk.complete_at > at - interval '10 minutes'
                                             OR walk.complete_began_at > at - (q.asked_at - q.first_at)))
                   ORDER BY 1);
    INSERT INTO account_question AS q (fingerprint, root, asked_at, since, seen_at, first_at)
    SELECT fp, o.root, at, at, at, at FROM unnest(open) AS o(root)
    ON CONFLICT (fingerprint, root) DO UPDATE
       SET asked_at = CASE WHEN q.asked_at < walk.complete_began_at THEN at ELSE q.asked_at END,
           -- Between two tries of a job lies a quarter of an hour at the most.
           since = CASE WHEN q.asked_at < walk.complete_began_at OR q.seen_at < at - interval '15 minutes' THEN at
                        ELSE q.since END,
           seen_at = at
     WHERE q.seen_at < at - interval '1 second' OR q.asked_at < walk.complete_began_at;
    RETURN QUERY
    SELECT r.root, CASE WHEN r.root <> ALL (open) THEN 'absent' WHEN q.since < at - patience THEN 'late' ELSE 'pending' END
      FROM unnest(roots) AS r(root)
      LEFT JOIN account_question AS q ON q.fingerprint = fp AND q.root = r.root;
END
$$;

-- Forgets users that their store knows again, and what is too old to count; and keeps the alarm of a pause without a person
-- raised for as long as it lasts.
CREATE OR REPLACE FUNCTION forget_absences() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE alarm AS a SET last_at = now(), count = a.count + 1
      FROM control AS c
     WHERE c.name = 'demotions' AND c.paused AND a.last_at < now() - interval '10 minutes'
       AND (c.cause = 'absences' AND a.name = 'absences'
            OR c.cause = 'credentials' AND a.name LIKE 'credentials\_unknown.%');
    DELETE FROM store_knowledge AS k WHERE k.at < now() - interval '2 days';
    -- User by user: a join might read all users for the few that are missed.
    DELETE FROM store_absence AS a
     WHERE a.ctid = ANY (ARRAY(
           SELECT x.ctid FROM store_absence AS x
            CROSS JOIN LATERAL (SELECT y.read_at, y.absent_since FROM user_sync AS y
                                 WHERE y.user_key = x.user_key OFFSET 0) AS u
            WHERE u.read_at > x.at AND u.absent_since IS NULL OR x.at < now() - interval '30 days'
            LIMIT 1000 FOR UPDATE OF x SKIP LOCKED))
$$;
