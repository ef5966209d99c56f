-- Tickets as people work on them: where they stand, what is known, who agreed, and what was moved. What may follow on what stands
-- in a table.

ALTER TABLE ticket
    ADD COLUMN state_since    timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN subject_id     bigint,
    ADD COLUMN holder_id      bigint,
    ADD COLUMN holder_until   timestamptz,
    ADD COLUMN evidence_id    bigint,
    ADD COLUMN evidence_due   timestamptz,
    ADD COLUMN evidence_tries smallint    NOT NULL DEFAULT 0,
    ADD COLUMN evidence_error text,
    ADD COLUMN owner_asked_at timestamptz,
    ADD COLUMN owner_until    timestamptz,
    ADD COLUMN owner_no_at    timestamptz,
    ADD COLUMN verdict        text,
    ADD COLUMN lent_grant_id  bigint,
    ADD COLUMN looked_at      timestamptz,
    ADD COLUMN decided_at     timestamptz,
    ADD COLUMN closed_at      timestamptz;
-- Where a claimant taps several times in a row, the evidence is collected once.
ALTER TABLE ticket ALTER COLUMN evidence_due SET DEFAULT now() + interval '10 seconds';

CREATE FUNCTION is_open(state text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');

-- Tickets from before: those that are open begin anew, whatever was written by hand, and theirs is collected within a day.
UPDATE ticket AS t
   SET state = CASE WHEN is_open(t.state) THEN 'new' ELSE t.state END, state_since = t.created_at,
       evidence_due = CASE WHEN is_open(t.state) THEN now() + random() * interval '1 day' END,
       closed_at = CASE WHEN NOT is_open(t.state) THEN t.created_at END;
CREATE INDEX ticket_evidence_due ON ticket (evidence_due) WHERE evidence_due IS NOT NULL;
CREATE INDEX ticket_state ON ticket (state, priority, id);
CREATE INDEX ticket_owner ON ticket (owner_key);
CREATE INDEX ticket_reference ON ticket (reference_of('T', uid));
COMMENT ON COLUMN ticket.subject_id IS 'the purchase that the desk found behind original_id, where the verdict knew none';
CREATE INDEX ticket_subject ON ticket (subject_id) WHERE subject_id IS NOT NULL;
COMMENT ON COLUMN ticket.holder_id IS 'the operator who works on it, until holder_until';
COMMENT ON COLUMN ticket.evidence_due IS 'when the evidence is to be collected anew; absent: not before somebody asks';
COMMENT ON COLUMN ticket.owner_asked_at IS 'when the owner was first told that a transfer was asked for';
COMMENT ON COLUMN ticket.owner_until IS 'until when the owner may object to a transfer';
COMMENT ON COLUMN ticket.lent_grant_id IS 'the access that was given while the case is open; it ends with the case';
CREATE INDEX ticket_lent ON ticket (lent_grant_id) WHERE lent_grant_id IS NOT NULL;
COMMENT ON COLUMN ticket.owner_no_at IS 'when the owner said no';

ALTER TABLE ticket_event ADD COLUMN operator_id bigint;

-- A subscriber whose purchase was moved away by our own people: no store has to be silent twice before that is believed.
ALTER TABLE user_sync ADD COLUMN moved_away_at timestamptz;
COMMENT ON COLUMN user_sync.moved_away_at IS 'when support moved a purchase to another user; until a full read has settled it';

-- Every way that a ticket can go; what has no row does not happen.
CREATE TABLE ticket_move (
    state text NOT NULL,
    event text NOT NULL,
    next  text NOT NULL,
    PRIMARY KEY (state, event)
);
INSERT INTO ticket_move (state, event, next) VALUES
    ('new',              'claim',            'claimed'),
    ('new',              'cause_gone',       'auto_resolved'),
    ('new',              'superseded',       'duplicate'),
    ('new',              'expire',           'expired'),
    ('claimed',          'claim',            'claimed'),
    ('claimed',          'release',          'new'),
    ('claimed',          'ask_claimant',     'waiting_claimant'),
    ('claimed',          'approve_part',     'needs_second'),
    ('claimed',          'approve_early',    'waiting_owner'),
    ('claimed',          'approve_all',      'approved'),
    ('claimed',          'refuse',           'refused'),
    ('claimed',          'cause_gone',       'auto_resolved'),
    ('claimed',          'superseded',       'duplicate'),
    ('waiting_claimant', 'claim',            'claimed'),
    ('waiting_claimant', 'claimant_replied', 'new'),
    ('waiting_claimant', 'refuse',           'refused'),
    ('waiting_claimant', 'cause_gone',       'auto_resolved'),
    ('waiting_claimant', 'superseded',       'duplicate'),
    ('waiting_claimant', 'expire',           'expired'),
    ('needs_second',     'approve_part',     'needs_second'),
    ('needs_second',     'approve_early',    'waiting_owner'),
    ('needs_second',     'approve_all',      'approved'),
    ('needs_second',     'approvals_voided', 'new'),
    ('needs_second',     'refuse',           'refused'),
    ('needs_second',     'cause_gone',       'auto_resolved'),
    ('needs_second',     'superseded',       'duplicate'),
    ('waiting_owner',    'window_ended',     'approved'),
    ('waiting_owner',    'approvals_voided', 'new'),
    ('waiting_owner',    'refuse',           'refused'),
    ('waiting_owner',    'cause_gone',       'auto_resolved'),
    ('waiting_owner',    'superseded',       'duplicate'),
    ('approved',         'execute',          'executing'),
    ('approved',         'approvals_voided', 'new'),
    ('approved',         'refuse',           'refused'),
    ('approved',         'cause_gone',       'auto_resolved'),
    ('approved',         'superseded',       'duplicate'),
    -- What has begun is carried to its end: nothing else closes it.
    ('executing',        'executed',         'transferred'),
    ('executing',        'stopped',          'new'),
    ('refused',          'reopen',           'new'),
    ('expired',          'reopen',           'new');

ALTER TABLE ticket ADD CONSTRAINT ticket_state CHECK (
    state IN ('new', 'claimed', 'waiting_claimant', 'waiting_owner', 'needs_second', 'approved', 'executing', 'transferred',
              'refused', 'expired', 'auto_resolved', 'duplicate'));

-- Whoever writes a state, by hand too, goes by the table.
CREATE FUNCTION guard_ticket_state() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NOT EXISTS (SELECT 1 FROM ticket_move AS m WHERE m.state = OLD.state AND m.next = NEW.state) THEN
        RAISE EXCEPTION USING ERRCODE = '23514',
            MESSAGE = format('ticket %s: nothing leads from %s to %s', NEW.id,
                             CASE WHEN TG_OP = 'INSERT' THEN 'nothing' ELSE OLD.state END, NEW.state),
            HINT = 'See the table entitlement_sync.ticket_move.';
    END IF;
    NEW.state_since := clock_timestamp();
    NEW.closed_at := CASE WHEN NOT is_open(NEW.state) THEN clock_timestamp() END;
    IF NEW.state <> 'claimed' THEN
        NEW.holder_id := NULL;
        NEW.holder_until := NULL;
    END IF;
    -- What is being carried out looks for itself.
    IF NOT is_open(NEW.state) OR NEW.state = 'executing' THEN
        NEW.evidence_due := NULL;
    END IF;
    -- What a claimant does not see they do not hear of either.
    IF NOT is_open(NEW.state) AND NEW.visible THEN
        INSERT INTO ticket_news (user_key, topic, data)
        VALUES (NEW.claimant_key, 'ticket.decided',
                jsonb_build_object('reference', reference_of('T', NEW.uid), 'kind', NEW.kind, 'state', NEW.state));
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER guard_state BEFORE UPDATE OF state ON ticket FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION guard_ticket_state();
CREATE TRIGGER guard_first_state BEFORE INSERT ON ticket FOR EACH ROW
    WHEN (NEW.state <> 'new') EXECUTE FUNCTION guard_ticket_state();

-- What operators write in their own words; apart from the events, so that an erasure can take it away.
CREATE TABLE ticket_note (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    words       text        CHECK (length(words) BETWEEN 1 AND 4000)
);
CREATE INDEX ticket_note_ticket ON ticket_note (ticket_id, id);
CREATE FUNCTION forget_notes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    DELETE FROM ticket_news AS n WHERE n.user_key = NEW.user_key;
    UPDATE ticket_note AS n SET words = NULL
      FROM ticket AS t WHERE t.id = n.ticket_id AND (t.claimant_key = NEW.user_key OR t.owner_key = NEW.user_key);
    RETURN NEW;
END
$$;
CREATE TRIGGER forget_notes BEFORE UPDATE OF user_id ON user_sync FOR EACH ROW
    WHEN (NEW.user_id IS NULL AND OLD.user_id IS NOT NULL) EXECUTE FUNCTION forget_notes();
CREATE INDEX ticket_claimant ON ticket (claimant_key);
CREATE INDEX purchase_merged ON purchase (merged_into) WHERE merged_into IS NOT NULL;

-- What people are to hear of their tickets: a worker that tells others passes it on, and one that does not leaves it.
CREATE TABLE ticket_news (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_key bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic    text        NOT NULL,
    data     jsonb       NOT NULL
);
CREATE INDEX ticket_news_user ON ticket_news (user_key);
COMMENT ON COLUMN ticket_news.data IS 'names nobody; what an owner hears does not tell who asks';

-- Who asked to see the accounts of a ticket unmasked; shown in a later transaction alone, so that the trace stays.
CREATE TABLE ticket_reveal (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint,
    operator_id bigint      NOT NULL REFERENCES operator,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    xact        xid8        NOT NULL DEFAULT pg_current_xact_id()
);
COMMENT ON COLUMN ticket_reveal.ticket_id IS 'absent: a list of them';
CREATE INDEX ticket_reveal_operator ON ticket_reveal (operator_id, at);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ticket_reveal FOR EACH ROW EXECUTE FUNCTION append_only();

-- What was found out about a case at one time.
CREATE TABLE ticket_evidence (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id    bigint      NOT NULL REFERENCES ticket,
    asked_at     timestamptz NOT NULL,
    collected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    hash         bytea       NOT NULL CHECK (octet_length(hash) = 32),
    facts        text[]      NOT NULL,
    hindrance    text        NOT NULL CHECK (hindrance IN ('none', 'needs_senior', 'forbids', 'closes')),
    suggested    text,
    reason       text        NOT NULL,
    approvals    smallint    NOT NULL CHECK (approvals >= 1),
    also_moves   text[]      NOT NULL,
    owner_window interval    NOT NULL,
    holds        interval    NOT NULL,
    document     jsonb       NOT NULL,
    UNIQUE (ticket_id, id)
);
ALTER TABLE ticket ADD FOREIGN KEY (id, evidence_id) REFERENCES ticket_evidence (ticket_id, id);
COMMENT ON COLUMN ticket_evidence.asked_at IS 'when the first request for it began';
COMMENT ON COLUMN ticket_evidence.hash IS 'SHA-256 over all that a decision rests on; the same words, the same hash';
COMMENT ON COLUMN ticket_evidence.approvals IS 'how many people have to agree to a transfer';
COMMENT ON COLUMN ticket_evidence.also_moves IS 'what a transfer would move besides the purchase in question';
COMMENT ON COLUMN ticket_evidence.holds IS 'how long an approval on it holds';
COMMENT ON COLUMN ticket_evidence.document IS 'names users by their keys alone';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ticket_evidence FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON ticket_evidence FOR EACH STATEMENT EXECUTE FUNCTION append_only();

-- Who agreed, on which evidence.
CREATE TABLE ticket_approval (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id   bigint      NOT NULL REFERENCES ticket,
    operator_id bigint      NOT NULL REFERENCES operator,
    evidence_id bigint      NOT NULL REFERENCES ticket_evidence,
    hash        bytea       NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    ended_by    text        CHECK (ended_by IN ('evidence_changed', 'expired', 'role_lost', 'owner_objected', 'withdrawn', 'used',
                                                'stopped', 'decided')),
    CHECK ((ended_at IS NULL) = (ended_by IS NULL))
);
-- Nobody agrees twice, from wherever they do it.
CREATE UNIQUE INDEX ticket_approval_once ON ticket_approval (ticket_id, operator_id) WHERE ended_at IS NULL;
CREATE INDEX ticket_approval_ticket ON ticket_approval (ticket_id, id);

-- A transfer on its way. Steps: `begun`; `calling` (RevenueCat's call was begun, and only a reading tells what came of it);
-- `confirmed` (a reading shows the purchases with the claimant, or there was nothing to call for); `done`; `stopped` before
-- anything was moved.
CREATE TABLE transfer (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id    bigint      NOT NULL REFERENCES ticket,
    from_key     bigint,
    to_key       bigint      NOT NULL,
    purchase_id  bigint      NOT NULL,
    begun_by     bigint      NOT NULL REFERENCES operator,
    begun_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    step         text        NOT NULL DEFAULT 'begun' CHECK (step IN ('begun', 'calling', 'confirmed', 'done', 'stopped')),
    evidence_id  bigint,
    calls        smallint    NOT NULL DEFAULT 0,
    called_at    timestamptz,
    moves        text[]      NOT NULL DEFAULT '{}',
    due          timestamptz NOT NULL DEFAULT now(),
    tries        integer     NOT NULL DEFAULT 0,
    last_error   text,
    ended_at     timestamptz,
    FOREIGN KEY (ticket_id, evidence_id) REFERENCES ticket_evidence (ticket_id, id)
);
CREATE UNIQUE INDEX transfer_once ON transfer (ticket_id) WHERE step <> 'stopped';
-- A call moves all that a customer has: one at a time for a purchase, and for whom it is taken from.
CREATE UNIQUE INDEX transfer_purchase ON transfer (purchase_id) WHERE step NOT IN ('done', 'stopped');
CREATE UNIQUE INDEX transfer_from ON transfer (from_key) WHERE step NOT IN ('done', 'stopped');
CREATE INDEX transfer_due ON transfer (due) WHERE step NOT IN ('done', 'stopped');
COMMENT ON COLUMN transfer.from_key IS 'who owned the purchase when it was begun; what the records say later changes nothing';
COMMENT ON COLUMN transfer.evidence_id IS 'on what it was allowed';
COMMENT ON COLUMN transfer.called_at IS 'when the last call was begun';
COMMENT ON COLUMN transfer.moves IS 'RevenueCat''s ids of all that the call moves';

CREATE TABLE transfer_step (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer_id bigint      NOT NULL REFERENCES transfer,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    step        text        NOT NULL,
    detail      jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX transfer_step_transfer ON transfer_step (transfer_id, id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON transfer_step FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON transfer_step FOR EACH STATEMENT EXECUTE FUNCTION append_only();

REVOKE ALL ON FUNCTION is_open, guard_ticket_state, forget_notes FROM PUBLIC;
SELECT grant_to('entitlement_sync_support', ARRAY['GRANT SELECT ON ticket_move TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY[
    'GRANT SELECT ON ticket_move, ticket_evidence, ticket_approval, ticket_note, ticket_reveal, transfer, transfer_step TO %I']);
-- Nobody agrees by writing rows, and nothing is moved by them.
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'REVOKE UPDATE, DELETE ON ticket FROM %I',
    'GRANT UPDATE (touches, owner_key, store, original_id, kind, visible, priority, deadline, purchase_id, evidence_due,
                   evidence_tries, evidence_error) ON ticket TO %I',
    'GRANT SELECT ON ticket_move, ticket_evidence, ticket_approval, transfer, transfer_step TO %I',
    'GRANT UPDATE (due, tries, last_error) ON transfer TO %I']);
