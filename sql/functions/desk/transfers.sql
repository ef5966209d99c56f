-- Transfers: how an approved one is carried out, step by step.

-- Begins an approved transfer, which a worker then carries out. Returns null, or the reason for the refusal.
CREATE OR REPLACE FUNCTION begin_transfer(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who  operator := acting(session, 'transfer', interval '10 minutes');
    t    ticket;
    got  record;
    lack text;
    item bigint;
    keys bigint[];
    ends timestamptz;
BEGIN
    -- Locks users before tickets, as every function does. No user takes part in two transfers at once.
    SELECT array_agg(k ORDER BY k) INTO keys
      FROM (SELECT DISTINCT unnest(ARRAY[x.claimant_key, x.owner_key]) AS k FROM ticket AS x WHERE x.id = which) AS n
     WHERE k IS NOT NULL;
    PERFORM FROM user_sync AS u WHERE u.user_key = ANY (keys) ORDER BY u.user_key FOR NO KEY UPDATE;
    SELECT f.* INTO got FROM ticket_for(who, which, 'transfer', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF are_transfers_paused() THEN
        RETURN refuse_act(who, which, 'transfer', 'paused');
    END IF;
    SELECT w.ends_at INTO ends FROM owner_window AS w WHERE w.ticket_id = which;
    IF t.state = 'waiting_owner' AND ends <= clock_timestamp() THEN
        PERFORM move_ticket(which, 'window_ended');
        SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
    END IF;
    IF t.state IN ('waiting_owner', 'approved') AND ends > clock_timestamp() THEN
        RETURN refuse_act(who, which, 'transfer', 'waiting_owner');
    END IF;
    IF t.state <> 'approved' THEN
        RETURN refuse_act(who, which, 'transfer', 'state');
    END IF;
    item := purchase_of(t);
    lack := CASE WHEN item IS NULL OR NOT t.claimant_key = ANY (keys) OR NOT coalesce(t.owner_key = ANY (keys), true)
                      OR (SELECT p.owner_key FROM purchase AS p WHERE p.id = item) IS DISTINCT FROM t.owner_key
                 THEN 'evidence_changed' ELSE approvals_lack(which) END;
    IF lack IS NOT NULL THEN
        PERFORM void_approvals(which, ending_for(lack));
        PERFORM request_evidence(which);
        RETURN refuse_act(who, which, 'transfer', lack);
    END IF;
    IF EXISTS (SELECT 1 FROM transfer AS x
                WHERE x.step NOT IN ('done', 'stopped')
                  AND (x.from_key = ANY (keys) OR x.to_key = ANY (keys) OR surviving_purchase(x.purchase_id) = item)) THEN
        RETURN refuse_act(who, which, 'transfer', 'busy');
    END IF;
    BEGIN
        PERFORM move_ticket(which, 'execute');
        INSERT INTO transfer (ticket_id, from_key, to_key, purchase_id, begun_by)
        VALUES (which, t.owner_key, t.claimant_key, item, who.id);
    EXCEPTION WHEN unique_violation THEN
        -- Two claimants of a purchase without an owner share no user row, so that the user locks do not keep them apart.
        RETURN refuse_act(who, which, 'transfer', 'busy');
    END;
    PERFORM note_event(who, which, 'transfer_begun');
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION are_transfers_paused() RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM control AS c WHERE c.name IN ('transfers', 'all') AND c.paused)
$$;

-- Lets a transfer go on, if its approvals still count on evidence that was collected just now. Returns null: the next step (`calling`,
-- or `confirmed` if there is nothing to move) is recorded, and the approvals are used. `paused`, `step`, `unsettled`: not now. Any
-- other reason: the transfer was stopped, and the ticket is open again. `turn`: the `tries` under which the worker took it.
CREATE OR REPLACE FUNCTION allow_transfer(which bigint, turn integer, fresh bigint, moving text[]) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    x    transfer;
    t    ticket;
    e    ticket_evidence;
    lack text;
    said jsonb;
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
    IF are_transfers_paused() THEN
        RETURN 'paused';
    END IF;
    -- A call may take effect after the worker stopped waiting for its answer. For ten minutes the worker neither calls again nor stops.
    IF x.called_at > clock_timestamp() - interval '10 minutes' THEN
        RETURN 'unsettled';
    END IF;
    -- An earlier call of this transfer had no effect.
    IF x.calls > 0 THEN
        PERFORM revive_approvals(x);
    END IF;
    lack := approvals_lack(t.id);
    -- For the purchases that move along: a chargeback may have been recorded just after the evidence was collected.
    IF lack IS NULL
       AND charged_back(purchases_to_move(x.purchase_id, moving)) IS NOT NULL THEN
        lack := 'hindrance';
    END IF;
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
    PERFORM stop_transfer(x, lack);
    -- Records the facts of the evidence: the desk names those that forbid a transfer. With none of them the reason is a chargeback that is
    -- newer than the evidence.
    said := jsonb_build_object('reason', lack)
         || CASE WHEN lack = 'hindrance' THEN jsonb_build_object('facts', e.facts) ELSE '{}' END;
    PERFORM note_step(which, 'stopped', said);
    INSERT INTO ticket_event (ticket_id, kind, detail) VALUES (t.id, 'transfer_stopped', said);
    RETURN lack;
END
$$;

-- Stops a transfer and moves its ticket to `new`. The worker collects the evidence again, and closes the ticket if its cause has gone.
CREATE OR REPLACE FUNCTION stop_transfer(x transfer, why text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    UPDATE transfer AS y SET step = 'stopped', last_error = why, ended_at = clock_timestamp() WHERE y.id = x.id;
    PERFORM move_ticket(x.ticket_id, 'stopped');
    PERFORM request_evidence(x.ticket_id);
END
$$;

-- Makes the approvals that a transfer used count again: nothing has moved.
CREATE OR REPLACE FUNCTION revive_approvals(x transfer) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE ticket_approval AS a SET ended_at = NULL, ended_by = NULL
     WHERE a.ticket_id = x.ticket_id AND a.ended_by = 'used' AND a.at < x.begun_at
$$;

-- The surviving purchases that a transfer moves: its own, and those with the RevenueCat ids `moving`.
CREATE OR REPLACE FUNCTION purchases_to_move(own bigint, moving text[]) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT array_agg(DISTINCT surviving_purchase(n.id))
      FROM (SELECT own AS id
             UNION ALL
            SELECT i.purchase_id FROM purchase_identifier AS i WHERE i.value = ANY (moving) AND i.kind = 'revenuecat_id') AS n
$$;

CREATE OR REPLACE FUNCTION note_step(which bigint, what text, about jsonb DEFAULT '{}') RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO transfer_step (transfer_id, step, detail) VALUES (which, what, about)
$$;

-- Records what a store read shows after a call began: the purchases have moved, or not so far. `refused`: RevenueCat answered that
-- it did nothing, so that no call is in flight. Returns the transfer's step.
CREATE OR REPLACE FUNCTION settle_call(which bigint, turn integer, has_moved boolean, refused boolean) RETURNS text
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

-- Writes a confirmed transfer into our records and ends it: the claimant owns the purchases, both users are read again, and other open
-- tickets about the purchases are closed. Returns how many purchases moved; 0: it was done already; -1: it was stopped, or has to be
-- allowed again; null: another user owns the purchase by now, and an operator has to decide.
CREATE OR REPLACE FUNCTION settle_transfer(which bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- Waits 50 ms at most for a host's transaction that has locked its user's row.
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
    -- Locks users, jobs, ledger and tickets, in the order in which a worker applies verdicts.
    PERFORM FROM user_sync AS u WHERE u.user_key = ANY (keys) ORDER BY u.user_key FOR NO KEY UPDATE;
    IF x.step = 'confirmed' THEN
        PERFORM reread(keys);
    END IF;
    items := purchases_to_move(x.purchase_id, x.moves);
    moved := ARRAY(SELECT p.id FROM purchase AS p
                    WHERE p.id = ANY (items) AND p.merged_into IS NULL
                      AND (p.owner_key IS NULL OR p.owner_key = ANY (keys))
                    ORDER BY p.id FOR NO KEY UPDATE);
    SELECT y.* INTO STRICT t FROM ticket AS y WHERE y.id = x.ticket_id FOR NO KEY UPDATE;
    SELECT y.* INTO STRICT x FROM transfer AS y WHERE y.id = which FOR NO KEY UPDATE;
    IF x.step = 'done' THEN
        RETURN 0;
    END IF;
    -- An operator or another worker changed the step meanwhile.
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
    -- A transfer without a call is allowed again if five minutes have passed, the claimant was erased, or a chargeback was recorded.
    IF x.calls = 0
       AND ((SELECT max(s.at) FROM transfer_step AS s WHERE s.transfer_id = which) < clock_timestamp() - interval '5 minutes'
            OR NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = x.to_key AND u.user_id IS NOT NULL)
            OR charged_back(ARRAY[x.purchase_id]) IS NOT NULL) THEN
        UPDATE transfer AS y SET step = 'begun' WHERE y.id = which;
        PERFORM revive_approvals(x);
        PERFORM note_step(which, 'too_late');
        RETURN -1;
    END IF;
    IF NOT coalesce(surviving_purchase(x.purchase_id) = ANY (moved), false) THEN
        RETURN NULL;
    END IF;
    -- Store reads that began earlier no longer decide the owner.
    UPDATE purchase AS p
       SET owner_since = CASE WHEN p.owner_key IS DISTINCT FROM x.to_key THEN clock_timestamp() ELSE p.owner_since END,
           owner_key = x.to_key, owner_rule = 'transferred', transferred_at = clock_timestamp(),
           observed_at = clock_timestamp(), former_owner_key = NULL, account_key = NULL
     WHERE p.id = ANY (moved);
    -- Only a purchase that gave access explains to its former owner why the access is gone.
    UPDATE user_sync AS u SET moved_away_at = clock_timestamp()
     WHERE u.user_key = x.from_key
       AND EXISTS (SELECT 1 FROM purchase AS p
                    WHERE p.id = ANY (moved) AND cardinality(p.entitlements) > 0 AND coalesce(p.gives_access, p.status = 'owned'));
    UPDATE transfer AS y SET step = 'done', ended_at = clock_timestamp(), last_error = NULL WHERE y.id = which;
    PERFORM owe_tokens(x);
    PERFORM note_step(which, 'done', jsonb_build_object('purchases', cardinality(moved)));
    PERFORM move_ticket(t.id, 'executed');
    INSERT INTO ticket_event (ticket_id, kind, detail)
    VALUES (t.id, 'transferred', jsonb_build_object('purchases', cardinality(moved)));
    FOR other IN SELECT y.id, y.claimant_key FROM ticket AS y
                  WHERE coalesce(y.purchase_id, y.subject_id) = ANY (ARRAY(SELECT lineage(moved)))
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

-- Resolves a transfer by hand: `not_moved` stops it, `moved` confirms its call. Before the first call the permission `transfer` is
-- enough; after a call a senior decides, who has checked RevenueCat. Returns null, or the reason for the refusal.
CREATE OR REPLACE FUNCTION resolve_transfer(session bytea, which bigint, how text) RETURNS text
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
    IF x.calls > 0 AND NOT role_may(who.role, 'override') THEN
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
        PERFORM stop_transfer(x, 'resolved_by_hand');
    END IF;
    PERFORM note_step(x.id, how, jsonb_build_object('operator', who.id));
    PERFORM note_event(who, which, 'transfer_resolved', jsonb_build_object('how', how));
    RETURN NULL;
END
$$;

-- Plans an update of the App Store's account token for each moved purchase, in the transaction that gives it to the claimant.
CREATE OR REPLACE FUNCTION owe_tokens(x transfer) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    items bigint[] := purchases_to_move(x.purchase_id, x.moves);
BEGIN
    -- An older update of the same purchase is due at once: a worker makes one at a time, the oldest first.
    UPDATE transfer_token AS k SET due = clock_timestamp()
     WHERE surviving_purchase(k.purchase_id) = ANY (items) AND k.state = 'due' AND k.due > clock_timestamp() + interval '2 minutes';
    INSERT INTO transfer_token (transfer_id, purchase_id)
    SELECT x.id, p.id FROM purchase AS p
     WHERE p.id = ANY (items) AND p.store = 'app_store' AND p.owner_key = x.to_key AND p.owner_rule = 'transferred'
     ORDER BY p.id
    ON CONFLICT DO NOTHING;
END
$$;

-- What became of the account tokens of a ticket's transfer, for an operator who may see the ticket.
CREATE OR REPLACE FUNCTION ticket_tokens(session bytea, which bigint)
RETURNS TABLE (product_id text, state text, reason text, tries smallint, ended_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT p.product_id, k.state, k.reason, k.tries, k.ended_at
      FROM ticket AS t
      JOIN transfer AS x ON x.ticket_id = t.id
      JOIN transfer_token AS k ON k.transfer_id = x.id
      LEFT JOIN purchase AS p ON p.id = k.purchase_id
     WHERE t.id = which AND NOT is_own_case(who.id, t)
     ORDER BY k.id;
END
$$;

-- Plans again the token updates that were skipped, refused or given up. Returns null, or the reason for the refusal.
CREATE OR REPLACE FUNCTION retry_tokens(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'transfer');
    got record;
BEGIN
    SELECT f.* INTO got FROM ticket_for(who, which, 'token', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    UPDATE transfer_token AS k SET state = 'due', reason = NULL, due = clock_timestamp(), tries = 0, turn = k.turn + 1, ended_at = NULL
      FROM transfer AS x
     WHERE x.ticket_id = which AND k.transfer_id = x.id AND k.state IN ('skipped', 'refused', 'given_up');
    IF NOT FOUND THEN
        RETURN refuse_act(who, which, 'token', 'no_token');
    END IF;
    PERFORM note_event(who, which, 'token_asked');
    RETURN NULL;
END
$$;
