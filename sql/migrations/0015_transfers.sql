-- What workers do for the desk: they collect evidence, and carry transfers out. Every step is on record before the next.

-- Keeps what was found out about a case: approvals on other evidence end, and a ticket whose cause has gone away is closed.
-- Returns the evidence's id; null: the ticket is closed by now, or newer evidence is there.
CREATE FUNCTION keep_evidence(which bigint, asked timestamptz, hash bytea, facts text[], hindrance text, suggested text,
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
            UPDATE ticket AS x SET verdict = NULL, decided_at = NULL WHERE x.id = which;
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
CREATE FUNCTION name_purchase(which bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A host's transaction that has just asked for its user is not waited for.
SET lock_timeout = '50ms' AS $$
DECLARE
    t   ticket;
    ids bigint[];
BEGIN
    PERFORM check_isolation();
    SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
    IF t.id IS NULL OR coalesce(t.purchase_id, t.subject_id) IS NOT NULL OR t.original_id IS NULL OR NOT is_open(t.state) THEN
        RETURN true;
    END IF;
    ids := ARRAY(SELECT DISTINCT living(i.purchase_id) FROM purchase_identifier AS i
                  WHERE i.value = t.original_id AND (t.store IS NULL OR i.store IN (t.store, 'revenuecat')));
    IF cardinality(ids) = 1 THEN
        UPDATE ticket AS x SET subject_id = ids[1] WHERE x.id = which;
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

CREATE FUNCTION note_step(which bigint, what text, about jsonb DEFAULT '{}') RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO transfer_step (transfer_id, step, detail) VALUES (which, what, about)
$$;

-- Lets a transfer go on, if everything still holds on evidence that was collected just now. Returns null: the next step is on
-- record, `calling` where there is something to call for, and what people agreed to is used up. `paused`, `step` and `unsettled`:
-- not now. Anything else: it has been stopped, and the ticket is open again. `turn`: as whose it was taken up.
CREATE FUNCTION allow_transfer(which bigint, turn integer, fresh bigint, moving text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    x    transfer;
    t    ticket;
    e    ticket_evidence;
    lack text;
BEGIN
    PERFORM check_isolation();
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which;
    SELECT y.* INTO STRICT t FROM ticket AS y WHERE y.id = x.ticket_id FOR NO KEY UPDATE;
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which FOR NO KEY UPDATE;
    SELECT y.* INTO e FROM ticket_evidence AS y WHERE y.id = t.evidence_id;
    IF x.step <> 'begun' OR x.tries <> turn OR t.state <> 'executing' OR e.id IS DISTINCT FROM fresh OR e.asked_at < x.begun_at
       OR e.asked_at < x.called_at OR e.collected_at < clock_timestamp() - interval '5 minutes' THEN
        RETURN 'step';
    END IF;
    IF EXISTS (SELECT 1 FROM control AS c WHERE c.name IN ('transfers', 'all') AND c.paused) THEN
        RETURN 'paused';
    END IF;
    -- A call may do its work after we have stopped to wait for its answer: nothing is called or given up before.
    IF x.called_at > clock_timestamp() - interval '10 minutes' THEN
        RETURN 'unsettled';
    END IF;
    -- Those that were used by an earlier call of this transfer count again: nothing came of that call.
    UPDATE ticket_approval AS a SET ended_at = NULL, ended_by = NULL
     WHERE x.calls > 0 AND a.ticket_id = t.id AND a.ended_by = 'used' AND a.at < x.begun_at;
    lack := approvals_lack(t.id);
    IF lack IS NULL AND cardinality(moving) > 0 AND x.calls >= 5 THEN
        lack := 'no_effect';
    END IF;
    IF lack IS NULL THEN
        PERFORM end_approvals(t.id, 'used');
        UPDATE transfer AS y
           SET evidence_id = fresh, moves = moving, step = CASE WHEN cardinality(moving) = 0 THEN 'confirmed' ELSE 'calling' END,
               calls = y.calls + CASE WHEN cardinality(moving) = 0 THEN 0 ELSE 1 END,
               called_at = CASE WHEN cardinality(moving) = 0 THEN y.called_at ELSE clock_timestamp() END,
               due = clock_timestamp() + interval '2 minutes'
         WHERE y.id = which;
        PERFORM note_step(which, CASE WHEN cardinality(moving) = 0 THEN 'confirmed' ELSE 'calling' END,
                          jsonb_build_object('evidence', fresh, 'moves', cardinality(moving)));
        RETURN NULL;
    END IF;
    PERFORM end_approvals(t.id, ending_for(lack));
    UPDATE transfer AS y SET step = 'stopped', last_error = lack, ended_at = clock_timestamp() WHERE y.id = which;
    PERFORM note_step(which, 'stopped', jsonb_build_object('reason', lack));
    PERFORM move_ticket(t.id, 'stopped');
    -- What has changed is looked at again, and closes the ticket where its cause has gone away.
    UPDATE ticket AS y SET verdict = NULL, decided_at = NULL, evidence_due = clock_timestamp() WHERE y.id = t.id;
    INSERT INTO ticket_event (ticket_id, kind, detail)
    VALUES (t.id, 'transfer_stopped', jsonb_build_object('reason', lack));
    RETURN lack;
END
$$;

-- Records what a reading showed after a call was begun: the purchases have moved, or nothing has come of it so far. `refused`:
-- RevenueCat said that it did nothing, so that nothing is on its way. Returns the step where the transfer stands now.
CREATE FUNCTION settle_call(which bigint, turn integer, has_moved boolean, refused boolean) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    x transfer;
BEGIN
    PERFORM check_isolation();
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which FOR NO KEY UPDATE;
    IF x.tries = turn AND x.calls > 0 AND (x.step = 'calling' OR x.step = 'begun' AND has_moved) THEN
        x.step := CASE WHEN has_moved THEN 'confirmed' ELSE 'begun' END;
        UPDATE transfer AS y SET step = x.step, called_at = CASE WHEN NOT refused THEN y.called_at END WHERE y.id = which;
        PERFORM note_step(which, CASE WHEN has_moved THEN 'confirmed' ELSE 'not_moved' END);
    END IF;
    RETURN x.step;
END
$$;

-- Carries a transfer that is confirmed into our own records, and ends it: the purchases are the claimant's, both users are
-- read again, and what else was open about these purchases is closed. Returns how many purchases; null: our records do not let
-- it be, and people have to look.
CREATE FUNCTION settle_transfer(which bigint) RETURNS integer
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
    IF x.step <> 'confirmed' OR t.state <> 'executing'
       OR (SELECT count(*) FROM ticket_approval AS a JOIN ticket_evidence AS e ON e.id = x.evidence_id AND e.hash = a.hash
            WHERE a.ticket_id = t.id AND a.ended_by = 'used')
          < coalesce((SELECT e.approvals FROM ticket_evidence AS e WHERE e.id = x.evidence_id), 1) THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('transfer %s has not been allowed and confirmed', which),
            HINT = 'See the tables entitlement_sync.transfer and transfer_step.';
    END IF;
    -- Without a call, what was allowed is done at once or allowed again.
    IF x.calls = 0 AND (SELECT max(s.at) FROM transfer_step AS s WHERE s.transfer_id = which) < clock_timestamp() - interval '5 minutes' THEN
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

-- Puts back what nobody holds any more, lets windows end, and takes back what people agreed to too long ago. Returns how many
-- tickets.
CREATE FUNCTION tend_tickets() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A host's transaction that has just asked for its user is not waited for.
SET lock_timeout = '50ms' AS $$
DECLARE
    t       record;
    tended  integer := 0;
    ended   bigint[];
BEGIN
    -- What was given while a case was open ends with it.
    WITH over AS (
        UPDATE "grant" AS g SET revoked_at = clock_timestamp()
          FROM ticket AS x
         WHERE g.id = x.lent_grant_id AND NOT is_open(x.state) AND g.revoked_at IS NULL AND g.until > clock_timestamp()
        RETURNING g.user_key
    )
    SELECT array_agg(DISTINCT o.user_key ORDER BY o.user_key) INTO ended FROM over AS o;
    IF ended IS NOT NULL THEN
        PERFORM reread(ended);
        tended := cardinality(ended);
    END IF;
    DELETE FROM ticket_news AS n WHERE n.at < clock_timestamp() - interval '3 days';
    FOR t IN SELECT x.id, x.state, x.owner_until FROM ticket AS x
              WHERE x.state = 'claimed' AND x.holder_until <= clock_timestamp()
                 OR x.state = 'waiting_owner' AND coalesce(x.owner_until, '-infinity') <= clock_timestamp()
                 OR x.state IN ('needs_second', 'waiting_owner', 'approved')
                    AND EXISTS (SELECT 1 FROM ticket_approval AS a
                                 WHERE a.ticket_id = x.id AND a.ended_at IS NULL AND a.expires_at <= clock_timestamp())
                 OR x.state IN ('waiting_owner', 'approved')
                    AND (SELECT count(*) FROM ticket_approval AS a WHERE a.ticket_id = x.id AND a.ended_at IS NULL)
                        < (SELECT e.approvals FROM ticket_evidence AS e WHERE e.id = x.evidence_id)
              ORDER BY x.id LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        IF t.state = 'claimed' THEN
            PERFORM move_ticket(t.id, 'release');
            INSERT INTO ticket_event (ticket_id, kind) VALUES (t.id, 'lease_ended');
        ELSIF EXISTS (SELECT 1 FROM ticket_approval AS a
                       WHERE a.ticket_id = t.id AND a.ended_at IS NULL AND a.expires_at <= clock_timestamp()) THEN
            PERFORM void_approvals(t.id, 'expired');
        ELSIF (SELECT count(*) FROM ticket_approval AS a WHERE a.ticket_id = t.id AND a.ended_at IS NULL)
              < (SELECT e.approvals FROM ticket AS y JOIN ticket_evidence AS e ON e.id = y.evidence_id WHERE y.id = t.id) THEN
            PERFORM void_approvals(t.id, 'role_lost');
        ELSE
            PERFORM move_ticket(t.id, 'window_ended');
            INSERT INTO ticket_event (ticket_id, kind) VALUES (t.id, 'window_ended');
        END IF;
        tended := tended + 1;
    END LOOP;
    RETURN tended;
END
$$;

-- Passes on what people are to hear of their tickets, to be delivered to them. Returns how many messages.
CREATE FUNCTION tell_tickets(most integer) RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    WITH news AS (
        DELETE FROM ticket_news AS n
         WHERE n.id = ANY (ARRAY(SELECT x.id FROM ticket_news AS x ORDER BY x.id LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING n.*
    ), told AS (
        -- Nobody is told of what is long over.
        INSERT INTO outbox (user_key, topic, data)
        SELECT n.user_key, n.topic, n.data FROM news AS n WHERE n.at > clock_timestamp() - interval '3 days' ORDER BY n.id
    )
    SELECT count(*)::integer FROM news
$$;

REVOKE ALL ON FUNCTION tell_tickets, keep_evidence, name_purchase, note_step, allow_transfer, settle_call, settle_transfer, tend_tickets FROM PUBLIC;
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION tell_tickets, living, keep_evidence, name_purchase, allow_transfer, settle_call, settle_transfer,
                               tend_tickets TO %I']);
