-- compatible_from: 11
-- What was charged back is asked for where a case goes on as well: a list may tell of it between any two steps.

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
    -- The evidence may have been collected before a list told of it: it is collected anew, and nobody is asked meanwhile.
    IF charged_back(ARRAY[coalesce(t.purchase_id, t.subject_id)]) IS NOT NULL THEN
        UPDATE ticket AS x SET evidence_due = clock_timestamp() WHERE x.id = which;
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
            OR NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = x.to_key AND u.user_id IS NOT NULL)
            OR charged_back(ARRAY[x.purchase_id]) IS NOT NULL) THEN
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
