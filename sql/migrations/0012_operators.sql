-- Who works at the desk, how they sign in, and what they may do. Passwords, codes and sessions are checked here: whoever
-- merely has the database role of the desk can neither read what signs an operator in nor act as one.

-- One-time codes are HMACs of SHA-1, as authenticator apps make them. PostgreSQL has SHA-2 alone, and an extension of ours would
-- stand in the way of the application's own: a few dozen rounds a sign-in are cheap enough here.
CREATE FUNCTION sha1(data bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    low  CONSTANT bigint := 4294967295;
    text_ bytea := data || '\x80'::bytea || decode(repeat('00', (119 - octet_length(data) % 64) % 64), 'hex')
                   || int8send(octet_length(data)::bigint * 8);
    h    bigint[] := ARRAY[1732584193, 4023233417, 2562383102, 271733878, 3285377520];
    w    bigint[];
    a    bigint;
    b    bigint;
    c    bigint;
    d    bigint;
    e    bigint;
    f    bigint;
    k    bigint;
    x    bigint;
BEGIN
    FOR block IN 0..octet_length(text_) / 64 - 1 LOOP
        w := ARRAY(SELECT ('x' || encode(substring(text_ FROM block * 64 + n * 4 + 1 FOR 4), 'hex'))::bit(32)::bigint
                     FROM generate_series(0, 15) AS n ORDER BY n);
        FOR i IN 17..80 LOOP
            x := w[i - 3] # w[i - 8] # w[i - 14] # w[i - 16];
            w[i] := ((x << 1) | (x >> 31)) & low;
        END LOOP;
        a := h[1]; b := h[2]; c := h[3]; d := h[4]; e := h[5];
        FOR i IN 1..80 LOOP
            IF i <= 20 THEN
                f := (b & c) | ((~b) & d); k := 1518500249;
            ELSIF i <= 40 THEN
                f := b # c # d; k := 1859775393;
            ELSIF i <= 60 THEN
                f := (b & c) | (b & d) | (c & d); k := 2400959708;
            ELSE
                f := b # c # d; k := 3395469782;
            END IF;
            x := ((((a << 5) | (a >> 27)) & low) + (f & low) + e + k + w[i]) & low;
            e := d; d := c; c := ((b << 30) | (b >> 2)) & low; b := a; a := x;
        END LOOP;
        h := ARRAY[(h[1] + a) & low, (h[2] + b) & low, (h[3] + c) & low, (h[4] + d) & low, (h[5] + e) & low];
    END LOOP;
    RETURN (SELECT string_agg(substring(int8send(n.word) FROM 5 FOR 4), '' ORDER BY n.place)
              FROM unnest(h) WITH ORDINALITY AS n(word, place));
END
$$;

CREATE FUNCTION hmac_sha1(data bytea, key bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    block bytea := CASE WHEN octet_length(key) > 64 THEN sha1(key) ELSE key END;
    inner_ bytea;
    outer_ bytea;
BEGIN
    block := block || decode(repeat('00', 64 - octet_length(block)), 'hex');
    inner_ := block;
    outer_ := block;
    FOR i IN 0..63 LOOP
        inner_ := set_byte(inner_, i, get_byte(block, i) # 54);
        outer_ := set_byte(outer_, i, get_byte(block, i) # 92);
    END LOOP;
    RETURN sha1(outer_ || sha1(inner_ || data));
END
$$;

CREATE TABLE operator (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text        NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    role        text        NOT NULL CHECK (role IN ('viewer', 'agent', 'approver', 'senior', 'auditor', 'admin')),
    user_key    bigint      UNIQUE,
    created_at  timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz,
    held_until  timestamptz,
    held_by     bigint,
    lost_at     timestamptz
);
COMMENT ON COLUMN operator.held_until IS 'until then the account decides nothing, unless an admin other than held_by confirms it:'
    ' nobody makes themselves a second pair of eyes';
COMMENT ON COLUMN operator.lost_at IS 'when the role was last changed, or the account disabled or reset: what was agreed to before counts no more';
COMMENT ON COLUMN operator.user_key IS 'the account that the operator has in the app: nobody decides their own case';

CREATE FUNCTION note_lost_role() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.lost_at := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE TRIGGER note_lost_role BEFORE UPDATE OF role, disabled_at, held_until ON operator FOR EACH ROW
    WHEN (NEW.role <> OLD.role OR NEW.disabled_at IS DISTINCT FROM OLD.disabled_at
          OR NEW.held_until > OLD.held_until OR NEW.held_until IS NOT NULL AND OLD.held_until IS NULL)
    EXECUTE FUNCTION note_lost_role();

-- Every account in the app that ever was an operator's: to have it erased, or to link another, opens no case to them.
CREATE TABLE operator_account (
    operator_id bigint      NOT NULL REFERENCES operator,
    user_key    bigint      NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (operator_id, user_key)
);
CREATE FUNCTION keep_operator_account() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO operator_account (operator_id, user_key) VALUES (NEW.id, NEW.user_key) ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
CREATE TRIGGER keep_operator_account AFTER INSERT OR UPDATE OF user_key ON operator FOR EACH ROW
    WHEN (NEW.user_key IS NOT NULL) EXECUTE FUNCTION keep_operator_account();

-- Apart from the operators, so that whoever may read those reads none of these.
CREATE TABLE operator_secret (
    operator_id bigint      PRIMARY KEY REFERENCES operator,
    cost        text        NOT NULL CHECK (cost ~ '^scrypt\$[0-9]{1,2}\$[0-9]{1,2}\$[0-9]{1,2}$'),
    salt        bytea       NOT NULL CHECK (octet_length(salt) = 16),
    verifier    bytea       NOT NULL CHECK (octet_length(verifier) = 32),
    expires_at  timestamptz,
    device      bytea       CHECK (octet_length(device) = 20),
    last_period bigint
);
COMMENT ON COLUMN operator_secret.verifier IS 'SHA-256 of what scrypt makes of the password: who reads it can show nothing';
COMMENT ON COLUMN operator_secret.expires_at IS 'of a password that somebody else gave: signing in needs one of the operator''s own';
COMMENT ON COLUMN operator_secret.device IS 'the key of one-time codes';
COMMENT ON COLUMN operator_secret.last_period IS 'the period of the last code that was taken; no code is taken twice';

CREATE TABLE operator_session (
    digest      bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
    operator_id bigint      NOT NULL REFERENCES operator,
    kind        text        NOT NULL CHECK (kind IN ('console', 'terminal')),
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    proved_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX operator_session_operator ON operator_session (operator_id);
COMMENT ON COLUMN operator_session.digest IS 'SHA-256 of what the functions take for a session: who reads it can show nothing';
COMMENT ON COLUMN operator_session.proved_at IS 'when password and code were given last';

-- Tries to sign in that were not completed: of a name, of a name from an address, of an address. A name that is nobody's counts
-- as any other.
CREATE TABLE sign_in_try (
    kind          text        NOT NULL CHECK (kind IN ('address', 'both', 'name')),
    key           bytea       NOT NULL,
    failures      integer     NOT NULL DEFAULT 0,
    last_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    blocked_until timestamptz NOT NULL DEFAULT 'epoch',
    good_at       timestamptz,
    PRIMARY KEY (kind, key)
);
CREATE INDEX sign_in_try_last ON sign_in_try (last_at);
COMMENT ON COLUMN sign_in_try.good_at IS 'of a name from an address: when somebody signed in so. Others who guess do not keep them out';

-- What somebody is about to show. A try is made only of what was announced in a transaction of its own, which has counted it: to
-- undo the try undoes no count.
CREATE TABLE sign_in_announced (
    id      uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    digest  bytea       NOT NULL,
    address bytea,
    xact    xid8        NOT NULL DEFAULT pg_current_xact_id(),
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Sign-ins that were refused; kept apart from what operators did, because anybody can fill it.
CREATE TABLE sign_in_refusal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator_id bigint,
    reason      text        NOT NULL,
    address     bytea
);
COMMENT ON COLUMN sign_in_refusal.operator_id IS 'whose name it was, if anybody''s';
COMMENT ON COLUMN sign_in_refusal.address IS 'SHA-256 of whence';

-- Salts of names that are nobody's come from here: they stay the same, as an operator's would.
CREATE TABLE desk_secret (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    bytes bytea   NOT NULL
);
INSERT INTO desk_secret (bytes)
VALUES (sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));

-- What operators did, and what was refused to them.
CREATE TABLE operator_event (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
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

-- Whether a role signs in with a second factor: all that see or change what is not theirs.
CREATE FUNCTION needs_device(role text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT RETURN role <> 'viewer';

-- The six digits of a period of 30 seconds (RFC 6238, RFC 4226).
CREATE FUNCTION one_time_code(device bytea, period bigint) RETURNS text
LANGUAGE sql IMMUTABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    SELECT lpad((((get_byte(m.mac, m.start) & 127) * 16777216::bigint + get_byte(m.mac, m.start + 1) * 65536
                  + get_byte(m.mac, m.start + 2) * 256 + get_byte(m.mac, m.start + 3)) % 1000000)::text, 6, '0')
      FROM (SELECT h.mac, get_byte(h.mac, 19) & 15 AS start
              FROM (SELECT hmac_sha1(int8send(period), device) AS mac) AS h) AS m
$$;

-- The period that a code belongs to, a clock that is off by one period allowed for; none: it is no code of now, or was taken.
CREATE FUNCTION period_of_code(device bytea, code text, after bigint) RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT max(p.period)
      FROM generate_series(floor(extract(epoch FROM clock_timestamp()) / 30)::bigint - 1,
                           floor(extract(epoch FROM clock_timestamp()) / 30)::bigint + 1) AS p(period)
     WHERE code ~ '^[0-9]{6}$' AND one_time_code(device, p.period) = code AND p.period > coalesce(after, -1)
$$;

-- Whether a password's parts have the form in which they are stored; absent ones do.
CREATE FUNCTION is_key(cost text, salt bytea, shown bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN coalesce(cost ~ '^scrypt\$[0-9]{1,2}\$[0-9]{1,2}\$[0-9]{1,2}$', true)
       AND coalesce(octet_length(salt) = 16, true) AND coalesce(octet_length(shown) = 32, true);

-- In older snapshots than the present, what was taken away would still be there.
CREATE FUNCTION check_isolation() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = '25001', MESSAGE = 'the desk''s functions run in read committed transactions',
            HINT = 'Begin the transaction without another isolation level.';
    END IF;
END
$$;

-- The keys under which a try is counted, in the order in which they are locked. A terminal's address is that of its connection
-- to the database.
CREATE FUNCTION try_keys(wanted text, shown_address bytea) RETURNS TABLE (kind text, key bytea, free integer, longest interval)
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT k.kind, k.key, k.free, k.longest
      FROM (SELECT sha256(convert_to(wanted, 'UTF8')) AS name,
                   coalesce(shown_address, sha256(convert_to('terminal ' || session_user || ' '
                                                             || coalesce(host(inet_client_addr()), 'local'), 'UTF8')))
                       AS address) AS n
           -- A name is slowed wherever it is tried from, and shut out nowhere.
     CROSS JOIN LATERAL (VALUES ('address', n.address, 50, interval '15 minutes'),
                                ('both', sha256(n.name || n.address), 5, interval '15 minutes'),
                                ('name', n.name, 5, interval '2 seconds')) AS k(kind, key, free, longest)
$$;

-- How long a name has to wait from an address. Nobody may keep an operator out by failing in their name, or beside them: where
-- they have signed in of late, only their own failures count.
CREATE FUNCTION try_wait(wanted text, address bytea) RETURNS interval
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce(greatest(max(t.blocked_until) - clock_timestamp(), interval '0'), interval '0')
      FROM try_keys(wanted, address) AS k JOIN sign_in_try AS t ON t.kind = k.kind AND t.key = k.key
     WHERE t.kind = 'both'
        OR NOT EXISTS (SELECT 1 FROM try_keys(wanted, address) AS o JOIN sign_in_try AS g ON g.kind = o.kind AND g.key = o.key
                        WHERE o.kind = 'both' AND g.good_at > clock_timestamp() - interval '30 days')
$$;

-- What a name's password has to be hashed with, and how long to wait before it is. A name that is nobody's looks like any other.
CREATE FUNCTION sign_in_salt(wanted text, address bytea, usual_cost text)
RETURNS TABLE (wait double precision, cost text, salt bytea)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT extract(epoch FROM try_wait(wanted, address))::double precision,
           coalesce(s.cost, (SELECT mode() WITHIN GROUP (ORDER BY x.cost) FROM operator_secret AS x), usual_cost),
           coalesce(s.salt, substring(sha256(d.bytes || convert_to(wanted, 'UTF8')) FROM 1 FOR 16))
      FROM desk_secret AS d
      LEFT JOIN (operator AS o JOIN operator_secret AS s ON s.operator_id = o.id)
        ON o.name = wanted AND o.disabled_at IS NULL
$$;

-- Counts a try that is about to be made, so that many at a time are slowed like one after the other, and takes what it will show.
-- `wait`: so many seconds, and nothing was counted.
--
--   digest   SHA-256 of the name, a zero byte, what the password shows, and the code
CREATE FUNCTION announce_sign_in(wanted text, address bytea, digest bytea)
RETURNS TABLE (announced uuid, wait double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
#variable_conflict use_column
DECLARE
    pause interval;
    keys  text[];
BEGIN
    PERFORM check_isolation();
    IF wanted IS NULL OR octet_length(wanted) > 63 OR octet_length(digest) IS DISTINCT FROM 32 OR octet_length(address) <> 32
    THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'announce_sign_in: a name of at most 63 bytes, and hashes of 32',
            HINT = 'See the function''s comment.';
    END IF;
    -- An address that has to wait writes nothing.
    pause := try_wait(wanted, address);
    IF pause > interval '0' THEN
        RETURN QUERY SELECT NULL::uuid, extract(epoch FROM pause)::double precision;
        RETURN;
    END IF;
    -- Where somebody signed in of late, only their own failures count, and nobody else is waited for.
    keys := CASE WHEN EXISTS (SELECT 1 FROM try_keys(wanted, address) AS k JOIN sign_in_try AS g ON g.kind = k.kind AND g.key = k.key
                               WHERE k.kind = 'both' AND g.good_at > clock_timestamp() - interval '30 days')
                 THEN ARRAY['both'] ELSE ARRAY['address', 'both', 'name'] END;
    -- In one order for all, before anything is decided.
    INSERT INTO sign_in_try (kind, key)
    SELECT k.kind, k.key FROM try_keys(wanted, address) AS k WHERE k.kind = ANY (keys) ORDER BY k.kind, k.key
    ON CONFLICT (kind, key) DO NOTHING;
    PERFORM FROM sign_in_try AS t JOIN try_keys(wanted, address) AS k ON k.kind = t.kind AND k.key = t.key
      WHERE t.kind = ANY (keys) ORDER BY t.kind, t.key FOR UPDATE OF t;
    pause := try_wait(wanted, address);
    IF pause > interval '0' THEN
        RETURN QUERY SELECT NULL::uuid, extract(epoch FROM pause)::double precision;
        RETURN;
    END IF;
    UPDATE sign_in_try AS t
       SET failures = n.failures, last_at = clock_timestamp(),
           blocked_until = CASE WHEN n.failures <= n.free THEN 'epoch'
                                ELSE clock_timestamp() + least(interval '1 second' * 2 ^ least(n.failures - n.free, 12), n.longest)
                           END
      FROM (SELECT x.kind, x.key, k.free, k.longest,
                   CASE WHEN x.last_at < clock_timestamp() - interval '1 hour' THEN 1 ELSE x.failures + 1 END AS failures
              FROM sign_in_try AS x JOIN try_keys(wanted, address) AS k ON k.kind = x.kind AND k.key = x.key
             WHERE x.kind = ANY (keys)) AS n
     WHERE t.kind = n.kind AND t.key = n.key;
    RETURN QUERY
    INSERT INTO sign_in_announced (digest, address) VALUES (digest, address)
    RETURNING id, 0::double precision;
END
$$;

-- Notes a try that failed, and says the one word that all such tries hear.
CREATE FUNCTION refuse_sign_in(who bigint, reason text, address bytea) RETURNS text
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO sign_in_refusal (operator_id, reason, address) VALUES (who, reason, address) RETURNING 'refused'
$$;

-- Takes back what a try has counted that was made with the right password: whole offices share an address.
CREATE FUNCTION forgive_try(wanted text, address bytea, entered boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM FROM sign_in_try AS t JOIN try_keys(wanted, address) AS k ON k.kind = t.kind AND k.key = t.key
      ORDER BY t.kind, t.key FOR UPDATE OF t;
    UPDATE sign_in_try AS t
       SET failures = CASE WHEN k.kind = 'address' THEN greatest(t.failures - 1, 0) WHEN entered THEN 0 ELSE t.failures END,
           blocked_until = CASE WHEN k.kind = 'address' AND t.failures - 1 > k.free OR k.kind <> 'address' AND NOT entered
                                THEN t.blocked_until ELSE 'epoch' END,
           good_at = CASE WHEN k.kind = 'both' AND entered THEN clock_timestamp() ELSE t.good_at END
      FROM try_keys(wanted, address) AS k WHERE t.kind = k.kind AND t.key = k.key;
END
$$;

-- Signs an operator in, and takes what is chosen on the way: a password where the old one was somebody else's, a device where
-- there has to be one. All of it or nothing.
--
--   announced  the try, as `announce_sign_in` gave it in an earlier transaction
--   shown      what scrypt makes of the password with the name's salt
--   code       of the device, or of the one that is chosen; absent: empty in the digest
--   session    the hash of what the operator will show
--   chosen_cost, chosen_salt, chosen_shown, chosen_device   absent: nothing is chosen
--
-- Returns `signed_in`; `refused`, whatever was wrong; and after the right password `needs_password`, `needs_device` (both where
-- both), `needs_code`, or `same_password`.
CREATE FUNCTION sign_in(announced uuid, wanted text, shown bytea, code text, session bytea, session_kind text,
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
    PERFORM forgive_try(wanted, made.address, true);
    INSERT INTO operator_session (digest, operator_id, kind) VALUES (sha256(session), who.id, session_kind);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'signed_in', jsonb_build_object('by', session_kind));
    RETURN 'signed_in';
END
$$;

-- When a session ends: twelve hours after its beginning, or sooner where nobody uses it.
CREATE FUNCTION session_ends(s operator_session) RETURNS timestamptz
LANGUAGE sql STABLE STRICT
RETURN least(s.started_at + interval '12 hours',
             s.seen_at + CASE s.kind WHEN 'console' THEN interval '30 minutes' ELSE interval '1 hour' END);

CREATE FUNCTION sign_out(session bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    WITH ended AS (DELETE FROM operator_session AS s WHERE s.digest = sha256(session) RETURNING s.operator_id)
    INSERT INTO operator_event (operator_id, kind) SELECT e.operator_id, 'signed_out' FROM ended AS e;
$$;

-- What an account may not do that was made or reset a short while ago.
CREATE FUNCTION is_weighty(duty text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT RETURN duty IN ('refuse', 'lend', 'approve', 'transfer', 'override', 'manage');

-- Whose session this is, if the role has the duty. `fresh`: password and code were given less than that ago.
CREATE FUNCTION acting(session bytea, wanted text, fresh interval DEFAULT NULL) RETURNS operator
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who    operator;
    proved timestamptz;
BEGIN
    PERFORM check_isolation();
    -- Locked until the action is committed: whoever takes the role away waits for it, or comes before. The session is looked at
    -- when the lock is held: it may have ended meanwhile.
    SELECT o.* INTO who FROM operator AS o
     WHERE o.id = (SELECT s.operator_id FROM operator_session AS s WHERE s.digest = sha256(session)) AND o.disabled_at IS NULL
       FOR SHARE;
    SELECT s.proved_at INTO proved FROM operator_session AS s
     WHERE s.digest = sha256(session) AND s.operator_id = who.id AND session_ends(s) > clock_timestamp();
    IF proved IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'nobody is signed in, or the session has ended',
            HINT = 'Sign in: entitlement-sync operator login NAME.';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = wanted AND d.role = who.role) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = format('the role %s may not do this (%s)', who.role, wanted),
            HINT = 'Ask somebody whose role may.';
    END IF;
    IF who.held_until > clock_timestamp() AND is_weighty(wanted) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006',
            MESSAGE = 'the account was added or reset less than a day ago, and no second admin has confirmed it',
            HINT = 'Another admin confirms it: entitlement-sync operator confirm NAME.';
    END IF;
    IF proved + fresh <= clock_timestamp() THEN
        RAISE EXCEPTION USING ERRCODE = 'ES007', MESSAGE = 'this asks for the password and a code again',
            HINT = 'Sign in again, then repeat it: entitlement-sync operator login NAME.';
    END IF;
    -- Not with every step: a page asks for many; and not where the operator's own row may be written next.
    UPDATE operator_session AS s SET seen_at = clock_timestamp()
     WHERE s.digest = sha256(session) AND s.seen_at < clock_timestamp() - interval '30 seconds' AND wanted <> 'manage';
    RETURN who;
END
$$;

-- Notes what was refused to somebody: the refusal itself undid whatever it had written.
CREATE FUNCTION note_refusal(session bytea, wanted text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO operator_event (operator_id, kind, detail)
    SELECT s.operator_id, 'refused', jsonb_build_object('duty', left(wanted, 40))
      FROM operator_session AS s WHERE s.digest = sha256(session)
$$;

-- Whether an administrator is left who can sign in, beside one.
CREATE FUNCTION has_other_admin(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
                    WHERE o.role = 'admin' AND o.disabled_at IS NULL AND o.id <> who
                      AND s.expires_at IS NULL AND s.device IS NOT NULL)
$$;

-- Adds an operator, whose password holds for three days and for one sign-in. Administrators may be added by the schema's owner
-- without a session, who can write the tables anyway: so the first ones come to be, and one who lost the device comes back.
CREATE FUNCTION add_operator(session bytea, wanted text, wanted_role text, account text, cost text, salt bytea, shown bytea)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor bigint;
    added bigint;
BEGIN
    -- One at a time: what is checked of the others holds.
    PERFORM pg_advisory_xact_lock(7309940714432067);
    IF session IS NOT NULL THEN
        actor := (acting(session, 'manage', interval '5 minutes')).id;
    ELSIF wanted_role IS DISTINCT FROM 'admin'
          OR NOT coalesce(pg_has_role(session_user, (SELECT n.nspowner FROM pg_namespace AS n
                                                      WHERE n.nspname = 'entitlement_sync'), 'MEMBER'), false)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'nobody is signed in',
            HINT = 'Admins may be added by the schema''s owner, all others by an admin who is signed in.';
    END IF;
    IF NOT is_key(cost, salt, shown) OR num_nulls(cost, salt, shown) > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'add_operator: what the password shows has the wrong size',
            HINT = 'Use entitlement-sync operator add.';
    END IF;
    IF wanted_role NOT IN (SELECT d.role FROM desk_duty AS d) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'role: there is no such role',
            HINT = 'Use viewer, agent, approver, senior, auditor or admin.';
    END IF;
    IF wanted IS NULL OR NOT wanted ~ '^[a-z0-9][a-z0-9._-]{0,62}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: 1 to 63 of a to z, 0 to 9, dot, hyphen and underscore',
            HINT = 'Begin with a letter or a digit.';
    END IF;
    INSERT INTO operator (name, role, user_key, held_until, held_by)
    VALUES (wanted, wanted_role, CASE WHEN account IS NOT NULL THEN user_key_of(account) END,
            CASE WHEN actor IS NOT NULL THEN clock_timestamp() + interval '1 day' END, actor)
    ON CONFLICT DO NOTHING
    RETURNING id INTO added;
    IF added IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name or user: an operator has it already',
            HINT = 'See entitlement-sync operator list.';
    END IF;
    INSERT INTO operator_secret (operator_id, cost, salt, verifier, expires_at)
    VALUES (added, add_operator.cost, add_operator.salt, sha256(shown), clock_timestamp() + interval '72 hours');
    INSERT INTO operator_event (operator_id, kind, about_id, detail)
    VALUES (actor, 'added', added, jsonb_build_object('role', wanted_role, 'by_owner', actor IS NULL));
    RETURN added;
END
$$;

-- The operator of a name, for whoever manages them.
CREATE FUNCTION operator_named(wanted text) RETURNS operator
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator;
BEGIN
    SELECT o.* INTO who FROM operator AS o WHERE o.name = wanted FOR NO KEY UPDATE;
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
    actor := acting(session, 'manage', interval '5 minutes');
    who := operator_named(wanted);
    IF who.role = 'admin' AND NOT has_other_admin(who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: the last administrator stays',
            HINT = 'Add another admin first, who has to have signed in.';
    END IF;
    UPDATE operator AS o SET disabled_at = coalesce(o.disabled_at, clock_timestamp()) WHERE o.id = who.id;
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'disabled', who.id);
END
$$;

-- Gives an operator a password for one sign-in again, and takes the device away; enables who was disabled.
CREATE FUNCTION reset_operator(session bytea, wanted text, cost text, salt bytea, shown bytea) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor operator;
    who   operator;
BEGIN
    PERFORM pg_advisory_xact_lock(7309940714432067);
    actor := acting(session, 'manage', interval '5 minutes');
    who := operator_named(wanted);
    IF who.role = 'admin' AND NOT has_other_admin(who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: the last administrator stays as they are',
            HINT = 'Add another admin first, who has to have signed in.';
    END IF;
    IF NOT is_key(cost, salt, shown) OR num_nulls(cost, salt, shown) > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reset_operator: what the password shows has the wrong size',
            HINT = 'Use entitlement-sync operator reset.';
    END IF;
    UPDATE operator AS o
       SET disabled_at = NULL, held_until = clock_timestamp() + interval '1 day', held_by = actor.id
     WHERE o.id = who.id;
    UPDATE operator_secret AS s
       SET cost = reset_operator.cost, salt = reset_operator.salt, verifier = sha256(shown),
           expires_at = clock_timestamp() + interval '72 hours', device = NULL, last_period = NULL
     WHERE s.operator_id = who.id;
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'reset', who.id);
END
$$;

-- A second admin stands in for an account that another one made or reset.
CREATE FUNCTION confirm_operator(session bytea, wanted text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor operator;
    who   operator;
BEGIN
    PERFORM pg_advisory_xact_lock(7309940714432067);
    actor := acting(session, 'manage', interval '5 minutes');
    who := operator_named(wanted);
    IF actor.id IN (who.id, who.held_by) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'name: whoever added or reset the account does not confirm it',
            HINT = 'Another admin does, or a day passes.';
    END IF;
    UPDATE operator AS o SET held_until = NULL WHERE o.id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'confirmed', who.id);
END
$$;

-- Says which account in the app is an operator's own.
CREATE FUNCTION link_operator(session bytea, wanted text, account text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor operator;
    who   operator;
BEGIN
    PERFORM pg_advisory_xact_lock(7309940714432067);
    actor := acting(session, 'manage', interval '5 minutes');
    who := operator_named(wanted);
    IF EXISTS (SELECT 1 FROM operator AS o WHERE o.user_key = user_key_of(account) AND o.id <> who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'user: another operator has this account',
            HINT = 'See entitlement-sync operator list.';
    END IF;
    UPDATE operator AS o SET user_key = user_key_of(account) WHERE o.id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'linked', who.id);
END
$$;

-- An account that is erased is nobody's any more.
CREATE FUNCTION forget_operator_account() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    UPDATE operator AS o SET user_key = NULL WHERE o.user_key = NEW.user_key;
    RETURN NEW;
END
$$;
CREATE TRIGGER forget_operator_account BEFORE UPDATE OF user_id ON user_sync FOR EACH ROW
    WHEN (NEW.user_id IS NULL AND OLD.user_id IS NOT NULL) EXECUTE FUNCTION forget_operator_account();

-- Forgets what was only needed for a while.
CREATE FUNCTION forget_sign_ins() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    DELETE FROM sign_in_announced AS a WHERE a.at < clock_timestamp() - interval '1 hour';
    DELETE FROM sign_in_refusal AS r WHERE r.at < clock_timestamp() - interval '90 days';
    DELETE FROM sign_in_try AS t
     WHERE t.ctid = ANY (ARRAY(SELECT x.ctid FROM sign_in_try AS x
                                WHERE x.last_at < clock_timestamp() - interval '1 day'
                                  AND coalesce(x.good_at, 'epoch') < clock_timestamp() - interval '30 days'
                                ORDER BY x.last_at LIMIT 10000 FOR UPDATE SKIP LOCKED));
    DELETE FROM operator_session AS s
     WHERE s.digest = ANY (ARRAY(SELECT x.digest FROM operator_session AS x WHERE session_ends(x) <= clock_timestamp()
                                   FOR UPDATE SKIP LOCKED));
END
$$;

-- All operators, for whoever manages or audits them.
CREATE FUNCTION operators(session bytea)
RETURNS TABLE (name text, role text, user_id text, has_device boolean, is_enrolled boolean, created_at timestamptz,
               disabled_at timestamptz, held_until timestamptz, seen_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM acting(session, 'audit');
    RETURN QUERY
    SELECT o.name, o.role, u.user_id, s.device IS NOT NULL, s.expires_at IS NULL, o.created_at, o.disabled_at,
           CASE WHEN o.held_until > clock_timestamp() THEN o.held_until END,
           (SELECT max(x.seen_at) FROM operator_session AS x WHERE x.operator_id = o.id)
      FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
      LEFT JOIN user_sync AS u ON u.user_key = o.user_key
     ORDER BY o.name;
END
$$;

REVOKE ALL ON FUNCTION note_lost_role, keep_operator_account, sha1, hmac_sha1, needs_device, one_time_code, period_of_code, is_key, check_isolation, try_keys, try_wait,
                       sign_in_salt, announce_sign_in, refuse_sign_in, forgive_try, sign_in, session_ends, sign_out, is_weighty,
                       acting, note_refusal, has_other_admin, add_operator, operator_named, disable_operator, reset_operator,
                       confirm_operator, link_operator, forget_operator_account, forget_sign_ins, operators FROM PUBLIC;
-- What the desk writes it writes through functions that ask for a session.
SELECT grant_to('entitlement_sync_support', ARRAY[
    'REVOKE INSERT, UPDATE ON ticket FROM %I',
    'REVOKE INSERT ON ticket_event FROM %I',
    'REVOKE USAGE ON SEQUENCE ticket_number FROM %I',
    'REVOKE EXECUTE ON FUNCTION request_reconcile FROM %I',
    'GRANT SELECT ON operator, desk_duty, schema_migration TO %I',
    'GRANT EXECUTE ON FUNCTION sign_in_salt, announce_sign_in, sign_in, sign_out, acting, note_refusal, add_operator,
                               disable_operator, reset_operator, confirm_operator, link_operator, operators TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY['GRANT SELECT ON operator, desk_duty, operator_event, sign_in_refusal TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION forget_sign_ins TO %I']);
