-- Ids, times that stand in them, and how the host spells its own.

-- The smallest id of an instant, for range bounds. Planned once a session: as a function of SQL that can't be inlined it was
-- planned for every statement.
CREATE OR REPLACE FUNCTION first_id_at(at timestamptz) RETURNS uuid
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3), 'hex')
            || '00000000000000000000')::uuid;
END
$$;

-- The instant at which an id was made, to the millisecond.
CREATE OR REPLACE FUNCTION id_time(id uuid) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_timestamp(('x' || lpad(substr(replace(id::text, '-', ''), 1, 12), 16, '0'))::bit(64)::bigint / 1000.0)
$$;

CREATE OR REPLACE FUNCTION name_hash(store text, value text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN sha256(convert_to(store || ' ' || value, 'UTF8'));

-- Writes a moment as everywhere.
CREATE OR REPLACE FUNCTION moment(at timestamptz) RETURNS text
LANGUAGE sql STABLE STRICT RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');

-- How the host spells an id; null for no user. Where several users come back, and none of them is spelled so, none is meant.
CREATE OR REPLACE FUNCTION host_id(wanted text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    found text[];
BEGIN
    IF wanted IS NULL THEN
        RETURN NULL;
    END IF;
    found := ARRAY(SELECT h.id FROM entitlement_sync_host.read_users(ARRAY[wanted]) AS h);
    IF wanted = ANY (found) THEN
        RETURN wanted;
    END IF;
    RETURN CASE WHEN cardinality(found) = 1 THEN found[1] END;
END
$$;

-- The key of a user who exists in the host's tables; ES001 otherwise.
CREATE OR REPLACE FUNCTION user_key_of(wanted text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    found_key bigint;
    spelled   text := host_id(wanted);
BEGIN
    IF spelled IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ES001', MESSAGE = 'user_id: no such user',
            HINT = 'Create the user first, and pass the id that stands in the users table.';
    END IF;
    SELECT u.user_key INTO found_key FROM user_sync AS u WHERE u.user_id = spelled;
    IF found_key IS NULL THEN
        -- Not DO UPDATE: it would hold the row of a user whom another tap made known for as long as this transaction lasts.
        INSERT INTO user_sync (user_id) VALUES (spelled) ON CONFLICT (user_id) DO NOTHING;
        SELECT u.user_key INTO found_key FROM user_sync AS u WHERE u.user_id = spelled;
    END IF;
    RETURN found_key;
END
$$;

-- What a team writes into the allow-list is kept as the host spells it, as all else is.
CREATE OR REPLACE FUNCTION spell_sandbox_user() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    NEW.user_id := coalesce(host_id(NEW.user_id), NEW.user_id);
    RETURN NEW;
END
$$;
