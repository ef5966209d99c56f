-- Roles, least privilege each. They belong to the cluster: another database may have made them, and a migrator may lack
-- the right to. What is missing is reported by `doctor`, and everything works for the schema's owner without them.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['entitlement_sync_worker', 'entitlement_sync_api', 'entitlement_sync_support',
                                'entitlement_sync_auditor', 'entitlement_sync_client'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN NULL;
                WHEN insufficient_privilege THEN
                    RAISE NOTICE 'role % is missing and may not be created by this user', role;
            END;
        END IF;
    END LOOP;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA entitlement_sync FROM PUBLIC;
REVOKE ALL ON SCHEMA entitlement_sync FROM PUBLIC;

-- Grants for one role, where it exists.
CREATE FUNCTION grant_to(role text, statements text[]) RETURNS void
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    statement text;
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
        FOREACH statement IN ARRAY statements LOOP
            EXECUTE format(statement, role);
        END LOOP;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION grant_to(text, text[]) FROM PUBLIC;

SELECT grant_to('entitlement_sync_client', ARRAY[
    'GRANT USAGE ON SCHEMA entitlement_sync TO %I',
    'GRANT EXECUTE ON FUNCTION request_restore, request_reconcile TO %I',
    'GRANT EXECUTE ON FUNCTION reference_of, id_time TO %I',
    'GRANT SELECT ON job_status, ticket_status, decision_log, inbox_log TO %I',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON product, sandbox_user TO %I']);
-- Append-only: nobody may change what was decided, and what happened to a ticket.
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT USAGE ON SCHEMA entitlement_sync TO %I',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA entitlement_sync TO %I',
    'REVOKE UPDATE, DELETE ON decision, ticket_event, observation, asset_batch FROM %I',
    'REVOKE INSERT, UPDATE, DELETE ON product, sandbox_user FROM %I',
    'GRANT USAGE ON ALL SEQUENCES IN SCHEMA entitlement_sync TO %I',
    'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA entitlement_sync TO %I',
    'REVOKE EXECUTE ON FUNCTION grant_to FROM %I']);
SELECT grant_to('entitlement_sync_api', ARRAY[
    'GRANT USAGE ON SCHEMA entitlement_sync TO %I',
    'GRANT EXECUTE ON FUNCTION request_restore, request_reconcile TO %I',
    'GRANT EXECUTE ON FUNCTION reference_of, id_time TO %I',
    'GRANT SELECT ON job_status, ticket_status TO %I']);
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT USAGE ON SCHEMA entitlement_sync TO %I',
    'GRANT EXECUTE ON FUNCTION request_reconcile TO %I',
    'GRANT SELECT ON ALL TABLES IN SCHEMA entitlement_sync TO %I',
    'GRANT EXECUTE ON FUNCTION reference_of, id_time, new_id TO %I',
    'GRANT USAGE ON SEQUENCE ticket_number TO %I',
    -- Proofs can be replayed: nobody reads them by hand.
    'REVOKE SELECT ON job_request, idempotency FROM %I',
    'GRANT INSERT, UPDATE ON ticket TO %I',
    'GRANT INSERT ON ticket_event TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY[
    'GRANT USAGE ON SCHEMA entitlement_sync TO %I',
    'GRANT SELECT ON ALL TABLES IN SCHEMA entitlement_sync TO %I',
    'REVOKE SELECT ON job_request, idempotency FROM %I',
    'GRANT EXECUTE ON FUNCTION reference_of, id_time TO %I']);

-- A grant on all tables met the partitions one by one; what the parent withholds they withhold too.
DO $$
DECLARE
    part regclass;
    role text;
BEGIN
    FOR part IN SELECT i.inhrelid::regclass FROM pg_inherits AS i WHERE i.inhparent = 'job_request'::regclass LOOP
        FOREACH role IN ARRAY ARRAY['entitlement_sync_support', 'entitlement_sync_auditor'] LOOP
            IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('REVOKE ALL ON %s FROM %I', part, role);
            END IF;
        END LOOP;
    END LOOP;
END
$$;

-- Even the owner changes these rows only by first dropping this guard, which an audit sees.
CREATE FUNCTION append_only() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('%I is append-only', TG_TABLE_NAME),
        HINT = 'Write a new row that corrects the old one.';
END
$$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON decision FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ticket_event FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON decision FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON ticket_event FOR EACH STATEMENT EXECUTE FUNCTION append_only();
REVOKE ALL ON FUNCTION append_only() FROM PUBLIC;
