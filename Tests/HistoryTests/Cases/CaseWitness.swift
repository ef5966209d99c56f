/// What watches the desk's tables from inside, by the words of the laws and not by the product's own.
enum CaseWitness {
    static let schema = """
        CREATE TABLE hist.move (ticket_id bigint, before text, after text);
        -- Since when, and until when, a user surely was banned, being deleted or erased.
        CREATE TABLE hist.fate (user_key bigint, since timestamptz DEFAULT clock_timestamp(), until timestamptz);
        CREATE TABLE hist.allowed_move (before text, after text);
        INSERT INTO hist.allowed_move
        SELECT m.before, unnest(m.after)
          FROM (VALUES ('new', ARRAY['claimed', 'auto_resolved', 'duplicate', 'expired']),
                       ('claimed', ARRAY['new', 'waiting_claimant', 'needs_second', 'waiting_owner', 'approved', 'refused',
                                         'auto_resolved', 'duplicate']),
                       ('waiting_claimant', ARRAY['claimed', 'new', 'refused', 'auto_resolved', 'duplicate', 'expired']),
                       ('needs_second', ARRAY['waiting_owner', 'approved', 'new', 'refused', 'auto_resolved', 'duplicate']),
                       ('waiting_owner', ARRAY['approved', 'new', 'refused', 'auto_resolved', 'duplicate']),
                       ('approved', ARRAY['executing', 'new', 'refused', 'auto_resolved', 'duplicate']),
                       ('executing', ARRAY['transferred', 'new']),
                       ('refused', ARRAY['new']),
                       ('expired', ARRAY['new'])) AS m(before, after);

        CREATE FUNCTION hist.on_ticket() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO hist.move VALUES (NEW.id, OLD.state, NEW.state);
            RETURN NEW;
        END $$;
        CREATE TRIGGER hist_ticket AFTER UPDATE OF state ON entitlement_sync.ticket FOR EACH ROW
            WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION hist.on_ticket();

        -- How many people agree at this moment who may, on the evidence; of these, how many seniors.
        CREATE FUNCTION hist.agreeing(which bigint, evidence bigint, ended text, OUT people bigint, OUT seniors bigint)
        LANGUAGE sql AS $$
            SELECT count(DISTINCT a.operator_id), count(DISTINCT a.operator_id) FILTER (WHERE o.role = 'senior')
              FROM entitlement_sync.ticket_approval AS a
              JOIN entitlement_sync.ticket_evidence AS e ON e.id = evidence AND e.hash = a.hash
              JOIN entitlement_sync.operator AS o ON o.id = a.operator_id
              JOIN entitlement_sync.ticket AS t ON t.id = a.ticket_id
             WHERE a.ticket_id = which AND a.ended_by IS NOT DISTINCT FROM ended AND a.expires_at > clock_timestamp()
               AND o.role IN ('approver', 'senior') AND o.disabled_at IS NULL
               AND coalesce(o.held_until <= clock_timestamp(), true) AND a.at > coalesce(o.lost_at, '-infinity')
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.operator_account AS x
                                WHERE x.operator_id = o.id AND x.user_key IN (t.claimant_key, t.owner_key))
        $$;

        CREATE FUNCTION hist.judge(what text, t entitlement_sync.ticket, evidence bigint, ended text) RETURNS void
        LANGUAGE plpgsql AS $$
        DECLARE
            e entitlement_sync.ticket_evidence;
            w entitlement_sync.owner_window;
            n record;
        BEGIN
            SELECT * INTO e FROM entitlement_sync.ticket_evidence AS x WHERE x.id = evidence;
            SELECT * INTO w FROM entitlement_sync.owner_window AS x WHERE x.ticket_id = t.id;
            SELECT * INTO n FROM hist.agreeing(t.id, evidence, ended);
            IF e.id IS NULL OR n.people < e.approvals THEN
                INSERT INTO hist.broken VALUES ('L9: ' || what || ' with ' || n.people || ' approvals of ' || coalesce(e.approvals, 0));
            END IF;
            IF e.hindrance IN ('forbids', 'closes') OR e.hindrance = 'needs_senior' AND n.seniors = 0 THEN
                INSERT INTO hist.broken VALUES ('L9: ' || what || ' in spite of ' || e.hindrance);
            END IF;
            IF w.objected_at IS NOT NULL AND NOT 'owner_objected' = ANY (e.facts) THEN
                INSERT INTO hist.broken VALUES ('L9: ' || what || ' although the owner objected');
            END IF;
            -- Nobody is waited for whose account is gone.
            IF w.ends_at > clock_timestamp() AND NOT 'owner_erased' = ANY (e.facts) THEN
                INSERT INTO hist.broken VALUES ('L9: ' || what || ' in the time that the owner has');
            END IF;
            -- What they were asked was about this, and not about what was known before.
            IF what = 'begun' AND t.owner_key IS NOT NULL AND e.owner_window > interval '0' AND NOT 'owner_erased' = ANY (e.facts)
               AND NOT EXISTS (SELECT 1 FROM entitlement_sync.ticket_event AS v
                                WHERE v.ticket_id = t.id AND v.kind = 'owner_asked'
                                  AND NOT EXISTS (SELECT 1 FROM entitlement_sync.ticket_evidence AS y
                                                   WHERE y.ticket_id = t.id AND y.collected_at > v.at AND y.hash <> e.hash)) THEN
                INSERT INTO hist.broken VALUES ('L9: begun, and the owner was asked about something else');
            END IF;
        END $$;

        CREATE FUNCTION hist.on_transfer() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            t entitlement_sync.ticket;
        BEGIN
            SELECT * INTO t FROM entitlement_sync.ticket AS x WHERE x.id = NEW.ticket_id;
            IF TG_OP = 'INSERT' THEN
                PERFORM hist.judge('begun', t, t.evidence_id, NULL);
                IF EXISTS (SELECT 1 FROM entitlement_sync.transfer AS x
                            WHERE x.id <> NEW.id AND x.step NOT IN ('done', 'stopped')
                              AND (x.from_key IN (NEW.from_key, NEW.to_key) OR x.to_key IN (NEW.from_key, NEW.to_key)
                                   OR x.purchase_id = NEW.purchase_id)) THEN
                    INSERT INTO hist.broken VALUES ('begun beside another transfer of the same people or purchase');
                END IF;
                RETURN NEW;
            END IF;
            IF NEW.step = 'done' THEN
                IF (SELECT count(DISTINCT a.operator_id) FROM entitlement_sync.ticket_approval AS a
                      JOIN entitlement_sync.ticket_evidence AS e ON e.id = NEW.evidence_id AND e.hash = a.hash
                     WHERE a.ticket_id = NEW.ticket_id AND a.ended_by = 'used')
                   < coalesce((SELECT e.approvals FROM entitlement_sync.ticket_evidence AS e WHERE e.id = NEW.evidence_id), 1)
                THEN
                    INSERT INTO hist.broken VALUES ('L9: done without enough approvals');
                END IF;
                IF (SELECT p.owner_key FROM entitlement_sync.purchase AS p
                     WHERE p.id = entitlement_sync.surviving_purchase(NEW.purchase_id)) IS DISTINCT FROM NEW.to_key THEN
                    INSERT INTO hist.broken VALUES ('done, and the purchase is not the claimant''s');
                END IF;
            END IF;
            IF OLD.step IN ('done', 'stopped') THEN
                INSERT INTO hist.broken VALUES ('a transfer went on after its end');
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER hist_transfer AFTER INSERT OR UPDATE OF step ON entitlement_sync.transfer
            FOR EACH ROW EXECUTE FUNCTION hist.on_transfer();

        CREATE FUNCTION hist.on_step() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            x entitlement_sync.transfer;
            t entitlement_sync.ticket;
            e entitlement_sync.ticket_evidence;
        BEGIN
            SELECT * INTO x FROM entitlement_sync.transfer AS y WHERE y.id = NEW.transfer_id;
            SELECT * INTO t FROM entitlement_sync.ticket AS y WHERE y.id = x.ticket_id;
            SELECT * INTO e FROM entitlement_sync.ticket_evidence AS y WHERE y.id = (NEW.detail ->> 'evidence')::bigint;
            PERFORM hist.judge('allowed', t, e.id, 'used');
            IF e.asked_at < x.begun_at THEN
                INSERT INTO hist.broken VALUES ('L9: allowed on evidence from before');
            END IF;
            IF EXISTS (SELECT 1 FROM hist.fate AS f
                        WHERE f.user_key = x.to_key AND f.since <= e.asked_at AND coalesce(f.until, 'infinity') > e.asked_at) THEN
                INSERT INTO hist.broken VALUES ('L6: allowed for a claimant who was banned or erased');
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER hist_step AFTER INSERT ON entitlement_sync.transfer_step FOR EACH ROW
            WHEN (NEW.step IN ('calling', 'confirmed') AND NEW.detail ? 'evidence') EXECUTE FUNCTION hist.on_step();

        -- Whoever waits gives up soon: in a test nobody lets go meanwhile.
        ALTER FUNCTION entitlement_sync.give_temporary_access SET lock_timeout = '8ms';
        ALTER FUNCTION entitlement_sync.refuse_ticket SET lock_timeout = '8ms';
        ALTER FUNCTION entitlement_sync.settle_transfer SET lock_timeout = '8ms';
        ALTER FUNCTION entitlement_sync.apply_ticket_deadlines SET lock_timeout = '8ms';
        ALTER FUNCTION entitlement_sync.name_purchase SET lock_timeout = '8ms';
        ALTER FUNCTION entitlement_sync.reply_to_ticket SET lock_timeout = '8ms';
        ALTER FUNCTION entitlement_sync.consent_to_transfer SET lock_timeout = '8ms';

        CREATE FUNCTION hist.reset_cases() RETURNS void LANGUAGE sql AS $$
            SELECT hist.reset();
            DELETE FROM hist.move;
            DELETE FROM hist.fate;
            DELETE FROM entitlement_sync.transfer_step;
            DELETE FROM entitlement_sync.transfer;
            DELETE FROM entitlement_sync.ticket_approval;
            DELETE FROM entitlement_sync.ticket_evidence;
            DELETE FROM entitlement_sync.ticket_note;
            DELETE FROM entitlement_sync.ticket_news;
            DELETE FROM entitlement_sync.operator_session;
            DELETE FROM entitlement_sync.operator_account;
            DELETE FROM entitlement_sync.operator_event;
            DELETE FROM entitlement_sync.operator;
            DELETE FROM entitlement_sync.outbox;
            DELETE FROM entitlement_sync.invariant_check;
            DELETE FROM entitlement_sync.ticket_reply;
            DELETE FROM entitlement_sync.ticket_reported_id;
            DELETE FROM entitlement_sync.purchase_consent;
            DELETE FROM entitlement_sync.transfer_token;
        $$;

        CREATE VIEW hist.wrong AS
        SELECT s.line AS what FROM hist.state AS s
         WHERE s.line LIKE 'broken|%'
           -- Whoever was erased has no name any more, and was looked at before.
           AND NOT (s.line ~ '^broken.L10: (assets of )?user-'
                    AND NOT EXISTS (SELECT 1 FROM entitlement_sync.user_sync AS u
                                     WHERE u.user_id = substring(s.line FROM 'user-[0-9]')))
        UNION ALL
        SELECT 'a ticket went from ' || m.before || ' to ' || m.after FROM hist.move AS m
         WHERE NOT EXISTS (SELECT 1 FROM hist.allowed_move AS a WHERE a.before = m.before AND a.after = m.after)
        UNION ALL
        SELECT 'L9: operator ' || a.operator_id || ' agreed twice to ticket ' || a.ticket_id
          FROM entitlement_sync.ticket_approval AS a WHERE a.ended_at IS NULL OR a.ended_by = 'used'
         GROUP BY a.operator_id, a.ticket_id HAVING count(*) > 1
        UNION ALL
        SELECT 'L8: two open tickets of claimant ' || t.claimant_key FROM entitlement_sync.ticket AS t
         WHERE t.state NOT IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate')
         GROUP BY t.claimant_key, coalesce(t.purchase_id, 0) HAVING count(*) > 1
        UNION ALL
        SELECT 'ticket ' || t.id || ' is ' || t.state || ' with a transfer that is ' || coalesce(x.step, 'none')
          FROM entitlement_sync.ticket AS t
          LEFT JOIN LATERAL (SELECT y.step FROM entitlement_sync.transfer AS y WHERE y.ticket_id = t.id
                              ORDER BY y.id DESC LIMIT 1) AS x ON true
         WHERE (t.state = 'executing') <> coalesce(x.step IN ('begun', 'calling', 'confirmed'), false)
            OR (t.state = 'transferred') <> coalesce(x.step = 'done', false)
        UNION ALL
        SELECT 'ticket ' || t.id || ' is ' || t.state || ' with approvals' FROM entitlement_sync.ticket AS t
         WHERE t.state NOT IN ('needs_second', 'waiting_owner', 'approved', 'executing')
           AND EXISTS (SELECT 1 FROM entitlement_sync.ticket_approval AS a WHERE a.ticket_id = t.id AND a.ended_at IS NULL)
        UNION ALL
        SELECT 'access is lent although ticket ' || t.id || ' is ' || t.state FROM entitlement_sync.ticket AS t
          JOIN entitlement_sync."grant" AS g ON g.id = t.temporary_grant_id
         WHERE g.revoked_at IS NULL AND t.state IN ('transferred', 'refused', 'expired', 'auto_resolved', 'duplicate');
        """
}
