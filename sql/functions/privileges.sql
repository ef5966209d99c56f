-- What database roles may do: `grants.sql` lists it, `migrate` grants it, `doctor` compares. And the guard of append-only tables.

-- The privileges that existing roles lack, in the words of GRANT. Objects that no longer exist are left out.
CREATE OR REPLACE FUNCTION missing_privileges() RETURNS TABLE (role text, privilege text, target text)
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT x.role, x.privilege || CASE WHEN x.part <> '' THEN format(' (%I)', x.part) ELSE '' END, x.target
      FROM (SELECT p.role, p.privilege, p.part, format('SCHEMA %I', n.nspname) AS target,
                   has_schema_privilege(r.oid, n.oid, p.privilege) AS has
              FROM role_privilege AS p
              JOIN pg_roles AS r ON r.rolname = p.role
              JOIN pg_namespace AS n ON n.nspname = p.object
             WHERE p.kind = 'schema'
             UNION ALL
            SELECT p.role, p.privilege, p.part,
                   format('%s entitlement_sync.%I', CASE p.kind WHEN 'sequence' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname),
                   CASE WHEN p.kind = 'sequence' THEN has_sequence_privilege(r.oid, c.oid, p.privilege)
                        WHEN p.part = '' THEN has_table_privilege(r.oid, c.oid, p.privilege)
                        ELSE has_column_privilege(r.oid, c.oid, a.attnum, p.privilege) END
              FROM role_privilege AS p
              JOIN pg_roles AS r ON r.rolname = p.role
              JOIN pg_class AS c ON c.relnamespace = 'entitlement_sync'::regnamespace AND c.relname = p.object
              LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = p.part AND NOT a.attisdropped
             WHERE p.kind IN ('table', 'sequence') AND (p.part = '' OR a.attnum IS NOT NULL)
             UNION ALL
            SELECT p.role, p.privilege, p.part, format('FUNCTION %s', f.oid::regprocedure),
                   has_function_privilege(r.oid, f.oid, p.privilege)
              FROM role_privilege AS p
              JOIN pg_roles AS r ON r.rolname = p.role
              JOIN pg_proc AS f ON f.pronamespace = 'entitlement_sync'::regnamespace AND f.proname = p.object
             WHERE p.kind = 'function'
             UNION ALL
            SELECT r.rolname, 'USAGE', '', 'SCHEMA entitlement_sync_host', has_schema_privilege(r.oid, n.oid, 'USAGE')
              FROM pg_roles AS r, pg_namespace AS n
             WHERE r.rolname = 'entitlement_sync_worker' AND n.nspname = 'entitlement_sync_host'
             UNION ALL
            SELECT r.rolname, 'EXECUTE', '', format('FUNCTION %s', f.oid::regprocedure), has_function_privilege(r.oid, f.oid, 'EXECUTE')
              FROM pg_roles AS r
              JOIN pg_namespace AS n ON n.nspname = 'entitlement_sync_host'
              JOIN pg_proc AS f ON f.pronamespace = n.oid
             WHERE r.rolname = 'entitlement_sync_worker') AS x
     WHERE NOT x.has
     ORDER BY 1, 3, 2
$$;

-- Makes the missing roles, if the caller may, and grants what roles lack. Returns the roles that are still missing.
-- `stated`: what the roles may do from now on. Other recorded privileges are revoked; what a team granted itself stays. Null: the record
-- stays as it is.
CREATE OR REPLACE FUNCTION apply_privileges(stated role_privilege[] DEFAULT NULL) RETURNS text[]
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    missing text[] := '{}';
    wanted  text;
    lack    record;
    held    record;
BEGIN
    IF stated IS NOT NULL THEN
        FOR held IN DELETE FROM role_privilege AS p WHERE p <> ALL (stated) RETURNING p.* LOOP
            PERFORM revoke_privilege(held.role, held.kind, held.object, held.part, held.privilege);
        END LOOP;
        INSERT INTO role_privilege SELECT s.* FROM unnest(stated) AS s ON CONFLICT DO NOTHING;
    END IF;
    -- PostgreSQL lets PUBLIC call a new function. That is revoked first: otherwise a role would seem to have its own privilege.
    FOR held IN SELECT p.oid::regprocedure AS called FROM pg_proc AS p
                 WHERE p.pronamespace = 'entitlement_sync'::regnamespace
                   AND EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0) LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', held.called);
    END LOOP;
    FOR wanted IN SELECT DISTINCT p.role FROM role_privilege AS p
                   WHERE NOT EXISTS (SELECT 1 FROM pg_roles AS r WHERE r.rolname = p.role) ORDER BY 1 LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN missing := missing || wanted;
        END;
    END LOOP;
    FOR lack IN SELECT m.role, m.privilege, m.target FROM missing_privileges() AS m LOOP
        EXECUTE format('GRANT %s ON %s TO %I', lack.privilege, lack.target, lack.role);
    END LOOP;
    RETURN missing;
END
$$;

-- Revokes a privilege, if the role and the object still exist.
CREATE OR REPLACE FUNCTION revoke_privilege(role text, kind text, object text, part text, privilege text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    target text;
BEGIN
    FOR target IN
        SELECT format('SCHEMA %I', n.nspname) FROM pg_namespace AS n WHERE kind = 'schema' AND n.nspname = object
         UNION ALL
        SELECT format('FUNCTION %s', f.oid::regprocedure) FROM pg_proc AS f
         WHERE kind = 'function' AND f.pronamespace = 'entitlement_sync'::regnamespace AND f.proname = object
         UNION ALL
        SELECT format('%s entitlement_sync.%I', upper(kind), c.relname) FROM pg_class AS c
         WHERE kind IN ('table', 'sequence') AND c.relnamespace = 'entitlement_sync'::regnamespace AND c.relname = object
           AND (part = '' OR EXISTS (SELECT 1 FROM pg_attribute AS a
                                      WHERE a.attrelid = c.oid AND a.attname = part AND NOT a.attisdropped)) LOOP
        IF EXISTS (SELECT 1 FROM pg_roles AS r WHERE r.rolname = role) THEN
            EXECUTE format('REVOKE %s ON %s FROM %I', privilege || CASE WHEN part <> '' THEN format(' (%I)', part) ELSE '' END, target,
                role);
        END IF;
    END LOOP;
END
$$;

-- Refuses each change of a row. Even the table's owner has to drop the trigger first, which an audit sees.
CREATE OR REPLACE FUNCTION append_only() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('%I is append-only', TG_TABLE_NAME),
        HINT = 'Write a new row that corrects the old one.';
END
$$;
