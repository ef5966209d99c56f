-- Erasure of a user: the user's id and texts go, the decisions stay.

-- Removes a user's id from our records, and the user's texts. Decisions and purchases stay under the key, so that no other user can take
-- a purchase. Returns how many purchases and tickets the user has, and how many event bodies and messages were deleted; no row if the
-- records hold neither the user, nor the body of an event about the id, nor a line of an import that names it.
CREATE OR REPLACE FUNCTION erase_user(wanted text)
RETURNS TABLE (purchases bigint, tickets bigint, events bigint, messages bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    known    bigint;
    jobs     uuid[];
    accounts uuid[];
    lines    bigint;
    given    text := wanted;
BEGIN
    -- As the host spells the id; as the caller does, if the host has the user no more.
    wanted := coalesce(host_id(wanted), wanted);
    -- First these rows, then the user: the worker that writes assets locks them in the same order.
    DELETE FROM asset_run AS r USING user_sync AS u WHERE u.user_id = wanted AND r.user_key = u.user_key;
    SELECT u.user_key INTO known FROM user_sync AS u WHERE u.user_id = wanted FOR UPDATE;
    DELETE FROM sandbox_user AS s WHERE s.user_id = wanted;
    DELETE FROM account_index AS i WHERE i.user_id = wanted;
    UPDATE import_line AS l SET user_id = NULL, value = NULL, names = NULL, result = 'erased', epoch = NULL
     -- A file may spell the id otherwise.
     WHERE l.user_id = given OR l.user_id = wanted OR l.user_key = known;
    GET DIAGNOSTICS lines = ROW_COUNT;
    -- Events may name an id that is no known user. UNION, so that each branch uses its own index.
    DELETE FROM inbox_body AS b
     WHERE b.id = ANY (ARRAY(SELECT i.id FROM inbox AS i WHERE i.user_keys @> ARRAY[known]
                             UNION
                             SELECT i.id FROM inbox AS i WHERE i.about IS NOT NULL AND i.about -> 'users' ? wanted));
    GET DIAGNOSTICS events = ROW_COUNT;
    UPDATE inbox AS i SET about = NULL, state = CASE WHEN i.state = 'done' THEN i.state ELSE 'parked' END
     WHERE i.about IS NOT NULL AND i.about -> 'users' ? wanted;
    IF known IS NULL THEN
        IF events > 0 OR lines > 0 THEN
            purchases := 0;
            tickets := 0;
            messages := 0;
            INSERT INTO operator_event (kind, detail) VALUES ('user_erased', jsonb_build_object('database_user', session_user));
            RETURN NEXT;
        END IF;
        RETURN;
    END IF;
    UPDATE user_sync AS u SET user_id = NULL, next_check_at = NULL, access_event_at = NULL, entitlements = NULL
     WHERE u.user_key = known;
    accounts := ARRAY(SELECT a.store_account FROM submitted_account AS a WHERE a.user_key = known
                       UNION SELECT p.store_account FROM purchase AS p WHERE p.owner_key = known AND p.store_account IS NOT NULL);
    DELETE FROM submitted_account AS a WHERE a.user_key = known;
    -- A purchase that has no owner yet has the account's name too.
    PERFORM FROM purchase AS p
      WHERE p.store_account = ANY (accounts) AND (p.owner_key = known OR p.owner_key IS NULL)
      ORDER BY p.id FOR UPDATE;
    UPDATE purchase AS p SET store_account = NULL
     WHERE p.store_account = ANY (accounts) AND (p.owner_key = known OR p.owner_key IS NULL);
    PERFORM erase_texts(known);
    DELETE FROM idempotency AS i WHERE i.user_key = known;
    DELETE FROM shown_proof AS s WHERE s.user_key = known;
    UPDATE "grant" AS g SET reason = '(erased)', external_id = NULL WHERE g.user_key = known;

    jobs := ARRAY(SELECT h.id FROM job_history AS h WHERE h.user_key = known)
         || ARRAY(SELECT x.id FROM queue AS q
                   CROSS JOIN LATERAL unnest(ARRAY[q.restore_id, q.restore_next, q.reconcile_id, q.reconcile_next]) AS x(id)
                   WHERE q.user_key = known AND x.id IS NOT NULL);
    UPDATE job_request AS r
       SET proofs = NULL, client_error = NULL, product_ids = NULL, reason = NULL, sign_in_provider = NULL, signed_in_at = NULL
     WHERE r.id = ANY (jobs);

    DELETE FROM firebase_claims AS c WHERE c.user_key = known;
    DELETE FROM outbox AS o WHERE o.user_key = known;
    GET DIAGNOSTICS messages = ROW_COUNT;
    SELECT count(*) INTO purchases FROM purchase AS p WHERE p.owner_key = known AND p.merged_into IS NULL;
    SELECT count(*) INTO tickets FROM ticket AS t WHERE known IN (t.claimant_key, t.owner_key);
    INSERT INTO operator_event (kind, detail) VALUES ('user_erased', jsonb_build_object('user', known, 'database_user', session_user));
    RETURN NEXT;
END
$$;

-- Deletes what users and operators wrote about an erased user's tickets, and the link from the user's operator, if there is one.
CREATE OR REPLACE FUNCTION erase_texts(known bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    -- Either side may have written about the other.
    cases bigint[] := ARRAY(SELECT t.id FROM ticket AS t WHERE t.claimant_key = known
                             UNION SELECT t.id FROM ticket AS t WHERE t.owner_key = known);
BEGIN
    -- A reported id also stands in `original_id`, if an agent opened or touched the ticket.
    UPDATE ticket AS t SET original_id = NULL
     WHERE t.id = ANY (cases) AND t.original_id IS NOT NULL
       AND (EXISTS (SELECT 1 FROM ticket_event AS e
                     WHERE e.ticket_id = t.id AND e.kind IN ('opened', 'touched') AND e.operator_id IS NOT NULL)
            OR EXISTS (SELECT 1 FROM ticket_reported_id AS c WHERE c.ticket_id = t.id AND c.value = t.original_id));
    DELETE FROM ticket_reported_id AS c WHERE c.ticket_id = ANY (cases);
    DELETE FROM ticket_news AS n WHERE n.user_key = known;
    UPDATE ticket_note AS n SET words = NULL WHERE n.ticket_id = ANY (cases);
    UPDATE ticket_reply AS r SET words = NULL, key = NULL, request = NULL
     WHERE r.id IN (SELECT x.id FROM ticket_reply AS x WHERE x.ticket_id = ANY (cases)
                     UNION SELECT x.id FROM ticket_reply AS x WHERE x.user_key = known);
    -- `operator_account` keeps the link.
    UPDATE operator AS o SET user_key = NULL WHERE o.user_key = known;
END
$$;
