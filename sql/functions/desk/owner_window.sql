-- The owner window, in which a purchase's owner may object or agree; how a senior waives it; and the owner's consent.

-- Asks the owner about a transfer, or keeps the question that was asked; the window lasts from when it was asked. Returns when it ends.
CREATE OR REPLACE FUNCTION ask_owner(which bigint, lasting interval) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    now  timestamptz := clock_timestamp();
    ends timestamptz;
BEGIN
    -- The same moment in both columns: a window of zero leaves them equal, which means that the owner was not asked.
    INSERT INTO owner_window AS w (ticket_id, asked_at, ends_at) VALUES (which, now, now + lasting)
    ON CONFLICT (ticket_id) DO UPDATE
       SET asked_at = coalesce(w.asked_at, excluded.asked_at), ends_at = coalesce(w.asked_at, excluded.asked_at) + lasting;
    PERFORM settle_window(which);
    UPDATE owner_window AS w
       SET notified_at = CASE WHEN w.ends_at > w.asked_at THEN coalesce(w.notified_at, w.asked_at) ELSE w.notified_at END
     WHERE w.ticket_id = which RETURNING w.ends_at INTO ends;
    RETURN ends;
END
$$;

-- Drops a waiver that no longer counts, or whose ticket is `new` again; then sets when the window ends: at the owner's agreement or at the
-- waiver, if there is one, else at its full length.
CREATE OR REPLACE FUNCTION settle_window(which bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    v owner_waiver;
    t ticket;
    e ticket_evidence;
BEGIN
    SELECT x.* INTO v FROM owner_waiver AS x WHERE x.ticket_id = which;
    IF v.ticket_id IS NOT NULL THEN
        SELECT x.* INTO t FROM ticket AS x WHERE x.id = which;
        SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
        -- For a running transfer `approvals_lack` checks whether the waiver counts.
        IF t.state NOT IN ('executing', 'transferred') AND (t.state = 'new' OR waiver_counts(v, t, e) IS NOT TRUE) THEN
            DELETE FROM owner_waiver AS x WHERE x.ticket_id = which;
            v := NULL;
            UPDATE owner_window AS w SET ends_at = w.asked_at + e.owner_window WHERE w.ticket_id = which;
        END IF;
    END IF;
    UPDATE owner_window AS w SET ends_at = least(w.consented_at, v.at)
     WHERE w.ticket_id = which AND w.ends_at > least(w.consented_at, v.at);
END
$$;

-- Ends the question to a ticket's owner, and deletes their agreement and any waiver. Their objection stays, and so does that they know of
-- the ticket.
CREATE OR REPLACE FUNCTION end_owner_question(which bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    DELETE FROM owner_waiver AS v WHERE v.ticket_id = which;
    UPDATE owner_window AS w SET asked_at = NULL, ends_at = NULL, consented_at = NULL
     WHERE w.ticket_id = which AND w.asked_at IS NOT NULL
$$;

-- Notes that a ticket's owner, if it has one, knows of it.
CREATE OR REPLACE FUNCTION note_owner_knows(which bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO owner_window AS w (ticket_id, notified_at)
    SELECT t.id, clock_timestamp() FROM ticket AS t WHERE t.id = which AND t.owner_key IS NOT NULL
    ON CONFLICT (ticket_id) DO UPDATE SET notified_at = coalesce(w.notified_at, excluded.notified_at)
$$;

-- Records that the owner agrees to what they are asked now, if they are asked; the window ends.
CREATE OR REPLACE FUNCTION note_agreement(which bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    UPDATE owner_window AS w SET consented_at = coalesce(w.consented_at, clock_timestamp())
     WHERE w.ticket_id = which AND w.asked_at IS NOT NULL;
    SELECT settle_window(which)
$$;

-- Records that the owner objects. From then on they know of the ticket.
CREATE OR REPLACE FUNCTION note_objection(which bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO owner_window AS w (ticket_id, objected_at, notified_at) VALUES (which, clock_timestamp(), clock_timestamp())
    ON CONFLICT (ticket_id) DO UPDATE
       SET objected_at = excluded.objected_at, notified_at = coalesce(w.notified_at, w.asked_at, excluded.notified_at)
$$;

CREATE OR REPLACE FUNCTION has_objection(which bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM owner_window AS w WHERE w.ticket_id = which AND w.objected_at IS NOT NULL)
$$;

-- The hours of a ticket's owner window, for an operator who may see the ticket; null: there is no owner to ask, or no evidence.
CREATE OR REPLACE FUNCTION ticket_window(session bytea, which bigint) RETURNS bigint
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

-- Ends the rest of the owner window, for a senior and on the present evidence. A waiver is not an approval, and the owner may still
-- object. `words`: why. Returns null, or the reason for the refusal.
CREATE OR REPLACE FUNCTION waive_owner_window(session bytea, which bigint, words text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who operator := acting(session, 'override', interval '10 minutes');
    got record;
    t   ticket;
    e   ticket_evidence;
    w   owner_window;
BEGIN
    PERFORM check_words('reason', words, 'Say in a sentence why the owner is not waited for.');
    PERFORM lock_participants(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'waive', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    SELECT x.* INTO w FROM owner_window AS x WHERE x.ticket_id = which;
    IF w.objected_at IS NOT NULL THEN
        RETURN refuse_act(who, which, 'waive', 'owner_objected');
    END IF;
    IF t.state NOT IN ('needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'waive', 'state');
    END IF;
    IF w.ends_at IS NULL OR w.ends_at <= clock_timestamp() THEN
        RETURN refuse_act(who, which, 'waive', 'no_window');
    END IF;
    SELECT x.* INTO STRICT e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    -- Outside `needs_second` all approvals are there: one of them has to come from an operator other than the senior.
    IF t.state <> 'needs_second' AND NOT others_agree(t, e, who.id) THEN
        RETURN refuse_act(who, which, 'waive', 'only_approver');
    END IF;
    INSERT INTO owner_waiver (ticket_id, operator_id, hash) VALUES (which, who.id, e.hash)
    ON CONFLICT (ticket_id) DO UPDATE SET operator_id = excluded.operator_id, hash = excluded.hash, at = excluded.at;
    PERFORM settle_window(which);
    PERFORM note_event(who, which, 'owner_window_waived', jsonb_build_object('until', moment(w.ends_at)));
    PERFORM add_note(who, which, words);
    IF t.state = 'waiting_owner' THEN
        PERFORM move_ticket(which, 'window_ended');
    END IF;
    RETURN NULL;
END
$$;

-- Whether a waiver counts: on this evidence, and by an operator who still has the permission `override`.
CREATE OR REPLACE FUNCTION waiver_counts(v owner_waiver, t ticket, e ticket_evidence) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT v.hash = e.hash AND may_decide(v.operator_id, v.at, t, 'override')
$$;

-- The operator who waived the owner window, and when, for an operator who may see the ticket; no row: there is no waiver.
CREATE OR REPLACE FUNCTION ticket_waiver(session bytea, which bigint) RETURNS TABLE (at timestamptz, operator text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT v.at, o.name
      FROM ticket AS t JOIN owner_waiver AS v ON v.ticket_id = t.id JOIN operator AS o ON o.id = v.operator_id
     WHERE t.id = which AND NOT is_own_case(who.id, t);
END
$$;

-- Records an owner's consent: their purchase may go to the account whose app shows the reference. The caller gets the same answer
-- whether a claimant has the reference or not.
CREATE OR REPLACE FUNCTION consent_to_transfer(wanted text, spoken text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- Fails soon if another transaction has locked the user's row, so that the caller frees its connection.
SET lock_timeout = '500ms' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    code  text := upper(spoken);
    known bigint;
    made  bigint;
    cases bigint[];
    notified  bigint[];
    t     ticket;
BEGIN
    PERFORM check_isolation();
    IF spoken IS NULL OR NOT spoken ~* '^[RT]-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reference: must be such as R-7K3Q-92',
            HINT = 'Let the person copy it from the app that is signed in to their other account.';
    END IF;
    known := user_key_of(wanted);
    -- Locks the owner's row: one consent at a time for each owner, and none after an erasure that has begun.
    PERFORM FROM user_sync AS u WHERE u.user_key = known AND u.user_id = wanted FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ES001', MESSAGE = 'user_id: there is no such user', HINT = 'Sign the user in again.';
    END IF;
    -- The number of consents a day is limited. A consent that the owner took back cannot be given again for a day.
    IF (SELECT count(*) FROM purchase_consent AS r
         WHERE r.owner_key = known AND r.reference <> code AND r.at > clock_timestamp() - interval '1 day')
       >= desk_number('consents_per_day')
       OR EXISTS (SELECT 1 FROM purchase_consent AS r
                   WHERE r.owner_key = known AND r.reference = code AND r.ended_at > clock_timestamp() - interval '1 day') THEN
        RAISE EXCEPTION USING ERRCODE = 'ES008', MESSAGE = 'reference: enough were given today',
            HINT = 'Let the person check the reference, and try again tomorrow.';
    END IF;
    INSERT INTO purchase_consent AS r (owner_key, reference) VALUES (known, code) ON CONFLICT (owner_key, reference) DO NOTHING;
    SELECT r.id INTO made FROM purchase_consent AS r WHERE r.owner_key = known AND r.reference = code;
    cases := ARRAY(WITH item AS MATERIALIZED (
                       SELECT l.id FROM lineage(ARRAY(SELECT p.id FROM purchase AS p
                                                       WHERE p.owner_key = known AND p.merged_into IS NULL)) AS l(id)
                   ), about AS MATERIALIZED (
                       SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.purchase_id = i.id WHERE is_open(x.state)
                        UNION
                       SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.subject_id = i.id
                        WHERE x.purchase_id IS NULL AND is_open(x.state)
                   )
                   SELECT a.id FROM about AS a WHERE a.claimant_key <> known AND has_reference(a.claimant_key, code));
    -- A ticket that already has this consent is not changed again.
    notified := ARRAY(SELECT c FROM unnest(cases) AS c
                   WHERE has_owner_consent(c)
                     AND EXISTS (SELECT 1 FROM ticket_event AS e
                                  WHERE e.ticket_id = c AND e.kind = 'owner_consented' AND e.detail ->> 'release' = made::text));
    UPDATE purchase_consent AS r SET at = clock_timestamp(), ended_at = NULL WHERE r.id = made;
    FOR t IN SELECT x.* FROM ticket AS x WHERE x.id = ANY (cases) ORDER BY x.id FOR NO KEY UPDATE LOOP
        UPDATE purchase_consent AS r SET claimant_key = t.claimant_key WHERE r.id = made;
        -- The ticket may have been closed while this transaction waited for its row.
        CONTINUE WHEN NOT is_open(t.state) OR t.id = ANY (notified);
        IF t.owner_key = known THEN
            PERFORM note_owner_knows(t.id);
        END IF;
        IF t.state <> 'executing' THEN
            PERFORM request_evidence(t.id);
            -- A consent also agrees to the transfer. If the owner has objected as well, it does not: operators decide.
            IF t.owner_key = known AND NOT has_objection(t.id) THEN
                PERFORM note_agreement(t.id);
            END IF;
        END IF;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, 'owner_consented', jsonb_build_object('release', made));
    END LOOP;
END
$$;

-- Whether the purchase's owner has consented to the claimant, since they own it and within the last `consent_days` days.
CREATE OR REPLACE FUNCTION has_owner_consent(which bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (
        SELECT 1 FROM ticket AS t
          JOIN purchase AS p ON p.id = purchase_of(t)
          JOIN purchase_consent AS r ON r.owner_key = p.owner_key
         WHERE t.id = which AND p.owner_key <> t.claimant_key AND r.at > p.owner_since AND r.ended_at IS NULL
           AND r.at > clock_timestamp() - desk_number('consent_days') * interval '1 day'
           -- The owner may have consented before it was known which purchase the claimant means.
           AND (r.claimant_key = t.claimant_key OR r.claimant_key IS NULL AND has_reference(t.claimant_key, r.reference)))
$$;
