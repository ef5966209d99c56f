-- compatible_from: 11
-- Nothing that a database user can hold open keeps an operator from signing in, or from being disabled; and one-time codes are
-- PostgreSQL's own pgcrypto's.

-- ---- One-time codes -------------------------------------------------------------------------------------------------

-- The application may have the extension already, in a schema of its choice; where it has not, the schema `public` is where it would
-- search for it later.
DO $$
DECLARE
    home text := 'public';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pgcrypto') THEN
        IF NOT coalesce(has_schema_privilege('public', 'CREATE'), false) THEN
            home := 'entitlement_sync';
        END IF;
        EXECUTE format('CREATE EXTENSION pgcrypto SCHEMA %I', home);
    END IF;
    SELECT n.nspname INTO STRICT home FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
     WHERE e.extname = 'pgcrypto';
    IF home = 'entitlement_sync' THEN
        REVOKE ALL ON ALL FUNCTIONS IN SCHEMA entitlement_sync FROM PUBLIC;
    END IF;
    EXECUTE format($body$
        CREATE OR REPLACE FUNCTION hmac_sha1(data bytea, key bytea) RETURNS bytea
        LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN %I.hmac(data, key, 'sha1')
        $body$, home);
END
$$;
DROP FUNCTION sha1(bytea);

-- ---- Alarms wait for nothing ----------------------------------------------------------------------------------------

-- Raises an alarm, or ends it where there is no detail; one whose row another transaction holds is left as it is.
CREATE FUNCTION set_alarm(wanted text, said text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp SET lock_timeout = '200ms' AS $$
BEGIN
    IF said IS NULL THEN
        DELETE FROM alarm AS a WHERE a.name = wanted;
    ELSE
        INSERT INTO alarm (name, detail) VALUES (wanted, said)
        ON CONFLICT (name) DO UPDATE SET last_at = now(), count = alarm.count + 1;
    END IF;
EXCEPTION WHEN lock_not_available THEN NULL;
END
$$;
REVOKE ALL ON FUNCTION set_alarm FROM PUBLIC;

-- ---- Disabling waits for nothing ------------------------------------------------------------------------------------

CREATE TABLE operator_ban (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- No foreign key: its check would wait for the transaction that has the operator's row locked.
    operator_id bigint      NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    by_id       bigint
);
CREATE INDEX operator_ban_operator ON operator_ban (operator_id);
COMMENT ON TABLE operator_ban IS 'operators who are disabled: only ever inserted into, so that no open transaction is waited for;'
    ' operator.disabled_at follows as soon as the row is free';
REVOKE ALL ON operator_ban FROM PUBLIC;

CREATE FUNCTION is_banned(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_ban AS b WHERE b.operator_id = who)
$$;
REVOKE ALL ON FUNCTION is_banned FROM PUBLIC;

-- Changes the text of functions; an error where one does not have it.
CREATE FUNCTION pg_temp.change(names text[], was text, becomes text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    FOR f IN SELECT n.name, (SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p
                              WHERE p.pronamespace = 'entitlement_sync'::regnamespace AND p.proname = n.name) AS source
               FROM unnest(names) AS n(name) LOOP
        IF position(was IN f.source) = 0 THEN
            RAISE EXCEPTION 'function % does not have: %', f.name, was;
        END IF;
        EXECUTE replace(f.source, was, becomes);
    END LOOP;
END
$$;
SELECT pg_temp.change('{approval_counts,waiver_counts,agreed_grant,desk_alive,has_other_admin,hold_operator}'::text[],
                      'o.disabled_at IS NULL', 'o.disabled_at IS NULL AND NOT is_banned(o.id)');
-- Management is done by one admin at a time, by a row that only these functions reach: an advisory lock is any database user's.
SELECT pg_temp.change('{add_operator,reset_operator,confirm_operator,link_operator}'::text[],
                      'PERFORM pg_advisory_xact_lock(7309940714432067)', 'PERFORM FROM desk_secret FOR UPDATE');
SELECT pg_temp.change('{reset_operator}'::text[], 'DELETE FROM operator_session AS s WHERE s.operator_id = who.id;',
                      'DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    DELETE FROM operator_ban AS b WHERE b.operator_id = who.id;
    DELETE FROM known_client AS c WHERE c.operator_id = who.id;');
SELECT pg_temp.change('{acting}'::text[],
$was$    SELECT o.* INTO who FROM operator AS o
     WHERE o.id = (SELECT s.operator_id FROM operator_session AS s WHERE s.digest = sha256(session)) AND o.disabled_at IS NULL
       FOR SHARE;$was$,
$new$    -- Locked where the act is one that the role has to stand behind until it is committed. What manages or reads waits for nothing: a
    -- row that is held open would keep an admin from disabling its holder, or an operator from their work.
    IF wanted = 'manage' OR NOT is_weighty(wanted) THEN
        SELECT o.* INTO who FROM operator AS o
         WHERE o.id = (SELECT s.operator_id FROM operator_session AS s WHERE s.digest = sha256(session)) AND o.disabled_at IS NULL;
    ELSE
        SELECT o.* INTO who FROM operator AS o
         WHERE o.id = (SELECT s.operator_id FROM operator_session AS s WHERE s.digest = sha256(session)) AND o.disabled_at IS NULL
           FOR SHARE;
    END IF;
    -- An account that an admin added who is disabled now waits for another admin's word, however long: it may have been committed after
    -- that.
    IF is_banned(who.id) OR who.held_until IS NOT NULL AND is_banned(who.held_by) THEN
        who := NULL;
    END IF;$new$);

-- Ends what an operator may do, at once: from the commit on, whatever transaction is open elsewhere. Approvals are judged again where
-- they are counted; what else the operator had begun in an open transaction came before.
CREATE OR REPLACE FUNCTION disable_operator(session bytea, wanted text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    actor operator := acting(session, 'manage', interval '5 minutes');
    who   operator;
BEGIN
    SELECT o.* INTO who FROM operator AS o WHERE o.name = wanted;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: no such operator',
            HINT = 'See entitlement-sync operator list.';
    END IF;
    -- One at a time, so that two admins do not disable each other; but another admin's open transaction is not waited for.
    BEGIN
        PERFORM FROM desk_secret FOR UPDATE;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
    IF who.role = 'admin' AND NOT has_other_admin(who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: the last administrator stays',
            HINT = 'Add another admin first, who has to have signed in.';
    END IF;
    INSERT INTO operator_ban (operator_id, by_id) VALUES (who.id, actor.id);
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'disabled', who.id);
    BEGIN
        DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
        UPDATE operator AS o SET disabled_at = coalesce(o.disabled_at, clock_timestamp()) WHERE o.id = who.id;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
END
$$;

-- ---- Tries to sign in -----------------------------------------------------------------------------------------------

-- What an operator has signed in with before: a browser by its cookie, a terminal by a file beside its session.
CREATE TABLE known_client (
    digest      bytea       NOT NULL CHECK (octet_length(digest) = 32),
    operator_id bigint      NOT NULL REFERENCES operator,
    used_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (digest, operator_id)
);
CREATE INDEX known_client_operator ON known_client (operator_id, used_at);
COMMENT ON COLUMN known_client.digest IS 'SHA-256 of what the browser or the terminal shows: who reads it can show nothing';

-- One row a try, only ever inserted by an announcement: tries wait for no other's. A try that has ended well counts no more.
CREATE TABLE sign_in_attempt (
    id      uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact    xid8        NOT NULL DEFAULT pg_current_xact_id(),
    digest  bytea       NOT NULL,
    name    bytea       NOT NULL,
    address bytea       NOT NULL,
    client  bytea,
    knows   boolean     NOT NULL DEFAULT false,
    result  text        CHECK (result IN ('tried', 'incomplete', 'good'))
);
CREATE INDEX sign_in_attempt_name ON sign_in_attempt (name, at);
CREATE INDEX sign_in_attempt_address ON sign_in_attempt (address, at);
CREATE INDEX sign_in_attempt_client ON sign_in_attempt (client, name, at) WHERE client IS NOT NULL;
CREATE INDEX sign_in_attempt_at ON sign_in_attempt (at);
COMMENT ON COLUMN sign_in_attempt.name IS 'SHA-256 of the name, whether an operator has it or not';
COMMENT ON COLUMN sign_in_attempt.address IS 'SHA-256 of where it came from; a terminal''s is that of its connection to the database';
COMMENT ON COLUMN sign_in_attempt.client IS 'the known client that it came from, if any';
COMMENT ON COLUMN sign_in_attempt.knows IS 'it was announced with the right password: to undo the try undoes no count of wrong codes';
COMMENT ON COLUMN sign_in_attempt.result IS 'null: announced; tried: refused; incomplete: the right password, and something missing';
REVOKE ALL ON known_client, sign_in_attempt FROM PUBLIC;
DROP FUNCTION sign_in_salt, announce_sign_in, forgive_try, try_wait, try_keys, refuse_sign_in,
              sign_in(uuid, text, bytea, text, bytea, text, text, bytea, bytea, bytea);
DROP TABLE sign_in_try, sign_in_announced;
DROP FUNCTION count_wrong_code;
ALTER TABLE operator_secret DROP COLUMN wrong_codes, DROP COLUMN codes_locked_until;

CREATE FUNCTION address_of_try(shown bytea) RETURNS bytea
LANGUAGE sql STABLE
RETURN coalesce(shown, sha256(convert_to('terminal ' || session_user || ' ' || coalesce(host(inet_client_addr()), 'local'), 'UTF8')));

-- The client that a name has signed in with in the last 30 days; null: it is not known.
CREATE FUNCTION known_client_of(wanted text, shown bytea) RETURNS bytea
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT c.digest FROM known_client AS c JOIN operator AS o ON o.id = c.operator_id
     WHERE c.digest = sha256(shown) AND o.name = wanted AND c.used_at > clock_timestamp() - interval '30 days'
$$;

-- How long tries have to wait after so many failures, the last of them at a time: nothing up to the free ones, then twice as long each.
CREATE FUNCTION wait_after(failures bigint, last_at timestamptz, free integer, longest interval) RETURNS timestamptz
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN failures > free THEN last_at + least(interval '1 second' * 2 ^ least(failures - free, 12), longest) ELSE '-infinity' END;

-- Until when a try has to wait. From a known client its own failures count alone, so that no other can keep an operator out. From
-- elsewhere those of the name and the address together, of the address, and of the name count: a name is slowed wherever it is tried
-- from, and shut out nowhere. Of more than 64 failures the waits are the longest in any case.
--
--   own   a try that is announced: those before it are counted, whenever they were committed; null: all
CREATE FUNCTION wait_until(wanted text, shown_address bytea, known bytea, own sign_in_attempt) RETURNS timestamptz
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
    -- A sign-in that ended well begins the counts of the name again, but not the address's, which whole offices share.
    SELECT max(a.at) INTO good FROM sign_in_attempt AS a
     WHERE a.name = called AND a.at > since AND a.client IS NULL AND a.result = 'good';
    SELECT greatest(wait_after(count(*), max(f.at), 5, interval '2 seconds'),
                    wait_after(count(*) FILTER (WHERE f.address = place), max(f.at) FILTER (WHERE f.address = place), 5, interval '1 minute'))
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

-- How long a try that is not announced yet has to wait.
CREATE FUNCTION try_wait(wanted text, shown_address bytea, known bytea) RETURNS interval
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT CASE WHEN isfinite(w.until) THEN greatest(w.until - clock_timestamp(), interval '0') ELSE interval '0' END
      FROM wait_until(wanted, shown_address, known, NULL) AS w(until)
$$;

-- Until when no code of an operator is taken: of tries with the right password that did not end well nine are free, for a clock that
-- is off or the wrong device; then each locks twice as long, up to a day. `but`: the try that asks.
CREATE FUNCTION codes_locked_until(who operator, but uuid, OUT wrong bigint, OUT until timestamptz)
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    WITH n AS (SELECT sha256(convert_to(who.name, 'UTF8')) AS name, clock_timestamp() - interval '1 day' AS since),
         g AS (SELECT max(a.at) AS at FROM n JOIN sign_in_attempt AS a ON a.name = n.name AND a.at > n.since AND a.result = 'good')
    SELECT count(*), CASE WHEN count(*) > 9
                          THEN max(f.at) + least(interval '1 minute' * power(2, least(count(*) - 10, 11)), interval '1 day') END
      FROM (SELECT a.at FROM n, g, sign_in_attempt AS a
             WHERE a.name = n.name AND a.at > greatest(n.since, g.at, who.lost_at) AND a.knows AND a.id IS DISTINCT FROM but
               AND coalesce(a.result, 'tried') = 'tried' ORDER BY a.at DESC LIMIT 64) AS f
$$;

-- What a name's password has to be hashed with, how long to wait before it is, and whether it comes from a known client. A name that
-- no operator has is answered like any other.
CREATE FUNCTION sign_in_salt(wanted text, address bytea, client bytea, usual_cost text)
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

-- Puts a try that is about to be made on record, with what it will show. `wait`: so many seconds, and nothing was written.
--
--   digest   SHA-256 of the name, a zero byte, what the password shows, and the code
--   client   what the browser or the terminal shows of earlier sign-ins; null: nothing
--   shown    what the password shows: whether it is right stands in the row before the code is looked at, and is not said
CREATE FUNCTION announce_sign_in(wanted text, address bytea, client bytea, digest bytea, shown bytea)
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

-- Notes a try that failed, and says the one word that all such tries hear. Of one operator and reason twenty are kept an hour: more
-- would bury what happened before.
CREATE FUNCTION refuse_sign_in(who bigint, wanted_reason text, whence bytea) RETURNS text
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO sign_in_refusal (operator_id, reason, address)
    SELECT who, wanted_reason, whence
     WHERE (SELECT count(*) FROM (SELECT 1 FROM sign_in_refusal AS r
                                   WHERE r.operator_id IS NOT DISTINCT FROM who AND r.reason = wanted_reason
                                     AND r.at > clock_timestamp() - interval '1 hour' LIMIT 20) AS n) < 20;
    SELECT 'refused'
$$;
CREATE INDEX sign_in_refusal_reason ON sign_in_refusal (reason, at);

-- The same for what is refused to an operator who is signed in: ten a minute.
CREATE OR REPLACE FUNCTION note_refusal(session bytea, wanted text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO operator_event (operator_id, kind, detail)
    SELECT s.operator_id, 'refused', jsonb_build_object('duty', left(wanted, 40))
      FROM operator_session AS s
     WHERE s.digest = sha256(session)
       AND (SELECT count(*) FROM (SELECT 1 FROM operator_event AS e
                                   WHERE e.operator_id = s.operator_id AND e.kind = 'refused'
                                     AND e.at > clock_timestamp() - interval '1 minute' ORDER BY e.id DESC LIMIT 10) AS n) < 10
$$;

-- Signs an operator in, and takes what is chosen on the way: a password where the old one was another person's choice, a device where
-- there has to be one. All of it or nothing.
--
--   announced  the try, as `announce_sign_in` gave it in an earlier transaction
--   shown      what scrypt makes of the password with the name's salt
--   code       of the device, or of the one that is chosen; absent: empty in the digest
--   session    the hash of what the operator will show
--   client     the hash of what this browser or terminal will show from now on; null: it is not remembered
--   chosen_cost, chosen_salt, chosen_shown, chosen_device   absent: nothing is chosen
--
-- Returns `signed_in`; `refused`, whatever was wrong; `put_off`, where others have failed at the same time; and after the right
-- password `locked`, `needs_password`, `needs_device` (both where both), `needs_code`, or `same_password`.
CREATE FUNCTION sign_in(announced uuid, wanted text, shown bytea, code text, session bytea, session_kind text, client bytea,
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
    -- Before anything is read: an error must not tell of what is stored.
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
    -- Tries that were announced at the same time did not see each other; those before this one are counted by now.
    IF made.at < wait_until(wanted, made.address, made.client, made) THEN
        RETURN 'put_off';
    END IF;
    -- A person who does not know the password locks no operator's row.
    IF NOT EXISTS (SELECT 1 FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
                    WHERE o.name = wanted AND o.disabled_at IS NULL AND NOT is_banned(o.id) AND s.verifier = sha256(shown)) THEN
        RETURN refuse_sign_in((SELECT o.id FROM operator AS o WHERE o.name = wanted), 'password', made.address);
    END IF;
    -- The operator's row is not locked: a session of theirs, or an admin, could hold it open. What is taken from them meanwhile is asked for
    -- wherever the session acts.
    SELECT o.* INTO who FROM operator AS o WHERE o.name = wanted AND o.disabled_at IS NULL;
    SELECT s.* INTO known FROM operator_secret AS s WHERE s.operator_id = who.id FOR UPDATE;
    IF who.id IS NULL OR is_banned(who.id) OR known.verifier IS NULL OR known.verifier <> sha256(shown)
       OR coalesce(known.expires_at <= clock_timestamp(), false) THEN
        RETURN refuse_sign_in(who.id, 'password', made.address);
    END IF;
    -- Only a person who knows the password comes here, so that no other can lock the account.
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
    -- A device that there is stays: only an administrator takes it away.
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
    RETURN 'signed_in';
END
$$;

-- Remembers what an operator has signed in with; the twenty last of each.
CREATE FUNCTION remember_client(who bigint, shown bytea) RETURNS void
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

-- Forgets what was only needed for a while, and settles what could not be when an operator was disabled.
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
    -- Other transactions may hold what this leads to; it is tried again.
    BEGIN
        UPDATE operator AS o SET disabled_at = clock_timestamp()
         WHERE o.id = ANY (ARRAY(SELECT x.id FROM operator AS x WHERE x.disabled_at IS NULL AND is_banned(x.id)
                                 FOR UPDATE SKIP LOCKED));
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
END
$$;

REVOKE ALL ON FUNCTION address_of_try, known_client_of, wait_after, wait_until, try_wait, codes_locked_until, sign_in_salt, announce_sign_in, refuse_sign_in, sign_in,
                       remember_client FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT EXECUTE ON FUNCTION sign_in_salt, announce_sign_in, sign_in TO %I']);

-- ---- The identity provider ------------------------------------------------------------------------------------------

-- Operators sign in through the team's identity provider. The console verifies what it says; a token's signature can't be verified
-- here, so that the functions below are for the console's own database user alone: entitlement_sync_console.

DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'entitlement_sync_console') THEN
        CREATE ROLE entitlement_sync_console NOLOGIN;
    END IF;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'role entitlement_sync_console is missing and may not be created by this user';
END
$$;

-- The provider in use. While there is one, passwords of operators' own are taken from admins alone who are marked for the case that it
-- fails.
CREATE TABLE sign_in_provider (
    one    boolean     PRIMARY KEY DEFAULT true CHECK (one),
    issuer text        NOT NULL,
    since  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE operator_identity (
    operator_id bigint      PRIMARY KEY REFERENCES operator,
    issuer      text        NOT NULL,
    subject     text        NOT NULL CHECK (octet_length(subject) BETWEEN 1 AND 255),
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (issuer, subject)
);
COMMENT ON TABLE operator_identity IS 'who an operator is at the identity provider; a name can pass to another person, a subject never does';
ALTER TABLE operator ADD COLUMN break_glass boolean NOT NULL DEFAULT false CHECK (NOT break_glass OR role = 'admin');
COMMENT ON COLUMN operator.break_glass IS 'signs in with a password here also while an identity provider is in use';
ALTER TABLE operator_session ADD COLUMN ends_at timestamptz;
COMMENT ON COLUMN operator_session.ends_at IS 'the session ends then, whatever happens: the identity provider is asked again';
REVOKE ALL ON sign_in_provider, operator_identity FROM PUBLIC;

-- When a session ends: twelve hours after its beginning, or sooner where it is not used, or where the provider has to be asked again.
CREATE OR REPLACE FUNCTION session_ends(s operator_session) RETURNS timestamptz
LANGUAGE sql STABLE STRICT
RETURN least(s.started_at + interval '12 hours', s.ends_at,
             s.seen_at + CASE s.kind WHEN 'console' THEN interval '30 minutes' ELSE interval '1 hour' END);

-- Puts a provider in use; sessions that passwords have begun end, but for those of admins marked for the case that it fails.
CREATE FUNCTION use_provider(wanted text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM sign_in_provider AS p WHERE p.issuer = wanted) THEN
        RETURN;
    END IF;
    INSERT INTO sign_in_provider (issuer) VALUES (wanted)
    ON CONFLICT (one) DO UPDATE SET issuer = wanted, since = clock_timestamp();
    -- What those agreed to counts no more: the same person may come back under another account.
    WITH out_now AS (
        UPDATE operator AS o SET lost_at = clock_timestamp()
         WHERE NOT o.break_glass
           AND NOT EXISTS (SELECT 1 FROM operator_identity AS i WHERE i.operator_id = o.id AND i.issuer = wanted)
        RETURNING o.id
    )
    DELETE FROM operator_session AS s USING operator AS o
     WHERE o.id = s.operator_id AND NOT o.break_glass AND (s.ends_at IS NULL OR o.id IN (SELECT n.id FROM out_now AS n));
    INSERT INTO operator_event (kind, detail) VALUES ('provider_used', jsonb_build_object('issuer', wanted));
END
$$;

-- The provider in use, and how many admins can sign in without it; for doctor.
CREATE FUNCTION ways_in(OUT issuer text, OUT marked bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT (SELECT p.issuer FROM sign_in_provider AS p),
           count(*) FILTER (WHERE o.break_glass AND o.disabled_at IS NULL AND NOT is_banned(o.id)
                              AND s.expires_at IS NULL AND s.device IS NOT NULL)
      FROM operator AS o LEFT JOIN operator_secret AS s ON s.operator_id = o.id
$$;

-- Takes passwords of all operators again; for the schema's owner, who can write the tables anyway.
CREATE FUNCTION leave_provider() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF NOT coalesce(pg_has_role(session_user, (SELECT n.nspowner FROM pg_namespace AS n
                                                WHERE n.nspname = 'entitlement_sync'), 'MEMBER'), false) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'the schema''s owner alone ends the use of an identity provider',
            HINT = 'Connect as the user who ran migrate.';
    END IF;
    DELETE FROM sign_in_provider;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE operator AS o SET lost_at = clock_timestamp() FROM operator_identity AS i WHERE i.operator_id = o.id;
    DELETE FROM operator_session AS s USING operator_identity AS i WHERE i.operator_id = s.operator_id;
    INSERT INTO operator_event (kind) VALUES ('provider_left');
    RETURN true;
END
$$;

-- The name of an account for a person that the provider calls so: the first that has the form of one.
CREATE FUNCTION name_for(names text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT f.name
      FROM unnest(names) WITH ORDINALITY AS n(name, place)
     CROSS JOIN LATERAL (SELECT left(ltrim(regexp_replace(lower(split_part(n.name, '@', 1)), '[^a-z0-9._-]+', '-', 'g'), '._-'), 63) AS name)
           AS f
     WHERE f.name ~ '^[a-z0-9][a-z0-9._-]{0,62}$' ORDER BY n.place LIMIT 1
$$;

-- Signs in a person that the provider has named, and whose token the console has verified.
--
--   wanted_role   by the person's groups; null: they are in none that has one
--   proved_ago    how long ago they showed the provider who they are; null: it does not say, so that nothing which asks for it is done
--   lifetime      how long the provider's word is good for
--
-- Returns `signed_in`; `other_provider`; `no_role`, and their sessions have ended; `name_taken`, where an account of another person has
-- the name; `disabled`.
CREATE FUNCTION provider_sign_in(wanted_issuer text, wanted_subject text, names text[], wanted_role text, proved_ago interval,
                                 session bytea, lifetime interval)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    who    operator;
    called text := name_for(names);
BEGIN
    PERFORM check_isolation();
    IF wanted_issuer IS NULL OR wanted_subject IS NULL OR octet_length(session) IS DISTINCT FROM 32 OR lifetime IS NULL
       OR lifetime > interval '12 hours' OR proved_ago < interval '0'
       OR wanted_role IS NOT NULL AND wanted_role NOT IN (SELECT d.role FROM desk_duty AS d) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'provider_sign_in: an argument is missing or out of range',
            HINT = 'See the function''s comment.';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM sign_in_provider AS p WHERE p.issuer = wanted_issuer) THEN
        RETURN 'other_provider';
    END IF;
    SELECT o.* INTO who FROM operator_identity AS i JOIN operator AS o ON o.id = i.operator_id
     WHERE i.issuer = wanted_issuer AND i.subject = wanted_subject;
    IF wanted_role IS NULL THEN
        IF who.id IS NOT NULL THEN
            DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
            UPDATE operator AS o SET lost_at = clock_timestamp() WHERE o.id = who.id;
            INSERT INTO operator_event (operator_id, kind) VALUES (who.id, 'without_role');
        END IF;
        RETURN 'no_role';
    END IF;
    IF who.id IS NULL THEN
        -- An account of the same name is another person's, as far as can be known here: an admin says if it is not.
        BEGIN
            INSERT INTO operator (name, role, held_until)
            SELECT called, wanted_role, hold_of(wanted_role) WHERE called IS NOT NULL
            ON CONFLICT DO NOTHING RETURNING * INTO who;
        EXCEPTION WHEN lock_not_available THEN NULL;
        END;
        IF who.id IS NULL THEN
            RETURN 'name_taken';
        END IF;
        INSERT INTO operator_identity (operator_id, issuer, subject) VALUES (who.id, wanted_issuer, wanted_subject);
        INSERT INTO operator_event (operator_id, kind, about_id, detail)
        VALUES (NULL, 'added', who.id, jsonb_build_object('role', wanted_role, 'by', 'provider'));
    ELSIF who.disabled_at IS NOT NULL OR is_banned(who.id) THEN
        RETURN 'disabled';
    ELSIF who.role <> wanted_role THEN
        -- A role that may more of what takes two pairs of eyes waits for an admin's word, as a new account does.
        UPDATE operator AS o
           SET role = wanted_role, break_glass = false,
               held_until = CASE WHEN EXISTS (SELECT 1 FROM desk_duty AS d
                                               WHERE d.role = wanted_role AND d.duty IN ('approve', 'override', 'manage')
                                                 AND NOT EXISTS (SELECT 1 FROM desk_duty AS x WHERE x.role = o.role AND x.duty = d.duty))
                                 THEN 'infinity' ELSE o.held_until END
         WHERE o.id = who.id;
        INSERT INTO operator_event (operator_id, kind, about_id, detail)
        VALUES (NULL, 'role_changed', who.id, jsonb_build_object('from', who.role, 'to', wanted_role, 'by', 'provider'));
    END IF;
    INSERT INTO operator_session (digest, operator_id, kind, proved_at, ends_at)
    VALUES (sha256(session), who.id, 'console', coalesce(clock_timestamp() - proved_ago, 'epoch'), clock_timestamp() + lifetime);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'signed_in', jsonb_build_object('by', 'provider'));
    RETURN 'signed_in';
END
$$;

-- Says that an account is a person's at the provider: of a name that was taken, or at another provider than before. The account waits
-- for another admin's word, as after a reset.
CREATE FUNCTION identify_operator(session bytea, wanted text, wanted_subject text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor   operator := acting(session, 'manage', interval '5 minutes');
    who     operator;
    current text := (SELECT p.issuer FROM sign_in_provider AS p);
BEGIN
    PERFORM FROM desk_secret FOR UPDATE;
    who := operator_named(wanted);
    IF current IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'no identity provider is in use',
            HINT = 'Set OIDC_ISSUER for the console first.';
    END IF;
    IF who.id = actor.id THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'name: an account is identified by another admin',
            HINT = 'Ask another admin.';
    END IF;
    IF EXISTS (SELECT 1 FROM operator_identity AS i
                WHERE i.issuer = current AND i.subject = wanted_subject AND i.operator_id <> who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'subject: another account has it',
            HINT = 'See entitlement-sync operator list.';
    END IF;
    INSERT INTO operator_identity (operator_id, issuer, subject) VALUES (who.id, current, wanted_subject)
    ON CONFLICT (operator_id) DO UPDATE SET issuer = current, subject = wanted_subject, since = clock_timestamp();
    UPDATE operator AS o SET held_until = clock_timestamp() + interval '1 day', held_by = actor.id WHERE o.id = who.id;
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'identified', who.id);
END
$$;

-- Marks an admin for the case that the provider fails, or takes the mark away; without a session the schema's owner does.
CREATE FUNCTION mark_break_glass(session bytea, wanted text, marked boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor bigint;
    who   operator;
BEGIN
    IF session IS NOT NULL THEN
        actor := (acting(session, 'manage', interval '5 minutes')).id;
    ELSIF NOT coalesce(pg_has_role(session_user, (SELECT n.nspowner FROM pg_namespace AS n
                                                   WHERE n.nspname = 'entitlement_sync'), 'MEMBER'), false) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'no operator is signed in',
            HINT = 'An admin who is signed in marks another, or the schema''s owner does.';
    END IF;
    PERFORM FROM desk_secret FOR UPDATE;
    who := operator_named(wanted);
    IF marked AND (who.role <> 'admin' OR NOT EXISTS (SELECT 1 FROM operator_secret AS s WHERE s.operator_id = who.id)) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: only an admin with a password here can be marked',
            HINT = 'Add one: entitlement-sync operator add NAME --role admin.';
    END IF;
    UPDATE operator AS o SET break_glass = marked WHERE o.id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id, detail)
    VALUES (actor, 'break_glass', who.id, jsonb_build_object('marked', marked, 'by_owner', actor IS NULL));
END
$$;

-- While a provider is in use, a password is an admin's alone who is marked for the case that it fails, and its use raises an alarm.
SELECT pg_temp.change('{sign_in}'::text[],
'    -- Only a person who knows the password comes here, so that no other can lock the account.',
'    IF EXISTS (SELECT 1 FROM sign_in_provider) AND NOT who.break_glass THEN
        UPDATE sign_in_attempt AS a SET result = ''incomplete'' WHERE a.id = made.id;
        PERFORM refuse_sign_in(who.id, ''provider'', made.address);
        RETURN ''provider'';
    END IF;
    -- Only a person who knows the password comes here, so that no other can lock the account.');
SELECT pg_temp.change('{sign_in}'::text[], '    RETURN ''signed_in'';',
'    IF EXISTS (SELECT 1 FROM sign_in_provider) THEN
        PERFORM set_alarm(''break_glass_used'',
            ''An admin signed in with a password though an identity provider is in use: see operator_event, ask them, and clear''
            '' the alarm.'');
    END IF;
    RETURN ''signed_in'';');
-- The alarm of held accounts waits for no other transaction.
SELECT pg_temp.change('{hold_operator}'::text[],
$was$        INSERT INTO alarm (name, detail)
        VALUES ('operator_held',
                'Accounts that may approve or manage wait for another admin''s word: see entitlement-sync operator list, then'
                ' operator confirm NAME, or disable them. Who added them is in operator_event.')
        ON CONFLICT (name) DO UPDATE SET last_at = now(), count = alarm.count + 1;
    ELSE
        DELETE FROM alarm AS a WHERE a.name = 'operator_held';$was$,
$new$        PERFORM set_alarm('operator_held',
            'Accounts that may approve or manage wait for another admin''s word: see entitlement-sync operator list, then'
            ' operator confirm NAME, or disable them. Who added them is in operator_event.');
    ELSE
        PERFORM set_alarm('operator_held', NULL);$new$);
-- Accounts of the provider have no secret here.
SELECT pg_temp.change('{has_other_admin}'::text[],
                      'JOIN operator_secret AS s ON s.operator_id = o.id', 'LEFT JOIN operator_secret AS s ON s.operator_id = o.id');
SELECT pg_temp.change('{has_other_admin}'::text[], 'AND s.expires_at IS NULL AND s.device IS NOT NULL',
'AND CASE WHEN EXISTS (SELECT 1 FROM sign_in_provider) AND NOT o.break_glass
                               THEN EXISTS (SELECT 1 FROM operator_identity AS i JOIN sign_in_provider AS p ON p.issuer = i.issuer
                                             WHERE i.operator_id = o.id)
                               ELSE s.expires_at IS NULL AND s.device IS NOT NULL END');
SELECT pg_temp.change('{reset_operator}'::text[], 'IF NOT is_key(cost, salt, shown)',
'IF NOT EXISTS (SELECT 1 FROM operator_secret AS s WHERE s.operator_id = who.id) AND who.disabled_at IS NULL AND NOT is_banned(who.id) THEN
        RAISE EXCEPTION USING ERRCODE = ''22023'', MESSAGE = ''name: the account signs in through the identity provider'',
            HINT = ''Reset it there; here, operator disable ends its sessions, and operator reset lets it in again.'';
    END IF;
    IF NOT is_key(cost, salt, shown)');
DROP FUNCTION operators(bytea);
-- All operators, for those who manage or audit them.
CREATE FUNCTION operators(session bytea)
RETURNS TABLE (name text, role text, user_id text, has_device boolean, signs_in text, is_enrolled boolean, created_at timestamptz,
               disabled_at timestamptz, held_until timestamptz, seen_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM acting(session, 'audit');
    RETURN QUERY
    SELECT o.name, o.role, u.user_id,
           s.device IS NOT NULL,
           CASE WHEN o.break_glass THEN 'break_glass' WHEN i.operator_id IS NOT NULL THEN 'provider' ELSE 'password' END,
           i.operator_id IS NOT NULL OR s.expires_at IS NULL, o.created_at,
           coalesce(o.disabled_at, (SELECT min(b.at) FROM operator_ban AS b WHERE b.operator_id = o.id)),
           CASE WHEN o.held_until > clock_timestamp() THEN o.held_until END,
           (SELECT max(x.seen_at) FROM operator_session AS x WHERE x.operator_id = o.id)
      FROM operator AS o
      LEFT JOIN operator_secret AS s ON s.operator_id = o.id
      LEFT JOIN operator_identity AS i ON i.operator_id = o.id
      LEFT JOIN user_sync AS u ON u.user_key = o.user_key
     ORDER BY o.name;
END
$$;

-- Whose session it is, what the role may, until when, and whether the identity provider has named them.
DROP FUNCTION desk_me(bytea);
CREATE FUNCTION desk_me(session bytea)
RETURNS TABLE (id bigint, name text, role text, duties text[], is_held boolean, ends_at timestamptz, fresh_until timestamptz,
               by_provider boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT who.id, who.name, who.role, ARRAY(SELECT d.duty FROM desk_duty AS d WHERE d.role = who.role ORDER BY d.duty),
           coalesce(who.held_until > clock_timestamp(), false), session_ends(s), s.proved_at + interval '10 minutes',
           s.ends_at IS NOT NULL
      FROM operator_session AS s WHERE s.digest = sha256(session);
END
$$;

-- ---- Terminals ------------------------------------------------------------------------------------------------------

-- A terminal that asks to be signed in by its operator's browser.
CREATE TABLE terminal_request (
    code       text        PRIMARY KEY CHECK (code ~ '^[BCDFGHJKLMNPQRSTVWXZ]{8}$'),
    digest     bytea       NOT NULL CHECK (octet_length(digest) = 32),
    asked_by   text        NOT NULL DEFAULT session_user,
    asked_from text        NOT NULL DEFAULT coalesce(host(inet_client_addr()), 'this machine'),
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN terminal_request.asked_by IS 'the database user';
REVOKE ALL ON terminal_request FROM PUBLIC;

-- Asks for a terminal; returns the code that its operator types at the console within five minutes.
CREATE FUNCTION ask_terminal(session bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    letters CONSTANT text := 'BCDFGHJKLMNPQRSTVWXZ';
    made    text;
BEGIN
    IF octet_length(session) IS DISTINCT FROM 32 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ask_terminal: a hash of 32 bytes', HINT = 'Use entitlement-sync operator login.';
    END IF;
    DELETE FROM terminal_request AS r
     WHERE r.code = ANY (ARRAY(SELECT x.code FROM terminal_request AS x WHERE x.at < clock_timestamp() - interval '5 minutes'
                                 FOR UPDATE SKIP LOCKED));
    -- Ten for each database user and address; the oldest gives way.
    DELETE FROM terminal_request AS r
     WHERE r.code IN (SELECT x.code FROM terminal_request AS x
                       WHERE x.asked_by = session_user AND x.asked_from = coalesce(host(inet_client_addr()), 'this machine')
                       ORDER BY x.at DESC OFFSET 9 FOR UPDATE SKIP LOCKED);
    SELECT string_agg(substr(letters, 1 + ('x' || substr(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 1, 6))::bit(24)::integer % 20, 1), '')
      INTO made FROM generate_series(1, 8);
    INSERT INTO terminal_request (code, digest) VALUES (made, sha256(session));
    RETURN made;
END
$$;

-- Which terminal has a code, for an operator to compare; no row: none asks with it.
CREATE FUNCTION terminal_asking(session bytea, wanted text) RETURNS TABLE (asked_by text, asked_from text, at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM acting(session, 'view');
    RETURN QUERY SELECT r.asked_by, r.asked_from, r.at FROM terminal_request AS r
                  WHERE r.code = wanted AND r.at > clock_timestamp() - interval '5 minutes';
END
$$;

-- Signs a terminal in as the operator at the console, for as long as that session has been granted; false: none asks with the code.
CREATE FUNCTION allow_terminal(session bytea, wanted text) RETURNS boolean
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

-- Whose session it is, for a terminal that waits to be signed in; null: none yet.
CREATE FUNCTION session_name(session bytea) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT o.name FROM operator_session AS s JOIN operator AS o ON o.id = s.operator_id
     WHERE s.digest = sha256(session) AND session_ends(s) > clock_timestamp()
$$;

-- The issuer of the provider in use; null: there is none.
CREATE FUNCTION provider_in_use() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT p.issuer FROM sign_in_provider AS p
$$;

REVOKE ALL ON FUNCTION walked_since, ways_in, session_ends, use_provider, leave_provider, name_for, provider_sign_in, identify_operator, mark_break_glass, operators, desk_me,
                       ask_terminal, terminal_asking, allow_terminal, session_name, provider_in_use FROM PUBLIC;
INSERT INTO role_privilege (role, kind, object, privilege)
SELECT 'entitlement_sync_' || p.role, 'function', f.name, 'EXECUTE'
  FROM (VALUES ('support', '{identify_operator,mark_break_glass,ask_terminal,terminal_asking,allow_terminal,session_name,provider_in_use}'::text[]),
               ('console', '{use_provider,provider_sign_in,provider_in_use}'), ('worker', '{ways_in}')) AS p(role, names), unnest(p.names) AS f(name);
INSERT INTO role_privilege (role, kind, object, privilege) VALUES ('entitlement_sync_console', 'schema', 'entitlement_sync', 'USAGE');
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT EXECUTE ON FUNCTION operators, desk_me, identify_operator, mark_break_glass, ask_terminal, terminal_asking, allow_terminal,
                               session_name, provider_in_use TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION ways_in TO %I']);
SELECT grant_to('entitlement_sync_console', ARRAY[
    'GRANT USAGE ON SCHEMA entitlement_sync TO %I',
    'GRANT EXECUTE ON FUNCTION use_provider, provider_sign_in, provider_in_use TO %I']);
