-- What claimants and owners read of a case and say to it, what support asks them, and owners who release a purchase to another
-- account. Nobody learns here who else there is, how many tickets there are, or whether an id that somebody typed exists.

-- Numbers of the desk that a team may change.
CREATE TABLE desk_setting (
    name  text   PRIMARY KEY,
    value bigint NOT NULL CHECK (value > 0)
);
INSERT INTO desk_setting (name, value) VALUES
    ('answer_days', 7), ('replies_per_day', 10), ('releases_per_day', 5), ('release_days', 30);
COMMENT ON TABLE desk_setting IS 'answer_days: how long a claimant has to answer; release_days: how long a release counts';

CREATE FUNCTION desk_number(wanted text) RETURNS bigint
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    SELECT s.value FROM desk_setting AS s WHERE s.name = wanted
$$;

-- What support may ask a claimant; the apps' users read it in their own language.
CREATE TABLE desk_question (
    key text PRIMARY KEY CHECK (key ~ '^[a-z][a-z_]{0,39}$')
);
INSERT INTO desk_question (key) VALUES
    ('proof_of_purchase'), ('order_number'), ('which_store'), ('other_account'), ('sign_in_there');

ALTER TABLE ticket
    ADD COLUMN question     text REFERENCES desk_question,
    ADD COLUMN question_at  timestamptz,
    ADD COLUMN answer_until timestamptz,
    ADD COLUMN owner_yes_at timestamptz,
    ADD CONSTRAINT ticket_question CHECK (num_nulls(question, question_at, answer_until) IN (0, 3));
CREATE INDEX ticket_unanswered ON ticket (answer_until) WHERE state = 'waiting_claimant';
COMMENT ON COLUMN ticket.question IS 'what the claimant was asked last';
COMMENT ON COLUMN ticket.answer_until IS 'until when an answer is awaited';
COMMENT ON COLUMN ticket.owner_yes_at IS 'when the owner who is asked now agreed';

-- An owner who agreed is waited for no longer, however often the time is reckoned anew; one who is asked again has not agreed.
CREATE FUNCTION keep_agreement() RETURNS trigger
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF NEW.owner_asked_at IS NULL THEN
        NEW.owner_yes_at := NULL;
    ELSIF NEW.owner_until > NEW.owner_yes_at THEN
        NEW.owner_until := NEW.owner_yes_at;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER keep_agreement BEFORE UPDATE OF owner_asked_at, owner_until, owner_yes_at ON ticket FOR EACH ROW
    WHEN (NEW.owner_yes_at IS NOT NULL) EXECUTE FUNCTION keep_agreement();

-- What claimants and owners said in their own words; apart from the events, so that an erasure can take it away.
CREATE TABLE ticket_reply (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ticket_id bigint      NOT NULL REFERENCES ticket,
    user_key  bigint      NOT NULL,
    side      text        NOT NULL CHECK (side IN ('claimant', 'owner')),
    decision  text        CHECK (decision IN ('object', 'agree')),
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    words     text        CHECK (length(words) BETWEEN 1 AND 2000),
    key       text        CHECK (length(key) BETWEEN 1 AND 255),
    request   bytea
);
CREATE INDEX ticket_reply_ticket ON ticket_reply (ticket_id, id);
CREATE INDEX ticket_reply_user ON ticket_reply (user_key, at);
CREATE UNIQUE INDEX ticket_reply_key ON ticket_reply (user_key, key) WHERE key IS NOT NULL;
COMMENT ON COLUMN ticket_reply.request IS 'a digest of what was sent with the key';

CREATE FUNCTION forget_replies() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- Either side may have written about the other.
    UPDATE ticket_reply AS r SET words = NULL, key = NULL, request = NULL
      FROM ticket AS t WHERE t.id = r.ticket_id AND NEW.user_key IN (t.claimant_key, t.owner_key, r.user_key);
    RETURN NEW;
END
$$;
CREATE TRIGGER forget_replies BEFORE UPDATE OF user_id ON user_sync FOR EACH ROW
    WHEN (NEW.user_id IS NULL AND OLD.user_id IS NOT NULL) EXECUTE FUNCTION forget_replies();

-- Owners' word that a purchase of theirs may go to the account whose app shows a reference. Kept whatever the reference leads to.
CREATE TABLE purchase_release (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_key    bigint      NOT NULL,
    reference    text        NOT NULL CHECK (reference ~ '^[RT]-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$'),
    claimant_key bigint,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (owner_key, reference)
);
COMMENT ON COLUMN purchase_release.claimant_key IS 'whose case it was, where there was one at that time';

-- Evidence that somebody asked for while it was being collected is collected once more: what they said is not in it.
CREATE FUNCTION keep_request() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    asked timestamptz;
BEGIN
    SELECT e.asked_at INTO asked FROM ticket_evidence AS e WHERE e.id = NEW.evidence_id;
    -- Whoever collects has moved the time on, so that one in the past is newer; by how little it may seem older tells a transaction.
    IF is_open(NEW.state) AND NEW.state <> 'executing'
       AND OLD.evidence_due BETWEEN asked - interval '5 seconds' AND clock_timestamp() THEN
        NEW.evidence_due := OLD.evidence_due;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER keep_request BEFORE UPDATE OF evidence_id ON ticket FOR EACH ROW
    WHEN (OLD.evidence_due IS NOT NULL AND NEW.evidence_id IS NOT NULL) EXECUTE FUNCTION keep_request();

-- An id that leads nobody to what it was made of.
CREATE FUNCTION opaque_id(what text) RETURNS uuid
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    SELECT encode(substring(sha256(d.bytes || convert_to(what, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid FROM desk_secret AS d
$$;

-- The case that an owner sees of a purchase, however many ask for it: a reference would tell of one of them.
CREATE FUNCTION owner_case_id(owner bigint, item bigint) RETURNS uuid
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp
RETURN opaque_id(format('owner %s %s', owner, item));

-- Owners who were asked, or who said no, hear what came of it; of others who asked for the same purchase they hear nothing.
CREATE FUNCTION tell_owner() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF NOT is_open(NEW.state) AND NEW.state <> 'duplicate' AND NEW.owner_key IS NOT NULL
       AND (OLD.owner_no_at IS NOT NULL OR OLD.owner_until > OLD.owner_asked_at) THEN
        INSERT INTO ticket_news (user_key, topic, data)
        VALUES (NEW.owner_key, 'ticket.decided',
                jsonb_build_object('id', owner_case_id(NEW.owner_key, living(coalesce(NEW.purchase_id, NEW.subject_id))),
                                   'role', 'owner', 'state', CASE NEW.state WHEN 'transferred' THEN 'transferred' ELSE 'refused' END));
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER tell_owner AFTER UPDATE OF state ON ticket FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION tell_owner();

-- Claimants hear as well how their case was decided: what they are to do about it depends on that.
CREATE FUNCTION tell_verdict() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- The news is this transaction's own: nobody has passed it on yet.
    UPDATE ticket_news AS n SET data = n.data || jsonb_build_object('verdict', NEW.verdict)
     WHERE n.user_key = NEW.claimant_key AND n.topic = 'ticket.decided' AND n.data ->> 'reference' = reference_of('T', NEW.uid)
       AND n.at >= now();
    RETURN NULL;
END
$$;
CREATE TRIGGER tell_verdict AFTER UPDATE OF verdict ON ticket FOR EACH ROW
    WHEN (NEW.state = 'refused' AND NEW.verdict IS NOT NULL) EXECUTE FUNCTION tell_verdict();

-- A claimant's case as the claimant knows it: by the restore that first told of it, as in `entitlement_answer`. A case that an
-- agent opened for somebody who wrote is told of once they are asked something.
CREATE FUNCTION case_of(known bigint, OUT id uuid, OUT reference text, OUT since timestamptz)
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
    SELECT j.id, reference_of('R', j.id), j.finished_at INTO id, reference, since FROM job_history AS j
     WHERE j.user_key = known AND j.outcome = 'store_account_mismatch' ORDER BY j.id LIMIT 1;
    IF id IS NULL THEN
        SELECT opaque_id('case ' || t.uid), reference_of('T', t.uid), t.question_at INTO id, reference, since FROM ticket AS t
         WHERE t.claimant_key = known AND t.visible AND t.question_at IS NOT NULL ORDER BY t.id LIMIT 1;
    END IF;
END
$$;

-- The transfers that an owner was asked about, one for each purchase: how many asked for it, and who, is not theirs to know.
-- `open`: the tickets in which the owner's word counts.
CREATE FUNCTION owner_cases(known bigint)
RETURNS TABLE (id uuid, state text, since timestamptz, until timestamptz, store text, product_id text, open bigint[])
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT owner_case_id(known, p.id),
           CASE WHEN bool_or(g.awaits) THEN 'question' WHEN bool_or(is_open(g.state)) THEN 'open' ELSE 'decided' END,
           min(coalesce(g.owner_asked_at, g.owner_no_at)), min(g.owner_until) FILTER (WHERE g.awaits), p.store, p.product_id,
           coalesce(array_agg(g.id ORDER BY g.id) FILTER (WHERE is_open(g.state)), '{}')
      FROM (SELECT t.*, t.owner_no_at IS NULL AND t.owner_until > clock_timestamp() AND is_open(t.state)
                        AND t.state <> 'executing' AS awaits
              FROM ticket AS t
             WHERE t.owner_key = known
               AND (t.owner_no_at IS NOT NULL OR t.owner_until > t.owner_asked_at)
               AND (is_open(t.state) OR t.state = 'transferred' AND t.closed_at > clock_timestamp() - interval '30 days')) AS g
      JOIN purchase AS p ON p.id = living(coalesce(g.purchase_id, g.subject_id))
     WHERE p.owner_key = known OR g.state IN ('executing', 'transferred')
     GROUP BY p.id;
END
$$;

-- Writes a moment as everywhere.
CREATE FUNCTION moment(at timestamptz) RETURNS text
LANGUAGE sql STABLE STRICT RETURN to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');

-- The cases of a user of the app, as a JSON array; null for whoever is no user.
CREATE FUNCTION ticket_answers(wanted text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    known bigint;
    mine  record;
    asked ticket;
    cases jsonb := '[]';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM entitlement_sync_host.read_users(ARRAY[wanted])) THEN
        RETURN NULL;
    END IF;
    SELECT u.user_key INTO known FROM user_sync AS u WHERE u.user_id = wanted;
    SELECT c.* INTO mine FROM case_of(known) AS c;
    IF mine.id IS NOT NULL THEN
        SELECT t.* INTO asked FROM ticket AS t
         WHERE t.claimant_key = known AND t.visible AND t.state = 'waiting_claimant' ORDER BY t.question_at, t.id LIMIT 1;
        cases := jsonb_build_array(jsonb_build_object(
            'id', mine.id, 'role', 'claimant', 'reference', mine.reference, 'created_at', moment(mine.since),
            'state', CASE WHEN asked.id IS NOT NULL THEN 'question'
                          WHEN EXISTS (SELECT 1 FROM ticket AS t
                                        WHERE t.claimant_key = known AND t.visible AND is_open(t.state)) THEN 'open'
                          ELSE 'decided' END,
            'question', asked.question, 'asked_at', moment(asked.question_at), 'answer_by', moment(asked.answer_until),
            'store', NULL, 'product_id', NULL));
    END IF;
    RETURN cases || coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'id', o.id, 'role', 'owner', 'reference', NULL, 'created_at', moment(o.since), 'state', o.state,
                   'question', CASE o.state WHEN 'question' THEN 'transfer' END,
                   'asked_at', CASE o.state WHEN 'question' THEN moment(o.since) END,
                   'answer_by', CASE o.state WHEN 'question' THEN moment(o.until) END,
                   'store', o.store, 'product_id', o.product_id) ORDER BY o.since, o.id)
          FROM owner_cases(known) AS o), '[]');
END
$$;

-- Takes what a user says to a case of theirs. Returns null: it was taken, now or before; `not_found`: no such case is theirs, which
-- is all that anybody hears of others'; `decided`: support is through with it; `not_asked`: it is not theirs to object to.
CREATE FUNCTION reply_to_ticket(wanted text, which uuid, words text, wish text, sent_key text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A user whom somebody else holds must not keep a connection that others wait for.
SET lock_timeout = '500ms' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    said    text := nullif(btrim(words, E' \t\r\n'), '');
    digest  bytea;
    before  ticket_reply;
    known   bigint;
    role    text := 'claimant';
    items   bigint[];
    t       ticket;
    made    bigint;
    changes boolean := false;
    first   boolean := true;
BEGIN
    PERFORM check_isolation();
    -- What is wrong with the request is said before anything is looked for.
    IF wish IS NOT NULL AND wish NOT IN ('object', 'agree') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'decision: must be object, agree or null',
            HINT = 'Leave decision out to say something and decide nothing.';
    END IF;
    IF said IS NULL AND (wish IS NULL OR words IS NOT NULL) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'text: must have 1 to 2000 characters that can be seen',
            HINT = 'Send what the person wrote.';
    END IF;
    IF length(words) > 2000 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES005', MESSAGE = 'text: longer than 2000', HINT = 'Let the person shorten it.';
    END IF;
    IF length(sent_key) > 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'ES003', MESSAGE = 'idempotency_key: longer than 255',
            HINT = 'Use a random id of at most 255 characters.';
    END IF;
    digest := sha256(convert_to(jsonb_build_array(which, said, wish)::text, 'UTF8'));
    -- Users before tickets, as everywhere. An erasure that has begun is waited for: no word comes after it.
    SELECT u.user_key INTO known FROM user_sync AS u WHERE u.user_id = wanted FOR KEY SHARE;
    IF (SELECT c.id FROM case_of(known) AS c) = which THEN
        items := ARRAY(SELECT x.id FROM ticket AS x WHERE x.claimant_key = known AND x.visible AND is_open(x.state));
    ELSE
        role := 'owner';
        SELECT o.open INTO items FROM owner_cases(known) AS o WHERE o.id = which;
    END IF;
    IF items IS NULL THEN
        RETURN 'not_found';
    END IF;
    IF role = 'claimant' AND wish IS NOT NULL THEN
        RETURN 'not_asked';
    END IF;
    PERFORM FROM user_sync AS u
      WHERE u.user_key IN (SELECT unnest(ARRAY[x.claimant_key, x.owner_key]) FROM ticket AS x WHERE x.id = ANY (items))
      ORDER BY u.user_key FOR KEY SHARE;
    PERFORM FROM ticket AS x WHERE x.id = ANY (items) ORDER BY x.id FOR NO KEY UPDATE;

    -- Sent again, because no answer came: with its key, or the same words within a minute.
    UPDATE ticket_reply AS r SET key = NULL, request = NULL
     WHERE r.user_key = known AND r.key = sent_key AND r.at < clock_timestamp() - interval '7 days';
    SELECT r.* INTO before FROM ticket_reply AS r WHERE r.user_key = known AND r.key = sent_key;
    IF before.request <> digest THEN
        RAISE EXCEPTION USING ERRCODE = 'ES004', MESSAGE = 'idempotency_key: used before with other content',
            HINT = 'Use a new key for a new request; keys are remembered for 7 days.';
    END IF;
    IF before.id IS NOT NULL
       OR EXISTS (SELECT 1 FROM ticket_reply AS r
                   WHERE r.user_key = known AND r.at > clock_timestamp() - interval '1 minute' AND r.side = role
                     AND r.words IS NOT DISTINCT FROM said AND r.decision IS NOT DISTINCT FROM wish
                     AND (role = 'claimant' OR r.ticket_id = ANY (items))) THEN
        RETURN NULL;
    END IF;

    -- As they stand now that nobody else moves them. Whoever claims answers the question that is shown, or else adds to the newest.
    IF role = 'claimant' THEN
        items := ARRAY(SELECT x.id FROM ticket AS x WHERE x.id = ANY (items) AND is_open(x.state)
                        ORDER BY x.state = 'waiting_claimant' DESC, x.question_at, x.id DESC LIMIT 1);
    ELSE
        items := ARRAY(SELECT x.id FROM ticket AS x WHERE x.id = ANY (items) AND is_open(x.state) AND x.owner_key = known
                        ORDER BY x.id);
    END IF;
    IF items = '{}' THEN
        RETURN 'decided';
    END IF;
    -- A word that changes something is never one too many.
    changes := wish IS NOT NULL
        AND EXISTS (SELECT 1 FROM ticket AS x
                     WHERE x.id = ANY (items) AND x.owner_no_at IS NULL
                       AND (wish = 'object' OR x.owner_until > clock_timestamp()));
    IF NOT changes
       AND (SELECT count(*) FROM ticket_reply AS r
             WHERE r.user_key = known AND r.side = role AND r.at > clock_timestamp() - interval '1 day'
               AND (role = 'claimant' OR r.ticket_id = items[1])) >= desk_number('replies_per_day') THEN
        RAISE EXCEPTION USING ERRCODE = 'ES008', MESSAGE = 'text: enough was said today',
            HINT = 'Everything that was said is read; say more tomorrow.';
    END IF;

    FOR t IN SELECT x.* FROM ticket AS x WHERE x.id = ANY (items) ORDER BY x.id LOOP
        INSERT INTO ticket_reply (ticket_id, user_key, side, decision, words, key, request)
        VALUES (t.id, known, role, wish, said, CASE WHEN first THEN sent_key END, CASE WHEN first AND sent_key IS NOT NULL THEN digest END)
        RETURNING ticket_reply.id INTO made;
        first := false;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, CASE WHEN role = 'claimant' THEN 'claimant_replied' WHEN wish = 'object' THEN 'owner_objected'
                           WHEN wish = 'agree' THEN 'owner_agreed' ELSE 'owner_replied' END,
                jsonb_build_object('reply', made));
        IF wish = 'object' AND t.owner_no_at IS NULL THEN
            -- What has begun goes on by its own rules, which ask for this as well.
            UPDATE ticket AS x SET owner_no_at = clock_timestamp() WHERE x.id = t.id;
            IF t.state <> 'executing' THEN
                PERFORM void_approvals(t.id, 'owner_objected');
            END IF;
        ELSIF wish = 'agree' AND t.owner_no_at IS NULL AND cardinality(items) = 1 THEN
            -- Who agrees is waited for no longer; to whom it goes is not theirs to choose, where several want it.
            UPDATE ticket AS x SET owner_yes_at = coalesce(x.owner_yes_at, clock_timestamp()) WHERE x.id = t.id;
        END IF;
        IF role = 'claimant' AND t.state = 'waiting_claimant' THEN
            PERFORM move_ticket(t.id, 'claimant_replied');
        END IF;
        UPDATE ticket AS x SET evidence_due = clock_timestamp(), evidence_tries = 0
         WHERE x.id = t.id AND is_open(x.state) AND x.state <> 'executing' AND (role = 'claimant' OR wish = 'object');
    END LOOP;
    RETURN NULL;
END
$$;

-- Takes an owner's word that a purchase of theirs may go to the account whose app shows the reference. Whatever is behind it, the
-- answer is the same.
CREATE FUNCTION release_purchase(wanted text, spoken text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A user whom somebody else holds must not keep a connection that others wait for.
SET lock_timeout = '500ms' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    code  text := upper(spoken);
    known bigint;
    made  bigint;
    t     ticket;
BEGIN
    PERFORM check_isolation();
    IF spoken IS NULL OR NOT spoken ~* '^[RT]-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reference: must be such as R-7K3Q-92',
            HINT = 'Let the person copy it from the app that is signed in to their other account.';
    END IF;
    known := user_key_of(wanted);
    -- One at a time for each owner.
    PERFORM FROM user_sync AS u WHERE u.user_key = known FOR NO KEY UPDATE;
    IF (SELECT count(*) FROM purchase_release AS r
         WHERE r.owner_key = known AND r.reference <> code AND r.at > clock_timestamp() - interval '1 day')
       >= desk_number('releases_per_day') THEN
        RAISE EXCEPTION USING ERRCODE = 'ES008', MESSAGE = 'reference: enough were given today',
            HINT = 'Let the person check the reference, and try again tomorrow.';
    END IF;
    INSERT INTO purchase_release AS r (owner_key, reference) VALUES (known, code)
    ON CONFLICT (owner_key, reference) DO UPDATE SET at = clock_timestamp()
    RETURNING r.id INTO made;
    FOR t IN WITH RECURSIVE item AS (
                 SELECT p.id FROM purchase AS p WHERE p.owner_key = known AND p.merged_into IS NULL
                  UNION
                 SELECT p.id FROM purchase AS p JOIN item AS i ON p.merged_into = i.id
             ), about AS MATERIALIZED (
                 SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.purchase_id = i.id WHERE is_open(x.state)
                  UNION
                 SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.subject_id = i.id
                  WHERE x.purchase_id IS NULL AND is_open(x.state)
             )
             SELECT x.* FROM ticket AS x
              WHERE x.id IN (SELECT a.id FROM about AS a WHERE (SELECT c.reference FROM case_of(a.claimant_key) AS c) = code)
                AND x.claimant_key <> known
              ORDER BY x.id FOR NO KEY UPDATE
    LOOP
        UPDATE purchase_release AS r SET claimant_key = t.claimant_key WHERE r.id = made;
        -- What was closed while its row was waited for is over.
        CONTINUE WHEN NOT is_open(t.state);
        IF t.state <> 'executing' THEN
            -- An owner who releases it is waited for no longer; one who has objected as well is a case for people.
            UPDATE ticket AS x
               SET evidence_due = clock_timestamp(), evidence_tries = 0,
                   owner_yes_at = CASE WHEN x.owner_key = known AND x.owner_no_at IS NULL
                                       THEN coalesce(x.owner_yes_at, clock_timestamp()) ELSE x.owner_yes_at END
             WHERE x.id = t.id;
        END IF;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, 'owner_released', jsonb_build_object('release', made));
    END LOOP;
END
$$;

-- Whether whoever owns a ticket's purchase has released it to the claimant, since they own it and not too long ago.
CREATE FUNCTION is_released(which bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (
        SELECT 1 FROM ticket AS t
          JOIN purchase AS p ON p.id = living(coalesce(t.purchase_id, t.subject_id))
          JOIN purchase_release AS r ON r.owner_key = p.owner_key
         WHERE t.id = which AND p.owner_key <> t.claimant_key AND r.at > p.owner_since
           AND r.at > clock_timestamp() - desk_number('release_days') * interval '1 day'
           -- It may have been given before anybody knew which purchase the claimant means.
           AND (r.claimant_key = t.claimant_key
                OR r.claimant_key IS NULL AND r.reference = (SELECT c.reference FROM case_of(t.claimant_key) AS c)))
$$;

-- Asks the claimant something: the app shows the question in the person's language. `words` are for the desk alone.
CREATE FUNCTION ask_claimant(session bytea, which bigint, wanted text, words text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    who   operator := acting(session, 'work');
    got   record;
    mine  record;
    until timestamptz := clock_timestamp() + desk_number('answer_days') * interval '1 day';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM desk_question AS q WHERE q.key = wanted) THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'question: there is no such question',
            HINT = format('Use %s.', (SELECT string_agg(q.key, ', ' ORDER BY q.key) FROM desk_question AS q));
    END IF;
    IF length(words) > 4000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'note: has to have at most 4000 characters',
            HINT = 'Write a shorter one.';
    END IF;
    PERFORM keep_people(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'ask', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    -- Who knows nothing of a case is asked nothing.
    IF NOT (got.t).visible THEN
        RETURN refuse_act(who, which, 'ask', 'not_visible');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = (got.t).claimant_key AND u.user_id IS NOT NULL) THEN
        RETURN refuse_act(who, which, 'ask', 'claimant_gone');
    END IF;
    IF move_ticket(which, 'ask_claimant') IS NULL THEN
        RETURN refuse_act(who, which, 'ask', 'state');
    END IF;
    UPDATE ticket AS x SET question = wanted, question_at = clock_timestamp(), answer_until = until WHERE x.id = which;
    PERFORM note_event(who, which, 'claimant_asked', jsonb_build_object('question', wanted, 'until', moment(until)));
    SELECT c.* INTO mine FROM case_of((got.t).claimant_key) AS c;
    INSERT INTO ticket_news (user_key, topic, data)
    VALUES ((got.t).claimant_key, 'ticket.question',
            jsonb_build_object('id', mine.id, 'reference', mine.reference, 'question', wanted, 'until', moment(until)));
    IF words <> '' THEN
        PERFORM add_note(who, which, words);
    END IF;
    RETURN NULL;
END
$$;

-- Closes cases whose claimants did not answer in time. Returns how many.
CREATE FUNCTION expire_questions() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    t     record;
    ended integer := 0;
BEGIN
    FOR t IN SELECT x.id, x.question FROM ticket AS x
              WHERE x.state = 'waiting_claimant'
                AND coalesce(x.answer_until, x.state_since + desk_number('answer_days') * interval '1 day') <= clock_timestamp()
              ORDER BY x.id LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        PERFORM move_ticket(t.id, 'expire');
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, 'expired', jsonb_build_object('question', t.question));
        ended := ended + 1;
    END LOOP;
    RETURN ended;
END
$$;

-- What claimant and owner said to a ticket, for whoever may look at it.
CREATE FUNCTION ticket_replies(session bytea, which bigint)
RETURNS TABLE (at timestamptz, side text, decision text, words text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT r.at, r.side, r.decision, r.words
      FROM ticket AS t JOIN ticket_reply AS r ON r.ticket_id = t.id
     WHERE t.id = which AND NOT is_own_case(who.id, t)
     ORDER BY r.id DESC LIMIT 200;
END
$$;

-- The other tickets about the same purchase, the newest first, but for cases of one's own.
CREATE FUNCTION linked_tickets(session bytea, which bigint)
RETURNS TABLE (id bigint, reference text, state text, created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who   operator := acting(session, 'view');
    items bigint[];
BEGIN
    items := ARRAY(WITH RECURSIVE item AS (
                       SELECT living(coalesce(t.purchase_id, t.subject_id)) AS id FROM ticket AS t
                        WHERE t.id = which AND NOT is_own_case(who.id, t)
                        UNION
                       SELECT p.id FROM purchase AS p JOIN item AS i ON p.merged_into = i.id
                   )
                   SELECT i.id FROM item AS i WHERE i.id IS NOT NULL);
    RETURN QUERY
    SELECT t.id, reference_of('T', t.uid), t.state, t.created_at
      FROM ticket AS t
     WHERE t.id IN (SELECT x.id FROM ticket AS x WHERE x.purchase_id = ANY (items)
                     UNION SELECT x.id FROM ticket AS x WHERE x.purchase_id IS NULL AND x.subject_id = ANY (items))
       AND t.id <> which AND NOT is_own_case(who.id, t)
     ORDER BY t.id DESC LIMIT 100;
END
$$;

REVOKE ALL ON FUNCTION desk_number, forget_replies, keep_request, keep_agreement, tell_owner, tell_verdict, opaque_id, owner_case_id, case_of, owner_cases, moment, ticket_answers,
                       reply_to_ticket, release_purchase, is_released, ask_claimant, expire_questions, ticket_replies,
                       linked_tickets FROM PUBLIC;
SELECT grant_to('entitlement_sync_api', ARRAY[
    'GRANT EXECUTE ON FUNCTION ticket_answers, reply_to_ticket, release_purchase TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION ticket_answers, reply_to_ticket, release_purchase, is_released, expire_questions TO %I']);
SELECT grant_to('entitlement_sync_support', ARRAY[
    'GRANT SELECT ON desk_question TO %I',
    'GRANT EXECUTE ON FUNCTION ask_claimant, ticket_replies, linked_tickets TO %I']);
SELECT grant_to('entitlement_sync_auditor', ARRAY[
    'GRANT SELECT ON desk_question, desk_setting, ticket_reply, purchase_release TO %I']);
