-- Access from elsewhere: users who pay through the team's own shop, by invoice or through another app, and whose access no store knows of.

-- Returns the source. Error ES006: it is malformed, or it is the name of a store, `revenuecat` or `grant`.
CREATE OR REPLACE FUNCTION checked_source(source text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF source !~ '^[a-z0-9_]{1,32}$' OR source IN ('app_store', 'google_play', 'onside', 'revenuecat', 'grant') OR source IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'source: not a name for another payer',
            HINT = 'Take 1 to 32 of a to z, 0 to 9 and _, such as stripe; not the name of a store, and not grant.';
    END IF;
    RETURN source;
END
$$;

-- Changes a grant: what it was until now becomes a row that has ended.
CREATE OR REPLACE FUNCTION change_grant(known "grant", new_until timestamptz, new_entitlement text) RETURNS void
LANGUAGE sql SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO "grant" (user_key, until, reason, granted_by, created_at, revoked_at, source, entitlement, version_of)
    VALUES (known.user_key, known.until, known.reason, known.granted_by, known.created_at, coalesce(known.revoked_at, now()), known.source,
            known.entitlement, known.id);
    UPDATE "grant" AS g
       SET until = new_until, entitlement = new_entitlement, revoked_at = NULL, created_at = now(), granted_by = session_user
     WHERE g.id = known.id;
$$;

-- Writes the grant of put_access and requests no reconcile. Returns the grant's id. Error ES006 names the argument that is malformed.
CREATE OR REPLACE FUNCTION record_access(key bigint, payer text, their_id text, ends_at timestamptz, named text, why text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    given bigint;
    known "grant";
BEGIN
    PERFORM checked_source(payer);
    IF their_id IS NULL OR length(their_id) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'external_id: empty or longer than 255',
            HINT = 'Pass what the payer calls it for good, such as a subscription''s id.';
    END IF;
    IF ends_at IS NULL OR ends_at = '-infinity' THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'until: no end',
            HINT = 'Pass the end of the paid period; infinity where there is none.';
    END IF;
    IF named IS NOT NULL AND NOT EXISTS (SELECT 1 FROM product AS p WHERE p.entitlement = named) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'entitlement: in no row of product',
            HINT = 'Add it to the table product, or pass null for access without a name.';
    END IF;
    -- Times from the year 2200 on mean no end.
    IF ends_at >= '2200-01-01' THEN
        ends_at := 'infinity';
    END IF;
    LOOP
        INSERT INTO "grant" AS g (user_key, until, reason, source, external_id, entitlement)
        VALUES (key, ends_at, why, payer, their_id, named)
        ON CONFLICT (source, external_id) WHERE external_id IS NOT NULL DO NOTHING
        RETURNING g.id INTO given;
        IF given IS NOT NULL THEN
            RETURN given;
        END IF;
        SELECT g.* INTO known FROM "grant" AS g WHERE g.source = payer AND g.external_id = their_id FOR NO KEY UPDATE;
        -- Erasure may have taken the id away in between.
        EXIT WHEN FOUND;
    END LOOP;
    IF known.user_key <> key THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'external_id: belongs to another user',
            HINT = 'Pass an id of its own for this user. If the other user does not pay any more, end that access too.';
    END IF;
    IF known.revoked_at IS NOT NULL OR known.until <> ends_at OR known.entitlement IS DISTINCT FROM named THEN
        PERFORM change_grant(known, ends_at, named);
    END IF;
    RETURN known.id;
END
$$;

CREATE OR REPLACE FUNCTION put_access(user_id text, source text, external_id text, until timestamptz, entitlement text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    given bigint := record_access(user_key_of(user_id), source, external_id, until, entitlement, format('as %s says', session_user));
BEGIN
    PERFORM request_reconcile(user_id, 'access from ' || source);
    RETURN given;
END
$$;
COMMENT ON FUNCTION put_access IS
'Records access from another payer until an instant, and requests a reconcile, in the caller''s transaction. '
'The same source and external_id again change it. Returns the grant''s id.
source: 1 to 32 of a-z, 0-9 and _, such as stripe; external_id: 1 to 255 characters; until: may be infinity; entitlement: one of product.
Errors: ES001 unknown user, ES006 malformed, or the external_id is another user''s (names the argument).';

CREATE OR REPLACE FUNCTION end_access(source text, external_id text, at timestamptz DEFAULT now()) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    known "grant";
BEGIN
    PERFORM checked_source(source);
    IF at IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'at: null', HINT = 'Leave it out for now, or pass an instant.';
    END IF;
    SELECT g.* INTO known FROM "grant" AS g WHERE g.source = source AND g.external_id = external_id FOR NO KEY UPDATE;
    IF known.id IS NULL OR known.revoked_at IS NOT NULL OR known.until <= now() THEN
        RETURN false;
    END IF;
    IF at < known.until THEN
        PERFORM change_grant(known, at, known.entitlement);
        -- A reconcile (1) in the background lane (2).
        PERFORM enqueue(known.user_key, 1::smallint, 2::smallint, new_id());
        PERFORM stir();
    END IF;
    RETURN true;
END
$$;
COMMENT ON FUNCTION end_access IS
'Ends what put_access recorded, and requests a reconcile, in the caller''s transaction.
Ends it now, or at the time that the argument at gives, if that is earlier than its end. A later one changes nothing and returns true.
Returns false where no such access is in force. Error: ES006 (names the argument).';

-- Keeps what the host's `other_access` says of users (`asked`) that the caller has locked; one it says nothing of has no such access.
CREATE OR REPLACE FUNCTION note_other_access(asked bigint[], keys bigint[], sources text[], untils timestamptz[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    WITH said AS MATERIALIZED (
        SELECT s.user_key, checked_source(s.source) AS source, max(s.until) AS until
          FROM unnest(keys, sources, untils) AS s(user_key, source, until) WHERE s.until > now() GROUP BY s.user_key, s.source
    ), known AS MATERIALIZED (
        SELECT g.id, g.user_key, g.source, g.until FROM "grant" AS g
         WHERE g.user_key = ANY (asked) AND g.is_asked AND g.revoked_at IS NULL
    ), ended AS (
        UPDATE "grant" AS g SET revoked_at = now() FROM known AS k
         WHERE g.id = k.id
           AND NOT EXISTS (SELECT 1 FROM said AS s WHERE (s.user_key, s.source, s.until) = (k.user_key, k.source, k.until))
    )
    INSERT INTO "grant" (user_key, until, reason, source, is_asked)
    SELECT s.user_key, s.until, 'as the host says', s.source, true FROM said AS s
     WHERE NOT EXISTS (SELECT 1 FROM known AS k WHERE (k.user_key, k.source, k.until) = (s.user_key, s.source, s.until));
$$;
