-- compatible_from: 11
-- Access that the desk gives for longer than three days takes two people, as a transfer does; an account that approves counts
-- only once another admin has confirmed it; and roles hold no right that they don't need.

-- ---- Access until the paid period ends ------------------------------------------------------------------------------

CREATE TABLE grant_approval (
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    operator_id bigint      NOT NULL REFERENCES operator,
    hash        bytea       NOT NULL,
    purchase_id bigint      NOT NULL,
    until       timestamptz NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (ticket_id, operator_id)
);
COMMENT ON TABLE grant_approval IS 'who agrees to access until a paid period ends: on which evidence, for which purchase, until when';

-- Until when people agree to give the claimant access, and who: as many as to a transfer, two at least, and one of them neither
-- opened the ticket nor was the first to take it; null: not enough. The caller holds the ticket's row.
CREATE FUNCTION agreed_grant(t ticket, e ticket_evidence, item bigint, OUT until timestamptz, OUT people text)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    first_hands bigint[] := ARRAY(
        SELECT (SELECT v.operator_id FROM ticket_event AS v
                 WHERE v.ticket_id = t.id AND v.kind = k.kind AND v.operator_id IS NOT NULL ORDER BY v.id LIMIT 1)
          FROM unnest('{opened,claimed}'::text[]) AS k(kind));
BEGIN
    -- Locked, so that no role is lost between the question and the commit.
    PERFORM FROM operator AS o WHERE o.id IN (SELECT a.operator_id FROM grant_approval AS a WHERE a.ticket_id = t.id)
      ORDER BY o.id FOR SHARE;
    SELECT min(a.until), 'operators ' || string_agg(o.name, ', ' ORDER BY o.name) INTO agreed_grant.until, people
      FROM grant_approval AS a JOIN operator AS o ON o.id = a.operator_id
     WHERE a.ticket_id = t.id AND a.hash = e.hash AND living(a.purchase_id) = item AND a.at > clock_timestamp() - e.holds
       AND a.at > coalesce(o.lost_at, '-infinity') AND o.disabled_at IS NULL
       AND coalesce(o.held_until <= clock_timestamp(), true) AND NOT is_own_case(o.id, t)
       AND EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'approve' AND d.role = o.role)
    HAVING count(*) >= greatest(e.approvals, 2) AND bool_or(a.operator_id = ANY (first_hands) IS NOT TRUE);
END
$$;
REVOKE ALL ON FUNCTION agreed_grant FROM PUBLIC;

-- Ends a case without a transfer.
--
--   how    refuse, guide_to_login, store_refund, or grant_until_end: access until the paid period ends
--   shown  grant_until_end: the hash of the evidence that was looked at
DROP FUNCTION refuse_ticket(bytea, bigint, text, text);
CREATE FUNCTION refuse_ticket(session bytea, which bigint, how text, words text, shown bytea DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who     operator := acting(session, 'refuse');
    t       ticket;
    e       ticket_evidence;
    got     record;
    item    bigint;
    ends    timestamptz;
    agreed  record;
BEGIN
    IF how IS NULL OR how NOT IN ('refuse', 'guide_to_login', 'store_refund', 'grant_until_end') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'how: refuse, guide_to_login, store_refund or grant_until_end',
            HINT = 'Choose one of the four.';
    END IF;
    IF length(words) > 4000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'note: has to have at most 4000 characters',
            HINT = 'Write a shorter one.';
    END IF;
    PERFORM keep_people(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'refuse', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    -- What approvers have agreed to, approvers refuse.
    IF t.state IN ('needs_second', 'waiting_owner', 'approved')
       AND NOT EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'approve' AND d.role = who.role) THEN
        RETURN refuse_act(who, which, 'refuse', 'approved');
    END IF;
    -- Access for weeks is given by approvers, as a transfer is; the purchase stays where it is.
    IF how = 'grant_until_end' THEN
        PERFORM acting(session, 'approve', interval '10 minutes');
        IF NOT is_open(t.state) OR t.state = 'executing' THEN
            RETURN refuse_act(who, which, 'refuse', 'state');
        END IF;
        SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
        item := living(coalesce(t.purchase_id, t.subject_id));
        SELECT least(p.period_ends_at, clock_timestamp() + interval '400 days') INTO ends
          FROM purchase AS p
         -- The one that the evidence is about: another may have been named since.
         WHERE p.id = item AND living((e.document ->> 'purchase')::bigint) = item AND p.gives_access AND p.period_ends_at > clock_timestamp()
           AND e.collected_at > clock_timestamp() - e.holds AND NOT e.facts && '{claimant_ineligible,sandbox,lapsed,refunded,unseen}';
        IF ends IS NULL THEN
            RETURN refuse_act(who, which, 'refuse', 'no_period');
        END IF;
        IF e.hash IS DISTINCT FROM shown THEN
            RETURN refuse_act(who, which, 'refuse', 'evidence_changed');
        END IF;
        INSERT INTO grant_approval AS a (ticket_id, operator_id, hash, purchase_id, until) VALUES (which, who.id, e.hash, item, ends)
        ON CONFLICT (ticket_id, operator_id) DO UPDATE
           SET hash = EXCLUDED.hash, purchase_id = EXCLUDED.purchase_id, until = EXCLUDED.until, at = EXCLUDED.at;
        PERFORM note_event(who, which, 'grant_agreed', jsonb_build_object('evidence', e.id));
        SELECT g.* INTO agreed FROM agreed_grant(t, e, item) AS g;
        IF agreed.until IS NULL THEN
            RETURN 'second_needed';
        END IF;
    END IF;
    IF move_ticket(which, 'refuse') IS NULL THEN
        RETURN refuse_act(who, which, 'refuse', 'state');
    END IF;
    UPDATE ticket AS x
       SET verdict = how, decided_at = clock_timestamp(), owner_asked_at = NULL, owner_until = NULL
     WHERE x.id = which;
    PERFORM end_approvals(which, 'decided');
    -- A case that opens again begins without them.
    DELETE FROM grant_approval AS a WHERE a.ticket_id = which;
    PERFORM note_event(who, which, 'refused', jsonb_build_object('verdict', how));
    IF how = 'grant_until_end' THEN
        INSERT INTO "grant" (user_key, until, reason, granted_by)
        VALUES (t.claimant_key, agreed.until, format('decided in ticket %s', reference_of('T', t.uid)), agreed.people);
        PERFORM reread(ARRAY[t.claimant_key]);
    END IF;
    IF words <> '' THEN
        PERFORM add_note(who, which, words);
    END IF;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION refuse_ticket FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT EXECUTE ON FUNCTION refuse_ticket TO %I']);

-- Takes back what an operator has agreed to: a transfer, or access until the paid period ends.
CREATE OR REPLACE FUNCTION withdraw_approval(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'approve');
    got record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'withdraw', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    DELETE FROM grant_approval AS a WHERE a.ticket_id = which AND a.operator_id = who.id;
    IF FOUND THEN
        PERFORM note_event(who, which, 'approval_withdrawn');
        RETURN NULL;
    END IF;
    IF (got.t).state NOT IN ('needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'withdraw', 'state');
    END IF;
    UPDATE ticket_approval AS a SET ended_at = clock_timestamp(), ended_by = 'withdrawn'
     WHERE a.ticket_id = which AND a.operator_id = who.id AND a.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN refuse_act(who, which, 'withdraw', 'not_approved');
    END IF;
    PERFORM note_event(who, which, 'approval_withdrawn');
    PERFORM void_approvals(which, 'withdrawn');
    RETURN NULL;
END
$$;

-- ---- Accounts that approve, and those that manage them --------------------------------------------------------------

-- Until when an account that was just added or reset decides nothing: one that may make or be a second pair of eyes waits for
-- another admin's word, however long.
CREATE FUNCTION hold_of(role text) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT CASE WHEN EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.role = hold_of.role AND d.duty IN ('approve', 'manage'))
                THEN 'infinity' ELSE clock_timestamp() + interval '1 day' END
$$;

-- Sets the hold of an account that is added or reset, and raises the alarm while accounts wait for a confirmation.
CREATE FUNCTION hold_operator() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF TG_WHEN = 'BEFORE' THEN
        IF NEW.held_by IS NOT NULL AND NEW.held_until IS NOT NULL THEN
            NEW.held_until := hold_of(NEW.role);
        END IF;
        RETURN NEW;
    END IF;
    IF EXISTS (SELECT 1 FROM operator AS o WHERE o.held_until = 'infinity' AND o.disabled_at IS NULL) THEN
        INSERT INTO alarm (name, detail)
        VALUES ('operator_held',
                'Accounts that may approve or manage wait for another admin''s word: see entitlement-sync operator list, then'
                ' operator confirm NAME, or disable them. Who added them is in operator_event.')
        ON CONFLICT (name) DO UPDATE SET last_at = now(), count = alarm.count + 1;
    ELSE
        DELETE FROM alarm AS a WHERE a.name = 'operator_held';
    END IF;
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION hold_of, hold_operator FROM PUBLIC;
CREATE TRIGGER hold_new_operator BEFORE INSERT ON operator FOR EACH ROW EXECUTE FUNCTION hold_operator();
CREATE TRIGGER hold_reset_operator BEFORE UPDATE OF held_by ON operator FOR EACH ROW EXECUTE FUNCTION hold_operator();
CREATE TRIGGER tell_held_operator AFTER INSERT OR UPDATE OF held_until, disabled_at ON operator
    FOR EACH ROW EXECUTE FUNCTION hold_operator();
-- Accounts without a confirmation wait for one as well, however long ago they were added: a confirmation sets held_until to null.
UPDATE operator AS o SET held_until = hold_of(o.role)
 WHERE o.held_until > clock_timestamp() OR o.held_by IS NOT NULL AND o.held_until IS NOT NULL AND hold_of(o.role) = 'infinity';

-- Whether an administrator is left who can sign in and decide, beside one.
CREATE OR REPLACE FUNCTION has_other_admin(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator AS o JOIN operator_secret AS s ON s.operator_id = o.id
                    WHERE o.role = 'admin' AND o.disabled_at IS NULL AND o.id <> who
                      AND coalesce(o.held_until <= clock_timestamp(), true)
                      AND s.expires_at IS NULL AND s.device IS NOT NULL)
$$;

-- A second admin stands in for an account that another one made or reset. Without a session the schema's owner does, who can
-- write the tables anyway: where there is only one admin, no other admin could confirm.
CREATE OR REPLACE FUNCTION confirm_operator(session bytea, wanted text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    actor bigint;
    who   operator;
BEGIN
    PERFORM pg_advisory_xact_lock(7309940714432067);
    IF session IS NOT NULL THEN
        actor := (acting(session, 'manage', interval '5 minutes')).id;
    ELSIF NOT coalesce(pg_has_role(session_user, (SELECT n.nspowner FROM pg_namespace AS n
                                                   WHERE n.nspname = 'entitlement_sync'), 'MEMBER'), false) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'nobody is signed in',
            HINT = 'Another admin who is signed in confirms an account, or the schema''s owner.';
    END IF;
    who := operator_named(wanted);
    IF actor IN (who.id, who.held_by) THEN
        RAISE EXCEPTION USING ERRCODE = 'ES006', MESSAGE = 'name: whoever added or reset the account does not confirm it',
            HINT = 'Another admin does; where there is none, the schema''s owner does, signed out: entitlement-sync operator confirm NAME.';
    END IF;
    UPDATE operator AS o SET held_until = NULL WHERE o.id = who.id;
    INSERT INTO operator_event (operator_id, kind, about_id, detail)
    VALUES (actor, 'confirmed', who.id, jsonb_build_object('by_owner', actor IS NULL));
END
$$;

-- Whose session this is, as before; the error for a held account says what it waits for.
CREATE OR REPLACE FUNCTION acting(session bytea, wanted text, fresh interval DEFAULT NULL) RETURNS operator
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
            MESSAGE = CASE WHEN who.held_until = 'infinity'
                           THEN 'the account was added or reset, and no second admin has confirmed it'
                           ELSE 'the account was added or reset less than a day ago, and no second admin has confirmed it' END,
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

-- ---- Rights ---------------------------------------------------------------------------------------------------------

-- The API, which faces the Internet, reads no jobs and cases beside its functions; support reads purchases' names in its functions
-- alone, with a trace; a worker changes no migration, and writes nothing in an operator's name.
DELETE FROM role_privilege AS p
 WHERE p.role = 'entitlement_sync_api'
       AND (p.kind = 'table' AND p.object IN ('job_status', 'ticket_status')
            OR p.kind = 'function' AND p.object IN ('request_restore', 'request_reconcile'))
    OR p.role = 'entitlement_sync_support' AND p.object = 'purchase_identifier_log'
    OR p.role = 'entitlement_sync_worker'
       AND (p.object = 'schema_migration' AND p.privilege <> 'SELECT' OR p.object = 'ticket_event' AND p.privilege = 'INSERT');
INSERT INTO role_privilege (role, kind, object, part, privilege)
SELECT 'entitlement_sync_worker', 'table', 'ticket_event', c.name, 'INSERT' FROM unnest('{ticket_id,kind,job_id}'::text[]) AS c(name);
SELECT grant_to('entitlement_sync_api', ARRAY[
    'REVOKE SELECT ON job_status, ticket_status FROM %I',
    'REVOKE EXECUTE ON FUNCTION request_restore, request_reconcile FROM %I']);
SELECT grant_to('entitlement_sync_support', ARRAY['REVOKE SELECT ON purchase_identifier_log FROM %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'REVOKE INSERT, UPDATE, DELETE ON schema_migration FROM %I', 'REVOKE INSERT ON ticket_event FROM %I',
    'GRANT INSERT (ticket_id, kind, job_id) ON ticket_event TO %I']);

-- ---- Viewers --------------------------------------------------------------------------------------------------------

-- Whether a role signs in with a second factor: all do, for all see what is not theirs.
CREATE OR REPLACE FUNCTION needs_device(role text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT RETURN role IS NOT NULL;
-- An operator who signed in without one has to sign in again.
DELETE FROM operator_session AS s USING operator_secret AS k WHERE k.operator_id = s.operator_id AND k.device IS NULL;

-- Whether an operator reads what claimants, owners and colleagues wrote: those who work on cases or audit them.
CREATE FUNCTION may_read_words(who operator) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty IN ('work', 'audit') AND d.role = who.role)
$$;
REVOKE ALL ON FUNCTION may_read_words FROM PUBLIC;

-- What claimant and owner said to a ticket, for operators who work on cases or audit them.
CREATE OR REPLACE FUNCTION ticket_replies(session bytea, which bigint)
RETURNS TABLE (at timestamptz, side text, decision text, words text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT r.at, r.side, r.decision, r.words
      FROM ticket AS t JOIN ticket_reply AS r ON r.ticket_id = t.id
     WHERE t.id = which AND NOT is_own_case(who.id, t) AND may_read_words(who)
     ORDER BY r.id DESC LIMIT 200;
END
$$;

-- What the desk sees of a ticket, as before; remarks are for those who may read them.
CREATE OR REPLACE FUNCTION show_ticket(session bytea, which bigint, reveal boolean DEFAULT false)
RETURNS TABLE (id bigint, reference text, kind text, state text, state_since timestamptz, store text, original_id text,
               visible boolean, priority smallint, touches integer, created_at timestamptz, deadline timestamptz,
               claimant text, owner text, holder text, holder_until timestamptz, owner_until timestamptz, verdict text,
               evidence_at timestamptz, evidence_hash bytea, evidence_due timestamptz, evidence_error text, facts text[],
               hindrance text, suggested text, reason text, approvals_needed smallint, also_moves text[], document text,
               approved_by text[], transfer_step text, transfer_error text, events jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
#variable_conflict use_column
DECLARE
    who    operator := acting(session, CASE WHEN reveal THEN 'reveal' ELSE 'view' END);
    shown  boolean := reveal AND may_see(who.id, which);
BEGIN
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), t.kind, t.state, t.state_since, t.store, t.original_id, t.visible, t.priority,
           t.touches, t.created_at, t.deadline, masked(c.user_id, shown), masked(o.user_id, shown), h.name,
           CASE WHEN t.holder_until > clock_timestamp() THEN t.holder_until END, t.owner_until, t.verdict,
           e.collected_at, e.hash, t.evidence_due, t.evidence_error, e.facts, e.hindrance, e.suggested, e.reason,
           e.approvals, e.also_moves, e.document::text,
           ARRAY(SELECT p.name FROM ticket_approval AS a JOIN operator AS p ON p.id = a.operator_id
                  WHERE a.ticket_id = t.id AND (a.ended_at IS NULL OR a.ended_by = 'used') ORDER BY a.id),
           x.step, x.last_error,
           (SELECT coalesce(jsonb_agg(jsonb_build_object('at', v.at, 'kind', v.kind, 'by', p.name, 'detail', v.detail,
                                                         'text', n.words) ORDER BY v.id), '[]')
              FROM (SELECT * FROM ticket_event AS y WHERE y.ticket_id = t.id ORDER BY y.id DESC LIMIT 200) AS v
              LEFT JOIN operator AS p ON p.id = v.operator_id
              LEFT JOIN ticket_note AS n ON v.kind = 'note' AND n.ticket_id = t.id AND may_read_words(who)
                AND n.id = CASE WHEN v.detail ->> 'note' ~ '^[0-9]{1,18}$' THEN (v.detail ->> 'note')::bigint END)
      FROM ticket AS t
      JOIN user_sync AS c ON c.user_key = t.claimant_key
      LEFT JOIN user_sync AS o ON o.user_key = t.owner_key
      LEFT JOIN operator AS h ON h.id = t.holder_id AND t.holder_until > clock_timestamp()
      LEFT JOIN ticket_evidence AS e ON e.id = t.evidence_id
      LEFT JOIN LATERAL (SELECT y.step, y.last_error FROM transfer AS y WHERE y.ticket_id = t.id ORDER BY y.id DESC LIMIT 1)
                AS x ON true
     WHERE t.id = which AND NOT is_own_case(who.id, t);
END
$$;
