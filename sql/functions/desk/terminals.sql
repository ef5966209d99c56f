-- Terminals that an operator signs in from the console.

-- Requests the sign-in of a terminal. Returns the code that the operator types at the console within five minutes.
CREATE OR REPLACE FUNCTION ask_terminal(session bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    letters CONSTANT text := 'BCDFGHJKLMNPQRSTVWXZ';
    made    text;
BEGIN
    IF octet_length(session) IS DISTINCT FROM 32 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ask_terminal: a hash of 32 bytes',
            HINT = 'Use entitlement-sync operator login.';
    END IF;
    DELETE FROM terminal_request AS r
     WHERE r.code = ANY (ARRAY(SELECT x.code FROM terminal_request AS x WHERE x.at < clock_timestamp() - interval '5 minutes'
                                 FOR UPDATE SKIP LOCKED));
    -- Ten requests for each database user and address; the oldest are deleted.
    DELETE FROM terminal_request AS r
     WHERE r.code IN (SELECT x.code FROM terminal_request AS x
                       WHERE x.asked_by = session_user AND x.asked_from = coalesce(host(inet_client_addr()), 'this machine')
                       ORDER BY x.at DESC OFFSET 9 FOR UPDATE SKIP LOCKED);
    SELECT string_agg(substr(letters, 1 + ('x' || substr(d.digits, 1, 6))::bit(24)::integer % 20, 1), '') INTO made
      FROM (SELECT encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex') AS digits
              FROM generate_series(1, 8)) AS d;
    INSERT INTO terminal_request (code, digest) VALUES (made, sha256(session));
    RETURN made;
END
$$;

-- The terminal that requested a code, for an operator to compare; no row: none did within five minutes.
CREATE OR REPLACE FUNCTION terminal_asking(session bytea, wanted text) RETURNS TABLE (asked_by text, asked_from text, at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM acting(session, 'view');
    RETURN QUERY SELECT r.asked_by, r.asked_from, r.at FROM terminal_request AS r
                  WHERE r.code = wanted AND r.at > clock_timestamp() - interval '5 minutes';
END
$$;

-- Signs a terminal in as the operator of `session`, with that session's `proved_at` and `ends_at`; false: no terminal has the code.
CREATE OR REPLACE FUNCTION allow_terminal(session bytea, wanted text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'view', interval '10 minutes');
    r   terminal_request;
BEGIN
    DELETE FROM terminal_request AS x WHERE x.code = wanted AND x.at > clock_timestamp() - interval '5 minutes' RETURNING x.* INTO r;
    IF r.code IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO operator_session (digest, operator_id, kind, proved_at, ends_at)
    SELECT r.digest, who.id, 'terminal', s.proved_at, s.ends_at FROM operator_session AS s WHERE s.digest = sha256(session);
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'signed_in', jsonb_build_object('by', 'console', 'database_user', r.asked_by, 'from', r.asked_from));
    RETURN true;
END
$$;

-- The operator's name, for a terminal that waits to be signed in; null: it is not signed in.
CREATE OR REPLACE FUNCTION session_name(session bytea) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT o.name FROM operator_session AS s JOIN operator AS o ON o.id = s.operator_id
     WHERE s.digest = sha256(session) AND session_ends(s) > clock_timestamp()
$$;
