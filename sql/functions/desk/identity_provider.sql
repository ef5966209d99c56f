-- Sign-in through the team's identity provider.

-- Puts a provider in use. Ends the sessions that a password or another provider began, except those of break-glass admins.
CREATE OR REPLACE FUNCTION use_provider(wanted text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM sign_in_provider AS p WHERE p.issuer = wanted) THEN
        RETURN;
    END IF;
    INSERT INTO sign_in_provider (issuer) VALUES (wanted)
    ON CONFLICT (one) DO UPDATE SET issuer = wanted, since = clock_timestamp();
    -- Approvals of these operators no longer count: an operator may return under another account.
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

-- Lets all operators sign in with passwords again, for the schema's owner only. Returns whether a provider was in use.
CREATE OR REPLACE FUNCTION leave_provider() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF NOT is_schema_owner() THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'the schema''s owner alone ends the use of an identity provider',
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

-- The issuer of the provider in use; null: there is none.
CREATE OR REPLACE FUNCTION provider_in_use() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT p.issuer FROM sign_in_provider AS p
$$;

-- The provider in use, and how many break-glass admins can sign in without it; for the doctor check.
CREATE OR REPLACE FUNCTION ways_in(OUT issuer text, OUT marked bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT (SELECT p.issuer FROM sign_in_provider AS p),
           count(*) FILTER (WHERE o.break_glass AND o.disabled_at IS NULL AND NOT is_banned(o.id)
                              AND s.expires_at IS NULL AND s.device IS NOT NULL)
      FROM operator AS o LEFT JOIN operator_secret AS s ON s.operator_id = o.id
$$;

-- An operator name from the names that the provider sends: the first that can be given the form of one; null: none can.
CREATE OR REPLACE FUNCTION name_for(names text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT f.name
      FROM unnest(names) WITH ORDINALITY AS n(name, place)
     CROSS JOIN LATERAL (SELECT left(ltrim(regexp_replace(lower(split_part(n.name, '@', 1)), '[^a-z0-9._-]+', '-', 'g'), '._-'),
         63) AS name)
           AS f
     WHERE f.name ~ '^[a-z0-9][a-z0-9._-]{0,62}$' ORDER BY n.place LIMIT 1
$$;

-- Signs in an operator by a token of the provider that the console has verified; adds the account at the first sign-in.
--
--   wanted_role   the operator role of their groups; null: no group has one
--   proved_ago    how long ago they signed in at the provider; null: unknown, so that acts that need a fresh sign-in are refused
--   lifetime      how long the session may last before the provider is asked again
--
-- Returns `signed_in`; `other_provider`, which is not in use; `no_role`, and their sessions have ended; `name_taken`, if no account was
-- added because another has the name or none can be made; `disabled`.
CREATE OR REPLACE FUNCTION provider_sign_in(wanted_issuer text, wanted_subject text, names text[], wanted_role text, proved_ago interval,
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
       OR wanted_role IS NOT NULL AND wanted_role NOT IN (SELECT d.role FROM operator_permission AS d) THEN
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
        -- An account with the same name may be another operator's: an admin decides with `identify_operator`.
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
        PERFORM note_held_operators();
    ELSIF who.disabled_at IS NOT NULL OR is_banned(who.id) THEN
        RETURN 'disabled';
    ELSIF who.role <> wanted_role THEN
        -- The account is held until an admin confirms it, if only the new operator role may approve, override or manage.
        UPDATE operator AS o
           SET role = wanted_role, break_glass = false,
               held_until = CASE WHEN EXISTS (SELECT 1 FROM operator_permission AS d
                                               WHERE d.role = wanted_role AND d.permission IN ('approve', 'override', 'manage')
                                                 AND NOT EXISTS (SELECT 1 FROM operator_permission AS x WHERE x.role = o.role
                                                     AND x.permission = d.permission))
                                 THEN 'infinity' ELSE o.held_until END
         WHERE o.id = who.id;
        INSERT INTO operator_event (operator_id, kind, about_id, detail)
        VALUES (NULL, 'role_changed', who.id, jsonb_build_object('from', who.role, 'to', wanted_role, 'by', 'provider'));
        PERFORM note_held_operators();
    END IF;
    INSERT INTO operator_session (digest, operator_id, kind, proved_at, ends_at)
    VALUES (sha256(session), who.id, 'console', coalesce(clock_timestamp() - proved_ago, 'epoch'), clock_timestamp() + lifetime);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'signed_in', jsonb_build_object('by', 'provider'));
    RETURN 'signed_in';
END
$$;

-- Links an account to an identity at the provider, after `name_taken` or a change of provider; then it is held, as after a reset.
CREATE OR REPLACE FUNCTION identify_operator(session bytea, wanted text, wanted_subject text) RETURNS void
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
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'name: an account is identified by another admin',
            HINT = 'Ask another admin.';
    END IF;
    IF EXISTS (SELECT 1 FROM operator_identity AS i
                WHERE i.issuer = current AND i.subject = wanted_subject AND i.operator_id <> who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'subject: another account has it',
            HINT = 'See entitlement-sync operator list.';
    END IF;
    INSERT INTO operator_identity (operator_id, issuer, subject) VALUES (who.id, current, wanted_subject)
    ON CONFLICT (operator_id) DO UPDATE SET issuer = current, subject = wanted_subject, since = clock_timestamp();
    UPDATE operator AS o SET held_until = hold_of(who.role), held_by = actor.id WHERE o.id = who.id;
    PERFORM note_held_operators();
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'identified', who.id);
END
$$;
