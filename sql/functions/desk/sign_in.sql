-- Sign-in with a password and a one-time code; how long attempts wait after failures, and when codes are locked.

-- The hash of the address that attempts are counted by: the console's, or else that of the terminal's connection.
CREATE OR REPLACE FUNCTION address_of_try(shown bytea) RETURNS bytea
LANGUAGE sql STABLE
RETURN coalesce(shown, sha256(convert_to('terminal ' || session_user || ' ' || coalesce(host(inet_client_addr()), 'local'), 'UTF8')));

-- The known client with which a name has signed in within the last 30 days; null: the client is not known.
CREATE OR REPLACE FUNCTION known_client_of(wanted text, shown bytea) RETURNS bytea
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT c.digest FROM known_client AS c JOIN operator AS o ON o.id = c.operator_id
     WHERE c.digest = sha256(shown) AND o.name = wanted AND c.used_at > clock_timestamp() - interval '30 days'
$$;

-- Remembers the client with which an operator signed in; keeps the latest twenty of each operator.
CREATE OR REPLACE FUNCTION remember_client(who bigint, shown bytea) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF shown IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO known_client AS c (digest, operator_id) VALUES (sha256(shown), who)
    ON CONFLICT (digest, operator_id) DO UPDATE SET used_at = clock_timestamp();
    DELETE FROM known_client AS c
     WHERE c.operator_id = who
       AND c.digest NOT IN (SELECT k.digest FROM known_client AS k WHERE k.operator_id = who ORDER BY k.used_at DESC LIMIT 20);
END
$$;

-- Until when attempts wait after failures: up to `free` not at all, then twice as long after each, up to `longest`.
CREATE OR REPLACE FUNCTION wait_after(failures bigint, last_at timestamptz, free integer, longest interval) RETURNS timestamptz
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN failures > free THEN last_at + least(interval '1 second' * 2 ^ least(failures - free, 12), longest) ELSE '-infinity' END;

-- Until when an attempt waits. From a known client only its own failures count, so that no other client can lock an operator out. From
-- elsewhere the failures of the name, of the address, and of both together count: a name is slowed from everywhere and locked out
-- nowhere. The latest 64 failures count.
--
--   own   an announced attempt: only earlier ones count; null: all count
CREATE OR REPLACE FUNCTION wait_until(wanted text, shown_address bytea, known bytea, own sign_in_attempt) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    called bytea := sha256(convert_to(wanted, 'UTF8'));
    place  bytea := address_of_try(shown_address);
    since  timestamptz := clock_timestamp() - interval '1 hour';
    before timestamptz := coalesce(own.at, 'infinity');
    until  timestamptz := '-infinity';
    good   timestamptz;
BEGIN
    IF known IS NOT NULL THEN
        SELECT max(a.at) INTO good FROM sign_in_attempt AS a
         WHERE a.client = known AND a.name = called AND a.at > since AND a.result = 'good';
        SELECT wait_after(count(*), max(f.at), 5, interval '15 minutes') INTO until
          FROM (SELECT a.at FROM sign_in_attempt AS a
                 WHERE a.client = known AND a.name = called AND a.at > greatest(since, good) AND a.at <= before
                   AND a.id IS DISTINCT FROM own.id AND a.result IS DISTINCT FROM 'good' ORDER BY a.at DESC LIMIT 64) AS f;
        RETURN until;
    END IF;
    -- A good sign-in resets the count of the name, but not of the address, which a whole office may share.
    SELECT max(a.at) INTO good FROM sign_in_attempt AS a
     WHERE a.name = called AND a.at > since AND a.client IS NULL AND a.result = 'good';
    SELECT greatest(wait_after(count(*), max(f.at), 5, interval '2 seconds'),
                    wait_after(count(*) FILTER (WHERE f.address = place), max(f.at) FILTER (WHERE f.address = place), 5,
                        interval '1 minute'))
      INTO until
      FROM (SELECT a.at, a.address FROM sign_in_attempt AS a
             WHERE a.name = called AND a.at > greatest(since, good) AND a.at <= before AND a.id IS DISTINCT FROM own.id
               AND a.client IS NULL AND a.result IS DISTINCT FROM 'good' ORDER BY a.at DESC LIMIT 64) AS f;
    RETURN greatest(until, (
        SELECT wait_after(count(*), max(f.at), 50, interval '15 minutes')
          FROM (SELECT a.at FROM sign_in_attempt AS a
                 WHERE a.address = place AND a.at > since AND a.at <= before AND a.id IS DISTINCT FROM own.id AND a.client IS NULL
                   AND coalesce(a.result, 'tried') = 'tried' ORDER BY a.at DESC LIMIT 64) AS f));
END
$$;

-- How long an attempt that is not announced yet has to wait.
CREATE OR REPLACE FUNCTION try_wait(wanted text, shown_address bytea, known bytea) RETURNS interval
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT CASE WHEN isfinite(w.until) THEN greatest(w.until - clock_timestamp(), interval '0') ELSE interval '0' END
      FROM wait_until(wanted, shown_address, known, NULL) AS w(until)
$$;

-- Until when an operator's codes are refused; null: they are not. Nine failed attempts with the right password are free, for a wrong clock
-- or device. Each further one locks twice as long, up to a day. `but`: the attempt that asks.
CREATE OR REPLACE FUNCTION codes_locked_until(who operator, but uuid, OUT wrong bigint, OUT until timestamptz)
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    WITH n AS (SELECT sha256(convert_to(who.name, 'UTF8')) AS name, clock_timestamp() - interval '1 day' AS since),
         g AS (SELECT max(a.at) AS at FROM n JOIN sign_in_attempt AS a ON a.name = n.name AND a.at > n.since AND a.result = 'good')
    SELECT count(*), CASE WHEN count(*) > 9
                          THEN max(f.at) + least(interval '1 minute' * power(2, least(count(*) - 10, 11)), interval '1 day') END
      FROM (SELECT a.at FROM n, g, sign_in_attempt AS a
             WHERE a.name = n.name AND a.at > greatest(n.since, g.at, who.lost_at) AND a.knows AND a.id IS DISTINCT FROM but
               AND coalesce(a.result, 'tried') = 'tried' ORDER BY a.at DESC LIMIT 64) AS f
$$;

-- With what to hash a name's password, how long to wait before, and whether the client is known; unknown names get the same form.
CREATE OR REPLACE FUNCTION sign_in_salt(wanted text, address bytea, client bytea, usual_cost text)
RETURNS TABLE (wait double precision, cost text, salt bytea, is_known boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT extract(epoch FROM try_wait(wanted, address, k.client))::double precision,
           coalesce(s.cost, (SELECT mode() WITHIN GROUP (ORDER BY x.cost) FROM operator_secret AS x), usual_cost),
           coalesce(s.salt, substring(sha256(d.bytes || convert_to(wanted, 'UTF8')) FROM 1 FOR 16)), k.client IS NOT NULL
      FROM desk_secret AS d
     CROSS JOIN LATERAL (SELECT known_client_of(wanted, sign_in_salt.client) AS client) AS k
      LEFT JOIN (operator AS o JOIN operator_secret AS s ON s.operator_id = o.id)
        ON o.name = wanted AND o.disabled_at IS NULL
$$;

-- Records an attempt before its result is known. `wait` above 0: the seconds to wait; then nothing was recorded.
--
--   digest   SHA-256 of the name, a zero byte, `shown` and the code
--   client   the hash of what the browser or terminal kept from an earlier sign-in; null: nothing
--   shown    the password's scrypt hash: the row records whether it is right before the code is checked, and no answer reveals it
CREATE OR REPLACE FUNCTION announce_sign_in(wanted text, address bytea, client bytea, digest bytea, shown bytea)
RETURNS TABLE (announced uuid, wait double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    pause interval;
    known bytea;
    who   operator;
    knows boolean;
BEGIN
    PERFORM check_isolation();
    IF wanted IS NULL OR octet_length(wanted) > 63 OR octet_length(digest) IS DISTINCT FROM 32
       OR octet_length(shown) IS DISTINCT FROM 32 OR octet_length(address) <> 32
       OR octet_length(client) <> 32 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'announce_sign_in: a name of at most 63 bytes, and hashes of 32',
            HINT = 'See the function''s comment.';
    END IF;
    known := known_client_of(wanted, client);
    pause := try_wait(wanted, address, known);
    IF pause > interval '0' THEN
        RETURN QUERY SELECT NULL::uuid, extract(epoch FROM pause)::double precision;
        RETURN;
    END IF;
    SELECT o.* INTO who FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
     WHERE o.name = wanted AND o.disabled_at IS NULL AND s.verifier = sha256(announce_sign_in.shown);
    knows := who.id IS NOT NULL;
    IF knows AND (codes_locked_until(who, NULL)).wrong >= 4 THEN
        PERFORM set_alarm('operator_guessed',
            'Wrong codes come with an operator''s right password: see sign_in_refusal, reason code, ask the operator, and'
            ' reset the account if it was not them (operator reset NAME).');
    END IF;
    RETURN QUERY
    INSERT INTO sign_in_attempt (digest, name, address, client, knows)
    VALUES (digest, sha256(convert_to(wanted, 'UTF8')), address_of_try(address), known, knows)
    RETURNING id, 0::double precision;
END
$$;

-- Signs an operator in, and stores a chosen password or device: all of it or nothing. A password must be chosen if the present one is for
-- one sign-in. A device must be chosen if none is stored.
--
--   announced  the attempt that `announce_sign_in` returned in an earlier transaction
--   shown      the scrypt hash of the password with the name's salt
--   code       the code of the stored device, or else of the chosen one; null: none, and empty in the digest
--   session    the hash of the session's secret
--   client     the hash of what this browser or terminal will send from then on; null: it is not remembered
--   chosen_cost, chosen_salt, chosen_shown, chosen_device   null: nothing is chosen
--
-- Returns `signed_in`; `refused`, whatever was wrong; `put_off`, if concurrent attempts failed; and after the right password `provider`,
-- `locked`, `needs_password`, `needs_device` (or both, with a space between), `needs_code` or `same_password`.
CREATE OR REPLACE FUNCTION sign_in(announced uuid, wanted text, shown bytea, code text, session bytea, session_kind text, client bytea,
                        chosen_cost text, chosen_salt bytea, chosen_shown bytea, chosen_device bytea)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    made    sign_in_attempt;
    who     operator;
    known   operator_secret;
    key     bytea;
    taken   bigint;
    missing text := '';
BEGIN
    PERFORM check_isolation();
    -- Checks the arguments before it reads: an error must not reveal what is stored.
    IF wanted IS NULL OR shown IS NULL OR octet_length(session) IS DISTINCT FROM 32 OR octet_length(client) <> 32
       OR session_kind IS NULL OR session_kind NOT IN ('console', 'terminal')
       OR num_nulls(chosen_cost, chosen_salt, chosen_shown) NOT IN (0, 3) OR NOT is_key(chosen_cost, chosen_salt, chosen_shown)
       OR octet_length(chosen_device) <> 20 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'sign_in: an argument is missing or has the wrong size',
            HINT = 'See the function''s comment.';
    END IF;
    UPDATE sign_in_attempt AS a SET result = 'tried'
     WHERE a.id = announced AND a.result IS NULL RETURNING a.* INTO made;
    IF made.id IS NULL OR made.xact = pg_current_xact_id() OR made.at < clock_timestamp() - interval '1 minute'
       OR made.digest <> sha256(convert_to(wanted, 'UTF8') || '\x00'::bytea || shown || convert_to(coalesce(code, ''), 'UTF8'))
    THEN
        RETURN refuse_sign_in(NULL, 'not_announced', made.address);
    END IF;
    -- Attempts announced at the same time did not count each other; now the earlier ones count.
    IF made.at < wait_until(wanted, made.address, made.client, made) THEN
        RETURN 'put_off';
    END IF;
    -- A caller without the password locks no operator's row.
    IF NOT EXISTS (SELECT 1 FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
                    WHERE o.name = wanted AND o.disabled_at IS NULL AND NOT is_banned(o.id) AND s.verifier = sha256(shown)) THEN
        RETURN refuse_sign_in((SELECT o.id FROM operator AS o WHERE o.name = wanted), 'password', made.address);
    END IF;
    -- Takes no lock on the operator's row, which another transaction may have locked: `acting` checks the operator again at each act.
    SELECT o.* INTO who FROM operator AS o WHERE o.name = wanted AND o.disabled_at IS NULL;
    SELECT s.* INTO known FROM operator_secret AS s WHERE s.operator_id = who.id FOR UPDATE;
    IF who.id IS NULL OR is_banned(who.id) OR known.verifier IS NULL OR known.verifier <> sha256(shown)
       OR coalesce(known.expires_at <= clock_timestamp(), false) THEN
        RETURN refuse_sign_in(who.id, 'password', made.address);
    END IF;
    IF EXISTS (SELECT 1 FROM sign_in_provider) AND NOT who.break_glass THEN
        UPDATE sign_in_attempt AS a SET result = 'incomplete' WHERE a.id = made.id;
        PERFORM refuse_sign_in(who.id, 'provider', made.address);
        RETURN 'provider';
    END IF;
    -- Only a caller with the password comes here, so that no other can lock the account.
    IF known.device IS NOT NULL AND (codes_locked_until(who, made.id)).until > clock_timestamp() THEN
        PERFORM refuse_sign_in(who.id, 'locked', made.address);
        RETURN 'locked';
    END IF;
    IF known.expires_at IS NOT NULL AND chosen_shown IS NULL THEN
        missing := 'needs_password';
    END IF;
    IF needs_device(who.role) AND known.device IS NULL AND chosen_device IS NULL THEN
        missing := concat_ws(' ', nullif(missing, ''), 'needs_device');
    END IF;
    -- A stored device stays: only an admin removes it.
    key := coalesce(known.device, chosen_device);
    IF missing = '' AND key IS NOT NULL AND code IS NULL THEN
        missing := 'needs_code';
    END IF;
    IF missing = '' AND (chosen_shown = shown OR chosen_salt = known.salt) THEN
        missing := 'same_password';
    END IF;
    IF missing <> '' THEN
        UPDATE sign_in_attempt AS a SET result = 'incomplete' WHERE a.id = made.id;
        INSERT INTO operator_event (about_id, kind, detail)
        VALUES (who.id, 'sign_in_incomplete', jsonb_build_object('result', missing));
        RETURN missing;
    END IF;
    IF key IS NOT NULL THEN
        taken := period_of_code(key, code, CASE WHEN known.device IS NOT NULL THEN known.last_period END);
        IF taken IS NULL THEN
            RETURN refuse_sign_in(who.id, 'code', made.address);
        END IF;
    END IF;
    UPDATE operator_secret AS s
       SET cost = coalesce(chosen_cost, s.cost), salt = coalesce(chosen_salt, s.salt),
           verifier = coalesce(sha256(chosen_shown), s.verifier),
           expires_at = CASE WHEN chosen_shown IS NULL THEN s.expires_at END,
           device = key, last_period = taken
     WHERE s.operator_id = who.id;
    IF chosen_shown IS NOT NULL OR known.device IS NULL AND key IS NOT NULL THEN
        DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
        INSERT INTO operator_event (operator_id, kind, detail)
        VALUES (who.id, 'enrolled', jsonb_build_object('password', chosen_shown IS NOT NULL,
                                                       'device', known.device IS NULL AND key IS NOT NULL));
    END IF;
    UPDATE sign_in_attempt AS a SET result = 'good' WHERE a.id = made.id;
    PERFORM remember_client(who.id, client);
    INSERT INTO operator_session (digest, operator_id, kind) VALUES (sha256(session), who.id, session_kind);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'signed_in', jsonb_build_object('by', session_kind));
    IF EXISTS (SELECT 1 FROM sign_in_provider) THEN
        PERFORM set_alarm('break_glass_used',
            'An admin signed in with a password though an identity provider is in use: see operator_event, ask them, and clear'
            ' the alarm.');
    END IF;
    RETURN 'signed_in';
END
$$;

-- Records a failed attempt, at most twenty an hour for an operator and reason. Returns `refused`, the same for every reason.
CREATE OR REPLACE FUNCTION refuse_sign_in(who bigint, wanted_reason text, whence bytea) RETURNS text
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO sign_in_refusal (operator_id, reason, address)
    SELECT who, wanted_reason, whence
     WHERE (SELECT count(*) FROM (SELECT 1 FROM sign_in_refusal AS r
                                   WHERE r.operator_id IS NOT DISTINCT FROM who AND r.reason = wanted_reason
                                     AND r.at > clock_timestamp() - interval '1 hour' LIMIT 20) AS n) < 20;
    SELECT 'refused'
$$;

-- The period of a code, which may be one period early or late; null: the code is wrong, or was used.
CREATE OR REPLACE FUNCTION period_of_code(device bytea, code text, after bigint) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT max(p.period)
      FROM generate_series(floor(extract(epoch FROM clock_timestamp()) / 30)::bigint - 1,
                           floor(extract(epoch FROM clock_timestamp()) / 30)::bigint + 1) AS p(period)
     WHERE code ~ '^[0-9]{6}$' AND one_time_code(device, p.period) = code AND p.period > coalesce(after, -1)
$$;

-- The code of six digits for a period of 30 seconds (RFC 6238, RFC 4226).
CREATE OR REPLACE FUNCTION one_time_code(device bytea, period bigint) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    SELECT lpad((((get_byte(m.mac, m.start) & 127) * 16777216::bigint + get_byte(m.mac, m.start + 1) * 65536
                  + get_byte(m.mac, m.start + 2) * 256 + get_byte(m.mac, m.start + 3)) % 1000000)::text, 6, '0')
      FROM (SELECT h.mac, get_byte(h.mac, 19) & 15 AS start
              FROM (SELECT hmac_sha1(int8send(period), device) AS mac) AS h) AS m
$$;

-- Deletes old sign-in records and ended sessions, and sets `disabled_at` where `disable_operator` could not.
CREATE OR REPLACE FUNCTION forget_sign_ins() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '1s' AS $$
BEGIN
    DELETE FROM sign_in_attempt AS a
     WHERE a.id = ANY (ARRAY(SELECT x.id FROM sign_in_attempt AS x WHERE x.at < clock_timestamp() - interval '1 day'
                               ORDER BY x.at LIMIT 10000 FOR UPDATE SKIP LOCKED));
    DELETE FROM sign_in_refusal AS r WHERE r.at < clock_timestamp() - interval '90 days';
    DELETE FROM known_client AS c
     WHERE c.ctid = ANY (ARRAY(SELECT x.ctid FROM known_client AS x WHERE x.used_at < clock_timestamp() - interval '30 days'
                                 FOR UPDATE SKIP LOCKED));
    DELETE FROM operator_session AS s
     WHERE s.digest = ANY (ARRAY(SELECT x.digest FROM operator_session AS x
                                  WHERE session_ends(x) <= clock_timestamp() OR is_banned(x.operator_id) FOR UPDATE SKIP LOCKED));
    -- Another transaction may have locked the rows; the next call tries again.
    BEGIN
        UPDATE operator AS o SET disabled_at = clock_timestamp()
         WHERE o.id = ANY (ARRAY(SELECT x.id FROM operator AS x WHERE x.disabled_at IS NULL AND is_banned(x.id)
                                 FOR UPDATE SKIP LOCKED));
        IF FOUND THEN
            PERFORM note_held_operators();
        END IF;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
END
$$;
