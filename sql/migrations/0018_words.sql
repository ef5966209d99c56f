-- What claimants and owners say counts for the question it answers: words that come again, consent that comes late, owners whose
-- question was withdrawn, releases that are taken back, and evidence that is asked for while it is collected.

-- The same in words that are read when it is called: a body that is kept parsed forbids new columns of the table.
CREATE OR REPLACE FUNCTION is_urgent(t ticket) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT t.kind = 'paid_no_access' OR t.priority < 1 OR t.deadline IS NOT NULL
$$;

-- A figure that a team has deleted is the one that it came with: no row is not "no limit".
CREATE OR REPLACE FUNCTION desk_number(wanted text) RETURNS bigint
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    SELECT coalesce((SELECT s.value FROM desk_setting AS s WHERE s.name = wanted),
                    CASE wanted WHEN 'answer_days' THEN 7 WHEN 'replies_per_day' THEN 10 WHEN 'releases_per_day' THEN 5
                                WHEN 'release_days' THEN 30 END)
$$;

-- ---- What an owner knows --------------------------------------------------------------------------------------------

ALTER TABLE ticket ADD COLUMN owner_heard_at timestamptz;
COMMENT ON COLUMN ticket.owner_heard_at IS 'since when the present owner knows of the case: they may object, whatever became of the question';
UPDATE ticket AS t SET owner_heard_at = coalesce(CASE WHEN t.owner_until > t.owner_asked_at THEN t.owner_asked_at END, t.owner_no_at)
 WHERE t.owner_key IS NOT NULL AND (t.owner_until > t.owner_asked_at OR t.owner_no_at IS NOT NULL);

-- An owner keeps what they were told; another owner has been told and has said nothing. What was stopped asks anew.
CREATE FUNCTION keep_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    IF NEW.owner_key IS DISTINCT FROM OLD.owner_key THEN
        NEW.owner_heard_at := NULL;
        NEW.owner_asked_at := NULL;
        NEW.owner_until := NULL;
        NEW.owner_yes_at := NULL;
        NEW.owner_no_at := NULL;
    ELSIF OLD.state = 'executing' AND NEW.state = 'new' THEN
        NEW.owner_asked_at := NULL;
        NEW.owner_until := NULL;
        NEW.owner_yes_at := NULL;
    ELSIF NEW.owner_until > NEW.owner_asked_at OR NEW.owner_no_at IS NOT NULL THEN
        NEW.owner_heard_at := coalesce(NEW.owner_heard_at, NEW.owner_asked_at, NEW.owner_no_at);
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER keep_owner BEFORE UPDATE OF owner_key, owner_asked_at, owner_until, owner_no_at, state ON ticket
    FOR EACH ROW EXECUTE FUNCTION keep_owner();

-- ---- Requests for evidence ------------------------------------------------------------------------------------------

-- Each request is counted, and whoever collects notes how many there were: one that comes meanwhile is seen, whenever it began.
ALTER TABLE ticket
    ADD COLUMN evidence_asks     bigint NOT NULL DEFAULT 0,
    ADD COLUMN evidence_seen     bigint NOT NULL DEFAULT 0,
    ADD COLUMN evidence_taken_at timestamptz;
COMMENT ON COLUMN ticket.evidence_asks IS 'how often evidence was asked for';
COMMENT ON COLUMN ticket.evidence_seen IS 'how many of evidence_asks there were when it was last begun to collect it';
COMMENT ON COLUMN ticket.evidence_taken_at IS 'since when somebody collects it; whoever takes longer than two minutes is given up';

CREATE FUNCTION count_request() RETURNS trigger
LANGUAGE plpgsql SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    NEW.evidence_asks := OLD.evidence_asks + 1;
    RETURN NEW;
END
$$;
CREATE TRIGGER count_request BEFORE UPDATE OF evidence_due ON ticket FOR EACH ROW
    WHEN (NEW.evidence_due IS NOT NULL) EXECUTE FUNCTION count_request();

DROP TRIGGER keep_request ON ticket;
CREATE OR REPLACE FUNCTION keep_request() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    e ticket_evidence;
BEGIN
    SELECT x.* INTO e FROM ticket_evidence AS x WHERE x.id = NEW.evidence_id;
    -- What an older collection found answers none of the requests that a newer one has taken.
    IF NEW.state <> 'executing' AND (OLD.evidence_asks > OLD.evidence_seen OR OLD.evidence_taken_at > e.asked_at) THEN
        NEW.evidence_due := coalesce(OLD.evidence_due, NEW.evidence_due);
    END IF;
    IF OLD.evidence_taken_at <= e.asked_at THEN
        NEW.evidence_taken_at := NULL;
    END IF;
    -- Owners see the cases in which a release of theirs counts: it can be taken back.
    IF 'owner_released' = ANY (e.facts) AND NEW.owner_key IS NOT NULL THEN
        NEW.owner_heard_at := coalesce(NEW.owner_heard_at, clock_timestamp());
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER keep_request BEFORE UPDATE OF evidence_id ON ticket FOR EACH ROW
    WHEN (NEW.evidence_id IS NOT NULL) EXECUTE FUNCTION keep_request();

-- ---- Erasure --------------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION forget_replies() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- Either side may have written about the other.
    UPDATE ticket_reply AS r SET words = NULL, key = NULL, request = NULL
     WHERE r.id IN (SELECT x.id FROM ticket AS t JOIN ticket_reply AS x ON x.ticket_id = t.id WHERE t.claimant_key = NEW.user_key
                     UNION SELECT x.id FROM ticket AS t JOIN ticket_reply AS x ON x.ticket_id = t.id WHERE t.owner_key = NEW.user_key
                     UNION SELECT x.id FROM ticket_reply AS x WHERE x.user_key = NEW.user_key);
    RETURN NEW;
END
$$;

-- ---- Whose case -----------------------------------------------------------------------------------------------------

-- Whether an id was ever given to a claimant for their case: a restore that comes later tells of it by an id of its own.
CREATE FUNCTION is_case_of(known bigint, which uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM job_history AS j
                    WHERE j.id = which AND j.user_key = known AND j.outcome = 'store_account_mismatch')
        OR EXISTS (SELECT 1 FROM ticket AS t
                    WHERE t.claimant_key = known AND t.visible AND t.question_at IS NOT NULL
                      AND opaque_id('case ' || t.uid) = which)
$$;

-- Whether an app ever showed a reference to the claimant.
CREATE FUNCTION has_reference(known bigint, spoken text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM job_history AS j
                    WHERE j.user_key = known AND j.outcome = 'store_account_mismatch' AND reference_of('R', j.id) = spoken)
        OR EXISTS (SELECT 1 FROM ticket AS t
                    WHERE t.claimant_key = known AND t.visible AND t.question_at IS NOT NULL
                      AND reference_of('T', t.uid) = spoken)
$$;

-- The transfers that an owner knows of, one for each purchase: how many asked for it, and who, is not theirs to know. What they
-- have agreed to is no question any more, whether it shortens a time or not. `question_id`: what is asked now; `open`: the
-- tickets in which the owner's word counts.
DROP FUNCTION owner_cases(bigint);
CREATE FUNCTION owner_cases(known bigint)
RETURNS TABLE (id uuid, state text, since timestamptz, until timestamptz, question_id uuid, store text, product_id text,
               open bigint[])
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT owner_case_id(known, p.id),
           CASE WHEN bool_or(g.awaits) THEN 'question' WHEN bool_or(is_open(g.state)) THEN 'open' ELSE 'decided' END,
           coalesce(min(g.owner_asked_at) FILTER (WHERE g.awaits), min(g.owner_heard_at) FILTER (WHERE is_open(g.state)),
                    min(g.owner_heard_at)),
           min(g.owner_until) FILTER (WHERE g.awaits),
           (array_agg(opaque_id(format('question %s %s', g.id, extract(epoch FROM g.owner_asked_at)))
                      ORDER BY g.owner_asked_at, g.id) FILTER (WHERE g.awaits))[1],
           p.store, p.product_id,
           coalesce(array_agg(g.id ORDER BY g.id) FILTER (WHERE is_open(g.state)), '{}')
      FROM (SELECT t.*, t.owner_no_at IS NULL AND t.owner_until > clock_timestamp() AND is_open(t.state)
                        AND t.state <> 'executing'
                        AND NOT EXISTS (SELECT 1 FROM ticket_reply AS r
                                         WHERE r.ticket_id = t.id AND r.user_key = known AND r.side = 'owner'
                                           AND r.decision = 'agree' AND r.at >= t.owner_asked_at) AS awaits
              FROM ticket AS t
             WHERE t.owner_key = known AND t.owner_heard_at IS NOT NULL
               AND (is_open(t.state) OR t.state = 'transferred' AND t.closed_at > clock_timestamp() - interval '30 days')) AS g
      JOIN purchase AS p ON p.id = living(coalesce(g.purchase_id, g.subject_id))
     WHERE p.owner_key = known OR g.state IN ('executing', 'transferred')
     GROUP BY p.id;
END
$$;

-- Owners who knew of a case hear what came of it, once nobody is left who asks for the purchase; of how many there were they hear
-- nothing. `closed`: nothing was moved, and nobody said no.
CREATE OR REPLACE FUNCTION tell_owner() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    item purchase;
BEGIN
    IF is_open(NEW.state) OR NEW.state = 'duplicate' OR NEW.owner_key IS NULL OR OLD.owner_heard_at IS NULL THEN
        RETURN NULL;
    END IF;
    -- One after the other: of two that end at once, each would leave it to the other.
    PERFORM pg_advisory_xact_lock(7309941, hashint8(NEW.owner_key));
    SELECT p.* INTO item FROM purchase AS p WHERE p.id = living(coalesce(NEW.purchase_id, NEW.subject_id));
    IF NEW.state <> 'transferred'
       -- Of a purchase that has gone they hear with the transfer.
       AND (item.owner_key IS DISTINCT FROM NEW.owner_key
            OR EXISTS (SELECT 1 FROM ticket AS t
                        WHERE t.owner_key = NEW.owner_key AND t.id <> NEW.id AND is_open(t.state) AND t.owner_heard_at IS NOT NULL
                          AND living(coalesce(t.purchase_id, t.subject_id)) = item.id)) THEN
        RETURN NULL;
    END IF;
    INSERT INTO ticket_news (user_key, topic, data)
    VALUES (NEW.owner_key, 'ticket.decided',
            jsonb_build_object('id', owner_case_id(NEW.owner_key, item.id), 'role', 'owner',
                               'state', CASE WHEN NEW.state IN ('transferred', 'refused') THEN NEW.state ELSE 'closed' END));
    RETURN NULL;
END
$$;

-- The cases of a user of the app, as a JSON array; null for whoever is no user.
CREATE OR REPLACE FUNCTION ticket_answers(wanted text) RETURNS jsonb
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
            'question', asked.question, 'question_id', NULL, 'asked_at', moment(asked.question_at),
            'answer_by', moment(asked.answer_until), 'store', NULL, 'product_id', NULL));
    END IF;
    RETURN cases || coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'id', o.id, 'role', 'owner', 'reference', NULL, 'created_at', moment(o.since), 'state', o.state,
                   'question', CASE o.state WHEN 'question' THEN 'transfer' END, 'question_id', o.question_id,
                   'asked_at', CASE o.state WHEN 'question' THEN moment(o.since) END,
                   'answer_by', CASE o.state WHEN 'question' THEN moment(o.until) END,
                   'store', o.store, 'product_id', o.product_id) ORDER BY o.since, o.id)
          FROM owner_cases(known) AS o), '[]');
END
$$;

-- ---- What users say -------------------------------------------------------------------------------------------------

-- Takes what a user says to a case of theirs. `asked`: the question that an owner agrees to; consent is to nothing else. Returns
-- null: it was taken, now or before; `not_found`: no such case is theirs, which is all that anybody hears of others'; `decided`:
-- support is through with it; `not_asked`: it is not theirs to decide; `question_changed`: what was agreed to is not asked now.
DROP FUNCTION reply_to_ticket(text, uuid, text, text, text);
CREATE FUNCTION reply_to_ticket(wanted text, which uuid, words text, wish text, sent_key text, asked uuid DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A user whom somebody else holds must not keep a connection that others wait for.
SET lock_timeout = '500ms' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    said     text := nullif(btrim(words, E' \t\r\n'), '');
    digest   bytea;
    before   ticket_reply;
    known    bigint;
    role     text := 'claimant';
    items    bigint[];
    current  uuid;
    t        ticket;
    made     bigint;
    released bigint[];
    changes  boolean := false;
    first    boolean := true;
BEGIN
    PERFORM check_isolation();
    -- What is wrong with the request is said before anything is looked for.
    IF wish IS NOT NULL AND wish NOT IN ('object', 'agree') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'decision: must be object, agree or null',
            HINT = 'Leave decision out to say something and decide nothing.';
    END IF;
    IF wish = 'agree' AND asked IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'question_id: has to be sent with agree',
            HINT = 'Send the question_id of the case that the person was shown.';
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
    digest := sha256(convert_to((jsonb_build_array(which, said, wish)
                                 || CASE WHEN asked IS NULL THEN '[]' ELSE jsonb_build_array(asked) END)::text, 'UTF8'));
    -- Users before tickets, as everywhere. An erasure that has begun is waited for: no word comes after it.
    SELECT u.user_key INTO known FROM user_sync AS u WHERE u.user_id = wanted FOR KEY SHARE;
    IF is_case_of(known, which) THEN
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

    -- Sent again with its key, because no answer came.
    UPDATE ticket_reply AS r SET key = NULL, request = NULL
     WHERE r.user_key = known AND r.key = sent_key AND r.at < clock_timestamp() - interval '7 days';
    SELECT r.* INTO before FROM ticket_reply AS r WHERE r.user_key = known AND r.key = sent_key;
    IF before.request <> digest THEN
        RAISE EXCEPTION USING ERRCODE = 'ES004', MESSAGE = 'idempotency_key: used before with other content',
            HINT = 'Use a new key for a new request; keys are remembered for 7 days.';
    END IF;
    IF before.id IS NOT NULL THEN
        RETURN NULL;
    END IF;

    -- As they stand now that nobody else moves them. Whoever claims answers the question that is shown, or else adds to the newest.
    IF role = 'claimant' THEN
        items := ARRAY(SELECT x.id FROM ticket AS x WHERE x.id = ANY (items) AND is_open(x.state)
                        ORDER BY x.state = 'waiting_claimant' DESC, x.question_at, x.id DESC LIMIT 1);
    ELSE
        items := ARRAY(SELECT x.id FROM ticket AS x WHERE x.id = ANY (items) AND is_open(x.state) AND x.owner_key = known
                        ORDER BY x.id);
        SELECT o.question_id INTO current FROM owner_cases(known) AS o WHERE o.id = which;
        -- Who objects takes back what they gave the claimants before.
        released := ARRAY(SELECT r.id FROM purchase_release AS r
                           WHERE wish = 'object' AND r.owner_key = known AND r.ended_at IS NULL
                             AND EXISTS (SELECT 1 FROM ticket AS x
                                          WHERE x.id = ANY (items)
                                            AND (r.claimant_key = x.claimant_key OR has_reference(x.claimant_key, r.reference))));
        changes := CASE wish WHEN 'agree' THEN coalesce(asked = current, false)
                             WHEN 'object' THEN cardinality(released) > 0
                                                OR EXISTS (SELECT 1 FROM ticket AS x
                                                            WHERE x.id = ANY (items) AND x.owner_no_at IS NULL)
                             ELSE false END;
    END IF;

    -- Without a key the same words within a minute are the same: where they say nothing new, and to a question nothing twice.
    IF sent_key IS NULL AND NOT changes AND cardinality(items) > 0
       AND NOT EXISTS (SELECT 1 FROM ticket AS x
                        WHERE x.id = ANY (items)
                          AND NOT EXISTS (SELECT 1 FROM ticket_reply AS r
                                           WHERE r.ticket_id = x.id AND r.user_key = known AND r.side = role
                                             AND r.at > clock_timestamp() - interval '1 minute'
                                             AND (role = 'owner' OR x.state <> 'waiting_claimant' OR r.at > x.question_at)
                                             AND r.words IS NOT DISTINCT FROM said AND r.decision IS NOT DISTINCT FROM wish)) THEN
        RETURN NULL;
    END IF;
    IF items = '{}' THEN
        RETURN CASE WHEN role = 'owner' OR sent_key IS NOT NULL
                         OR NOT EXISTS (SELECT 1 FROM ticket_reply AS r
                                         WHERE r.user_key = known AND r.side = role AND r.at > clock_timestamp() - interval '1 minute'
                                           AND r.words IS NOT DISTINCT FROM said) THEN 'decided' END;
    END IF;
    IF wish = 'agree' AND NOT changes THEN
        RETURN 'question_changed';
    END IF;
    -- A word that changes something is never one too many.
    IF NOT changes
       AND (SELECT count(*) FROM ticket_reply AS r
             WHERE r.user_key = known AND r.side = role AND r.at > clock_timestamp() - interval '1 day'
               AND (role = 'claimant' OR r.ticket_id = items[1])) >= desk_number('replies_per_day') THEN
        RAISE EXCEPTION USING ERRCODE = 'ES008', MESSAGE = 'text: enough was said today',
            HINT = 'Everything that was said is read; say more tomorrow.';
    END IF;

    UPDATE purchase_release AS r SET ended_at = clock_timestamp() WHERE r.id = ANY (released);
    FOR t IN SELECT x.* FROM ticket AS x WHERE x.id = ANY (items) ORDER BY x.id LOOP
        BEGIN
            INSERT INTO ticket_reply (ticket_id, user_key, side, decision, words, key, request)
            VALUES (t.id, known, role, wish, said, CASE WHEN first THEN sent_key END,
                    CASE WHEN first AND sent_key IS NOT NULL THEN digest END)
            RETURNING ticket_reply.id INTO made;
        EXCEPTION WHEN unique_violation THEN
            -- At this moment, to another case.
            RAISE EXCEPTION USING ERRCODE = 'ES004', MESSAGE = 'idempotency_key: used before with other content',
                HINT = 'Use a new key for a new request; keys are remembered for 7 days.';
        END;
        first := false;
        -- Who agrees is waited for no longer; to whom it goes is not theirs to choose, where several want it.
        IF wish = 'agree' AND cardinality(items) = 1 THEN
            UPDATE ticket AS x SET owner_yes_at = coalesce(x.owner_yes_at, clock_timestamp()) WHERE x.id = t.id;
        END IF;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, CASE WHEN role = 'claimant' THEN 'claimant_replied' WHEN wish = 'object' THEN 'owner_objected'
                           WHEN wish = 'agree' AND cardinality(items) = 1 THEN 'owner_agreed' ELSE 'owner_replied' END,
                jsonb_build_object('reply', made));
        IF wish = 'object' AND (t.owner_no_at IS NULL OR cardinality(released) > 0) THEN
            -- What has begun goes on by its own rules, which ask for this as well.
            UPDATE ticket AS x SET owner_no_at = clock_timestamp() WHERE x.id = t.id;
            IF t.state <> 'executing' THEN
                PERFORM void_approvals(t.id, 'owner_objected');
            END IF;
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

-- ---- Releases -------------------------------------------------------------------------------------------------------

ALTER TABLE purchase_release ADD COLUMN ended_at timestamptz;
COMMENT ON COLUMN purchase_release.ended_at IS 'when the owner took it back by objecting';

-- Takes an owner's word that a purchase of theirs may go to the account whose app shows the reference. Whatever is behind it, the
-- answer is the same.
CREATE OR REPLACE FUNCTION release_purchase(wanted text, spoken text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- A user whom somebody else holds must not keep a connection that others wait for.
SET lock_timeout = '500ms' SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    code  text := upper(spoken);
    known bigint;
    made  bigint;
    cases bigint[];
    told  bigint[];
    t     ticket;
BEGIN
    PERFORM check_isolation();
    IF spoken IS NULL OR NOT spoken ~* '^[RT]-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{2}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'reference: must be such as R-7K3Q-92',
            HINT = 'Let the person copy it from the app that is signed in to their other account.';
    END IF;
    known := user_key_of(wanted);
    -- One at a time for each owner, and none after an erasure that had begun.
    PERFORM FROM user_sync AS u WHERE u.user_key = known AND u.user_id = wanted FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ES001', MESSAGE = 'user_id: there is no such user', HINT = 'Sign the person in anew.';
    END IF;
    -- What was taken back today is not given again today.
    IF (SELECT count(*) FROM purchase_release AS r
         WHERE r.owner_key = known AND r.reference <> code AND r.at > clock_timestamp() - interval '1 day')
       >= desk_number('releases_per_day')
       OR EXISTS (SELECT 1 FROM purchase_release AS r
                   WHERE r.owner_key = known AND r.reference = code AND r.ended_at > clock_timestamp() - interval '1 day') THEN
        RAISE EXCEPTION USING ERRCODE = 'ES008', MESSAGE = 'reference: enough were given today',
            HINT = 'Let the person check the reference, and try again tomorrow.';
    END IF;
    INSERT INTO purchase_release AS r (owner_key, reference) VALUES (known, code) ON CONFLICT (owner_key, reference) DO NOTHING;
    SELECT r.id INTO made FROM purchase_release AS r WHERE r.owner_key = known AND r.reference = code;
    cases := ARRAY(WITH RECURSIVE item AS (
                       SELECT p.id FROM purchase AS p WHERE p.owner_key = known AND p.merged_into IS NULL
                        UNION
                       SELECT p.id FROM purchase AS p JOIN item AS i ON p.merged_into = i.id
                   ), about AS MATERIALIZED (
                       SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.purchase_id = i.id WHERE is_open(x.state)
                        UNION
                       SELECT x.id, x.claimant_key FROM item AS i JOIN ticket AS x ON x.subject_id = i.id
                        WHERE x.purchase_id IS NULL AND is_open(x.state)
                   )
                   SELECT a.id FROM about AS a WHERE a.claimant_key <> known AND has_reference(a.claimant_key, code));
    -- Those that know of it need not be told again.
    told := ARRAY(SELECT c FROM unnest(cases) AS c
                   WHERE is_released(c)
                     AND EXISTS (SELECT 1 FROM ticket_event AS e
                                  WHERE e.ticket_id = c AND e.kind = 'owner_released' AND e.detail ->> 'release' = made::text));
    UPDATE purchase_release AS r SET at = clock_timestamp(), ended_at = NULL WHERE r.id = made;
    FOR t IN SELECT x.* FROM ticket AS x WHERE x.id = ANY (cases) ORDER BY x.id FOR NO KEY UPDATE LOOP
        UPDATE purchase_release AS r SET claimant_key = t.claimant_key WHERE r.id = made;
        -- What was closed while its row was waited for is over.
        CONTINUE WHEN NOT is_open(t.state) OR t.id = ANY (told);
        UPDATE ticket AS x SET owner_heard_at = coalesce(x.owner_heard_at, clock_timestamp())
         WHERE x.id = t.id AND x.owner_key = known;
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
CREATE OR REPLACE FUNCTION is_released(which bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (
        SELECT 1 FROM ticket AS t
          JOIN purchase AS p ON p.id = living(coalesce(t.purchase_id, t.subject_id))
          JOIN purchase_release AS r ON r.owner_key = p.owner_key
         WHERE t.id = which AND p.owner_key <> t.claimant_key AND r.at > p.owner_since AND r.ended_at IS NULL
           AND r.at > clock_timestamp() - desk_number('release_days') * interval '1 day'
           -- It may have been given before anybody knew which purchase the claimant means.
           AND (r.claimant_key = t.claimant_key OR r.claimant_key IS NULL AND has_reference(t.claimant_key, r.reference)))
$$;

REVOKE ALL ON FUNCTION keep_owner, count_request, is_case_of, has_reference, owner_cases, reply_to_ticket FROM PUBLIC;
SELECT grant_to('entitlement_sync_api', ARRAY['GRANT EXECUTE ON FUNCTION reply_to_ticket TO %I']);
SELECT grant_to('entitlement_sync_worker', ARRAY[
    'GRANT EXECUTE ON FUNCTION reply_to_ticket TO %I',
    'GRANT UPDATE (evidence_taken_at, evidence_seen) ON ticket TO %I']);
