-- Deadlines of tickets: by when the desk has to act, and what happens when a time is over.

-- Whether a ticket is urgent: a payment without access, a raised priority, or a sale that the store takes back at a known time. The body
-- is text because a parsed body would block new columns of the table.
CREATE OR REPLACE FUNCTION is_urgent(t ticket) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT t.kind = 'paid_no_access' OR t.priority < 1 OR t.deadline IS NOT NULL
$$;

-- When the desk has to take a ticket's next step; null: the next step is not the desk's.
CREATE OR REPLACE FUNCTION due_of(t ticket) RETURNS timestamptz
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT least(t.deadline,
                 CASE c.stage WHEN 'execution' THEN t.state_since WHEN 'decision' THEN greatest(t.assigned_at, t.clock_from) + t.waited
                              ELSE t.clock_from + t.waited END + c.within)
      FROM (VALUES (CASE WHEN t.state IN ('approved', 'executing') THEN 'execution'
                          WHEN t.state NOT IN ('new', 'claimed', 'needs_second') THEN NULL
                          WHEN t.assigned_at >= t.clock_from THEN 'decision' ELSE 'first_response' END)) AS now(stage)
      LEFT JOIN desk_clock AS c ON c.stage = now.stage AND c.is_urgent = is_urgent(t)
     WHERE now.stage IS NOT NULL
$$;

-- Applies changed times to the open tickets.
CREATE OR REPLACE FUNCTION clock_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = entitlement_sync, pg_temp AS $$
BEGIN
    UPDATE ticket AS t SET due_at = due_of(t)
     WHERE is_open(t.state);
    RETURN NULL;
END
$$;

-- Ends assignments, owner windows and approvals whose time is over, approvals that have become too few, and temporary access of closed
-- tickets. Returns how many tickets and users it changed.
CREATE OR REPLACE FUNCTION apply_ticket_deadlines() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
-- Waits 50 ms at most for a host's transaction that has locked its user's row.
SET lock_timeout = '50ms' AS $$
DECLARE
    t       record;
    tended  integer := 0;
    ended   bigint[];
BEGIN
    -- Temporary access ends with its ticket.
    WITH over AS (
        UPDATE "grant" AS g SET revoked_at = clock_timestamp()
          FROM ticket AS x
         WHERE g.id = x.temporary_grant_id AND NOT is_open(x.state) AND g.revoked_at IS NULL AND g.until > clock_timestamp()
        RETURNING g.user_key
    )
    SELECT array_agg(DISTINCT o.user_key ORDER BY o.user_key) INTO ended FROM over AS o;
    IF ended IS NOT NULL THEN
        PERFORM reread(ended);
        tended := cardinality(ended);
    END IF;
    DELETE FROM ticket_news AS n WHERE n.at < clock_timestamp() - interval '3 days';
    FOR t IN SELECT x.id, x.state FROM ticket AS x
              WHERE x.state = 'claimed' AND x.assigned_until <= clock_timestamp()
                 OR x.state = 'waiting_owner'
                    AND NOT EXISTS (SELECT 1 FROM owner_window AS w WHERE w.ticket_id = x.id AND w.ends_at > clock_timestamp())
                 OR x.state IN ('needs_second', 'waiting_owner', 'approved')
                    AND EXISTS (SELECT 1 FROM ticket_approval AS a
                                 WHERE a.ticket_id = x.id AND a.ended_at IS NULL AND a.expires_at <= clock_timestamp())
                 OR x.state IN ('waiting_owner', 'approved')
                    AND (SELECT count(*) FROM ticket_approval AS a WHERE a.ticket_id = x.id AND a.ended_at IS NULL)
                        < (SELECT e.approvals FROM ticket_evidence AS e WHERE e.id = x.evidence_id)
              ORDER BY x.id LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        IF t.state = 'claimed' THEN
            PERFORM move_ticket(t.id, 'release');
            INSERT INTO ticket_event (ticket_id, kind) VALUES (t.id, 'lease_ended');
        ELSIF EXISTS (SELECT 1 FROM ticket_approval AS a
                       WHERE a.ticket_id = t.id AND a.ended_at IS NULL AND a.expires_at <= clock_timestamp()) THEN
            PERFORM void_approvals(t.id, 'expired');
        ELSIF (SELECT count(*) FROM ticket_approval AS a WHERE a.ticket_id = t.id AND a.ended_at IS NULL)
              < (SELECT e.approvals FROM ticket AS y JOIN ticket_evidence AS e ON e.id = y.evidence_id WHERE y.id = t.id) THEN
            PERFORM void_approvals(t.id, 'role_lost');
        -- A window that began while this waited for the ticket's lock: the loop's query does not see it.
        ELSIF EXISTS (SELECT 1 FROM owner_window AS w WHERE w.ticket_id = t.id AND w.ends_at > clock_timestamp()) THEN
            CONTINUE;
        ELSE
            PERFORM move_ticket(t.id, 'window_ended');
            INSERT INTO ticket_event (ticket_id, kind) VALUES (t.id, 'window_ended');
        END IF;
        tended := tended + 1;
    END LOOP;
    RETURN tended;
END
$$;
