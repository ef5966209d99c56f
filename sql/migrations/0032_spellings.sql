-- compatible_from: 11
-- A host may compare ids by other rules than bytes: `uuid`, `citext`, `char(n)`, an adapter that lowers them. The id that
-- `read_users` returns is the user's id, whatever spelling came in.

-- How the host spells an id; null for no user. Where several users come back, and none of them is spelled so, none is meant.
CREATE FUNCTION host_id(wanted text) RETURNS text
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
CREATE FUNCTION spell_sandbox_user() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    NEW.user_id := coalesce(host_id(NEW.user_id), NEW.user_id);
    RETURN NEW;
END
$$;
CREATE TRIGGER spell_sandbox_user BEFORE INSERT OR UPDATE OF user_id ON sandbox_user
    FOR EACH ROW EXECUTE FUNCTION spell_sandbox_user();

-- Has events that are due name users as the host spells them. Where bytes are compared, nothing is written.
CREATE FUNCTION spell_inbox(most integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    picked bigint[];
    names  text[];
    found  text[];
    spelt  text[];
BEGIN
    picked := ARRAY(SELECT i.id FROM inbox AS i
                     WHERE i.state IN ('received', 'waiting') AND i.due <= clock_timestamp()
                     ORDER BY i.due LIMIT most FOR UPDATE SKIP LOCKED);
    IF picked = '{}' THEN
        RETURN;
    END IF;
    names := ARRAY(SELECT DISTINCT n.name FROM inbox AS i
                    CROSS JOIN LATERAL jsonb_array_elements_text(i.about -> 'users') AS n(name)
                    WHERE i.id = ANY (picked));
    found := ARRAY(SELECT h.id FROM entitlement_sync_host.read_users(names) AS h);
    IF found <@ names THEN
        RETURN;
    END IF;
    -- Each by itself, for nothing else says which of them came back otherwise.
    names := ARRAY(SELECT n.name FROM unnest(names) AS n(name) WHERE n.name <> ALL (found));
    spelt := ARRAY(SELECT coalesce(host_id(n.name), n.name) FROM unnest(names) WITH ORDINALITY AS n(name, place)
                    ORDER BY n.place);
    UPDATE inbox AS i
       SET about = jsonb_set(i.about, '{users}', (
               SELECT jsonb_agg(coalesce(s.spelt, n.name) ORDER BY n.place)
                 FROM jsonb_array_elements_text(i.about -> 'users') WITH ORDINALITY AS n(name, place)
                 LEFT JOIN unnest(names, spelt) AS s(name, spelt) ON s.name = n.name))
     WHERE i.id = ANY (picked)
       AND EXISTS (SELECT 1 FROM unnest(names, spelt) AS s(name, spelt)
                    WHERE s.spelt <> s.name AND i.about -> 'users' ? s.name);
END
$$;

REVOKE ALL ON FUNCTION host_id, spell_sandbox_user, spell_inbox FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION spell_inbox TO %I']);
SELECT grant_to(r.name, ARRAY['GRANT EXECUTE ON FUNCTION host_id TO %I'])
  FROM unnest(ARRAY['entitlement_sync_worker', 'entitlement_sync_api']) AS r(name);
