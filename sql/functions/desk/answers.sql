-- What claimants and owners see of a ticket, and what they are notified of.

-- The cases of an app's user as a JSON array: at most one as claimant, and one for each purchase as owner; null: no such user.
CREATE OR REPLACE FUNCTION ticket_answers(wanted text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
    known bigint;
    mine  record;
    asked ticket_question;
    cases jsonb := '[]';
BEGIN
    IF NOT EXISTS (SELECT 1 FROM entitlement_sync_host.read_users(ARRAY[wanted])) THEN
        RETURN NULL;
    END IF;
    SELECT u.user_key INTO known FROM user_sync AS u WHERE u.user_id = wanted;
    SELECT c.* INTO mine FROM case_of(known) AS c;
    IF mine.id IS NOT NULL THEN
        SELECT q.* INTO asked FROM ticket AS t JOIN ticket_question AS q ON q.ticket_id = t.id
         WHERE t.claimant_key = known AND t.visible AND t.state = 'waiting_claimant' ORDER BY q.asked_at, t.id LIMIT 1;
        cases := jsonb_build_array(jsonb_build_object(
            'id', mine.id, 'role', 'claimant', 'reference', mine.reference, 'created_at', moment(mine.since),
            'state', CASE WHEN asked.ticket_id IS NOT NULL THEN 'question'
                          WHEN EXISTS (SELECT 1 FROM ticket AS t
                                        WHERE t.claimant_key = known AND t.visible AND is_open(t.state)) THEN 'open'
                          ELSE 'decided' END,
            'question', asked.question, 'question_id', NULL, 'asked_at', moment(asked.asked_at),
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

-- The id and reference of a claimant's case, as the app first showed them: from the first restore that ended in
-- `store_account_mismatch`, else from the first ticket in which support asked the claimant. All null: the claimant has no case.
CREATE OR REPLACE FUNCTION case_of(known bigint, OUT id uuid, OUT reference text, OUT since timestamptz)
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
BEGIN
    SELECT j.id, reference_of('R', j.id), j.finished_at INTO id, reference, since FROM job_history AS j
     WHERE j.user_key = known AND j.outcome = 'store_account_mismatch' ORDER BY j.id LIMIT 1;
    IF id IS NULL THEN
        SELECT opaque_id('case ' || t.uid), reference_of('T', t.uid), q.asked_at INTO id, reference, since
          FROM ticket AS t JOIN ticket_question AS q ON q.ticket_id = t.id
         WHERE t.claimant_key = known AND t.visible ORDER BY t.id LIMIT 1;
    END IF;
END
$$;

-- Whether an id was ever shown to a claimant for their case: each later restore shows an id of its own.
CREATE OR REPLACE FUNCTION is_case_of(known bigint, which uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM job_history AS j
                    WHERE j.id = which AND j.user_key = known AND j.outcome = 'store_account_mismatch')
        OR EXISTS (SELECT 1 FROM ticket AS t JOIN ticket_question AS q ON q.ticket_id = t.id
                    WHERE t.claimant_key = known AND t.visible
                      AND opaque_id('case ' || t.uid) = which)
$$;

-- Whether the app ever showed the claimant a reference.
CREATE OR REPLACE FUNCTION has_reference(known bigint, spoken text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM job_history AS j
                    WHERE j.user_key = known AND j.outcome = 'store_account_mismatch' AND reference_of('R', j.id) = spoken)
        OR EXISTS (SELECT 1 FROM ticket AS t JOIN ticket_question AS q ON q.ticket_id = t.id
                    WHERE t.claimant_key = known AND t.visible
                      AND reference_of('T', t.uid) = spoken)
$$;

-- An id that does not reveal what it was made from; the same text gives the same id.
CREATE OR REPLACE FUNCTION opaque_id(what text) RETURNS uuid
LANGUAGE sql STABLE STRICT SET search_path = entitlement_sync, pg_temp AS $$
    SELECT encode(substring(sha256(d.bytes || convert_to(what, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid FROM desk_secret AS d
$$;

-- The id of an owner's case, the same for all tickets about a purchase: a reference would reveal one of the claimants.
CREATE OR REPLACE FUNCTION owner_case_id(owner bigint, item bigint) RETURNS uuid
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp
RETURN opaque_id(format('owner %s %s', owner, item));

-- An owner's cases, one for each purchase: the owner learns neither the claimants nor their number. A question to which they agreed is
-- asked no more. `question_id`: the question that is open now; `open`: the open tickets, to which the owner's answer applies.
CREATE OR REPLACE FUNCTION owner_cases(known bigint)
RETURNS TABLE (id uuid, state text, since timestamptz, until timestamptz, question_id uuid, store text, product_id text,
               open bigint[])
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT owner_case_id(known, p.id),
           CASE WHEN bool_or(g.awaits) THEN 'question' WHEN bool_or(is_open(g.state)) THEN 'open' ELSE 'decided' END,
           coalesce(min(g.asked_at) FILTER (WHERE g.awaits), min(g.notified_at) FILTER (WHERE is_open(g.state)), min(g.notified_at)),
           min(g.ends_at) FILTER (WHERE g.awaits),
           (array_agg(opaque_id(format('question %s %s', g.id, extract(epoch FROM g.asked_at)))
                      ORDER BY g.asked_at, g.id) FILTER (WHERE g.awaits))[1],
           p.store, p.product_id,
           coalesce(array_agg(g.id ORDER BY g.id) FILTER (WHERE is_open(g.state)), '{}')
      FROM (SELECT t.id, t.state, purchase_of(t) AS item, w.asked_at, w.ends_at, w.notified_at,
                   w.objected_at IS NULL AND w.ends_at > clock_timestamp() AND is_open(t.state) AND t.state <> 'executing'
                   AND NOT EXISTS (SELECT 1 FROM ticket_reply AS r
                                    WHERE r.ticket_id = t.id AND r.user_key = known AND r.side = 'owner'
                                      AND r.decision = 'agree' AND r.at >= w.asked_at) AS awaits
              FROM ticket AS t JOIN owner_window AS w ON w.ticket_id = t.id
             WHERE t.owner_key = known AND w.notified_at IS NOT NULL
               AND (is_open(t.state) OR t.state = 'transferred' AND t.closed_at > clock_timestamp() - interval '30 days')) AS g
      JOIN purchase AS p ON p.id = g.item
     WHERE p.owner_key = known OR g.state IN ('executing', 'transferred')
     GROUP BY p.id;
END
$$;

-- Notifies a claimant of the end of a ticket that they can see. Of a refused one with the verdict: their next step depends on it.
CREATE OR REPLACE FUNCTION notify_claimant(t ticket) RETURNS void
LANGUAGE sql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
    INSERT INTO ticket_news (user_key, topic, data)
    SELECT t.claimant_key, 'ticket.decided',
           jsonb_build_object('reference', reference_of('T', t.uid), 'kind', t.kind, 'state', t.state)
           || CASE WHEN t.state = 'refused' AND t.verdict IS NOT NULL THEN jsonb_build_object('verdict', t.verdict) ELSE '{}' END
     WHERE t.visible
$$;

-- Notifies an owner of the end of a case that they know: of a transfer at once; of other ends, except `duplicate`, when no other open
-- ticket about the purchase is left. `closed`: nothing moved, and no operator refused.
CREATE OR REPLACE FUNCTION notify_owner(t ticket) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    item purchase;
BEGIN
    IF t.state = 'duplicate' OR t.owner_key IS NULL
       OR NOT EXISTS (SELECT 1 FROM owner_window AS w WHERE w.ticket_id = t.id AND w.notified_at IS NOT NULL) THEN
        RETURN;
    END IF;
    -- One transaction at a time for an owner: two tickets that end at once would each leave the message to the other.
    PERFORM pg_advisory_xact_lock(7309941, hashint8(t.owner_key));
    SELECT p.* INTO item FROM purchase AS p WHERE p.id = purchase_of(t);
    IF t.state <> 'transferred'
       -- If the purchase has another owner by now, the transfer has notified this one.
       AND (item.owner_key IS DISTINCT FROM t.owner_key
            OR EXISTS (SELECT 1 FROM ticket AS x JOIN owner_window AS w ON w.ticket_id = x.id
                        WHERE x.owner_key = t.owner_key AND x.id <> t.id AND is_open(x.state) AND w.notified_at IS NOT NULL
                          AND purchase_of(x) = item.id)) THEN
        RETURN;
    END IF;
    INSERT INTO ticket_news (user_key, topic, data)
    VALUES (t.owner_key, 'ticket.decided',
            jsonb_build_object('id', owner_case_id(t.owner_key, item.id), 'role', 'owner',
                               'state', CASE WHEN t.state IN ('transferred', 'refused') THEN t.state ELSE 'closed' END));
END
$$;

-- Publishes up to `most` messages about tickets to the outbox, and drops those older than three days. Returns how many of both.
CREATE OR REPLACE FUNCTION publish_ticket_news(most integer) RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
    WITH news AS (
        DELETE FROM ticket_news AS n
         WHERE n.id = ANY (ARRAY(SELECT x.id FROM ticket_news AS x ORDER BY x.id LIMIT most FOR UPDATE SKIP LOCKED))
        RETURNING n.*
    ), notified AS (
        INSERT INTO outbox (user_key, topic, data)
        SELECT n.user_key, n.topic, n.data FROM news AS n WHERE n.at > clock_timestamp() - interval '3 days' ORDER BY n.id
    )
    SELECT count(*)::integer FROM news
$$;
