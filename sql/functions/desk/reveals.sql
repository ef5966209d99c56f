-- Requests to see ids unmasked: each is recorded, and their number an hour is limited.

-- Asks to see a ticket's ids, unmasked in a later transaction within a minute. Returns null, or `own_case` or `too_many_reveals`.
CREATE OR REPLACE FUNCTION reveal_ticket(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'reveal');
BEGIN
    IF which IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ticket: has to be named', HINT = 'See entitlement-sync tickets.';
    END IF;
    IF EXISTS (SELECT 1 FROM ticket AS t WHERE t.id = which AND is_own_case(who.id, t)) THEN
        RETURN refuse_act(who, which, 'reveal', 'own_case');
    END IF;
    IF is_past_reveals(who.id, 1) THEN
        RETURN refuse_act(who, which, 'reveal', 'too_many_reveals');
    END IF;
    INSERT INTO ticket_reveal (ticket_id, operator_id) VALUES (which, who.id);
    INSERT INTO operator_event (operator_id, kind, detail)
    VALUES (who.id, 'revealed', jsonb_build_object('ticket', which::text));
    INSERT INTO ticket_event (ticket_id, kind, operator_id)
    SELECT t.id, 'revealed', who.id FROM ticket AS t WHERE t.id = which;
    RETURN NULL;
END
$$;

-- Asks to see a user's id, unmasked in a later transaction within a minute. Returns null, or `own_case`, `gone` or `too_many_reveals`.
CREATE OR REPLACE FUNCTION reveal_user(session bytea, which bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who operator := acting(session, 'reveal');
BEGIN
    IF is_own_account(who.id, which) THEN
        RETURN refuse_act(who, NULL, 'reveal', 'own_case');
    END IF;
    IF NOT EXISTS (SELECT 1 FROM user_sync AS u WHERE u.user_key = which) THEN
        RETURN 'gone';
    END IF;
    IF is_past_reveals(who.id, 1) THEN
        RETURN refuse_act(who, NULL, 'reveal', 'too_many_reveals');
    END IF;
    INSERT INTO user_reveal (user_key, operator_id) VALUES (which, who.id);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'revealed', jsonb_build_object('user', which));
    RETURN NULL;
END
$$;

-- Asks to see the ids of a list's first twenty tickets, unmasked in a later transaction within a minute; it counts as twenty. Returns
-- null, or `too_many_reveals`.
CREATE OR REPLACE FUNCTION reveal_list(session bytea, wanted text[], before bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    who  operator := acting(session, 'reveal');
    made bigint;
BEGIN
    IF is_past_reveals(who.id, 20) THEN
        RETURN refuse_act(who, NULL, 'reveal', 'too_many_reveals');
    END IF;
    INSERT INTO ticket_reveal (ticket_id, operator_id) VALUES (NULL, who.id) RETURNING id INTO made;
    INSERT INTO list_reveal (reveal_id, tickets)
    SELECT made, newest_tickets(who.id, wanted, before, 20);
    INSERT INTO operator_event (operator_id, kind, detail) VALUES (who.id, 'revealed', '{"ticket": "a list"}');
    RETURN NULL;
END
$$;

-- Whether an operator would see more ids in this hour than the limit allows, with `more` of them.
CREATE OR REPLACE FUNCTION is_past_reveals(who bigint, more bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    -- One request of an operator at a time: two at once would both pass as the last.
    PERFORM pg_advisory_xact_lock(7309940, who::integer);
    RETURN more + (SELECT coalesce(sum(CASE WHEN r.ticket_id IS NULL THEN 20 ELSE 1 END), 0) FROM ticket_reveal AS r
                    WHERE r.operator_id = who AND r.at > clock_timestamp() - interval '1 hour')
                + (SELECT count(*) FROM user_reveal AS r
                    WHERE r.operator_id = who AND r.at > clock_timestamp() - interval '1 hour')
           > coalesce(desk_number('reveals_per_hour'), 60);
END
$$;
