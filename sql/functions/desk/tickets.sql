-- Tickets: their states and notes, and how one is opened, assigned and unassigned.

-- Not STRICT, so that PostgreSQL writes the expression itself into a query, and finds the indexes of open tickets.
CREATE OR REPLACE FUNCTION is_open(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');

-- Moves a ticket to the state that `ticket_move` gives for an event, with all that follows from it: its assignment, its clock, the request
-- for evidence, the owner window, and the messages to claimant and owner. `decided`: the verdict with which operators close it. Returns
-- the new state; null: the event does not apply.
CREATE OR REPLACE FUNCTION move_ticket(which bigint, what text, decided text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    t      ticket;
    before text;
BEGIN
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which FOR NO KEY UPDATE;
    before := t.state;
    SELECT m.next INTO t.state FROM ticket_move AS m WHERE m.state = before AND m.event = what;
    IF t.state IS NULL OR t.state = before THEN
        RETURN t.state;
    END IF;
    -- The desk's clock stands still while claimant or owner have to act, and starts again when a ticket is reopened.
    IF before IN ('waiting_claimant', 'waiting_owner') THEN
        t.waited := t.waited + (clock_timestamp() - t.state_since);
    ELSIF NOT is_open(before) THEN
        t.clock_from := clock_timestamp();
        t.waited := '0';
        t.assigned_at := NULL;
    END IF;
    t.state_since := clock_timestamp();
    t.closed_at := CASE WHEN NOT is_open(t.state) THEN clock_timestamp() END;
    IF t.state = 'new' THEN
        t.verdict := NULL;
        t.decided_at := NULL;
    ELSIF decided IS NOT NULL THEN
        t.verdict := decided;
        t.decided_at := clock_timestamp();
    END IF;
    t.due_at := due_of(t);
    UPDATE ticket AS x
       SET state = t.state, state_since = t.state_since, closed_at = t.closed_at, clock_from = t.clock_from, waited = t.waited,
           due_at = t.due_at, verdict = t.verdict, decided_at = t.decided_at, assigned_at = t.assigned_at,
           assignee_id = CASE t.state WHEN 'claimed' THEN x.assignee_id END,
           assigned_until = CASE t.state WHEN 'claimed' THEN x.assigned_until END
     WHERE x.id = which;
    -- A closed ticket needs no evidence; a running transfer collects its own.
    IF NOT is_open(t.state) OR t.state = 'executing' THEN
        UPDATE evidence_request AS r SET due_at = NULL WHERE r.ticket_id = which;
    END IF;
    -- The owner's answer to a transfer that was stopped says nothing of the next one; operators who refuse ask the owner nothing.
    IF what IN ('stopped', 'refuse') THEN
        PERFORM end_owner_question(which);
    END IF;
    PERFORM settle_window(which);
    IF NOT is_open(t.state) THEN
        PERFORM notify_claimant(t);
        PERFORM notify_owner(t);
    END IF;
    RETURN t.state;
END
$$;

-- Allows only changes of state that `ticket_move` lists, by hand too. `move_ticket` alone does what follows from a change.
CREATE OR REPLACE FUNCTION guard_ticket_state() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NOT EXISTS (SELECT 1 FROM ticket_move AS m WHERE m.state = OLD.state AND m.next = NEW.state) THEN
        RAISE EXCEPTION USING ERRCODE = '23514',
            MESSAGE = format('ticket %s: nothing leads from %s to %s', NEW.id,
                             CASE WHEN TG_OP = 'INSERT' THEN 'nothing' ELSE OLD.state END, NEW.state),
            HINT = 'See the table entitlement_sync.ticket_move.';
    END IF;
    RETURN NEW;
END
$$;

-- Locks a ticket's row for an operator's act. `refusal`: null; `own_case`; `held`, assigned to another operator; or `not_claimed`.
CREATE OR REPLACE FUNCTION ticket_for(who operator, which bigint, act text, needs_hold boolean, OUT t ticket, OUT refusal text)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which FOR NO KEY UPDATE;
    IF t.id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('ticket: there is no ticket %s', which),
            HINT = 'See entitlement-sync tickets.';
    END IF;
    IF is_own_case(who.id, t) THEN
        refusal := refuse_act(who, which, act, 'own_case');
    ELSIF t.assignee_id <> who.id AND t.assigned_until > clock_timestamp() THEN
        refusal := refuse_act(who, which, act, 'held');
    ELSIF needs_hold AND (t.state = 'claimed' AND t.assignee_id IS DISTINCT FROM who.id OR t.state = 'new') THEN
        refusal := refuse_act(who, which, act, 'not_claimed');
    END IF;
END
$$;

-- The newest ticket with a reference that is not the operator's own case; null: there is none.
CREATE OR REPLACE FUNCTION ticket_named(session bytea, spoken text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN (SELECT max(t.id) FROM ticket AS t
             WHERE reference_of('T', t.uid) = upper(spoken) AND NOT is_own_case(who.id, t));
END
$$;

CREATE OR REPLACE FUNCTION note_event(who operator, which bigint, what text, about jsonb DEFAULT '{}') RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO ticket_event (ticket_id, kind, operator_id, detail) VALUES (which, what, who.id, about)
$$;

CREATE OR REPLACE FUNCTION note_ticket(session bytea, which bigint, words text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'work');
    t   ticket;
BEGIN
    PERFORM check_words('note', words, 'Write a shorter one, or several.');
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
    IF t.id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('ticket: there is no ticket %s', which),
            HINT = 'See entitlement-sync tickets.';
    END IF;
    -- An operator may add a note to a ticket that is assigned to another operator.
    IF is_own_case(who.id, t) THEN
        RETURN refuse_act(who, which, 'note', 'own_case');
    END IF;
    PERFORM lock_participants(which);
    PERFORM add_note(who, which, words);
    RETURN NULL;
END
$$;

-- Raises an error if an operator's text is blank or longer than 4000 characters.
CREATE OR REPLACE FUNCTION check_words(field text, words text, fix text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF words IS NULL OR length(words) > 4000 OR btrim(words, E' \t\r\n') = '' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s: has to have 1 to 4000 characters, and not only spaces', field),
            HINT = fix;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION add_note(who operator, which bigint, words text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    WITH added AS (
        INSERT INTO ticket_note (ticket_id, operator_id, words) VALUES (which, who.id, words) RETURNING id
    )
    INSERT INTO ticket_event (ticket_id, kind, operator_id, detail)
    SELECT which, 'note', who.id, jsonb_build_object('note', a.id) FROM added AS a
$$;

-- Locks the rows of claimant and owner until the commit: an erasure that has begun ends first, and a later one waits.
CREATE OR REPLACE FUNCTION lock_participants(which bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM FROM user_sync AS u
      WHERE u.user_key IN (SELECT unnest(ARRAY[t.claimant_key, t.owner_key]) FROM ticket AS t WHERE t.id = which)
      ORDER BY u.user_key FOR KEY SHARE;
END
$$;

-- Records an act that is refused to an operator, and returns the reason: an error would roll the record back.
CREATE OR REPLACE FUNCTION refuse_act(who operator, which bigint, act text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'refused', jsonb_build_object('ticket', which, 'act', act, 'reason', why));
    IF why = 'own_case' THEN
        PERFORM set_alarm('operator_own_case',
                          'An operator tried to act on a ticket about their own account: see operator_event, kind refused.');
    END IF;
    RETURN why;
END
$$;

-- Opens a ticket for a claimant who wrote to support, or counts a touch of their open one. `order_id` is a reported id. Returns the
-- ticket's id; null: it is the operator's own case, or the claimant owns the purchase.
CREATE OR REPLACE FUNCTION open_ticket(session bytea, claimant text, order_id text, words text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who   operator := acting(session, 'open');
    key   bigint;
    item  purchase;
    known bigint[];
    t     ticket;
BEGIN
    PERFORM check_words('reason', words, 'Say in a sentence what the claimant wrote.');
    IF order_id IS NOT NULL AND NOT order_id ~ '^[!-~]{1,255}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'order_id: 1 to 255 visible ASCII characters',
            HINT = 'Copy it as the store''s mail shows it.';
    END IF;
    key := user_key_of(claimant);
    PERFORM FROM user_sync AS u WHERE u.user_key = key FOR KEY SHARE;
    known := ARRAY(SELECT DISTINCT surviving_purchase(i.purchase_id) FROM purchase_identifier AS i WHERE i.value = order_id LIMIT 2);
    IF cardinality(known) = 1 THEN
        SELECT p.* INTO item FROM purchase AS p WHERE p.id = known[1];
    END IF;
    IF item.owner_key = key
       OR EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who.id AND a.user_key IN (key, item.owner_key)) THEN
        PERFORM refuse_act(who, NULL, 'open', CASE WHEN item.owner_key = key THEN 'owns_it' ELSE 'own_case' END);
        RETURN NULL;
    END IF;
    INSERT INTO ticket AS x (claimant_key, owner_key, purchase_id, kind, store, original_id, visible)
    VALUES (key, item.owner_key, item.id, CASE WHEN item.owner_key IS NULL THEN 'paid_no_access' ELSE 'owner_mismatch' END,
            coalesce(item.store, CASE WHEN order_id ~ '^GPA\.' THEN 'google_play' WHEN order_id ~ '^[0-9]{10,20}$' THEN 'app_store' END),
            order_id, true)
    ON CONFLICT (claimant_key, coalesce(purchase_id, 0))
          WHERE is_open(state)
    DO UPDATE SET touches = x.touches + 1, original_id = coalesce(x.original_id, excluded.original_id),
                  store = coalesce(x.store, excluded.store), visible = true
    RETURNING x.* INTO t;
    UPDATE ticket AS x SET due_at = due_of(x) WHERE x.id = t.id;
    IF t.touches = 0 THEN
        PERFORM request_evidence(t.id);
    END IF;
    PERFORM note_event(who, t.id, CASE t.touches WHEN 0 THEN 'opened' ELSE 'touched' END);
    PERFORM add_note(who, t.id, words);
    RETURN t.id;
END
$$;

-- Assigns a ticket to an operator for 30 minutes. Evidence that is missing or older than an hour is collected again.
CREATE OR REPLACE FUNCTION assign_ticket(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who     operator := acting(session, 'work');
    t       ticket;
    got     record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'claim', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.state <> 'claimed' AND move_ticket(which, 'claim') IS NULL THEN
        RETURN refuse_act(who, which, 'claim', 'state');
    END IF;
    UPDATE ticket AS x
       SET assignee_id = who.id, assigned_until = clock_timestamp() + interval '30 minutes',
           assigned_at = coalesce(x.assigned_at, clock_timestamp())
     WHERE x.id = which;
    UPDATE ticket AS x SET due_at = due_of(x) WHERE x.id = which;
    IF NOT EXISTS (SELECT 1 FROM ticket_evidence AS e
                    WHERE e.id = t.evidence_id AND e.collected_at > clock_timestamp() - interval '1 hour'
                      AND NOT 'purchase_unknown' = ANY (e.facts)) THEN
        PERFORM request_evidence(which);
    END IF;
    IF t.state <> 'claimed' OR t.assignee_id IS DISTINCT FROM who.id THEN
        PERFORM note_event(who, which, 'claimed');
    END IF;
    RETURN NULL;
END
$$;

-- Unassigns an operator's ticket.
CREATE OR REPLACE FUNCTION unassign_ticket(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who     operator := acting(session, 'work');
    t       ticket;
    got     record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'release', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF move_ticket(which, 'release') IS NULL THEN
        RETURN refuse_act(who, which, 'release', 'state');
    END IF;
    PERFORM note_event(who, which, 'released');
    RETURN NULL;
END
$$;

-- Notifies open console pages that something has changed; each page then asks with its own session what it is.
CREATE OR REPLACE FUNCTION notify_desk() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM pg_notify('entitlement_sync_desk', '');
    RETURN NULL;
END
$$;

-- A number of the desk's settings. A setting that the team deleted has its default again; null: it has none.
CREATE OR REPLACE FUNCTION desk_number(wanted text) RETURNS bigint
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce((SELECT s.value FROM desk_setting AS s WHERE s.name = wanted),
                    CASE wanted WHEN 'answer_days' THEN 7 WHEN 'replies_per_day' THEN 10 WHEN 'consents_per_day' THEN 5
                                WHEN 'consent_days' THEN 30 END)
$$;
