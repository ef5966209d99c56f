-- A senior who skips the rest of the time that an owner has to object; and the account tokens that the App Store keeps with what was
-- moved.

-- ---- The owner's time -----------------------------------------------------------------------------------------------

ALTER TABLE ticket
    ADD COLUMN owner_waived_at   timestamptz,
    ADD COLUMN owner_waived_by   bigint,
    ADD COLUMN owner_waived_hash bytea,
    ADD CONSTRAINT ticket_waiver CHECK (num_nulls(owner_waived_at, owner_waived_by, owner_waived_hash) IN (0, 3));
COMMENT ON COLUMN ticket.owner_waived_at IS 'when a senior skipped the rest of the owner''s time; nobody has agreed by that';
COMMENT ON COLUMN ticket.owner_waived_by IS 'which operator';
COMMENT ON COLUMN ticket.owner_waived_hash IS 'on which evidence';

-- Whether what a senior skipped is skipped still: by the operator of this moment, and on this evidence.
CREATE FUNCTION waiver_counts(t ticket, e ticket_evidence) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT t.owner_waived_hash = e.hash AND t.owner_waived_at > coalesce(o.lost_at, '-infinity') AND o.disabled_at IS NULL
           AND coalesce(o.held_until <= clock_timestamp(), true) AND NOT is_own_case(o.id, t)
           AND EXISTS (SELECT 1 FROM desk_duty AS d WHERE d.duty = 'override' AND d.role = o.role)
      FROM operator AS o WHERE o.id = t.owner_waived_by
$$;

-- Whether somebody other than an operator has agreed who counts.
CREATE FUNCTION others_agree(t ticket, e ticket_evidence, who bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM ticket_approval AS a
                    WHERE a.ticket_id = t.id AND a.ended_at IS NULL AND a.operator_id <> who AND approval_counts(a, t, e, 'approve'))
$$;

-- Until when the owner may object, however often it is reckoned anew: who agreed is waited for no longer, nor is one whose time a
-- senior skipped. Who is asked again has not agreed. What was skipped runs on where the case begins anew, where the evidence is
-- another, and where whoever skipped it might not do so now.
CREATE OR REPLACE FUNCTION keep_agreement() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    e ticket_evidence;
BEGIN
    IF NEW.owner_asked_at IS NULL THEN
        NEW.owner_yes_at := NULL;
    END IF;
    -- What has begun asks for itself whether it counts.
    IF NEW.owner_waived_at IS NOT NULL AND NEW.state NOT IN ('executing', 'transferred') THEN
        SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = NEW.evidence_id;
        IF NEW.owner_asked_at IS NULL OR NEW.state = 'new' OR waiver_counts(NEW, e) IS NOT TRUE THEN
            NEW.owner_waived_at := NULL;
            NEW.owner_waived_by := NULL;
            NEW.owner_waived_hash := NULL;
            NEW.owner_until := NEW.owner_asked_at + e.owner_window;
        END IF;
    END IF;
    IF NEW.owner_until IS NOT NULL THEN
        NEW.owner_until := least(NEW.owner_until, NEW.owner_yes_at, NEW.owner_waived_at);
    END IF;
    RETURN NEW;
END
$$;
DROP TRIGGER keep_agreement ON ticket;
CREATE TRIGGER keep_agreement
    BEFORE UPDATE OF state, evidence_id, owner_asked_at, owner_until, owner_yes_at, owner_waived_at ON ticket FOR EACH ROW
    WHEN (NEW.owner_yes_at IS NOT NULL OR NEW.owner_waived_at IS NOT NULL) EXECUTE FUNCTION keep_agreement();

-- What speaks against a transfer at this moment; null: nothing. Whoever asks holds the ticket's row.
CREATE OR REPLACE FUNCTION approvals_lack(which bigint) RETURNS text
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
      WHERE o.id = t.owner_waived_by
         OR o.id IN (SELECT a.operator_id FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL)
      ORDER BY o.id FOR SHARE;
    SELECT count(*) AS agreed, bool_or(a.hash <> e.hash) AS changed, bool_or(a.expires_at <= clock_timestamp()) AS expired,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve')) AS good,
           count(*) FILTER (WHERE approval_counts(a, t, e, 'approve') AND approval_counts(a, t, e, 'override')) AS seniors
      INTO n
      FROM ticket_approval AS a WHERE a.ticket_id = which AND a.ended_at IS NULL;
    IF n.changed THEN
        RETURN 'evidence_changed';
    END IF;
    -- A word that was said after the evidence was read counts as one that it leaves out.
    IF t.owner_no_at IS NOT NULL AND (NOT 'owner_objected' = ANY (e.facts) OR t.owner_no_at > e.asked_at) THEN
        RETURN 'owner_objected';
    END IF;
    IF 'owner_released' = ANY (e.facts) AND NOT is_released(which) THEN
        RETURN 'evidence_changed';
    END IF;
    IF n.good < e.approvals THEN
        RETURN CASE WHEN n.expired THEN 'expired' WHEN n.agreed > n.good THEN 'role_lost' ELSE 'approvals' END;
    END IF;
    IF e.hindrance = 'needs_senior' AND n.seniors = 0 THEN
        RETURN 'needs_senior';
    END IF;
    -- A time that would still run is over by a waiver that counts, and by nobody's alone.
    IF t.owner_waived_at IS NOT NULL AND t.owner_yes_at IS NULL AND t.owner_asked_at + e.owner_window > clock_timestamp() THEN
        IF waiver_counts(t, e) IS NOT TRUE THEN
            RETURN 'role_lost';
        END IF;
        IF NOT others_agree(t, e, t.owner_waived_by) THEN
            RETURN 'approvals';
        END IF;
    END IF;
    RETURN NULL;
END
$$;

-- Skips the rest of the time that the owner has to object, on the evidence as it is. Nobody has agreed by that, and the owner may
-- object until the transfer begins. `words`: why.
CREATE FUNCTION waive_owner_window(session bytea, which bigint, words text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who operator := acting(session, 'override', interval '10 minutes');
    got record;
    t   ticket;
    e   ticket_evidence;
BEGIN
    IF words IS NULL OR length(words) NOT BETWEEN 1 AND 4000 OR btrim(words, E' \t\r\n') = '' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reason: has to have 1 to 4000 characters',
            HINT = 'Say in a sentence why the owner is not waited for.';
    END IF;
    PERFORM keep_people(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'waive', false) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    t := got.t;
    IF t.owner_no_at IS NOT NULL THEN
        RETURN refuse_act(who, which, 'waive', 'owner_objected');
    END IF;
    IF t.state NOT IN ('needs_second', 'waiting_owner', 'approved') THEN
        RETURN refuse_act(who, which, 'waive', 'state');
    END IF;
    IF t.owner_until IS NULL OR t.owner_until <= clock_timestamp() THEN
        RETURN refuse_act(who, which, 'waive', 'no_window');
    END IF;
    SELECT x.* INTO STRICT e FROM ticket_evidence AS x WHERE x.id = t.evidence_id;
    -- Where nobody else has to agree any more, somebody else has to have agreed.
    IF t.state <> 'needs_second' AND NOT others_agree(t, e, who.id) THEN
        RETURN refuse_act(who, which, 'waive', 'only_approver');
    END IF;
    UPDATE ticket AS x
       SET owner_waived_at = clock_timestamp(), owner_waived_by = who.id, owner_waived_hash = e.hash
     WHERE x.id = which;
    PERFORM note_event(who, which, 'owner_window_waived', jsonb_build_object('until', moment(t.owner_until)));
    PERFORM add_note(who, which, words);
    IF t.state = 'waiting_owner' THEN
        PERFORM move_ticket(which, 'window_ended');
    END IF;
    RETURN NULL;
END
$$;

-- Who skipped the owner's time, and when, for whoever may look at the ticket; no row: nobody, or it runs again.
CREATE FUNCTION ticket_waiver(session bytea, which bigint) RETURNS TABLE (at timestamptz, operator text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT t.owner_waived_at, o.name
      FROM ticket AS t JOIN operator AS o ON o.id = t.owner_waived_by
     WHERE t.id = which AND NOT is_own_case(who.id, t);
END
$$;

-- ---- Account tokens -------------------------------------------------------------------------------------------------

-- The App Store goes on naming whoever it was told of, until it is told of somebody else: once for each purchase that was moved.
-- States: `due`; `set`; `skipped`, where there is nothing to tell it; `refused`, by the App Store; `given_up`, without an answer.
-- The transfer is done whatever becomes of it.
CREATE TABLE transfer_token (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id bigint      NOT NULL REFERENCES transfer ON DELETE CASCADE,
    purchase_id bigint      NOT NULL,
    state       text        NOT NULL DEFAULT 'due' CHECK (state IN ('due', 'set', 'skipped', 'refused', 'given_up')),
    reason      text,
    due         timestamptz NOT NULL DEFAULT clock_timestamp(),
    tries       smallint    NOT NULL DEFAULT 0,
    turn        bigint      NOT NULL DEFAULT 0,
    ended_at    timestamptz,
    UNIQUE (transfer_id, purchase_id),
    CHECK ((state = 'due') = (ended_at IS NULL))
);
CREATE INDEX transfer_token_due ON transfer_token (due) WHERE state = 'due';
CREATE INDEX transfer_token_purchase ON transfer_token (purchase_id, id) WHERE state = 'due';
COMMENT ON COLUMN transfer_token.reason IS 'a code: why it is not set, or why the last try failed';
COMMENT ON COLUMN transfer_token.tries IS 'how often it was taken up since somebody asked for it';
COMMENT ON COLUMN transfer_token.turn IS 'how often it was taken up at all: whoever was shut out writes nothing any more';

-- Owed from the moment in which our records give the purchases to the claimant, in the same transaction.
CREATE FUNCTION owe_tokens() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    items bigint[] := ARRAY(SELECT living(n.id) FROM (
                                SELECT NEW.purchase_id AS id
                                 UNION ALL
                                SELECT i.purchase_id FROM purchase_identifier AS i
                                 WHERE i.value = ANY (NEW.moves) AND i.kind = 'revenuecat_id') AS n);
BEGIN
    -- What an earlier transfer still owes has come to nothing: it is looked at before, and one at a time.
    UPDATE transfer_token AS k SET due = clock_timestamp()
     WHERE living(k.purchase_id) = ANY (items) AND k.state = 'due' AND k.due > clock_timestamp() + interval '2 minutes';
    INSERT INTO transfer_token (transfer_id, purchase_id)
    SELECT NEW.id, p.id FROM purchase AS p
     WHERE p.id = ANY (items) AND p.store = 'app_store' AND p.owner_key = NEW.to_key AND p.owner_rule = 'transferred'
     ORDER BY p.id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER owe_tokens AFTER UPDATE OF step ON transfer FOR EACH ROW
    WHEN (NEW.step = 'done' AND OLD.step <> 'done') EXECUTE FUNCTION owe_tokens();
CREATE TRIGGER tell_desk AFTER INSERT OR UPDATE OF state ON transfer_token FOR EACH ROW EXECUTE FUNCTION tell_desk();

-- What became of the account tokens of a ticket's transfer, for whoever may look at the ticket.
CREATE FUNCTION ticket_tokens(session bytea, which bigint)
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

-- Has the App Store told again where that came to nothing.
CREATE FUNCTION retry_tokens(session bytea, which bigint) RETURNS text
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

-- ---- What happened to a user ------------------------------------------------------------------------------------------

-- What happened to a user, in plain sentences; in the words of `explain`. Names nobody else.
CREATE OR REPLACE FUNCTION user_events(which bigint) RETURNS TABLE (at timestamptz, place bigint, kind text, words text)
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
    WITH me AS MATERIALIZED (
        SELECT which AS user_key
    ), events AS (
        SELECT o.asked_at AS at, o.id AS place, 'observation' AS kind,
               CASE WHEN o.store IS NULL THEN
                        CASE o.coverage WHEN 'full' THEN 'Every store was read to the end and holds no purchase.'
                                        ELSE 'The stores could not be read to the end.' END
                    ELSE format('%s shows a %s of the store %s (%s%s): status %s%s%s%s.',
                                CASE o.source WHEN 'revenuecat' THEN 'RevenueCat' WHEN 'app_store' THEN 'The App Store'
                                              WHEN 'google_play' THEN 'Google Play' WHEN 'onside' THEN 'Onside'
                                              ELSE o.source END,
                                CASE o.kind WHEN 'subscription' THEN 'subscription' ELSE 'one-time purchase' END,
                                o.store, o.environment,
                                CASE o.ownership WHEN 'family_shared' THEN ', family shared' ELSE '' END, o.status,
                                CASE o.gives_access WHEN true THEN ', gives access' WHEN false THEN ', gives no access'
                                                    ELSE '' END,
                                coalesce(', period ends ' || to_char(o.period_ends_at AT TIME ZONE 'UTC',
                                                                     'YYYY-MM-DD HH24:MI') || ' UTC', ''),
                                CASE WHEN o.attribution IN ('new', 'own') THEN ''
                                     ELSE ', attribution ' || o.attribution END) END AS words
          FROM observation AS o JOIN me USING (user_key)
        UNION ALL
        SELECT d.at, d.id, 'decision',
               format('Rule %s, outcome %s: %s%s%s%s', d.rule, d.outcome, d.explanation,
                      CASE WHEN d.type_before IS DISTINCT FROM d.type_after
                           THEN format(' Type %s became %s.', d.type_before, d.type_after) ELSE '' END,
                      CASE WHEN d.assets_changed = 1 THEN ' 1 asset changed.'
                           WHEN d.assets_changed > 1 THEN format(' %s assets changed.', d.assets_changed) ELSE '' END,
                      CASE WHEN d.observed THEN ' Observed only: nothing was written.' ELSE '' END)
          FROM decision AS d JOIN me USING (user_key)
        UNION ALL
        SELECT b.at, b.id, 'assets',
               CASE WHEN b.failed IS NULL THEN format('%s more %s changed.', b.changed, CASE b.changed WHEN 1 THEN 'asset' ELSE 'assets' END)
                    ELSE format('An asset was refused by the host''s database (%s).', b.failed) END
          FROM asset_batch AS b
          JOIN decision AS d ON d.id = b.decision_id JOIN me USING (user_key)
        UNION ALL
        SELECT g.created_at, g.id, 'grant',
               format('Access was granted until %s UTC: %s',
                      to_char(g.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), g.reason)
          FROM "grant" AS g JOIN me USING (user_key)
        UNION ALL
        SELECT g.revoked_at, g.id, 'grant', format('Grant %s was revoked.', g.id)
          FROM "grant" AS g JOIN me USING (user_key) WHERE g.revoked_at IS NOT NULL
        UNION ALL
        SELECT e.at, e.id, 'ticket',
               format('Ticket %s (%s) %s.', reference_of('T', t.uid), t.kind,
                      CASE e.kind
                          WHEN 'approved' THEN 'was approved by somebody'
                          WHEN 'access_lent' THEN 'gives access while it is open'
                          WHEN 'approval_withdrawn' THEN 'lost an approval'
                          WHEN 'approvals_voided' THEN 'lost its approvals'
                          WHEN 'claimant_asked' THEN 'has a question for the claimant'
                          WHEN 'claimant_replied' THEN 'was answered by the claimant'
                          WHEN 'expired' THEN 'was closed: no answer came in time'
                          WHEN 'lease_ended' THEN 'is nobody''s any more'
                          WHEN 'note' THEN 'was remarked on'
                          WHEN 'owner_agreed' THEN 'has the owner''s consent'
                          WHEN 'owner_asked' THEN 'leaves the owner time to object'
                          WHEN 'owner_objected' THEN 'was objected to by the owner'
                          WHEN 'owner_released' THEN 'is about a purchase that its owner releases'
                          WHEN 'owner_replied' THEN 'was answered by the owner'
                          WHEN 'owner_read' THEN 'had its owner read again'
                          WHEN 'owner_window_waived' THEN 'waits for the owner no longer'
                          WHEN 'revealed' THEN 'was shown with the users'' ids'
                          WHEN 'token_asked' THEN 'has the App Store told of the new owner again'
                          WHEN 'transfer_begun' THEN 'is being carried out'
                          WHEN 'transfer_resolved' THEN 'had its transfer ended by hand'
                          WHEN 'transfer_stopped' THEN 'was not carried out'
                          WHEN 'transferred' THEN 'is done: the purchase is this user''s'
                          WHEN 'window_ended' THEN 'may be carried out: the owner''s time is over'
                          ELSE 'was ' || e.kind END)
          FROM ticket AS t JOIN me ON me.user_key = t.claimant_key
          JOIN ticket_event AS e ON e.ticket_id = t.id
        UNION ALL
        -- Whose ticket it is stays with that ticket.
        SELECT e.at, e.id, 'ticket',
               format('Ticket %s: this user %s.', reference_of('T', t.uid),
                      CASE e.kind WHEN 'owner_asked' THEN 'has time to object to a transfer of a purchase'
                                  WHEN 'owner_agreed' THEN 'agreed to the transfer'
                                  WHEN 'owner_objected' THEN 'objected to the transfer'
                                  WHEN 'owner_released' THEN 'released the purchase'
                                  ELSE 'is waited for no longer' END)
          FROM ticket AS t JOIN me ON me.user_key = t.owner_key
          JOIN ticket_event AS e ON e.ticket_id = t.id
         WHERE e.kind IN ('owner_asked', 'owner_agreed', 'owner_objected', 'owner_released', 'owner_window_waived')
        UNION ALL
        SELECT i.received_at, i.id, 'event',
               format('%s said %s%s; that is a reason to look, and no more.',
                      CASE i.source WHEN 'revenuecat' THEN 'RevenueCat' WHEN 'app_store' THEN 'The App Store'
                                    WHEN 'google_play' THEN 'Google Play' ELSE i.source END, i.kind,
                      coalesce(', of ' || to_char(i.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC', ''))
          FROM inbox AS i JOIN me ON i.user_keys @> ARRAY[me.user_key]
        UNION ALL
        SELECT x.ended_at, x.id, 'transfer',
               CASE WHEN x.to_key = me.user_key
                    THEN format('A purchase was moved to this user by support (ticket %s).', reference_of('T', t.uid))
                    ELSE format('A purchase of this user was moved to another account by support (ticket %s).',
                                reference_of('T', t.uid)) END
          FROM me JOIN transfer AS x ON me.user_key IN (x.from_key, x.to_key) AND x.step = 'done'
          JOIN ticket AS t ON t.id = x.ticket_id
        UNION ALL
        SELECT h.finished_at, 0, 'job',
               format('Job %s ended %s%s%s.', reference_of('R', h.id), h.state,
                      coalesce(' with ' || h.outcome, ''), coalesce(' (' || h.last_error || ')', ''))
          FROM job_history AS h JOIN me USING (user_key)
    )
    SELECT e.at, e.place, e.kind, e.words FROM events AS e
$$;

REVOKE ALL ON FUNCTION waiver_counts, others_agree, waive_owner_window, ticket_waiver, owe_tokens, ticket_tokens, retry_tokens
    FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT EXECUTE ON FUNCTION waive_owner_window, ticket_waiver, ticket_tokens, retry_tokens TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT SELECT ON transfer_token TO %I',
    'GRANT UPDATE (state, reason, due, tries, turn, ended_at) ON transfer_token TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY['GRANT SELECT ON transfer_token TO %I']);
