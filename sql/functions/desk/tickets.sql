-- Tickets: their states and notes, which operator may act on one, and how one is opened, assigned, unassigned and refused.

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
    t.verdict := coalesce(decided, t.verdict);
    t.decided_at := CASE WHEN decided IS NULL THEN t.decided_at ELSE clock_timestamp() END;
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

-- The tickets, open or closed, that an operator may not see because they concern an account that is, or was, their own.
CREATE OR REPLACE FUNCTION own_cases(who bigint) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    WITH RECURSIVE mine AS MATERIALIZED (
        SELECT a.user_key FROM operator_account AS a WHERE a.operator_id = who
    ), item AS (
        SELECT p.id FROM mine AS m JOIN purchase AS p ON p.owner_key = m.user_key
         UNION
        SELECT p.id FROM item AS i JOIN purchase AS p ON p.merged_into = i.id
    )
    SELECT coalesce(array_agg(DISTINCT t.id), '{}')
      FROM (SELECT x.id FROM mine AS m JOIN ticket AS x ON x.claimant_key = m.user_key
            UNION SELECT x.id FROM mine AS m JOIN ticket AS x ON x.owner_key = m.user_key
            UNION SELECT x.id FROM item AS i JOIN ticket AS x ON x.purchase_id = i.id
            UNION SELECT x.id FROM item AS i JOIN ticket AS x ON x.subject_id = i.id) AS c
      JOIN ticket AS t ON t.id = c.id
     WHERE is_own_case(who, t)
$$;

-- Whether a user is, or was, an operator's own account, or the other side of their own case or transfer: they may not see that user.
CREATE OR REPLACE FUNCTION is_own_account(who bigint, which bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT has_account(who)
       AND (EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who AND a.user_key = which)
            OR EXISTS (SELECT 1 FROM ticket AS t WHERE t.claimant_key = which AND is_own_case(who, t))
            OR EXISTS (SELECT 1 FROM ticket AS t WHERE t.owner_key = which AND is_own_case(who, t))
            OR EXISTS (SELECT 1 FROM operator_account AS a JOIN transfer AS x ON x.from_key = a.user_key
                        WHERE a.operator_id = who AND x.to_key = which)
            OR EXISTS (SELECT 1 FROM operator_account AS a JOIN transfer AS x ON x.to_key = a.user_key
                        WHERE a.operator_id = who AND x.from_key = which))
$$;

-- Whether the claimant, the owner or the purchase's owner in a ticket is, or was, an operator's own account.
CREATE OR REPLACE FUNCTION is_own_case(who bigint, t ticket) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_account AS a
                    WHERE a.operator_id = who
                      AND a.user_key IN (t.claimant_key, t.owner_key,
                                         (SELECT p.owner_key FROM purchase AS p
                                             WHERE p.id = surviving_purchase(coalesce(t.purchase_id, t.subject_id)))))
$$;

-- Whether an operator has, or had, an account in the app.
CREATE OR REPLACE FUNCTION has_account(who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who)
$$;

-- Whether an operator asked within the last minute, in an earlier transaction, to see a ticket's ids unmasked.
CREATE OR REPLACE FUNCTION may_see(who bigint, which bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM ticket_reveal AS r
                    WHERE r.operator_id = who AND r.ticket_id IS NOT DISTINCT FROM which
                      AND r.at > clock_timestamp() - interval '1 minute' AND r.xact <> pg_current_xact_id())
$$;

-- Whether an operator has the permission `work` or `audit`, to read the notes of operators and the replies of claimants and owners.
CREATE OR REPLACE FUNCTION may_read_messages(who operator) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT role_may(who.role, 'work') OR role_may(who.role, 'audit')
$$;

-- Masks an id, unless `reveal` is true: its first and last two characters stay; of an id under eight characters, the last.
CREATE OR REPLACE FUNCTION masked(id text, reveal boolean) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN id IS NULL THEN NULL WHEN reveal THEN id
            WHEN length(id) < 8 THEN '…' || right(id, 1)
            ELSE left(id, 2) || '…' || right(id, 2) END;

-- The surviving purchase that a merged purchase became; a purchase that was not merged itself.
CREATE OR REPLACE FUNCTION surviving_purchase(which bigint) RETURNS bigint
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    WITH RECURSIVE r AS (
        SELECT p.id, p.merged_into FROM purchase AS p WHERE p.id = which
         UNION ALL
        SELECT p.id, p.merged_into FROM r JOIN purchase AS p ON p.id = r.merged_into
    )
    SELECT r.id FROM r WHERE r.merged_into IS NULL
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
    IF words IS NULL OR length(words) NOT BETWEEN 1 AND 4000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'note: has to have 1 to 4000 characters',
            HINT = 'Write a shorter one, or several.';
    END IF;
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
    IF words IS NULL OR length(words) NOT BETWEEN 1 AND 4000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reason: has to have 1 to 4000 characters',
            HINT = 'Say in a sentence what the claimant wrote.';
    END IF;
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

-- Closes a ticket without a transfer. Returns null, or the reason for refusal; `second_needed`: the access needs further approvals.
--
--   how    `refuse`, `guide_to_login`, `store_refund`, or `grant_until_end`: access until the paid period ends
--   shown  for `grant_until_end`: the hash of the evidence that the operator read
CREATE OR REPLACE FUNCTION refuse_ticket(session bytea, which bigint, how text, words text, shown bytea DEFAULT NULL) RETURNS text
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
    PERFORM lock_participants(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'refuse', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    -- A ticket that has approvals is refused by an operator with the permission `approve`.
    IF t.state IN ('needs_second', 'waiting_owner', 'approved')
       AND NOT role_may(who.role, 'approve') THEN
        RETURN refuse_act(who, which, 'refuse', 'approved');
    END IF;
    -- Access for weeks needs the permission `approve`, as a transfer does; the purchase stays with its owner.
    IF how = 'grant_until_end' THEN
        PERFORM acting(session, 'approve', interval '10 minutes');
        IF NOT is_open(t.state) OR t.state = 'executing' THEN
            RETURN refuse_act(who, which, 'refuse', 'state');
        END IF;
        SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
        item := surviving_purchase(coalesce(t.purchase_id, t.subject_id));
        SELECT least(p.period_ends_at, clock_timestamp() + interval '400 days') INTO ends
          FROM purchase AS p
         -- The evidence has to be about this purchase: the ticket may have got another one since.
         WHERE p.id = item AND surviving_purchase((e.document ->> 'purchase')::bigint) = item AND p.gives_access
             AND p.period_ends_at > clock_timestamp()
           AND e.collected_at > clock_timestamp() - e.holds AND NOT forbids_access(e);
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
    IF move_ticket(which, 'refuse', how) IS NULL THEN
        RETURN refuse_act(who, which, 'refuse', 'state');
    END IF;
    PERFORM end_approvals(which, 'decided');
    -- A ticket that is opened again starts without these approvals.
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
