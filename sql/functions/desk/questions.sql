-- Questions to claimants and owners, and their replies.

-- Asks the claimant a question, which the app shows in their language. `words`: a note for operators. Returns null or the refusal's reason.
CREATE OR REPLACE FUNCTION ask_claimant(session bytea, which bigint, wanted text, words text) RETURNS text
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
    words := nullif(btrim(words, E' \t\r\n'), '');
    IF words IS NOT NULL THEN
        PERFORM check_words('note', words, 'Leave it out, or write a shorter one.');
    END IF;
    PERFORM lock_participants(which);
    SELECT f.* INTO got FROM ticket_for(who, which, 'ask', true) AS f;
    IF got.refusal IS NOT NULL THEN
        RETURN got.refusal;
    END IF;
    -- The claimant does not know of a ticket that is not visible.
    IF NOT (got.t).visible THEN
        RETURN refuse_act(who, which, 'ask', 'not_visible');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = (got.t).claimant_key AND u.user_id IS NOT NULL) THEN
        RETURN refuse_act(who, which, 'ask', 'claimant_gone');
    END IF;
    IF move_ticket(which, 'ask_claimant') IS NULL THEN
        RETURN refuse_act(who, which, 'ask', 'state');
    END IF;
    INSERT INTO ticket_question (ticket_id, question, answer_until) VALUES (which, wanted, until)
    ON CONFLICT (ticket_id) DO UPDATE
       SET question = excluded.question, asked_at = excluded.asked_at, answer_until = excluded.answer_until;
    PERFORM note_event(who, which, 'claimant_asked', jsonb_build_object('question', wanted, 'until', moment(until)));
    SELECT c.* INTO mine FROM case_of((got.t).claimant_key) AS c;
    INSERT INTO ticket_news (user_key, topic, data)
    VALUES ((got.t).claimant_key, 'ticket.question',
            jsonb_build_object('id', mine.id, 'reference', mine.reference, 'question', wanted, 'until', moment(until)));
    IF words IS NOT NULL THEN
        PERFORM add_note(who, which, words);
    END IF;
    RETURN NULL;
END
$$;

-- Closes tickets whose claimants did not answer in time, at most 200. Returns how many.
CREATE OR REPLACE FUNCTION expire_questions() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    due bigint[];
    t   record;
BEGIN
    due := ARRAY(SELECT x.id FROM ticket AS x JOIN ticket_question AS q ON q.ticket_id = x.id
                  WHERE x.state = 'waiting_claimant' AND q.answer_until <= clock_timestamp()
                  ORDER BY x.id LIMIT 200 FOR NO KEY UPDATE OF x SKIP LOCKED);
    -- `notify_owner` locks one owner after the other. Taken here in one order, the locks of two calls cannot deadlock.
    PERFORM pg_advisory_xact_lock(7309941, n.key)
       FROM (SELECT DISTINCT hashint8(x.owner_key) AS key FROM ticket AS x
              WHERE x.id = ANY (due) AND x.owner_key IS NOT NULL ORDER BY 1) AS n;
    FOR t IN SELECT q.ticket_id AS id, q.question FROM ticket_question AS q
              WHERE q.ticket_id = ANY (due) AND q.answer_until <= clock_timestamp() ORDER BY q.ticket_id LOOP
        PERFORM move_ticket(t.id, 'expire');
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, 'expired', jsonb_build_object('question', t.question));
    END LOOP;
    RETURN cardinality(due);
END
$$;

-- Stores a user's reply to their case. `asked`: the question to which an owner agrees. Returns null: it is stored, now or before;
-- `not_found`: the user has no such case, whether or not another user has it; `decided`: the tickets are closed; `not_asked`: a claimant
-- sent a decision, which only an owner may; `question_changed`: the owner agreed to a question that is not open now.
CREATE OR REPLACE FUNCTION reply_to_ticket(wanted text, which uuid, words text, wish text, sent_key text, asked uuid DEFAULT NULL)
    RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- Fails soon if another transaction has locked the user's row, so that the caller frees its connection.
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
    -- Reports a malformed request before it reads any data.
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
    -- Locks users before tickets, as every function does. An erasure that has begun ends first: no reply is stored after it.
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

    -- The app sends a request again with its key if no answer came; keys count for seven days.
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

    -- Under the locks, a claimant's reply goes to the ticket with the open question, else to the one asked first, else to the newest.
    IF role = 'claimant' THEN
        items := ARRAY(SELECT x.id FROM ticket AS x LEFT JOIN ticket_question AS q ON q.ticket_id = x.id
                        WHERE x.id = ANY (items) AND is_open(x.state)
                        ORDER BY x.state = 'waiting_claimant' DESC, q.asked_at, x.id DESC LIMIT 1);
    ELSE
        items := ARRAY(SELECT x.id FROM ticket AS x WHERE x.id = ANY (items) AND is_open(x.state) AND x.owner_key = known
                        ORDER BY x.id);
        SELECT o.question_id INTO current FROM owner_cases(known) AS o WHERE o.id = which;
        -- An objection takes back the consents that the owner gave to these claimants.
        released := ARRAY(SELECT r.id FROM purchase_consent AS r
                           WHERE wish = 'object' AND r.owner_key = known AND r.ended_at IS NULL
                             AND EXISTS (SELECT 1 FROM ticket AS x
                                          WHERE x.id = ANY (items)
                                            AND (r.claimant_key = x.claimant_key OR has_reference(x.claimant_key, r.reference))));
        changes := CASE wish WHEN 'agree' THEN coalesce(asked = current, false)
                             WHEN 'object' THEN cardinality(released) > 0
                                                OR EXISTS (SELECT 1 FROM unnest(items) AS i(id) WHERE NOT has_objection(i.id))
                             ELSE false END;
    END IF;

    -- Without a key, a reply that changes nothing is a repeat, if one less than a minute old says the same about the same question.
    IF sent_key IS NULL AND NOT changes AND cardinality(items) > 0
       AND NOT EXISTS (SELECT 1 FROM ticket AS x LEFT JOIN ticket_question AS q ON q.ticket_id = x.id
                        WHERE x.id = ANY (items)
                          AND NOT EXISTS (SELECT 1 FROM ticket_reply AS r
                                           WHERE r.ticket_id = x.id AND r.user_key = known AND r.side = role
                                             AND r.at > clock_timestamp() - interval '1 minute'
                                             AND (role = 'owner' OR x.state <> 'waiting_claimant' OR r.at > q.asked_at)
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
    -- The daily limit does not apply to a reply that changes something.
    IF NOT changes
       AND (SELECT count(*) FROM ticket_reply AS r
             WHERE r.user_key = known AND r.side = role AND r.at > clock_timestamp() - interval '1 day'
               AND (role = 'claimant' OR r.ticket_id = items[1])) >= desk_number('replies_per_day') THEN
        RAISE EXCEPTION USING ERRCODE = 'ES008', MESSAGE = 'text: enough was said today',
            HINT = 'Everything that was said is read; say more tomorrow.';
    END IF;

    UPDATE purchase_consent AS r SET ended_at = clock_timestamp() WHERE r.id = ANY (released);
    FOR t IN SELECT x.* FROM ticket AS x WHERE x.id = ANY (items) ORDER BY x.id LOOP
        BEGIN
            INSERT INTO ticket_reply (ticket_id, user_key, side, decision, words, key, request)
            VALUES (t.id, known, role, wish, said, CASE WHEN first THEN sent_key END,
                    CASE WHEN first AND sent_key IS NOT NULL THEN digest END)
            RETURNING ticket_reply.id INTO made;
        EXCEPTION WHEN unique_violation THEN
            -- A concurrent request used the key for another case.
            RAISE EXCEPTION USING ERRCODE = 'ES004', MESSAGE = 'idempotency_key: used before with other content',
                HINT = 'Use a new key for a new request; keys are remembered for 7 days.';
        END;
        first := false;
        -- An agreement ends the owner window, but does not choose between several tickets: the operators choose.
        IF wish = 'agree' AND cardinality(items) = 1 THEN
            PERFORM note_agreement(t.id);
        END IF;
        INSERT INTO ticket_event (ticket_id, kind, detail)
        VALUES (t.id, CASE WHEN role = 'claimant' THEN 'claimant_replied' WHEN wish = 'object' THEN 'owner_objected'
                           WHEN wish = 'agree' AND cardinality(items) = 1 THEN 'owner_agreed' ELSE 'owner_replied' END,
                jsonb_build_object('reply', made));
        IF wish = 'object' AND (NOT has_objection(t.id) OR cardinality(released) > 0) THEN
            -- A running transfer checks for the objection in `allow_transfer`.
            PERFORM note_objection(t.id);
            IF t.state <> 'executing' THEN
                PERFORM void_approvals(t.id, 'owner_objected');
            END IF;
        END IF;
        IF role = 'claimant' AND t.state = 'waiting_claimant' THEN
            PERFORM move_ticket(t.id, 'claimant_replied');
        END IF;
        IF role = 'claimant' OR wish = 'object' THEN
            PERFORM request_evidence(t.id);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- The replies of claimant and owner, for an operator with the permission `work` or `audit`.
CREATE OR REPLACE FUNCTION ticket_replies(session bytea, which bigint)
RETURNS TABLE (at timestamptz, side text, decision text, words text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
DECLARE
    who operator := acting(session, 'view');
BEGIN
    RETURN QUERY
    SELECT r.at, r.side, r.decision, r.words
      FROM ticket AS t JOIN ticket_reply AS r ON r.ticket_id = t.id
     WHERE t.id = which AND NOT is_own_case(who.id, t) AND may_read_messages(who)
     ORDER BY r.id DESC LIMIT 200;
END
$$;

-- Deletes dry runs after 30 days, and reported ids 90 days after their ticket was closed.
CREATE OR REPLACE FUNCTION forget_questions() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    DELETE FROM dry_run AS r
     WHERE r.id = ANY (ARRAY(SELECT x.id FROM dry_run AS x WHERE x.asked_at < clock_timestamp() - interval '30 days'
                              ORDER BY x.asked_at LIMIT 10000 FOR UPDATE SKIP LOCKED));
    DELETE FROM ticket_reported_id AS c
     USING (SELECT x.ticket_id, x.kind, x.value FROM ticket_reported_id AS x JOIN ticket AS t ON t.id = x.ticket_id
             WHERE x.at < clock_timestamp() - interval '90 days' AND NOT is_open(t.state)
               AND t.closed_at < clock_timestamp() - interval '90 days'
             LIMIT 10000) AS o
     WHERE (c.ticket_id, c.kind, c.value) = (o.ticket_id, o.kind, o.value);
END
$$;
