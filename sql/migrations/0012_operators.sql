-- Who works at the desk, how they sign in, and what they may do. Whoever acts shows a session: the functions below find out
-- whose it is and whether the role has the duty, whatever database role they are called with.

CREATE TABLE operator (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    role        text        NOT NULL CHECK (role IN ('viewer', 'agent', 'approver', 'senior', 'auditor', 'admin')),
    user_key    bigint,
    created_at  timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz
);
COMMENT ON COLUMN operator.user_key IS 'the account that the operator has in the app: nobody decides their own case';

-- Apart from the operators, so that whoever may read those reads none of these.
CREATE TABLE operator_secret (
    operator_id bigint  PRIMARY KEY REFERENCES operator,
    password    text    NOT NULL,
    is_initial  boolean NOT NULL,
    code_secret bytea,
    last_period bigint
);
COMMENT ON COLUMN operator_secret.password IS 'a hash with its costs and salt';
COMMENT ON COLUMN operator_secret.is_initial IS 'given by somebody else: signing in needs one of the operator''s own';
COMMENT ON COLUMN operator_secret.last_period IS 'the period of the last one-time code that was taken; no code is taken twice';

CREATE TABLE operator_session (
    digest      bytea       PRIMARY KEY,
    operator_id bigint      NOT NULL REFERENCES operator,
    kind        text        NOT NULL CHECK (kind IN ('console', 'terminal')),
    started_at  timestamptz NOT NULL DEFAULT now(),
    proved_at   timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now(),
    ends_at     timestamptz NOT NULL,
    idle        interval    NOT NULL
);
CREATE INDEX operator_session_operator ON operator_session (operator_id);
COMMENT ON COLUMN operator_session.digest IS 'a hash of what the operator shows, of no use to whoever reads it here';
COMMENT ON COLUMN operator_session.proved_at IS 'when password and code were given last';

-- Sign-ins that were begun and not completed, by account and by address; a name that is nobody's counts as any other.
CREATE TABLE sign_in_failure (
    kind          text        NOT NULL CHECK (kind IN ('operator', 'address')),
    key           bytea       NOT NULL,
    failures      integer     NOT NULL,
    last_at       timestamptz NOT NULL,
    blocked_until timestamptz NOT NULL,
    PRIMARY KEY (kind, key)
);

-- What operators did, and what was refused to them.
CREATE TABLE operator_event (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    operator_id bigint,
    kind        text        NOT NULL,
    about_id    bigint,
    detail      jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX operator_event_operator ON operator_event (operator_id, id);
COMMENT ON COLUMN operator_event.about_id IS 'the operator that it was done to';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON operator_event FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON operator_event FOR EACH STATEMENT EXECUTE FUNCTION append_only();

-- Which role has which duty.
CREATE TABLE desk_duty (
    duty text NOT NULL,
    role text NOT NULL,
    PRIMARY KEY (duty, role)
);
INSERT INTO desk_duty (duty, role)
SELECT d.duty, unnest(d.roles)
  FROM (VALUES ('view', ARRAY['viewer', 'agent', 'approver', 'senior', 'auditor', 'admin']),
               ('reveal', ARRAY['agent', 'approver', 'senior', 'auditor']),
               ('audit', ARRAY['auditor', 'admin']),
               ('open', ARRAY['agent', 'approver', 'senior']),
               ('work', ARRAY['agent', 'approver', 'senior']),
               ('refuse', ARRAY['agent', 'approver', 'senior']),
               ('lend', ARRAY['agent', 'approver', 'senior']),
               ('restore', ARRAY['agent', 'approver', 'senior']),
               ('approve', ARRAY['approver', 'senior']),
               ('transfer', ARRAY['approver', 'senior']),
               ('override', ARRAY['senior']),
               ('retry', ARRAY['senior', 'admin']),
               ('manage', ARRAY['admin'])) AS d(duty, roles);

-- Whose session this is, if the role has the duty.
CREATE FUNCTION acting(session bytea, wanted text) RETURNS operator
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator;
BEGIN
    SELECT o.* INTO who
      FROM operator_session AS s JOIN operator AS o ON o.id = s.operator_id
     WHERE s.digest = session AND s.ends_at > now() AND s.seen_at + s.idle > now() AND o.disabled_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'nobody is signed in, or the session has ended',
            HINT = 'Sign in: entitlement-sync operator login NAME.';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = wanted AND d.role = who.role) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = format('the role %s may not do this (%s)', who.role, wanted),
            HINT = 'Ask somebody whose role may.';
    END IF;
    -- Not with every step: a page asks for many.
    UPDATE operator_session AS s SET seen_at = now() WHERE s.digest = session AND s.seen_at < now() - interval '30 seconds';
    RETURN who;
END
$$;

-- Counts a sign-in as failed before it is tried, so that many at a time are slowed like one after the other; a completed one
-- takes that back. Returns how long to wait: nothing may be tried then, and nothing was counted.
CREATE FUNCTION count_sign_in(counted text, by_key bytea, free integer) RETURNS interval
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    known sign_in_failure;
BEGIN
    INSERT INTO sign_in_failure AS f (kind, key, failures, last_at, blocked_until)
    VALUES (counted, by_key, 0, now(), now())
    ON CONFLICT (kind, key) DO NOTHING;
    SELECT f.* INTO known FROM sign_in_failure AS f WHERE f.kind = counted AND f.key = by_key FOR UPDATE;
    IF known.blocked_until > clock_timestamp() THEN
        RETURN known.blocked_until - clock_timestamp();
    END IF;
    -- An hour without any is forgotten.
    known.failures := CASE WHEN known.last_at < clock_timestamp() - interval '1 hour' THEN 1 ELSE known.failures + 1 END;
    UPDATE sign_in_failure AS f
       SET failures = known.failures, last_at = clock_timestamp(),
           blocked_until = clock_timestamp()
               + CASE WHEN known.failures <= free THEN interval '0'
                      ELSE least(interval '15 seconds' * (2 ^ least(known.failures - free - 1, 10)), interval '15 minutes')
                 END
     WHERE f.kind = counted AND f.key = by_key;
    RETURN interval '0';
END
$$;

-- What signing in needs to know; always one row. `wait_seconds` above 0: nothing may be tried before.
CREATE FUNCTION begin_sign_in(wanted text, address bytea)
RETURNS TABLE (wait_seconds double precision, operator_id bigint, role text, password text, is_initial boolean,
               code_secret bytea, last_period bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wait interval;
BEGIN
    DELETE FROM sign_in_failure AS f WHERE f.last_at < now() - interval '1 day' AND f.blocked_until < now();
    -- Whole offices share an address.
    wait := count_sign_in('address', address, 20);
    IF wait = interval '0' THEN
        wait := count_sign_in('operator', sha256(convert_to(wanted, 'UTF8')), 4);
    END IF;
    IF wait > interval '0' THEN
        RETURN QUERY SELECT extract(epoch FROM wait)::double precision, NULL::bigint, NULL::text, NULL::text, NULL::boolean,
                            NULL::bytea, NULL::bigint;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 0::double precision, o.id, o.role, s.password, s.is_initial, s.code_secret, s.last_period
      FROM (SELECT 1) AS one
      LEFT JOIN (operator AS o JOIN operator_secret AS s ON s.operator_id = o.id)
        ON o.name = wanted AND o.disabled_at IS NULL;
END
$$;

-- Begins a session. False: the code was taken by somebody else meanwhile, or the operator may no longer sign in.
CREATE FUNCTION complete_sign_in(who bigint, shown text, address bytea, period bigint, session bytea, session_kind text,
                                 lasts interval, idle interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    named text;
BEGIN
    -- The password that was checked is still the one there is, and a code is taken once, whoever else tries it.
    UPDATE operator_secret AS s SET last_period = period
      FROM operator AS o
     WHERE s.operator_id = who AND o.id = who AND o.disabled_at IS NULL AND s.password = shown AND NOT s.is_initial
       AND CASE WHEN s.code_secret IS NULL
                THEN period IS NULL AND o.role NOT IN ('approver', 'senior', 'admin')
                ELSE period > coalesce(s.last_period, -1) END
    RETURNING o.name INTO named;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM sign_in_failure AS f
     WHERE f.kind = 'operator' AND f.key = sha256(convert_to(named, 'UTF8'))
        OR f.kind = 'address' AND f.key = address;
    DELETE FROM operator_session AS s WHERE s.ends_at < now() OR s.seen_at + s.idle < now();
    INSERT INTO operator_session (digest, operator_id, kind, ends_at, idle)
    VALUES (session, who, session_kind, now() + lasts, complete_sign_in.idle);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who, 'signed_in', jsonb_build_object('by', session_kind));
    RETURN true;
END
$$;

-- Notes that a sign-in failed; who it was is known only where the name is somebody's.
CREATE FUNCTION note_failed_sign_in(wanted text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO operator_event (kind, about_id)
    VALUES ('sign_in_failed', (SELECT o.id FROM operator AS o WHERE o.name = wanted));
$$;

-- Gives an operator a password and a device of their own. False: the password that was shown is not the one there is.
CREATE FUNCTION enrol_operator(who bigint, shown text, chosen text, device bytea) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    UPDATE operator_secret AS s
       SET password = coalesce(chosen, s.password), is_initial = s.is_initial AND chosen IS NULL,
           code_secret = coalesce(s.code_secret, device)
     WHERE s.operator_id = who AND s.password = shown;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM operator_session AS s WHERE s.operator_id = who;
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who, 'enrolled', jsonb_build_object('password', chosen IS NOT NULL, 'device', device IS NOT NULL));
    RETURN true;
END
$$;

CREATE FUNCTION sign_out(session bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    WITH ended AS (DELETE FROM operator_session AS s WHERE s.digest = session RETURNING s.operator_id)
    INSERT INTO operator_event (operator_id, kind) SELECT e.operator_id, 'signed_out' FROM ended AS e;
$$;

-- Adds an operator. The first one is an administrator, whom nobody has to allow.
CREATE FUNCTION add_operator(session bytea, wanted text, wanted_role text, account text, hash text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor bigint;
    added bigint;
BEGIN
    -- One at a time: two first ones would both be nobody's.
    PERFORM pg_advisory_xact_lock(7309940714432067);
    IF session IS NOT NULL OR EXISTS (SELECT 1 FROM operator) THEN
        actor := (acting(session, 'manage')).id;
    ELSIF wanted_role <> 'admin' THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'role: the first operator has to be an admin',
            HINT = 'Add one with --role admin, sign in, and add the others.';
    END IF;
    IF NOT wanted ~ '^[a-z0-9][a-z0-9._-]{0,62}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: 1 to 63 of a to z, 0 to 9, dot, hyphen and underscore',
            HINT = 'Begin with a letter or a digit.';
    END IF;
    INSERT INTO operator (name, role, user_key)
    VALUES (wanted, wanted_role, CASE WHEN account IS NOT NULL THEN user_key_of(account) END)
    ON CONFLICT (name) DO NOTHING
    RETURNING id INTO added;
    IF added IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('name: there is an operator %s already', wanted),
            HINT = 'Take another name, or reset that operator.';
    END IF;
    INSERT INTO operator_secret (operator_id, password, is_initial) VALUES (added, hash, true);
    INSERT INTO operator_event (operator_id, kind, about_id, detail)
    VALUES (actor, 'added', added, jsonb_build_object('role', wanted_role));
    RETURN added;
END
$$;

-- The operator of a name, for whoever manages them.
CREATE FUNCTION operator_named(wanted text) RETURNS operator
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator;
BEGIN
    SELECT o.* INTO who FROM operator AS o WHERE o.name = wanted;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: no such operator',
            HINT = 'See entitlement-sync operator list.';
    END IF;
    RETURN who;
END
$$;

-- Ends what an operator may do, at once.
CREATE FUNCTION disable_operator(session bytea, wanted text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor operator;
    who   operator;
BEGIN
    PERFORM pg_advisory_xact_lock(7309940714432067);
    actor := acting(session, 'manage');
    who := operator_named(wanted);
    IF who.role = 'admin'
       AND NOT EXISTS (SELECT 1 FROM operator AS o WHERE o.role = 'admin' AND o.disabled_at IS NULL AND o.id <> who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: the last administrator stays',
            HINT = 'Add another admin first.';
    END IF;
    UPDATE operator AS o SET disabled_at = coalesce(o.disabled_at, now()) WHERE o.id = who.id;
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'disabled', who.id);
END
$$;

-- Gives an operator an initial password again, without a device; enables who was disabled.
CREATE FUNCTION reset_operator(session bytea, wanted text, hash text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor operator;
    who   operator;
BEGIN
    actor := acting(session, 'manage');
    who := operator_named(wanted);
    UPDATE operator AS o SET disabled_at = NULL WHERE o.id = who.id;
    UPDATE operator_secret AS s SET password = hash, is_initial = true, code_secret = NULL, last_period = NULL
     WHERE s.operator_id = who.id;
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    DELETE FROM sign_in_failure AS f WHERE f.kind = 'operator' AND f.key = sha256(convert_to(who.name, 'UTF8'));
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'reset', who.id);
END
$$;

-- All operators, for whoever manages or audits them.
CREATE FUNCTION operators(session bytea)
RETURNS TABLE (name text, role text, user_id text, has_device boolean, is_enrolled boolean, created_at timestamptz,
               disabled_at timestamptz, seen_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM acting(session, 'audit');
    RETURN QUERY
    SELECT o.name, o.role, u.user_id, s.code_secret IS NOT NULL, NOT s.is_initial, o.created_at, o.disabled_at,
           (SELECT max(x.seen_at) FROM operator_session AS x WHERE x.operator_id = o.id)
      FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
      LEFT JOIN user_sync AS u ON u.user_key = o.user_key
     ORDER BY o.name;
END
$$;

REVOKE ALL ON FUNCTION acting, count_sign_in, begin_sign_in, complete_sign_in, note_failed_sign_in, enrol_operator, sign_out,
                       add_operator, operator_named, disable_operator, reset_operator, operators FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT SELECT ON operator, desk_duty, operator_event, schema_migration TO %I',
    'GRANT EXECUTE ON FUNCTION acting, begin_sign_in, complete_sign_in, note_failed_sign_in, enrol_operator, sign_out,
                               add_operator, disable_operator, reset_operator, operators TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY['GRANT SELECT ON operator, desk_duty, operator_event TO %I']);
