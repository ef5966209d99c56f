-- What a case says holds for the evidence it was said of: what an owner was asked and answered, what somebody was named by a number
-- alone, and what was given to people who are gone meanwhile.

-- Keeps what was found out about a case: approvals on other evidence end, as does what the owner was asked, and a ticket whose cause
-- has gone away is closed. Returns the evidence's id; null: the ticket is closed by now, or newer evidence is there.
CREATE OR REPLACE FUNCTION keep_evidence(which bigint, asked timestamptz, hash bytea, facts text[], hindrance text, suggested text,
                              reason text, approvals smallint, also_moves text[], owner_window bigint, holds bigint,
                              document text, owner bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    t    ticket;
    kept bigint;
BEGIN
    PERFORM check_isolation();
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which FOR NO KEY UPDATE;
    IF t.id IS NULL OR NOT is_open(t.state) AND t.state <> 'refused'
       OR EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.asked_at > asked) THEN
        RETURN NULL;
    END IF;
    INSERT INTO ticket_evidence (ticket_id, asked_at, hash, facts, hindrance, suggested, reason, approvals, also_moves,
                                 owner_window, holds, document)
    VALUES (which, asked, hash, facts, hindrance, suggested, reason, approvals, also_moves, owner_window * interval '1 second',
            holds * interval '1 second', document::jsonb)
    RETURNING id INTO kept;
    UPDATE ticket AS x
       SET evidence_id = kept, evidence_tries = 0, evidence_error = NULL,
           evidence_due = CASE WHEN x.state IN ('needs_second', 'waiting_owner', 'approved')
                               THEN clock_timestamp() + interval '6 hours' END
     WHERE x.id = which;
    -- One that was refused is opened again where there is something else to decide on than there was.
    IF t.state = 'refused' THEN
        IF hindrance <> 'closes'
           AND NOT EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.hash = keep_evidence.hash)
           AND NOT EXISTS (SELECT 1 FROM ticket AS x
                            WHERE x.claimant_key = t.claimant_key AND coalesce(x.purchase_id, 0) = coalesce(t.purchase_id, 0)
                              AND is_open(x.state)) THEN
            PERFORM move_ticket(which, 'reopen');
            -- What the owner was asked before was about something else.
            UPDATE ticket AS x SET verdict = NULL, decided_at = NULL, owner_asked_at = NULL, owner_until = NULL WHERE x.id = which;
            INSERT INTO ticket_event (ticket_id, kind) VALUES (which, 'reopened');
        END IF;
        RETURN kept;
    END IF;
    -- One that is being carried out decides by itself, in the transaction that goes on with it.
    IF t.state = 'executing' THEN
        RETURN kept;
    END IF;
    -- Another owner has been asked nothing.
    UPDATE ticket AS x SET owner_key = owner, owner_asked_at = NULL, owner_until = NULL, owner_no_at = NULL
     WHERE x.id = which AND x.owner_key IS DISTINCT FROM owner AND owner IS DISTINCT FROM x.claimant_key;
    IF FOUND AND hindrance <> 'closes' THEN
        PERFORM void_approvals(which, 'evidence_changed');
    END IF;
    -- What the owner was asked before, and agreed to, was about something else; whether anybody had agreed to it or not.
    UPDATE ticket AS x SET owner_asked_at = NULL, owner_until = NULL
     WHERE x.id = which AND x.owner_asked_at IS NOT NULL
       AND EXISTS (SELECT 1 FROM ticket_evidence AS e WHERE e.id = t.evidence_id AND e.hash <> keep_evidence.hash);
    IF hindrance = 'closes' THEN
        PERFORM end_approvals(which, 'stopped');
        PERFORM move_ticket(which, 'cause_gone');
        INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'closed', jsonb_build_object('reason', reason));
    ELSIF EXISTS (SELECT 1 FROM ticket_approval AS a
                   WHERE a.ticket_id = which AND a.ended_at IS NULL AND a.hash <> keep_evidence.hash) THEN
        PERFORM void_approvals(which, 'evidence_changed');
    END IF;
    RETURN kept;
END
$$;

-- Finds out which purchase of our records a ticket is about, where only its store's id is known. Returns whether all is known that
-- can be; else its owner is being read, which brings the purchase into our records: that is done where somebody works on it.
CREATE OR REPLACE FUNCTION name_purchase(which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A host's transaction that has just asked for its user is not waited for.
SET lock_timeout = '50ms' AS $$
DECLARE
    t     ticket;
    ids   bigint[];
    -- Somebody typed it: it may be the wrong one.
    typed boolean;
BEGIN
    PERFORM check_isolation();
    -- As whoever is named by a number, with all of the claimant's: of two at once each would leave the other out.
    PERFORM FROM ticket AS x
      WHERE x.claimant_key = (SELECT y.claimant_key FROM ticket AS y
                               WHERE y.id = which AND y.original_id IS NOT NULL AND coalesce(y.purchase_id, y.subject_id) IS NULL)
        AND is_open(x.state)
      ORDER BY x.id FOR NO KEY UPDATE;
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
    IF t.id IS NULL OR coalesce(t.purchase_id, t.subject_id) IS NOT NULL OR t.original_id IS NULL OR NOT is_open(t.state) THEN
        RETURN true;
    END IF;
    ids := ARRAY(SELECT DISTINCT living(i.purchase_id) FROM purchase_identifier AS i
                  WHERE i.value = t.original_id AND (t.store IS NULL OR i.store IN (t.store, 'revenuecat')));
    IF cardinality(ids) = 1 THEN
        typed := EXISTS (SELECT 1 FROM ticket_claim AS c WHERE c.ticket_id = which AND c.value = t.original_id)
                 OR EXISTS (SELECT 1 FROM ticket_event AS e
                             WHERE e.ticket_id = which AND e.kind = 'opened' AND e.operator_id IS NOT NULL);
        -- What was typed has proved nothing: it makes nobody's own purchase, which would close the case, its subject.
        UPDATE ticket AS x SET subject_id = ids[1]
         WHERE x.id = which
           AND NOT EXISTS (SELECT 1 FROM ticket AS o
                            WHERE o.claimant_key = x.claimant_key AND o.id <> x.id AND is_open(o.state)
                              AND living(coalesce(o.purchase_id, o.subject_id)) = ids[1])
           AND NOT (typed AND EXISTS (SELECT 1 FROM purchase AS p WHERE p.id = ids[1] AND p.owner_key = x.claimant_key));
        IF FOUND AND typed THEN
            INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (which, 'named', '{"reason": "order_id"}');
        END IF;
    END IF;
    IF cardinality(ids) > 0 OR t.owner_key IS NULL OR NOT coalesce(t.holder_until > clock_timestamp(), false) THEN
        RETURN true;
    END IF;
    -- Once a day, and a minute is what it may take.
    IF NOT EXISTS (SELECT 1 FROM ticket_event AS e
                    WHERE e.ticket_id = which AND e.kind = 'owner_read' AND e.at > clock_timestamp() - interval '1 day') THEN
        PERFORM reread(ARRAY[t.owner_key]);
        INSERT INTO ticket_event (ticket_id, kind) VALUES (which, 'owner_read');
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT 1 FROM ticket_event AS e
                        WHERE e.ticket_id = which AND e.kind = 'owner_read' AND e.at > clock_timestamp() - interval '1 minute');
END
$$;

-- Agrees to a transfer on what the operator has seen.
--
--   shown      the hash of the evidence that was looked at
--   confirmed  what else the transfer moves, as it was confirmed
CREATE OR REPLACE FUNCTION approve_ticket(session bytea, which bigint, shown bytea, confirmed text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who     operator := acting(session, 'approve', interval '10 minutes');
    t       ticket;
    e       ticket_evidence;
    got     record;
    made    bigint;
    lack    text;
    since   timestamptz;
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
        since := coalesce(t.owner_asked_at, clock_timestamp());
        UPDATE ticket AS x
           -- One moment: an owner who has no time at all was asked nothing.
           SET owner_asked_at = since, owner_until = since + e.owner_window
         WHERE x.id = which RETURNING x.owner_until INTO t.owner_until;
        IF t.owner_asked_at IS NULL THEN
            INSERT INTO ticket_event (ticket_id, kind, detail)
            VALUES (which, 'owner_asked', jsonb_build_object('until', t.owner_until));
            -- Nothing that a claimant has typed is the owner's to know, nor how many they are: but whoever has answered, or heard a
            -- while ago until when, hears of the new time.
            IF t.owner_until > clock_timestamp()
               AND NOT EXISTS (SELECT 1 FROM ticket AS x
                                WHERE x.owner_key = t.owner_key AND x.id <> which AND is_open(x.state)
                                  AND x.owner_until > clock_timestamp() AND x.owner_no_at IS NULL
                                  AND x.owner_asked_at > clock_timestamp() - interval '1 hour'
                                  AND NOT EXISTS (SELECT 1 FROM ticket_reply AS r
                                                   WHERE r.ticket_id = x.id AND r.side = 'owner' AND r.decision = 'agree'
                                                     AND r.at >= x.owner_asked_at)
                                  AND living(coalesce(x.purchase_id, x.subject_id)) = living(coalesce(t.purchase_id, t.subject_id))) THEN
                INSERT INTO ticket_news (user_key, topic, data)
                SELECT t.owner_key, 'ticket.owner_asked',
                       jsonb_build_object('id', owner_case_id(t.owner_key, p.id), 'role', 'owner', 'store', p.store,
                                          'product_id', p.product_id, 'until', moment(t.owner_until),
                                          'original_id', (SELECT i.value FROM purchase_identifier AS i
                                                           WHERE i.value = t.original_id AND living(i.purchase_id) = p.id LIMIT 1))
                  FROM purchase AS p WHERE p.id = living(coalesce(t.purchase_id, t.subject_id));
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
           evidence_due = least(x.evidence_due, clock_timestamp() + interval '6 hours')
     WHERE x.id = which;
    IF made IS NULL THEN
        RETURN refuse_act(who, which, 'approve', 'approved_already');
    END IF;
    RETURN NULL;
END
$$;

-- Has an approved transfer carried out; a worker does it.
CREATE OR REPLACE FUNCTION begin_transfer(session bytea, which bigint) RETURNS text
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
        PERFORM move_ticket(which, 'window_ended');
        SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
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
    BEGIN
        PERFORM move_ticket(which, 'execute');
        INSERT INTO transfer (ticket_id, from_key, to_key, purchase_id, begun_by)
        VALUES (which, t.owner_key, t.claimant_key, item, who.id);
    EXCEPTION WHEN unique_violation THEN
        -- Of what nobody owns, two claimants' tickets share no user whose row would keep the one back.
        RETURN refuse_act(who, which, 'transfer', 'busy');
    END;
    PERFORM note_event(who, which, 'transfer_begun');
    RETURN NULL;
END
$$;

-- Carries a transfer that is confirmed into our own records, and ends it: the purchases are the claimant's, both users are
-- read again, and what else was open about these purchases is closed. Returns how many purchases; null: our records do not let
-- it be, and people have to look.
CREATE OR REPLACE FUNCTION settle_transfer(which bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A host's transaction that has just asked for its user is not waited for.
SET lock_timeout = '50ms' AS $$
DECLARE
    x     transfer;
    t     ticket;
    keys  bigint[];
    items bigint[];
    moved bigint[];
    other record;
BEGIN
    PERFORM check_isolation();
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which;
    SELECT array_agg(DISTINCT k ORDER BY k) INTO keys FROM unnest(ARRAY[x.to_key, x.from_key]) AS k WHERE k IS NOT NULL;
    -- Users, jobs, ledger, tickets: in the order in which verdicts are applied.
    PERFORM FROM user_sync AS u WHERE u.user_key = ANY (keys) ORDER BY u.user_key FOR NO KEY UPDATE;
    IF x.step = 'confirmed' THEN
        PERFORM reread(keys);
    END IF;
    items := ARRAY(SELECT DISTINCT living(n.id) FROM (
                       SELECT x.purchase_id AS id
                        UNION ALL
                       SELECT i.purchase_id FROM purchase_identifier AS i
                        WHERE i.value = ANY (x.moves) AND i.kind = 'revenuecat_id') AS n);
    moved := ARRAY(SELECT p.id FROM purchase AS p
                    WHERE p.id = ANY (items) AND p.merged_into IS NULL
                      AND (p.owner_key IS NULL OR p.owner_key = ANY (keys))
                    ORDER BY p.id FOR NO KEY UPDATE);
    SELECT y.* INTO STRICT t FROM ticket AS y WHERE y.id = x.ticket_id FOR NO KEY UPDATE;
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which FOR NO KEY UPDATE;
    IF x.step = 'done' THEN
        RETURN 0;
    END IF;
    -- By people, or by another worker, in between.
    IF x.step = 'stopped' OR x.step = 'begun' AND x.evidence_id IS NOT NULL THEN
        RETURN -1;
    END IF;
    IF x.step <> 'confirmed' OR t.state <> 'executing'
       OR (SELECT count(*) FROM ticket_approval AS a JOIN ticket_evidence AS e ON e.id = x.evidence_id AND e.hash = a.hash
            WHERE a.ticket_id = t.id AND a.ended_by = 'used')
          < coalesce((SELECT e.approvals FROM ticket_evidence AS e WHERE e.id = x.evidence_id), 1) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('transfer %s has not been allowed and confirmed', which),
            HINT = 'See the tables entitlement_sync.transfer and transfer_step.';
    END IF;
    -- Without a call, what was allowed is done at once or allowed again; to nobody who was erased meanwhile.
    IF x.calls = 0
       AND ((SELECT max(s.at) FROM transfer_step AS s WHERE s.transfer_id = which) < clock_timestamp() - interval '5 minutes'
            OR NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = x.to_key AND u.user_id IS NOT NULL)) THEN
        UPDATE transfer AS y SET step = 'begun' WHERE y.id = which;
        UPDATE ticket_approval AS a SET ended_at = NULL, ended_by = NULL
         WHERE a.ticket_id = t.id AND a.ended_by = 'used' AND a.at < x.begun_at;
        PERFORM note_step(which, 'too_late');
        RETURN -1;
    END IF;
    IF NOT coalesce(living(x.purchase_id) = ANY (moved), false) THEN
        RETURN NULL;
    END IF;
    -- Readings that began before say nothing any more of whose it is.
    UPDATE purchase AS p
       SET owner_since = CASE WHEN p.owner_key IS DISTINCT FROM x.to_key THEN clock_timestamp() ELSE p.owner_since END,
           owner_key = x.to_key, owner_rule = 'transferred', transferred_at = clock_timestamp(),
           observed_at = clock_timestamp(), former_owner_key = NULL, account_key = NULL
     WHERE p.id = ANY (moved);
    -- Only what gave access explains that it is gone.
    UPDATE user_sync AS u SET moved_away_at = clock_timestamp()
     WHERE u.user_key = x.from_key
       AND EXISTS (SELECT 1 FROM purchase AS p
                    WHERE p.id = ANY (moved) AND cardinality(p.entitlements) > 0 AND coalesce(p.gives_access, p.status = 'owned'));
    UPDATE transfer AS y SET step = 'done', ended_at = clock_timestamp(), last_error = NULL WHERE y.id = which;
    PERFORM note_step(which, 'done', jsonb_build_object('purchases', cardinality(moved)));
    PERFORM move_ticket(t.id, 'executed');
    INSERT INTO ticket_event (ticket_id, kind, detail)
    VALUES (t.id, 'transferred', jsonb_build_object('purchases', cardinality(moved)));
    FOR other IN SELECT y.id, y.claimant_key FROM ticket AS y
                  WHERE coalesce(y.purchase_id, y.subject_id) = ANY (ARRAY(
                            WITH RECURSIVE r AS (
                                SELECT unnest(moved) AS id
                                 UNION
                                SELECT p.id FROM purchase AS p JOIN r ON p.merged_into = r.id)
                            SELECT r.id FROM r))
                    AND y.id <> t.id AND is_open(y.state) AND y.state <> 'executing'
                  ORDER BY y.id FOR NO KEY UPDATE
    LOOP
        PERFORM end_approvals(other.id, 'decided');
        PERFORM move_ticket(other.id, CASE other.claimant_key WHEN x.to_key THEN 'cause_gone' ELSE 'superseded' END);
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (other.id, 'closed', jsonb_build_object('by_ticket', t.id));
    END LOOP;
    RETURN cardinality(moved);
END
$$;

-- Which tickets a list was shown of with ids: those alone that were on the page when it was asked for.
CREATE TABLE list_reveal (
    reveal_id bigint   PRIMARY KEY,
    tickets   bigint[] NOT NULL
);
COMMENT ON TABLE list_reveal IS 'tickets whose ids a list has shown, for a row of ticket_reveal';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON list_reveal FOR EACH ROW EXECUTE FUNCTION append_only();

-- Asks to see the accounts of a list's first twenty tickets; they are shown in a later transaction within the minute. Returns null
-- where they will be, and else a word for why not.
CREATE FUNCTION reveal_list(session bytea, wanted text[], before bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who  operator := acting(session, 'reveal');
    made bigint;
BEGIN
    IF is_past_reveals(who.id, 20) THEN
        RETURN refuse_act(who, NULL, 'reveal', 'too_many_reveals');
    END IF;
    INSERT INTO ticket_reveal (ticket_id, operator_id) VALUES (NULL, who.id) RETURNING id INTO made;
    INSERT INTO list_reveal (reveal_id, tickets)
    SELECT made, ARRAY(SELECT t.id FROM ticket AS t
                        WHERE t.state = ANY (coalesce(wanted, ARRAY(SELECT DISTINCT m.state FROM ticket_move AS m WHERE is_open(m.state))))
                          AND t.id < coalesce(before, 9223372036854775807) AND NOT is_own_case(who.id, t)
                        ORDER BY t.id DESC LIMIT 20);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'revealed', '{"ticket": "a list"}');
    RETURN NULL;
END
$$;

-- Tickets, the newest first, but for cases of one's own. `before`: the id that the page before ended with.
CREATE OR REPLACE FUNCTION list_tickets(session bytea, wanted text[], before bigint, most integer, reveal boolean DEFAULT false)
RETURNS TABLE (id bigint, reference text, user_id text, purchase_owner_id text, store text, original_id text, kind text,
               state text, touches integer, created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who    operator := acting(session, CASE WHEN reveal THEN 'reveal' ELSE 'view' END);
    shown  bigint[];
BEGIN
    IF reveal THEN
        SELECT l.tickets INTO shown
          FROM ticket_reveal AS r JOIN list_reveal AS l ON l.reveal_id = r.id
         WHERE r.operator_id = who.id AND r.at > clock_timestamp() - interval '1 minute' AND r.xact <> pg_current_xact_id()
         ORDER BY r.id DESC LIMIT 1;
    END IF;
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), masked(c.user_id, coalesce(t.id = ANY (shown), false)),
           masked(o.user_id, coalesce(t.id = ANY (shown), false)), t.store, t.original_id,
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

-- Closes cases whose claimants did not answer in time. Returns how many.
CREATE OR REPLACE FUNCTION expire_questions() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    due bigint[];
    t   record;
BEGIN
    due := ARRAY(SELECT x.id FROM ticket AS x
                  WHERE x.state = 'waiting_claimant'
                    AND coalesce(x.answer_until, x.state_since + desk_number('answer_days') * interval '1 day') <= clock_timestamp()
                  ORDER BY x.id LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED);
    -- Owners are told one after the other: all of these in one order, or two who close many would wait for each other.
    PERFORM pg_advisory_xact_lock(7309941, n.key)
       FROM (SELECT DISTINCT hashint8(x.owner_key) AS key FROM ticket AS x
              WHERE x.id = ANY (due) AND x.owner_key IS NOT NULL ORDER BY 1) AS n;
    FOR t IN SELECT x.id, x.question FROM ticket AS x WHERE x.id = ANY (due) ORDER BY x.id LOOP
        PERFORM move_ticket(t.id, 'expire');
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, 'expired', jsonb_build_object('question', t.question));
    END LOOP;
    RETURN cardinality(due);
END
$$;

-- Has a user's purchases restored at once, as if they had tapped: the restore takes nothing away itself.
CREATE OR REPLACE FUNCTION desk_restore(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who operator := acting(session, 'restore');
    me  user_sync;
    job uuid;
BEGIN
    -- An erasure that has begun is waited for: nobody comes back by being read again.
    SELECT u.* INTO me FROM user_sync AS u WHERE u.user_key = which FOR KEY SHARE;
    IF me.user_id IS NULL THEN
        RETURN 'gone';
    END IF;
    IF is_own_account(who.id, which) THEN
        RETURN refuse_act(who, NULL, 'restore', 'own_case');
    END IF;
    job := request_restore(me.user_id);
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'restored', jsonb_build_object('user', which, 'job', job));
    RETURN NULL;
END
$$;

-- How long the owner of a ticket's purchase would have to object, in hours, for whoever may look at it; null: there is nobody to ask.
CREATE FUNCTION ticket_window(session bytea, which bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN (SELECT ceil(extract(epoch FROM e.owner_window) / 3600)::bigint
              FROM ticket AS t JOIN ticket_evidence AS e ON e.id = t.evidence_id
             WHERE t.id = which AND NOT is_own_case(who.id, t) AND t.owner_key IS NOT NULL AND e.owner_window > interval '0'
               AND NOT 'owner_erased' = ANY (e.facts));
END
$$;

-- Forgets what people asked of the desk a while ago, and what was typed for cases that are long over.
CREATE FUNCTION forget_questions() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    DELETE FROM dry_run AS r
     WHERE r.id = ANY (ARRAY(SELECT x.id FROM dry_run AS x WHERE x.asked_at < clock_timestamp() - interval '30 days'
                              ORDER BY x.asked_at LIMIT 10000 FOR UPDATE SKIP LOCKED));
    DELETE FROM ticket_claim AS c
     USING (SELECT x.ticket_id, x.kind, x.value FROM ticket_claim AS x JOIN ticket AS t ON t.id = x.ticket_id
             WHERE x.at < clock_timestamp() - interval '90 days' AND NOT is_open(t.state)
               AND t.closed_at < clock_timestamp() - interval '90 days'
             LIMIT 10000) AS o
     WHERE (c.ticket_id, c.kind, c.value) = (o.ticket_id, o.kind, o.value);
END
$$;

REVOKE ALL ON FUNCTION forget_questions, reveal_list, ticket_window FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT EXECUTE ON FUNCTION reveal_list, ticket_window TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY['GRANT EXECUTE ON FUNCTION forget_questions TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY['GRANT SELECT ON list_reveal TO %I']);
