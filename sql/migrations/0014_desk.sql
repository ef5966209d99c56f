-- What operators see of tickets and do to them: functions that ask for a session. Each act returns null where it was done, and
-- else a word for why it was not.

-- Moves a ticket, if something leads there from where it stands. Returns the new state.
CREATE FUNCTION move_ticket(which bigint, what text) RETURNS text
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE ticket AS t SET state = m.next FROM ticket_move AS m
     WHERE t.id = which AND m.state = t.state AND m.event = what
    RETURNING t.state
$$;

-- Ends what people agreed to, and says why.
CREATE FUNCTION end_approvals(which bigint, why text) RETURNS integer
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    WITH ended AS (
        UPDATE ticket_approval AS a SET ended_at = clock_timestamp(), ended_by = why
         WHERE a.ticket_id = which AND a.ended_at IS NULL
        RETURNING 1
    )
    SELECT count(*)::integer FROM ended
$$;

-- The purchase that a purchase has become part of, or itself.
CREATE FUNCTION living(which bigint) RETURNS bigint
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    WITH RECURSIVE r AS (
        SELECT p.id, p.merged_into FROM purchase AS p WHERE p.id = which
         UNION ALL
        SELECT p.id, p.merged_into FROM r JOIN purchase AS p ON p.id = r.merged_into
    )
    SELECT r.id FROM r WHERE r.merged_into IS NULL
$$;

-- Whether a ticket is about an account that is, or was, an operator's own.
CREATE FUNCTION is_own_case(who bigint, t ticket) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM operator_account AS a
                    WHERE a.operator_id = who
                      AND a.user_key IN (t.claimant_key, t.owner_key,
                                         (SELECT p.owner_key FROM purchase AS p WHERE p.id = living(coalesce(t.purchase_id, t.subject_id)))))
$$;

-- Whether an approval counts, and whether it is a senior's.
CREATE FUNCTION approval_counts(a ticket_approval, t ticket, e ticket_evidence, duty text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT a.hash = e.hash AND a.expires_at > clock_timestamp() AND a.at > coalesce(o.lost_at, '-infinity') AND o.disabled_at IS NULL
           AND coalesce(o.held_until <= clock_timestamp(), true) AND NOT is_own_case(o.id, t)
           AND EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = approval_counts.duty AND d.role = o.role)
      FROM operator AS o WHERE o.id = a.operator_id
$$;

-- What speaks against a transfer at this moment; null: nothing. Whoever asks holds the ticket's row.
CREATE FUNCTION approvals_lack(which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    t ticket;
    e ticket_evidence;
    n record;
BEGIN
    SELECT x.* INTO STRICT t FROM ticket AS x WHERE x.id = which;
    SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    IF e.id IS NULL THEN
        RETURN 'no_evidence';
    END IF;
    IF e.hindrance IN ('forbids', 'closes') THEN
        RETURN 'hindrance';
    END IF;
    -- Locked, so that no role is lost between the question and the commit.
    PERFORM FROM operator AS o
      WHERE o.id IN (SELECT a.operator_id FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL)
      ORDER BY o.id FOR SHARE;
    SELECT count(*) AS agreed, bool_or(a.hash <> e.hash) AS changed, bool_or(a.expires_at <= clock_timestamp()) AS expired,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve')) AS good,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve') AND approval_counts(a, t, e, 'override')) AS seniors
      INTO n
      FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL;
    IF n.changed THEN
        RETURN 'evidence_changed';
    END IF;
    IF t.owner_no_at IS NOT NULL AND NOT 'owner_objected' = ANY (e.facts) THEN
        RETURN 'owner_objected';
    END IF;
    IF n.good < e.approvals THEN
        RETURN CASE WHEN n.expired THEN 'expired' WHEN n.agreed > n.good THEN 'role_lost' ELSE 'approvals' END;
    END IF;
    IF e.hindrance = 'needs_senior' AND n.seniors = 0 THEN
        RETURN 'needs_senior';
    END IF;
    RETURN NULL;
END
$$;

-- The word under which approvals end for what they lack.
CREATE FUNCTION ending_for(lack text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN lack IN ('evidence_changed', 'expired', 'role_lost', 'owner_objected') THEN lack ELSE 'stopped' END;

-- Whoever loses the role, or whose account was reset, has agreed to nothing.
CREATE FUNCTION end_lost_approvals() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- In one order with those who end a ticket's.
    PERFORM FROM ticket_approval AS a WHERE a.operator_id = NEW.id AND a.ended_at IS NULL ORDER BY a.ticket_id, a.id FOR UPDATE;
    UPDATE ticket_approval AS a SET ended_at = clock_timestamp(), ended_by = 'role_lost'
     WHERE a.operator_id = NEW.id AND a.ended_at IS NULL;
    RETURN NULL;
END
$$;
CREATE TRIGGER end_lost_approvals AFTER UPDATE ON operator FOR EACH ROW
    WHEN (NEW.lost_at IS DISTINCT FROM OLD.lost_at)
    EXECUTE FUNCTION end_lost_approvals();
CREATE INDEX ticket_approval_operator ON ticket_approval (operator_id) WHERE ended_at IS NULL;

-- Puts a ticket back whose approvals no longer hold. Whoever asks holds the ticket's row.
CREATE FUNCTION void_approvals(which bigint, why text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    ended integer;
BEGIN
    ended := end_approvals(which, why);
    IF move_ticket(which, 'approvals_voided') IS NOT NULL OR ended > 0 THEN
        -- Who is asked again is given the whole time again.
        UPDATE ticket AS x
           SET verdict = NULL, decided_at = NULL, owner_asked_at = CASE WHEN why = 'expired' THEN x.owner_asked_at END,
               owner_until = CASE WHEN why = 'expired' THEN x.owner_until END
         WHERE x.id = which;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (which, 'approvals_voided', jsonb_build_object('reason', why, 'approvals', ended));
    END IF;
END
$$;

-- What an operator wanted and may not: on record, where raising an error would undo the record.
CREATE FUNCTION refuse_act(who operator, which bigint, act text, why text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'refused', jsonb_build_object('ticket', which, 'act', act, 'reason', why));
    IF why = 'own_case' THEN
        INSERT INTO alarm (name, detail)
        VALUES ('operator_own_case',
                'An operator tried to act on a ticket about their own account: see operator_event, kind refused.')
        ON CONFLICT (name) DO UPDATE SET last_at = now(), count = alarm.count + 1;
    END IF;
    RETURN why;
END
$$;

-- The ticket, locked, for whoever wants to act on it; `refusal` says why they may not.
CREATE FUNCTION ticket_for(who operator, which bigint, act text, needs_hold boolean, OUT t ticket, OUT refusal text)
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which FOR NO KEY UPDATE;
    IF t.id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('ticket: there is no ticket %s', which),
            HINT = 'See entitlement-sync tickets.';
    END IF;
    IF is_own_case(who.id, t) THEN
        refusal := refuse_act(who, which, act, 'own_case');
    ELSIF t.holder_id <> who.id AND t.holder_until > clock_timestamp() THEN
        refusal := refuse_act(who, which, act, 'held');
    ELSIF needs_hold AND (t.state = 'claimed' AND t.holder_id IS DISTINCT FROM who.id OR t.state = 'new') THEN
        refusal := refuse_act(who, which, act, 'not_claimed');
    END IF;
END
$$;

-- An erasure that has begun is waited for, and one that begins waits: no note comes after it.
CREATE FUNCTION keep_people(which bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    PERFORM FROM user_sync AS u
      WHERE u.user_key IN (SELECT unnest(ARRAY[t.claimant_key, t.owner_key]) FROM ticket AS t WHERE t.id = which)
      ORDER BY u.user_key FOR KEY SHARE;
END
$$;

CREATE FUNCTION add_note(who operator, which bigint, words text) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    WITH added AS (
        INSERT INTO ticket_note (ticket_id, operator_id, words) VALUES (which, who.id, words) RETURNING id
    )
    INSERT INTO ticket_event (ticket_id, kind, operator_id, detail)
    SELECT which, 'note', who.id, jsonb_build_object('note', a.id) FROM added AS a
$$;

CREATE FUNCTION note_event(who operator, which bigint, what text, about jsonb DEFAULT '{}') RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO ticket_event (ticket_id, kind, operator_id, detail) VALUES (which, what, who.id, about)
$$;

-- Opens a ticket for a claimant who wrote to support, or touches the open one; the worker's own rules hold. `order_id` is a claim,
-- and proves nothing. Returns the ticket's id; null: the operator's own case, or the claimant's own purchase.
CREATE FUNCTION open_ticket(session bytea, claimant text, order_id text, words text) RETURNS bigint
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
    known := ARRAY(SELECT DISTINCT living(i.purchase_id) FROM purchase_identifier AS i WHERE i.value = order_id LIMIT 2);
    IF cardinality(known) = 1 THEN
        SELECT p.* INTO item FROM purchase AS p WHERE p.id = known[1];
    END IF;
    IF item.owner_key = key
       OR EXISTS (SELECT 1 FROM operator_account AS a WHERE a.operator_id = who.id AND a.user_key IN (key, item.owner_key)) THEN
        PERFORM refuse_act(who, NULL, 'open', CASE WHEN item.owner_key = key THEN 'owns_it' ELSE 'own_case' END);
        RETURN NULL;
    END IF;
    INSERT INTO ticket AS x (claimant_key, owner_key, purchase_id, kind, store, original_id, visible, evidence_due)
    VALUES (key, item.owner_key, item.id, CASE WHEN item.owner_key IS NULL THEN 'paid_no_access' ELSE 'owner_mismatch' END,
            coalesce(item.store, CASE WHEN order_id ~ '^GPA\.' THEN 'google_play' WHEN order_id ~ '^[0-9]{10,20}$' THEN 'app_store' END),
            order_id, true, clock_timestamp())
    ON CONFLICT (claimant_key, coalesce(purchase_id, 0))
          WHERE state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')
    DO UPDATE SET touches = x.touches + 1, original_id = coalesce(x.original_id, excluded.original_id),
                  store = coalesce(x.store, excluded.store), visible = true
    RETURNING x.* INTO t;
    PERFORM note_event(who, t.id, CASE t.touches WHEN 0 THEN 'opened' ELSE 'touched' END);
    PERFORM add_note(who, t.id, words);
    RETURN t.id;
END
$$;

CREATE FUNCTION claim_ticket(session bytea, which bigint) RETURNS text
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
       SET holder_id = who.id, holder_until = clock_timestamp() + interval '30 minutes',
           looked_at = coalesce(x.looked_at, clock_timestamp()),
           evidence_due = CASE WHEN EXISTS (SELECT 1 FROM ticket_evidence AS e
                                             WHERE e.id = x.evidence_id AND e.collected_at > clock_timestamp() - interval '1 hour'
                                               AND NOT 'purchase_unknown' = ANY (e.facts))
                               THEN x.evidence_due ELSE clock_timestamp() END
     WHERE x.id = which;
    IF t.state <> 'claimed' OR t.holder_id IS DISTINCT FROM who.id THEN
        PERFORM note_event(who, which, 'claimed');
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION release_ticket(session bytea, which bigint) RETURNS text
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

CREATE FUNCTION note_ticket(session bytea, which bigint, words text) RETURNS text
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
    -- What is held by another can be remarked on.
    IF is_own_case(who.id, t) THEN
        RETURN refuse_act(who, which, 'note', 'own_case');
    END IF;
    PERFORM keep_people(which);
    PERFORM add_note(who, which, words);
    RETURN NULL;
END
$$;

-- Has the evidence collected anew.
CREATE FUNCTION refresh_evidence(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who     operator := acting(session, 'work');
    t       ticket;
    got     record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'refresh', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF NOT is_open(t.state) OR t.state = 'executing' THEN
        RETURN refuse_act(who, which, 'refresh', 'state');
    END IF;
    UPDATE ticket AS x SET evidence_due = clock_timestamp(), evidence_tries = 0 WHERE x.id = which;
    RETURN NULL;
END
$$;

-- Gives access for three days where money was taken and something that a store verified shows it: once for a claimant and purchase,
-- until the case is decided.
CREATE FUNCTION lend_access(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who  operator := acting(session, 'lend', interval '10 minutes');
    t    ticket;
    got  record;
    lent bigint;
BEGIN
    PERFORM keep_people(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'lend', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.state NOT IN ('claimed', 'waiting_claimant', 'needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'lend', 'state');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM ticket_evidence AS e
                    WHERE e.id = t.evidence_id AND e.collected_at > clock_timestamp() - e.holds
                      AND 'proof_verified' = ANY (e.facts) AND NOT e.facts && '{claimant_ineligible,sandbox,lapsed,refunded,unseen}') THEN
        RETURN refuse_act(who, which, 'lend', 'no_proof');
    END IF;
    IF EXISTS (SELECT 1 FROM ticket AS x
                WHERE x.claimant_key = t.claimant_key AND x.lent_grant_id IS NOT NULL
                  AND living(coalesce(x.purchase_id, x.subject_id)) IS NOT DISTINCT FROM living(coalesce(t.purchase_id, t.subject_id))) THEN
        RETURN refuse_act(who, which, 'lend', 'lent_already');
    END IF;
    INSERT INTO "grant" (user_key, until, reason, granted_by)
    VALUES (t.claimant_key, clock_timestamp() + interval '72 hours',
            format('while ticket %s is open', reference_of('T', t.uid)), format('operator %s', who.name))
    RETURNING id INTO lent;
    UPDATE ticket AS x SET lent_grant_id = lent WHERE x.id = which;
    PERFORM note_event(who, which, 'access_lent', jsonb_build_object('grant', lent));
    PERFORM reread(ARRAY[t.claimant_key]);
    RETURN NULL;
END
$$;

CREATE FUNCTION refuse_ticket(session bytea, which bigint, how text, words text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who     operator := acting(session, 'refuse');
    t       ticket;
    got     record;
    ends    timestamptz;
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
    -- Access for weeks is an approver's to give; the purchase stays where it is.
    IF how = 'grant_until_end' THEN
        PERFORM acting(session, 'approve', interval '10 minutes');
        SELECT least(p.period_ends_at, clock_timestamp() + interval '400 days') INTO ends
          FROM purchase AS p JOIN ticket_evidence AS e ON e.id = t.evidence_id
         WHERE p.id = living(coalesce(t.purchase_id, t.subject_id)) AND p.gives_access AND p.period_ends_at > clock_timestamp()
           AND e.collected_at > clock_timestamp() - e.holds AND NOT e.facts && '{claimant_ineligible,sandbox,lapsed,refunded,unseen}';
        IF ends IS NULL THEN
            RETURN refuse_act(who, which, 'refuse', 'no_period');
        END IF;
    END IF;
    -- What approvers have agreed to, approvers refuse.
    IF t.state IN ('needs_second', 'waiting_owner', 'approved')
       AND NOT EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'approve' AND d.role = who.role) THEN
        RETURN refuse_act(who, which, 'refuse', 'approved');
    END IF;
    IF move_ticket(which, 'refuse') IS NULL THEN
        RETURN refuse_act(who, which, 'refuse', 'state');
    END IF;
    UPDATE ticket AS x
       SET verdict = how, decided_at = clock_timestamp(), owner_asked_at = NULL, owner_until = NULL
     WHERE x.id = which;
    PERFORM end_approvals(which, 'decided');
    PERFORM note_event(who, which, 'refused', jsonb_build_object('verdict', how));
    IF ends IS NOT NULL THEN
        INSERT INTO "grant" (user_key, until, reason, granted_by)
        VALUES (t.claimant_key, ends, format('decided in ticket %s', reference_of('T', t.uid)),
                format('operator %s', who.name));
        PERFORM reread(ARRAY[t.claimant_key]);
    END IF;
    IF words <> '' THEN
        PERFORM add_note(who, which, words);
    END IF;
    RETURN NULL;
END
$$;

-- Agrees to a transfer on what the operator has seen.
--
--   shown      the hash of the evidence that was looked at
--   confirmed  what else the transfer moves, as it was confirmed
CREATE FUNCTION approve_ticket(session bytea, which bigint, shown bytea, confirmed text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who     operator := acting(session, 'approve', interval '10 minutes');
    t       ticket;
    e       ticket_evidence;
    got     record;
    made    bigint;
    lack    text;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'approve', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.state NOT IN ('claimed', 'needs_second') THEN
        RETURN refuse_act(who, which, 'approve', 'state');
    END IF;
    SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    IF e.id IS NULL THEN
        RETURN refuse_act(who, which, 'approve', 'no_evidence');
    END IF;
    IF e.hash IS DISTINCT FROM shown THEN
        RETURN refuse_act(who, which, 'approve', 'evidence_changed');
    END IF;
    IF e.collected_at < clock_timestamp() - e.holds THEN
        RETURN refuse_act(who, which, 'approve', 'evidence_old');
    END IF;
    IF e.hindrance IN ('forbids', 'closes') THEN
        RETURN refuse_act(who, which, 'approve', 'hindrance');
    END IF;
    IF e.hindrance = 'needs_senior'
       AND NOT EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'override' AND d.role = who.role) THEN
        RETURN refuse_act(who, which, 'approve', 'needs_senior');
    END IF;
    IF ARRAY(SELECT c FROM unnest(coalesce(confirmed, '{}')) AS c ORDER BY c) IS DISTINCT FROM ARRAY(SELECT m FROM unnest(e.also_moves) AS m ORDER BY m) THEN
        RETURN refuse_act(who, which, 'approve', 'not_confirmed');
    END IF;
    -- Those that do not count any more make room for others.
    UPDATE ticket_approval AS a
       SET ended_at = clock_timestamp(),
           ended_by = CASE WHEN a.hash <> e.hash THEN 'evidence_changed' WHEN a.expires_at <= clock_timestamp() THEN 'expired'
                           ELSE 'role_lost' END
     WHERE a.ticket_id = which AND a.ended_at IS NULL AND NOT approval_counts(a, t, e, 'approve');
    -- Nobody is waited for whose account is gone.
    IF t.owner_key IS NOT NULL AND NOT 'owner_erased' = ANY (e.facts) THEN
        UPDATE ticket AS x
           SET owner_asked_at = coalesce(x.owner_asked_at, clock_timestamp()),
               owner_until = coalesce(x.owner_asked_at, clock_timestamp()) + e.owner_window
         WHERE x.id = which RETURNING x.owner_until INTO t.owner_until;
        IF t.owner_asked_at IS NULL THEN
            INSERT INTO ticket_event (ticket_id, kind, detail)
            VALUES (which, 'owner_asked', jsonb_build_object('until', t.owner_until));
            IF t.owner_until > clock_timestamp() THEN
                INSERT INTO ticket_news (user_key, topic, data)
                VALUES (t.owner_key, 'ticket.owner_asked',
                        jsonb_build_object('store', t.store, 'original_id', t.original_id,
                                           'until', to_char(t.owner_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')));
            END IF;
        END IF;
    END IF;
    INSERT INTO ticket_approval (ticket_id, operator_id, evidence_id, hash, expires_at)
    VALUES (which, who.id, e.id, e.hash, greatest(clock_timestamp(), t.owner_until) + e.holds)
    ON CONFLICT DO NOTHING RETURNING id INTO made;
    IF made IS NOT NULL THEN
        PERFORM note_event(who, which, 'approved', jsonb_build_object('evidence', e.id, 'confirmed', coalesce(confirmed, '{}')));
    END IF;
    lack := approvals_lack(which);
    PERFORM move_ticket(which, CASE WHEN lack IS NOT NULL THEN 'approve_part'
                                    WHEN t.owner_until > clock_timestamp() THEN 'approve_early'
                                    ELSE 'approve_all' END);
    UPDATE ticket AS x
       SET verdict = CASE WHEN lack IS NULL THEN 'transfer' END, decided_at = CASE WHEN lack IS NULL THEN clock_timestamp() END,
           -- A cause that goes away while it waits is noticed.
           evidence_due = clock_timestamp() + interval '6 hours'
     WHERE x.id = which;
    IF made IS NULL THEN
        RETURN refuse_act(who, which, 'approve', 'approved_already');
    END IF;
    RETURN NULL;
END
$$;

-- Takes back what one has agreed to.
CREATE FUNCTION withdraw_approval(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'approve');
    got record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'withdraw', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
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

-- Has an approved transfer carried out; a worker does it.
CREATE FUNCTION begin_transfer(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who  operator := acting(session, 'transfer', interval '10 minutes');
    t    ticket;
    got  record;
    lack text;
    item bigint;
    keys bigint[];
BEGIN
    -- Users before tickets, as everywhere: nobody gives and takes in two transfers at once.
    SELECT array_agg(k ORDER BY k) INTO keys
      FROM (SELECT DISTINCT unnest(ARRAY[x.claimant_key, x.owner_key]) AS k FROM ticket AS x WHERE x.id = which) AS n
     WHERE k IS NOT NULL;
    PERFORM FROM user_sync AS u WHERE u.user_key = ANY (keys) ORDER BY u.user_key FOR NO KEY UPDATE;
    SELECT f.* INTO got FROM ticket_for(who, which, 'transfer', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF EXISTS (SELECT 1 FROM control AS c WHERE c.name IN ('transfers', 'all') AND c.paused) THEN
        RETURN refuse_act(who, which, 'transfer', 'paused');
    END IF;
    IF t.state = 'waiting_owner' AND t.owner_until <= clock_timestamp() THEN
        t.state := move_ticket(which, 'window_ended');
    END IF;
    IF t.state IN ('waiting_owner', 'approved') AND t.owner_until > clock_timestamp() THEN
        RETURN refuse_act(who, which, 'transfer', 'waiting_owner');
    END IF;
    IF t.state <> 'approved' THEN
        RETURN refuse_act(who, which, 'transfer', 'state');
    END IF;
    item := living(coalesce(t.purchase_id, t.subject_id));
    lack := CASE WHEN item IS NULL OR NOT t.claimant_key = ANY (keys) OR NOT coalesce(t.owner_key = ANY (keys), true)
                      OR (SELECT p.owner_key FROM purchase AS p WHERE p.id = item) IS DISTINCT FROM t.owner_key
                 THEN 'evidence_changed' ELSE approvals_lack(which) END;
    IF lack IS NOT NULL THEN
        PERFORM void_approvals(which, ending_for(lack));
        UPDATE ticket AS x SET evidence_due = clock_timestamp() WHERE x.id = which;
        RETURN refuse_act(who, which, 'transfer', lack);
    END IF;
    IF EXISTS (SELECT 1 FROM transfer AS x
                WHERE x.step NOT IN ('done', 'stopped')
                  AND (x.from_key = ANY (keys) OR x.to_key = ANY (keys) OR living(x.purchase_id) = item)) THEN
        RETURN refuse_act(who, which, 'transfer', 'busy');
    END IF;
    PERFORM move_ticket(which, 'execute');
    INSERT INTO transfer (ticket_id, from_key, to_key, purchase_id, begun_by)
    VALUES (which, t.owner_key, t.claimant_key, item, who.id);
    PERFORM note_event(who, which, 'transfer_begun');
    RETURN NULL;
END
$$;

-- Ends a transfer by hand, or lets it go on, where nobody else can: `not_moved` stops it, `moved` has our records follow. Without a
-- call whoever may transfer stops it; after one a senior decides, who has looked at RevenueCat.
CREATE FUNCTION resolve_transfer(session bytea, which bigint, how text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who  operator := acting(session, 'transfer', interval '10 minutes');
    got  record;
    x    transfer;
BEGIN
    IF how IS NULL OR how NOT IN ('not_moved', 'moved') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'how: not_moved or moved', HINT = 'Choose one of the two.';
    END IF;
    SELECT f.* INTO got FROM ticket_for(who, which, 'resolve', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    SELECT y.* INTO x FROM transfer AS y WHERE y.ticket_id = which AND y.step NOT IN ('done', 'stopped') FOR NO KEY UPDATE;
    IF x.id IS NULL OR x.step = 'confirmed' AND x.calls > 0 AND how = 'moved' OR how = 'moved' AND x.calls = 0 THEN
        RETURN refuse_act(who, which, 'resolve', 'state');
    END IF;
    IF x.calls > 0 AND NOT EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'override' AND d.role = who.role) THEN
        RETURN refuse_act(who, which, 'resolve', 'needs_senior');
    END IF;
    IF how = 'not_moved' AND x.called_at > clock_timestamp() - interval '10 minutes' THEN
        RETURN refuse_act(who, which, 'resolve', 'unsettled');
    END IF;
    IF how = 'moved' THEN
        UPDATE transfer AS y SET step = 'confirmed', due = now() WHERE y.id = x.id;
    ELSE
        UPDATE ticket_approval AS a SET ended_at = clock_timestamp(), ended_by = 'stopped'
         WHERE a.ticket_id = which AND (a.ended_at IS NULL OR a.ended_by = 'used');
        UPDATE transfer AS y SET step = 'stopped', ended_at = clock_timestamp(), last_error = 'resolved_by_hand' WHERE y.id = x.id;
        PERFORM move_ticket(which, 'stopped');
        UPDATE ticket AS y
           SET verdict = NULL, decided_at = NULL, owner_asked_at = NULL, owner_until = NULL, evidence_due = clock_timestamp()
         WHERE y.id = which;
    END IF;
    INSERT INTO transfer_step (transfer_id, step, detail)
    VALUES (x.id, how, jsonb_build_object('operator', who.id));
    PERFORM note_event(who, which, 'transfer_resolved', jsonb_build_object('how', how));
    RETURN NULL;
END
$$;

-- Asks to see the accounts of a ticket, or of a list, unmasked; they are shown in a later transaction within the minute.
CREATE FUNCTION reveal_ticket(session bytea, which bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'reveal');
BEGIN
    INSERT INTO ticket_reveal (ticket_id, operator_id) VALUES (which, who.id);
    IF which IS NOT NULL THEN
        INSERT INTO ticket_event (ticket_id, kind, operator_id)
        SELECT t.id, 'revealed', who.id FROM ticket AS t WHERE t.id = which;
    END IF;
END
$$;

CREATE FUNCTION may_see(who bigint, which bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM ticket_reveal AS r
                    WHERE r.operator_id = who AND r.ticket_id IS NOT DISTINCT FROM which
                      AND r.at > clock_timestamp() - interval '1 minute' AND r.xact <> pg_current_xact_id())
$$;

-- What the desk sees of a ticket. Accounts are masked, unless `reveal_ticket` was called before. Nobody sees a case of their own.
CREATE FUNCTION show_ticket(session bytea, which bigint, reveal boolean DEFAULT false)
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
              LEFT JOIN ticket_note AS n ON v.kind = 'note' AND n.ticket_id = t.id
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

-- An id as far as people need it to tell two apart.
CREATE FUNCTION masked(id text, reveal boolean) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN id IS NULL THEN NULL WHEN reveal THEN id
            WHEN length(id) < 8 THEN '…' || right(id, 1)
            ELSE left(id, 2) || '…' || right(id, 2) END;

-- The ticket of a spoken reference; of several the newest.
CREATE FUNCTION ticket_named(session bytea, spoken text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN (SELECT max(t.id) FROM ticket AS t
             WHERE reference_of('T', t.uid) = upper(spoken) AND NOT is_own_case(who.id, t));
END
$$;

-- Tickets, the newest first, but for cases of one's own. `before`: the id that the page before ended with.
CREATE FUNCTION list_tickets(session bytea, wanted text[], before bigint, most integer, reveal boolean DEFAULT false)
RETURNS TABLE (id bigint, reference text, user_id text, purchase_owner_id text, store text, original_id text, kind text,
               state text, touches integer, created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who    operator := acting(session, CASE WHEN reveal THEN 'reveal' ELSE 'view' END);
    shown  boolean := reveal AND may_see(who.id, NULL);
BEGIN
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), masked(c.user_id, shown), masked(o.user_id, shown), t.store, t.original_id,
           t.kind, t.state, t.touches, t.created_at
      FROM ticket AS t
      JOIN user_sync AS c ON c.user_key = t.claimant_key
      LEFT JOIN user_sync AS o ON o.user_key = t.owner_key
     WHERE t.state = ANY (coalesce(wanted, ARRAY(SELECT DISTINCT m.state FROM ticket_move AS m WHERE is_open(m.state))))
       AND t.id < coalesce(before, 9223372036854775807)
       AND NOT is_own_case(who.id, t)
     ORDER BY t.id DESC LIMIT least(coalesce(most, 50), 1000);
END
$$;

REVOKE ALL ON FUNCTION move_ticket, end_approvals, living, is_own_case, approval_counts, approvals_lack, ending_for,
                       end_lost_approvals, void_approvals, refuse_act, ticket_for, keep_people, add_note, note_event, open_ticket, claim_ticket,
                       release_ticket, note_ticket, refresh_evidence, refuse_ticket, approve_ticket, withdraw_approval,
                       lend_access, begin_transfer, resolve_transfer, reveal_ticket, may_see, show_ticket, masked, ticket_named, list_tickets
    FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT EXECUTE ON FUNCTION open_ticket, claim_ticket, release_ticket, note_ticket, refresh_evidence, refuse_ticket, approve_ticket,
                               withdraw_approval, lend_access, begin_transfer, resolve_transfer, reveal_ticket, show_ticket, ticket_named,
                               list_tickets TO %I',
    -- Who somebody is, and what they did, is shown by the functions, with a trace.
    'REVOKE SELECT ON user_sync, ticket, ticket_event, ticket_status, job_status, decision_log, observation, sandbox_user, "grant",
                      outbox, queue, job_history FROM %I']);
