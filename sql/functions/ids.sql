-- Ids of jobs and the times in them, text forms, and users' ids as the host spells them.

-- The smallest id of an instant, for range bounds. In plpgsql, so that a session plans it once and not for every statement.
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

-- The hash by which `chargeback_name` knows a token or an order.
CREATE OR REPLACE FUNCTION name_hash(store text, value text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
RETURN sha256(convert_to(store || ' ' || value, 'UTF8'));

-- A time as ISO 8601 text, in UTC and whole seconds.
CREATE OR REPLACE FUNCTION moment(at timestamptz) RETURNS text
LANGUAGE sql STABLE STRICT RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');

-- Whether an account may gain access, by the host's status of the user.
CREATE OR REPLACE FUNCTION is_eligible(status text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN status IN ('active', 'onboarding');

-- An id as the host spells it; null: the host has no such user, or returns several of which none is spelled as `wanted`.
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

-- The key of a user of the host; makes the user known if necessary. Error ES001: the host has no such user.
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
        -- Not DO UPDATE: it would lock the row, if another request has made the user known, until this transaction ends.
        INSERT INTO user_sync (user_id) VALUES (spelled) ON CONFLICT (user_id) DO NOTHING;
        SELECT u.user_key INTO found_key FROM user_sync AS u WHERE u.user_id = spelled;
    END IF;
    RETURN found_key;
END
$$;

-- Keeps an id that the team writes into `sandbox_user` as the host spells it.
CREATE OR REPLACE FUNCTION spell_sandbox_user() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    NEW.user_id := coalesce(host_id(NEW.user_id), NEW.user_id);
    RETURN NEW;
END
$$;
