-- compatible_from: 11
-- Wrong codes after a right password are counted by operator, from any address: a person who knows the password could guess on from others.

ALTER TABLE operator_secret ADD COLUMN wrong_codes integer NOT NULL DEFAULT 0, ADD COLUMN codes_locked_until timestamptz;
COMMENT ON COLUMN operator_secret.wrong_codes IS 'codes that were wrong after the right password, since the last sign-in';
COMMENT ON COLUMN operator_secret.codes_locked_until IS 'no code is checked before; an admin''s reset, which takes the device away, ends it';

-- Nine are free, for a clock that is off or the wrong device; then each locks twice as long, up to a day.
CREATE FUNCTION count_wrong_code(who bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    wrong integer;
BEGIN
    UPDATE operator_secret AS s
       SET wrong_codes = s.wrong_codes + 1,
           codes_locked_until = CASE WHEN s.wrong_codes >= 9
                                     THEN clock_timestamp() + least(interval '1 minute' * power(2, least(s.wrong_codes - 9, 11)),
                                                                    interval '1 day') END
     WHERE s.operator_id = who RETURNING s.wrong_codes INTO wrong;
    IF wrong >= 5 THEN
        INSERT INTO alarm (name, detail)
        VALUES ('operator_guessed',
                'Wrong codes come with an operator''s right password: see sign_in_refusal, reason code, ask the operator, and'
                ' reset the account if it was not them (operator reset NAME).')
        ON CONFLICT (name) DO UPDATE SET last_at = now(), count = alarm.count + 1;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION count_wrong_code FROM PUBLIC;

-- Signs an operator in, as before; after the right password also `locked`.
CREATE OR REPLACE FUNCTION sign_in(announced uuid, wanted text, shown bytea, code text, session bytea, session_kind text,
                        chosen_cost text, chosen_salt bytea, chosen_shown bytea, chosen_device bytea)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    made    sign_in_announced;
    who     operator;
    known   operator_secret;
    key     bytea;
    taken   bigint;
    missing text := '';
BEGIN
    PERFORM check_isolation();
    -- Before anything is read: an error must not tell of what is stored.
    IF wanted IS NULL OR shown IS NULL OR octet_length(session) IS DISTINCT FROM 32
       OR session_kind IS NULL OR session_kind NOT IN ('console', 'terminal')
       OR num_nulls(chosen_cost, chosen_salt, chosen_shown) NOT IN (0, 3) OR NOT is_key(chosen_cost, chosen_salt, chosen_shown)
       OR octet_length(chosen_device) <> 20 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'sign_in: an argument is missing or has the wrong size',
            HINT = 'See the function''s comment.';
    END IF;
    DELETE FROM sign_in_announced AS a WHERE a.id = announced RETURNING a.* INTO made;
    IF made.id IS NULL OR made.xact = pg_current_xact_id() OR made.at < clock_timestamp() - interval '1 minute'
       OR made.digest <> sha256(convert_to(wanted, 'UTF8') || '\x00'::bytea || shown || convert_to(coalesce(code, ''), 'UTF8'))
    THEN
        RETURN refuse_sign_in(NULL, 'not_announced', made.address);
    END IF;
    -- Whoever does not know the password holds nobody's row.
    IF NOT EXISTS (SELECT 1 FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
                    WHERE o.name = wanted AND o.disabled_at IS NULL AND s.verifier = sha256(shown)) THEN
        RETURN refuse_sign_in((SELECT o.id FROM operator AS o WHERE o.name = wanted), 'password', made.address);
    END IF;
    SELECT o.* INTO who FROM operator AS o WHERE o.name = wanted AND o.disabled_at IS NULL FOR NO KEY UPDATE;
    SELECT s.* INTO known FROM operator_secret AS s WHERE s.operator_id = who.id FOR UPDATE;
    IF who.id IS NULL OR known.verifier IS NULL OR known.verifier <> sha256(shown)
       OR coalesce(known.expires_at <= clock_timestamp(), false) THEN
        RETURN refuse_sign_in(who.id, 'password', made.address);
    END IF;
    -- Only a person who knows the password comes here, so that no other can lock the account.
    IF known.device IS NOT NULL AND known.codes_locked_until > clock_timestamp() THEN
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
        PERFORM forgive_try(wanted, made.address, false);
        INSERT INTO operator_event (about_id, kind, detail)
        VALUES (who.id, 'sign_in_incomplete', jsonb_build_object('result', missing));
        RETURN missing;
    END IF;
    IF key IS NOT NULL THEN
        taken := period_of_code(key, code, CASE WHEN known.device IS NOT NULL THEN known.last_period END);
        IF taken IS NULL THEN
            IF known.device IS NOT NULL THEN
                PERFORM count_wrong_code(who.id);
            END IF;
            RETURN refuse_sign_in(who.id, 'code', made.address);
        END IF;
    END IF;
    UPDATE operator_secret AS s
       SET cost = coalesce(chosen_cost, s.cost), salt = coalesce(chosen_salt, s.salt),
           verifier = coalesce(sha256(chosen_shown), s.verifier),
           expires_at = CASE WHEN chosen_shown IS NULL THEN s.expires_at END,
           device = key, last_period = taken, wrong_codes = 0, codes_locked_until = NULL
     WHERE s.operator_id = who.id;
    IF chosen_shown IS NOT NULL OR known.device IS NULL AND key IS NOT NULL THEN
        DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
        INSERT INTO operator_event (operator_id, kind, detail)
        VALUES (who.id, 'enrolled', jsonb_build_object('password', chosen_shown IS NOT NULL,
                                                       'device', known.device IS NULL AND key IS NOT NULL));
    END IF;
    PERFORM forgive_try(wanted, made.address, true);
    INSERT INTO operator_session (digest, operator_id, kind) VALUES (sha256(session), who.id, session_kind);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'signed_in', jsonb_build_object('by', session_kind));
    RETURN 'signed_in';
END
$$;

-- ---- One's own sessions ---------------------------------------------------------------------------------------------

-- Where an operator is signed in, the newest first.
CREATE FUNCTION own_sessions(session bytea)
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

-- Ends an operator's sessions but this one; returns how many there were.
CREATE FUNCTION end_other_sessions(session bytea) RETURNS integer
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
REVOKE ALL ON FUNCTION own_sessions, end_other_sessions FROM PUBLIC;
INSERT INTO role_privilege (role, kind, object, privilege)
SELECT 'entitlement_sync_support', 'function', f.name, 'EXECUTE' FROM unnest('{own_sessions,end_other_sessions}'::text[]) AS f(name);
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT EXECUTE ON FUNCTION own_sessions, end_other_sessions TO %I']);
