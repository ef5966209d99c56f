-- What operators may see: never their own cases and app accounts; ids masked until they ask; messages only with a permission.

-- The tickets, open or closed, that an operator may not see because they concern an account that is, or was, their own.
CREATE OR REPLACE FUNCTION own_cases(who bigint) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    WITH mine AS MATERIALIZED (
        SELECT a.user_key FROM operator_account AS a WHERE a.operator_id = who
    ), item AS MATERIALIZED (
        SELECT l.id FROM lineage(ARRAY(SELECT p.id FROM mine AS m JOIN purchase AS p ON p.owner_key = m.user_key)) AS l(id)
    )
    SELECT coalesce(array_agg(DISTINCT t.id), '{}')
      FROM (SELECT x.id FROM mine AS m JOIN ticket AS x ON x.claimant_key = m.user_key
            UNION SELECT x.id FROM mine AS m JOIN ticket AS x ON x.owner_key = m.user_key
            UNION SELECT x.id FROM item AS i JOIN ticket AS x ON x.purchase_id = i.id
            UNION SELECT x.id FROM item AS i JOIN ticket AS x ON x.subject_id = i.id) AS c
      JOIN ticket AS t ON t.id = c.id
     WHERE is_own_case(who, t)
$$;

-- Whether a user is, or was, an operator's own account, or the other side of their own case or transfer: they may not see that user.
CREATE OR REPLACE FUNCTION is_own_account(who bigint, which bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT has_account(who)
       AND (EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who AND a.user_key = which)
            OR EXISTS (SELECT 1 FROM ticket AS t WHERE t.claimant_key = which AND is_own_case(who, t))
            OR EXISTS (SELECT 1 FROM ticket AS t WHERE t.owner_key = which AND is_own_case(who, t))
            OR EXISTS (SELECT 1 FROM operator_account AS a JOIN transfer AS x ON x.from_key = a.user_key
                        WHERE a.operator_id = who AND x.to_key = which)
            OR EXISTS (SELECT 1 FROM operator_account AS a JOIN transfer AS x ON x.to_key = a.user_key
                        WHERE a.operator_id = who AND x.from_key = which))
$$;

-- Whether the claimant, the owner or the purchase's owner in a ticket is, or was, an operator's own account.
CREATE OR REPLACE FUNCTION is_own_case(who bigint, t ticket) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_account AS a
                    WHERE a.operator_id = who
                      AND a.user_key IN (t.claimant_key, t.owner_key,
                                         (SELECT p.owner_key FROM purchase AS p WHERE p.id = purchase_of(t))))
$$;

-- Whether an operator has, or had, an account in the app.
CREATE OR REPLACE FUNCTION has_account(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who)
$$;

-- Whether an operator asked within the last minute, in an earlier transaction, to see a ticket's ids unmasked.
CREATE OR REPLACE FUNCTION may_see(who bigint, which bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM ticket_reveal AS r
                    WHERE r.operator_id = who AND r.ticket_id IS NOT DISTINCT FROM which
                      AND r.at > clock_timestamp() - interval '1 minute' AND r.xact <> pg_current_xact_id())
$$;

-- Whether an operator has the permission `work` or `audit`, to read the notes of operators and the replies of claimants and owners.
CREATE OR REPLACE FUNCTION may_read_messages(who operator) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT role_may(who.role, 'work') OR role_may(who.role, 'audit')
$$;

-- Masks an id, unless `reveal` is true: its first and last two characters stay; of an id under eight characters, the last.
CREATE OR REPLACE FUNCTION masked(id text, reveal boolean) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN id IS NULL THEN NULL WHEN reveal THEN id
            WHEN length(id) < 8 THEN '…' || right(id, 1)
            ELSE left(id, 2) || '…' || right(id, 2) END;
