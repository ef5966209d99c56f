-- Operators' accounts: how admins add, confirm, reset, disable and link them.

-- Whether a held account, one that is new or was reset, has to wait for this permission.
CREATE OR REPLACE FUNCTION is_weighty(permission text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT RETURN permission IN ('refuse', 'give_access', 'approve', 'transfer', 'override', 'manage');

-- Whether an operator role signs in with a second factor: every role does, because every role sees other users' data.
CREATE OR REPLACE FUNCTION needs_device(role text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT RETURN role IS NOT NULL;

-- Whether the parts of a password have the form in which they are stored; null parts pass.
CREATE OR REPLACE FUNCTION is_key(cost text, salt bytea, shown bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN coalesce(cost ~ '^scrypt\$[0-9]{1,2}\$[0-9]{1,2}\$[0-9]{1,2}$', true)
       AND coalesce(octet_length(salt) = 16, true) AND coalesce(octet_length(shown) = 32, true);

-- Locks the operator of a name for an admin's act, or raises an error if there is none.
CREATE OR REPLACE FUNCTION operator_named(wanted text) RETURNS operator
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

-- All operators, for an operator with the permission `audit`.
CREATE OR REPLACE FUNCTION operators(session bytea)
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

-- The id of the admin whose session this is; null: there is no session, and the caller owns the schema (and can write the tables anyway).
-- Lets one change of operators run at a time, so that its checks hold until the commit. Without a session it raises an error with the hint
-- `fix`, unless `schema_owner_may` is true and the caller owns the schema.
CREATE OR REPLACE FUNCTION admin_or_schema_owner(session bytea, schema_owner_may boolean, fix text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM FROM desk_secret FOR UPDATE;
    IF session IS NOT NULL THEN
        RETURN (acting(session, 'manage', interval '5 minutes')).id;
    END IF;
    IF NOT (is_schema_owner() AND coalesce(schema_owner_may, false)) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'no operator is signed in', HINT = fix;
    END IF;
    RETURN NULL;
END
$$;

-- Whether the session's database role owns the schema, or is a member of the database role that does.
CREATE OR REPLACE FUNCTION is_schema_owner() RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce((SELECT pg_has_role(session_user, n.nspowner, 'MEMBER') FROM pg_namespace AS n WHERE n.nspname = 'entitlement_sync'),
                    false)
$$;

-- Adds an operator with a password for one sign-in within 72 hours. Without a session the schema's owner may add admins, for
-- example the first one, or one after an admin lost the device. Returns the operator's id.
CREATE OR REPLACE FUNCTION add_operator(session bytea, wanted text, wanted_role text, account text, cost text, salt bytea, shown bytea)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor bigint;
    added bigint;
BEGIN
    actor := admin_or_schema_owner(session, wanted_role = 'admin',
                            'Sign in as an admin; without a session the schema''s owner can add admins alone.');
    IF NOT is_key(cost, salt, shown) OR num_nulls(cost, salt, shown) > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'add_operator: what the password shows has the wrong size',
            HINT = 'Use entitlement-sync operator add.';
    END IF;
    IF wanted_role NOT IN (SELECT d.role FROM operator_permission AS d) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'role: there is no such role',
            HINT = 'Use viewer, agent, approver, senior, auditor or admin.';
    END IF;
    IF wanted IS NULL OR NOT wanted ~ '^[a-z0-9][a-z0-9._-]{0,62}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: 1 to 63 of a to z, 0 to 9, dot, hyphen and underscore',
            HINT = 'Begin with a letter or a digit.';
    END IF;
    INSERT INTO operator (name, role, user_key, held_until, held_by)
    VALUES (wanted, wanted_role, CASE WHEN account IS NOT NULL THEN user_key_of(account) END,
            CASE WHEN actor IS NOT NULL THEN hold_of(wanted_role) END, actor)
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
    PERFORM note_held_operators();
    RETURN added;
END
$$;

-- Ends the hold of an account that an admin added or reset. Another admin confirms it, or the schema's owner without a session, because
-- some teams have a single admin.
CREATE OR REPLACE FUNCTION confirm_operator(session bytea, wanted text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor bigint;
    who   operator;
BEGIN
    actor := admin_or_schema_owner(session, true, 'Ask another admin, or connect as the schema''s owner without signing in.');
    who := operator_named(wanted);
    IF actor IN (who.id, who.held_by) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES009', MESSAGE = 'name: the admin who added or reset the account does not confirm it',
            HINT = 'Another admin does; where there is none, the schema''s owner does, signed out: entitlement-sync operator confirm NAME.';
    END IF;
    UPDATE operator AS o SET held_until = NULL WHERE o.id = who.id;
    PERFORM note_held_operators();
    INSERT INTO operator_event (operator_id, kind, about_id, detail)
    VALUES (actor, 'confirmed', who.id, jsonb_build_object('by_owner', actor IS NULL));
END
$$;

-- Gives an operator a new password for one sign-in, removes the device, and enables a disabled account; the account is held.
CREATE OR REPLACE FUNCTION reset_operator(session bytea, wanted text, cost text, salt bytea, shown bytea) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor operator;
    who   operator;
BEGIN
    PERFORM FROM desk_secret FOR UPDATE;
    actor := acting(session, 'manage', interval '5 minutes');
    who := operator_named(wanted);
    IF who.role = 'admin' AND NOT has_other_admin(who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: the last administrator stays as they are',
            HINT = 'Add another admin first, who has to have signed in.';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM operator_secret AS s WHERE s.operator_id = who.id) AND who.disabled_at IS NULL
       AND NOT is_banned(who.id) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'name: the account signs in through the identity provider',
            HINT = 'Reset it there; here, operator disable ends its sessions, and operator reset lets it in again.';
    END IF;
    IF NOT is_key(cost, salt, shown) OR num_nulls(cost, salt, shown) > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reset_operator: what the password shows has the wrong size',
            HINT = 'Use entitlement-sync operator reset.';
    END IF;
    UPDATE operator AS o
       SET disabled_at = NULL, held_until = hold_of(who.role), held_by = actor.id
     WHERE o.id = who.id;
    UPDATE operator_secret AS s
       SET cost = reset_operator.cost, salt = reset_operator.salt, verifier = sha256(shown),
           expires_at = clock_timestamp() + interval '72 hours', device = NULL, last_period = NULL
     WHERE s.operator_id = who.id;
    DELETE FROM operator_session AS s WHERE s.operator_id = who.id;
    DELETE FROM operator_ban AS b WHERE b.operator_id = who.id;
    DELETE FROM known_client AS c WHERE c.operator_id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id) VALUES (actor.id, 'reset', who.id);
    PERFORM note_held_operators();
END
$$;

-- Disables an operator from the commit on, whatever locks other transactions hold. The operator's approvals no longer count. An act that
-- they began before, in a transaction that is still open, stays.
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
    -- Keeps two admins from disabling each other, but waits 200 ms at most for another admin's transaction.
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
        PERFORM note_held_operators();
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
END
$$;

-- Whether an admin has disabled an operator; `operator.disabled_at` may follow later.
CREATE OR REPLACE FUNCTION is_banned(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_ban AS b WHERE b.operator_id = who)
$$;

-- Records which account in the app is an operator's own.
CREATE OR REPLACE FUNCTION link_operator(session bytea, wanted text, account text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor operator;
    who   operator;
BEGIN
    PERFORM FROM desk_secret FOR UPDATE;
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

-- Marks an admin for password sign-in while the provider fails, or removes the mark; without a session the schema's owner does.
CREATE OR REPLACE FUNCTION mark_break_glass(session bytea, wanted text, marked boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor bigint;
    who   operator;
BEGIN
    actor := admin_or_schema_owner(session, true, 'Sign in as an admin, or connect as the schema''s owner without signing in.');
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

-- Whether an admin other than `who` can sign in and is not held.
CREATE OR REPLACE FUNCTION has_other_admin(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator AS o LEFT JOIN operator_secret AS s ON s.operator_id = o.id
                    WHERE o.role = 'admin' AND o.disabled_at IS NULL AND NOT is_banned(o.id) AND o.id <> who
                      AND coalesce(o.held_until <= clock_timestamp(), true)
                      AND CASE WHEN EXISTS (SELECT 1 FROM sign_in_provider) AND NOT o.break_glass
                               THEN EXISTS (SELECT 1 FROM operator_identity AS i JOIN sign_in_provider AS p ON p.issuer = i.issuer
                                             WHERE i.operator_id = o.id)
                               ELSE s.expires_at IS NULL AND s.device IS NOT NULL END)
$$;

-- Until when a new or reset account is held: an account that may approve or manage until an admin confirms it, any other for a day.
CREATE OR REPLACE FUNCTION hold_of(role text) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT CASE WHEN role_may(role, 'approve') OR role_may(role, 'manage')
                THEN 'infinity' ELSE clock_timestamp() + interval '1 day' END
$$;

-- Raises an alarm while accounts wait for another admin, and clears it when none does any more.
CREATE OR REPLACE FUNCTION note_held_operators() RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT set_alarm('operator_held', (
        SELECT 'Accounts that may approve or manage wait for another admin''s word: see entitlement-sync operator list, then'
               ' operator confirm NAME, or disable them. Who added them is in operator_event.'
          FROM operator AS o WHERE o.held_until = 'infinity' AND o.disabled_at IS NULL AND NOT is_banned(o.id) LIMIT 1))
$$;

-- Sets `lost_at`: approvals that the operator gave before no longer count.
CREATE OR REPLACE FUNCTION note_lost_role() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.lost_at := clock_timestamp();
    RETURN NEW;
END
$$;

-- Keeps every account that was ever an operator's own.
CREATE OR REPLACE FUNCTION keep_operator_account() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO operator_account (operator_id, user_key) VALUES (NEW.id, NEW.user_key) ON CONFLICT DO NOTHING;
    RETURN NEW;
END
$$;
