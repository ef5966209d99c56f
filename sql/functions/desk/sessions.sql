-- Operators' sessions: when one ends, and whether its operator has the permission for an act.

-- Refuses transactions whose snapshot stays old: they would still see permissions that were taken away.
CREATE OR REPLACE FUNCTION check_isolation() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = '25001', MESSAGE = 'the desk''s functions run in read committed transactions',
            HINT = 'Begin the transaction without another isolation level.';
    END IF;
END
$$;

-- The operator of a session. Raises an error if the session has ended, the operator role lacks the permission, or the account is held and
-- the permission is weighty. `fresh`: also if the operator signed in longer ago than that.
CREATE OR REPLACE FUNCTION acting(session bytea, wanted text, fresh interval DEFAULT NULL) RETURNS operator
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who    operator;
    proved timestamptz;
BEGIN
    PERFORM check_isolation();
    -- A weighty act other than `manage` locks the operator's row until it commits, so that the operator role cannot be taken away before.
    -- Other acts take no lock: an open transaction would keep an admin from disabling the operator, or the operator from their work. The
    -- session is read under the lock: it may have ended meanwhile.
    IF wanted = 'manage' OR NOT is_weighty(wanted) THEN
        SELECT o.* INTO who FROM operator AS o
         WHERE o.id = (SELECT s.operator_id FROM operator_session AS s WHERE s.digest = sha256(session)) AND o.disabled_at IS NULL;
    ELSE
        SELECT o.* INTO who FROM operator AS o
         WHERE o.id = (SELECT s.operator_id FROM operator_session AS s WHERE s.digest = sha256(session)) AND o.disabled_at IS NULL
           FOR SHARE;
    END IF;
    -- An account that a disabled admin added or reset needs another admin's confirmation: it may have been committed after the disabling.
    IF is_banned(who.id) OR who.held_until IS NOT NULL AND is_banned(who.held_by) THEN
        who := NULL;
    END IF;
    SELECT s.proved_at INTO proved FROM operator_session AS s
     WHERE s.digest = sha256(session) AND s.operator_id = who.id AND session_ends(s) > clock_timestamp();
    IF proved IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'no operator is signed in, or the session has ended',
            HINT = 'Sign in: entitlement-sync operator login NAME.';
    END IF;
    IF NOT role_may(who.role, wanted) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = format('the role %s may not do this (%s)', who.role, wanted),
            HINT = 'Ask an operator whose role may.';
    END IF;
    IF who.held_until > clock_timestamp() AND is_weighty(wanted) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009',
            MESSAGE = CASE WHEN who.held_until = 'infinity'
                           THEN 'the account was added or reset, and no second admin has confirmed it'
                           ELSE 'the account was added or reset less than a day ago, and no second admin has confirmed it' END,
            HINT = 'Another admin confirms it: entitlement-sync operator confirm NAME.';
    END IF;
    IF proved + fresh <= clock_timestamp() THEN
        RAISE EXCEPTION USING ERRCODE = 'ES007', MESSAGE = 'this asks for the password and a code again',
            HINT = 'Sign in again, then repeat it: entitlement-sync operator login NAME.';
    END IF;
    -- Not with every request, since a page makes many; and not where the operator's own row may be written next.
    IF wanted <> 'manage' AND NOT pg_is_in_recovery() THEN
        UPDATE operator_session AS s SET seen_at = clock_timestamp()
         WHERE s.digest = sha256(session) AND s.seen_at < clock_timestamp() - interval '30 seconds';
    END IF;
    RETURN who;
END
$$;

-- Whether an operator role has a permission.
CREATE OR REPLACE FUNCTION role_may(role text, permission text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_permission AS d WHERE d.role = role_may.role AND d.permission = role_may.permission)
$$;

-- When a session ends: after twelve hours, or earlier if it is unused or the provider has to be asked again.
CREATE OR REPLACE FUNCTION session_ends(s operator_session) RETURNS timestamptz
LANGUAGE sql STABLE STRICT
RETURN least(s.started_at + interval '12 hours', s.ends_at,
             s.seen_at + CASE s.kind WHEN 'console' THEN interval '30 minutes' ELSE interval '1 hour' END);

-- Records what was refused to a signed-in operator, at most ten a minute: the refusal rolled back its own record.
CREATE OR REPLACE FUNCTION note_refusal(session bytea, wanted text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO operator_event (operator_id, kind, detail)
    SELECT s.operator_id, 'refused', jsonb_build_object('permission', left(wanted, 40))
      FROM operator_session AS s
     WHERE s.digest = sha256(session)
       AND (SELECT count(*) FROM (SELECT 1 FROM operator_event AS e
                                   WHERE e.operator_id = s.operator_id AND e.kind = 'refused'
                                     AND e.at > clock_timestamp() - interval '1 minute' ORDER BY e.id DESC LIMIT 10) AS n) < 10
$$;

CREATE OR REPLACE FUNCTION sign_out(session bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    WITH ended AS (DELETE FROM operator_session AS s WHERE s.digest = sha256(session) RETURNING s.operator_id)
    INSERT INTO operator_event (operator_id, kind) SELECT e.operator_id, 'signed_out' FROM ended AS e;
$$;

-- The operator's own sessions, the newest first.
CREATE OR REPLACE FUNCTION own_sessions(session bytea)
RETURNS TABLE (kind text, started_at timestamptz, seen_at timestamptz, is_this boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT s.kind, s.started_at, s.seen_at, s.digest = sha256(session)
      FROM operator_session AS s WHERE s.operator_id = who.id AND session_ends(s) > clock_timestamp()
     ORDER BY s.started_at DESC;
END
$$;

-- Ends an operator's other sessions. Returns how many.
CREATE OR REPLACE FUNCTION end_other_sessions(session bytea) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who   operator := acting(session, 'view');
    ended integer;
BEGIN
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id AND s.digest <> sha256(session);
    GET DIAGNOSTICS ended = ROW_COUNT;
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'others_signed_out', jsonb_build_object('sessions', ended));
    RETURN ended;
END
$$;

-- The operator of a session, their permissions, the session's end, and whether the identity provider limits the session.
CREATE OR REPLACE FUNCTION desk_me(session bytea)
RETURNS TABLE (id bigint, name text, role text, permissions text[], is_held boolean, ends_at timestamptz, fresh_until timestamptz,
               by_provider boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT who.id, who.name, who.role, ARRAY(SELECT d.permission FROM operator_permission AS d WHERE d.role = who.role
        ORDER BY d.permission),
           coalesce(who.held_until > clock_timestamp(), false), session_ends(s), s.proved_at + interval '10 minutes',
           s.ends_at IS NOT NULL
      FROM operator_session AS s WHERE s.digest = sha256(session);
END
$$;

-- Whether a session holds; the call does not prolong it.
CREATE OR REPLACE FUNCTION desk_alive(session bytea) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_session AS s JOIN operator AS o ON o.id = s.operator_id
                    WHERE s.digest = sha256(session) AND session_ends(s) > clock_timestamp() AND o.disabled_at IS NULL
                        AND NOT is_banned(o.id))
$$;
