-- compatible_from: 11
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
    DELETE FROM operator_session AS s
     USING operator AS o
     WHERE o.id = s.operator_id AND NOT o.break_glass
       AND NOT EXISTS (SELECT 1 FROM operator_identity AS i WHERE i.operator_id = o.id AND i.issuer = wanted);
    INSERT INTO operator_event (kind, detail) VALUES ('provider_used', jsonb_build_object('issuer', wanted));
END
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
    DELETE FROM operator_session AS s USING operator_identity AS i WHERE i.operator_id = s.operator_id;
    INSERT INTO operator_event (kind) VALUES ('provider_left');
    RETURN true;
END
$$;

-- The name of an account for a person whom the provider calls so: the first that has the form of one.
CREATE FUNCTION name_for(names text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT f.name
      FROM unnest(names) WITH ORDINALITY AS n(name, place)
     CROSS JOIN LATERAL (SELECT left(ltrim(regexp_replace(lower(split_part(n.name, '@', 1)), '[^a-z0-9._-]+', '-', 'g'), '._-'), 63) AS name)
           AS f
     WHERE f.name ~ '^[a-z0-9][a-z0-9._-]{0,62}$' ORDER BY n.place LIMIT 1
$$;

-- Signs a person in whom the provider has named, and whose token the console has verified.
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
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
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
     WHERE i.issuer = wanted_issuer AND i.subject = wanted_subject FOR NO KEY UPDATE OF o;
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
        INSERT INTO operator (name, role, held_until)
        SELECT called, wanted_role, hold_of(wanted_role) WHERE called IS NOT NULL
        ON CONFLICT DO NOTHING RETURNING * INTO who;
        IF who.id IS NULL THEN
            RETURN 'name_taken';
        END IF;
        INSERT INTO operator_identity (operator_id, issuer, subject) VALUES (who.id, wanted_issuer, wanted_subject);
        INSERT INTO operator_event (operator_id, kind, about_id, detail)
        VALUES (NULL, 'added', who.id, jsonb_build_object('role', wanted_role, 'by', 'provider'));
    ELSIF who.disabled_at IS NOT NULL OR is_banned(who.id) THEN
        RETURN 'disabled';
    ELSIF who.role <> wanted_role THEN
        -- A role that may make or be a second pair of eyes waits for an admin's word, as a new account's does.
        UPDATE operator AS o
           SET role = wanted_role, break_glass = false,
               held_until = CASE WHEN hold_of(wanted_role) = 'infinity' AND hold_of(o.role) <> 'infinity' THEN 'infinity' ELSE o.held_until END
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
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'nobody is signed in',
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
        INSERT INTO alarm (name, detail)
        VALUES (''break_glass_used'',
                ''An admin signed in with a password though an identity provider is in use: see operator_event, ask them, and clear''
                '' the alarm.'')
        ON CONFLICT (name) DO UPDATE SET last_at = now(), count = alarm.count + 1;
    END IF;
    RETURN ''signed_in'';');
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
           CASE WHEN i.operator_id IS NOT NULL THEN 'provider' WHEN o.break_glass THEN 'break_glass' ELSE 'password' END,
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
    IF (SELECT count(*) FROM terminal_request) >= 100 THEN
        RAISE EXCEPTION USING ERRCODE = '53400', MESSAGE = 'a hundred terminals wait to be signed in', HINT = 'Try again in five minutes.';
    END IF;
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

REVOKE ALL ON FUNCTION walked_since, session_ends, use_provider, leave_provider, name_for, provider_sign_in, identify_operator, mark_break_glass, operators, desk_me,
                       ask_terminal, terminal_asking, allow_terminal, session_name, provider_in_use FROM PUBLIC;
INSERT INTO role_privilege (role, kind, object, privilege)
SELECT 'entitlement_sync_' || p.role, 'function', f.name, 'EXECUTE'
  FROM (VALUES ('support', '{identify_operator,mark_break_glass,ask_terminal,terminal_asking,allow_terminal,session_name,provider_in_use}'::text[]),
               ('console', '{use_provider,provider_sign_in,provider_in_use}')) AS p(role, names), unnest(p.names) AS f(name);
INSERT INTO role_privilege (role, kind, object, privilege) VALUES ('entitlement_sync_console', 'schema', 'entitlement_sync', 'USAGE');
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT EXECUTE ON FUNCTION operators, desk_me, identify_operator, mark_break_glass, ask_terminal, terminal_asking, allow_terminal,
                               session_name, provider_in_use TO %I']);
SELECT grant_to('entitlement_sync_console', ARRAY[
    'GRANT USAGE ON SCHEMA entitlement_sync TO %I',
    'GRANT EXECUTE ON FUNCTION use_provider, provider_sign_in, provider_in_use TO %I']);
