/// What watches the database from inside: triggers on every change of type and assets, and a view of the whole state.
enum Witness {
    static let schema = """
        CREATE SCHEMA hist;
        CREATE TABLE hist.broken (what text);
        CREATE TABLE hist.type_change (tx xid8, user_id text, user_key bigint, before text, after text);
        CREATE TABLE hist.asset_change (tx xid8, user_id text, user_key bigint, gains boolean);
        CREATE TABLE hist.said (tx xid8, decision bigint);
        CREATE TABLE hist.batch (tx xid8, decision bigint);

        CREATE FUNCTION hist.is_host() RETURNS boolean LANGUAGE sql STABLE AS
            $$ SELECT coalesce(current_setting('hist.host', true), '') = 'on' $$;

        -- The record of a user at this moment: later an erasure may take the name away.
        CREATE FUNCTION hist.key_of(wanted text) RETURNS bigint LANGUAGE sql STABLE AS
            $$ SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = wanted $$;

        CREATE FUNCTION hist.on_user() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF hist.is_host() THEN RETURN NEW; END IF;
            IF NEW.status IS DISTINCT FROM OLD.status OR NEW.id <> OLD.id THEN
                INSERT INTO hist.broken VALUES ('wrote more than the type of ' || NEW.id);
            END IF;
            IF NEW.type = OLD.type THEN
                INSERT INTO hist.broken VALUES ('wrote a type that stood already: ' || NEW.id);
                RETURN NEW;
            END IF;
            IF NEW.type = 'subscriber' AND NEW.status NOT IN ('active', 'onboarding') THEN
                INSERT INTO hist.broken VALUES ('L6: type gained by ' || NEW.id || ' who is ' || NEW.status);
            END IF;
            INSERT INTO hist.type_change VALUES (pg_current_xact_id(), NEW.id, hist.key_of(NEW.id), OLD.type, NEW.type);
            RETURN NEW;
        END $$;
        CREATE TRIGGER hist_user AFTER UPDATE ON public.users FOR EACH ROW EXECUTE FUNCTION hist.on_user();

        CREATE FUNCTION hist.on_asset() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            gains boolean;
            owner public.users%ROWTYPE;
        BEGIN
            IF hist.is_host() THEN RETURN NEW; END IF;
            gains := OLD.frozen_reasons @> '{subscription_lapsed}';
            IF NEW.user_id <> OLD.user_id OR gains = (NEW.frozen_reasons @> '{subscription_lapsed}')
               OR array_remove(NEW.frozen_reasons, 'subscription_lapsed')
                  <> array_remove(OLD.frozen_reasons, 'subscription_lapsed')
               OR (NEW.frozen_at IS NULL) <> (NEW.frozen_reasons = '{}') THEN
                INSERT INTO hist.broken VALUES ('L5: asset ' || NEW.id || ' went from ' || OLD.frozen_reasons::text
                                                || ' to ' || NEW.frozen_reasons::text);
            END IF;
            SELECT * INTO owner FROM public.users AS u WHERE u.id = NEW.user_id;
            IF gains AND (owner.status NOT IN ('active', 'onboarding') OR owner.type <> 'subscriber') THEN
                INSERT INTO hist.broken VALUES ('L6: an asset came back to ' || owner.id);
            END IF;
            IF NOT gains AND owner.type <> 'free' THEN
                INSERT INTO hist.broken VALUES ('L5: an asset of a subscriber froze: ' || owner.id);
            END IF;
            INSERT INTO hist.asset_change VALUES (pg_current_xact_id(), NEW.user_id, hist.key_of(NEW.user_id), gains);
            RETURN NEW;
        END $$;
        CREATE TRIGGER hist_asset AFTER UPDATE ON public.assets FOR EACH ROW EXECUTE FUNCTION hist.on_asset();

        CREATE FUNCTION hist.on_decision() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO hist.said VALUES (pg_current_xact_id(), NEW.id);
            RETURN NEW;
        END $$;
        CREATE TRIGGER hist_decision AFTER INSERT ON entitlement_sync.decision
            FOR EACH ROW EXECUTE FUNCTION hist.on_decision();

        CREATE FUNCTION hist.on_batch() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO hist.batch VALUES (pg_current_xact_id(), NEW.decision_id);
            RETURN NEW;
        END $$;
        CREATE TRIGGER hist_batch AFTER INSERT ON entitlement_sync.asset_batch
            FOR EACH ROW EXECUTE FUNCTION hist.on_batch();

        CREATE FUNCTION hist.reset() RETURNS void LANGUAGE sql AS $$
            DELETE FROM hist.broken;
            DELETE FROM hist.type_change;
            DELETE FROM hist.asset_change;
            DELETE FROM hist.said;
            DELETE FROM hist.batch;
            DELETE FROM public.assets;
            DELETE FROM public.users;
            DELETE FROM entitlement_sync.asset_run;
            DELETE FROM entitlement_sync.asset_batch;
            DELETE FROM entitlement_sync.transfer_step;
            DELETE FROM entitlement_sync.transfer;
            DELETE FROM entitlement_sync.ticket_approval;
            DELETE FROM entitlement_sync.ticket_evidence;
            DELETE FROM entitlement_sync.run_change;
            DELETE FROM entitlement_sync.run_part;
            DELETE FROM entitlement_sync.run;
            DELETE FROM entitlement_sync.leader;
            DELETE FROM entitlement_sync.invariant_check;
            DELETE FROM entitlement_sync.outbox;
            DELETE FROM entitlement_sync.ticket_event;
            DELETE FROM entitlement_sync.ticket;
            DELETE FROM entitlement_sync.decision;
            DELETE FROM entitlement_sync.brake_minute;
            DELETE FROM entitlement_sync.observation;
            DELETE FROM entitlement_sync.purchase_identifier;
            DELETE FROM entitlement_sync.purchase;
            DELETE FROM entitlement_sync."grant";
            DELETE FROM entitlement_sync.sandbox_user;
            DELETE FROM entitlement_sync.queue;
            DELETE FROM entitlement_sync.job_history;
            DELETE FROM entitlement_sync.job_request;
            DELETE FROM entitlement_sync.idempotency;
            DELETE FROM entitlement_sync.worker;
            DELETE FROM entitlement_sync.user_sync;
            DELETE FROM entitlement_sync.product;
            DELETE FROM entitlement_sync.alarm;
            DELETE FROM entitlement_sync.store_absence;
            DELETE FROM entitlement_sync.store_knowledge;
            UPDATE entitlement_sync.control SET paused = false, cause = NULL;
            INSERT INTO entitlement_sync.product (store, product_id, entitlement, grants_access)
            VALUES ('revenuecat', 'premium', 'premium', true);
        $$;

        -- A transfer that enough people have agreed to, and that a reading has confirmed.
        CREATE FUNCTION hist.transfer(item bigint, source bigint, target bigint, names text[]) RETURNS bigint
        LANGUAGE plpgsql AS $$
        DECLARE
            about bigint;
            proof bigint;
            made  bigint;
        BEGIN
            INSERT INTO entitlement_sync.operator (name, role) VALUES ('ann', 'approver'), ('bea', 'senior')
            ON CONFLICT DO NOTHING;
            UPDATE entitlement_sync.ticket AS t SET state = 'executing', assignee_id = NULL
             WHERE t.claimant_key = target AND t.purchase_id = item AND entitlement_sync.is_open(t.state)
            RETURNING t.id INTO about;
            IF about IS NULL THEN
                INSERT INTO entitlement_sync.ticket (claimant_key, owner_key, purchase_id, kind, state, visible)
                VALUES (target, source, item, 'owner_mismatch', 'executing', true) RETURNING id INTO about;
            END IF;
            INSERT INTO entitlement_sync.ticket_evidence
                   (ticket_id, asked_at, hash, facts, hindrance, reason, approvals, also_moves, owner_window, holds, document)
            VALUES (about, clock_timestamp(), sha256('seen'), '{}', 'none', 'shown', 2, '{}', '0', '1 day', '{}')
            RETURNING id INTO proof;
            UPDATE entitlement_sync.ticket AS t SET evidence_id = proof WHERE t.id = about;
            INSERT INTO entitlement_sync.ticket_approval
                   (ticket_id, operator_id, evidence_id, hash, expires_at, ended_at, ended_by)
            SELECT about, o.id, proof, sha256('seen'), now() + interval '1 day', clock_timestamp(), 'used'
              FROM entitlement_sync.operator AS o;
            INSERT INTO entitlement_sync.transfer
                   (ticket_id, from_key, to_key, purchase_id, begun_by, step, evidence_id, calls, called_at, moves)
            SELECT about, source, target, item, min(o.id), 'confirmed', proof, 1, clock_timestamp(), names
              FROM entitlement_sync.operator AS o RETURNING id INTO made;
            RETURN made;
        END $$;

        CREATE FUNCTION hist.micros(at timestamptz) RETURNS text LANGUAGE sql STABLE AS
            $$ SELECT coalesce((extract(epoch FROM at) * 1000000)::bigint::text, '-') $$;

        CREATE VIEW hist.person AS
        SELECT u.*, coalesce(u.user_id, 'erased-' || u.user_key) AS name FROM entitlement_sync.user_sync AS u;

        CREATE FUNCTION hist.counts(counts jsonb) RETURNS text LANGUAGE sql STABLE AS $$
            SELECT coalesce(string_agg(c.key || '=' || c.value, ',' ORDER BY c.key COLLATE "C"), '')
              FROM jsonb_each_text(counts) AS c
        $$;

        CREATE VIEW hist.state AS
        WITH p AS (SELECT x.*, row_number() OVER (ORDER BY x.first_seen_at, x.id) - 1 AS place
                     FROM entitlement_sync.purchase AS x),
             w AS (SELECT x.*, row_number() OVER (ORDER BY x.id) - 1 AS place FROM entitlement_sync.run AS x)
        SELECT concat_ws('|', 'user', u.id, u.type, u.status) AS line FROM public.users AS u
        UNION ALL
        SELECT concat_ws('|', 'asset', a.id, a.user_id, array_to_string(a.frozen_reasons, ','),
                         (a.frozen_at IS NOT NULL)::text) FROM public.assets AS a
        UNION ALL
        SELECT concat_ws('|', 'known', s.name, s.epoch, hist.micros(s.read_at), hist.micros(s.absent_since),
                         hist.micros(s.moved_away_at), s.ever_observed::text, hist.micros(s.next_check_at))
          FROM hist.person AS s
        UNION ALL
        SELECT concat_ws('|', 'key', s.name, s.user_key) FROM hist.person AS s WHERE s.user_id IS NOT NULL
        UNION ALL
        SELECT concat_ws('|', 'run', s.name, r.epoch, r.direction)
          FROM entitlement_sync.asset_run AS r JOIN hist.person AS s USING (user_key)
        UNION ALL
        SELECT concat_ws('|', 'sweep', w.place, w.scope, w.is_dry::text, w.is_confirmed::text, w.state, w.is_paged::text,
                         w.is_fed::text, w.fed, w.ended, w.skipped, w.held, cardinality(w.late), hist.counts(w.outcomes),
                         hist.counts(w.rules)) FROM w
        UNION ALL
        SELECT concat_ws('|', 'part', w.place, x.number, (x.ended_at IS NULL)::text,
                         (SELECT string_agg(s.name || '=' || coalesce(j.outcome, '-') || '/' || coalesce(j.rule, '-'), ','
                                            ORDER BY s.name COLLATE "C")
                            FROM unnest(x.keys, x.outcomes, x.rules) AS j(key, outcome, rule)
                            JOIN hist.person AS s ON s.user_key = j.key))
          FROM entitlement_sync.run_part AS x JOIN w ON w.id = x.run_id
        UNION ALL
        SELECT concat_ws('|', 'change', w.place, s.name, x.state, x.outcome, x.rule, coalesce(x.type_before, '-'),
                         coalesce(x.type_after, '-'), x.announced::text, x.epoch)
          FROM entitlement_sync.run_change AS x JOIN w ON w.id = x.run_id JOIN hist.person AS s USING (user_key)
        UNION ALL
        SELECT concat_ws('|', 'queue', s.name, coalesce(q.restore_id::text, '-'), coalesce(q.reconcile_id::text, '-'),
                         coalesce(q.restore_next::text, '-'), coalesce(q.reconcile_next::text, '-'),
                         coalesce(q.owner::text, '-'), coalesce(q.active::text, '-'), q.cancel::text, q.crashes)
          FROM entitlement_sync.queue AS q JOIN hist.person AS s USING (user_key)
        UNION ALL
        SELECT concat_ws('|', 'purchase', p.place, coalesce(s.name, '-'), coalesce(m.place::text, '-'), coalesce(f.name, '-'),
                         hist.micros(p.transferred_at), p.status,
                         coalesce(p.gives_access::text, '-'), p.end_announced::text, hist.micros(p.observed_at),
                         hist.micros(p.period_ends_at), array_to_string(p.entitlements, ','),
                         coalesce((SELECT string_agg(i.value || '/' || i.store, ',' ORDER BY i.value || '/' || i.store
                                                     COLLATE "C")
                                     FROM entitlement_sync.purchase_identifier AS i WHERE i.purchase_id = p.id), ''))
          FROM p LEFT JOIN hist.person AS s ON s.user_key = p.owner_key
          LEFT JOIN hist.person AS f ON f.user_key = p.former_owner_key
          LEFT JOIN p AS m ON m.id = p.merged_into
        UNION ALL
        SELECT concat_ws('|', 'number', p.place, p.id) FROM p
        UNION ALL
        SELECT concat_ws('|', 'ticket', c.name || '/' || coalesce(p.place::text, '-'), t.kind,
                         coalesce(o.name, '-'), coalesce(t.original_id, '-'), t.visible::text, t.priority, t.touches)
          FROM entitlement_sync.ticket AS t
          JOIN hist.person AS c ON c.user_key = t.claimant_key
          LEFT JOIN hist.person AS o ON o.user_key = t.owner_key
          LEFT JOIN p ON p.id = t.purchase_id WHERE entitlement_sync.is_open(t.state)
        UNION ALL
        SELECT concat_ws('|', 'job', j.id, j.kind, coalesce(j.user_id, '-'), j.state, coalesce(j.outcome, '-'),
                         coalesce(j.message_key, '-'),
                         coalesce((SELECT c.name || '/' || coalesce(p.place::text, '-')
                                     FROM entitlement_sync.ticket AS t
                                     JOIN hist.person AS c ON c.user_key = t.claimant_key
                                     LEFT JOIN p ON p.id = t.purchase_id WHERE t.id = j.ticket_id), '-'),
                         j.attempt, coalesce(j.last_error, '-'))
          FROM entitlement_sync.job_status AS j
        UNION ALL
        SELECT concat_ws('|', 'decision', d.job_id, d.rule, d.outcome, coalesce(d.type_before, '-'),
                         coalesce(d.type_after, '-'), l.assets_changed, d.braked::text)
          FROM entitlement_sync.job_decision AS d JOIN entitlement_sync.decision_log AS l USING (id)
        UNION ALL
        SELECT concat_ws('|', 'observed', o.job_id, count(*))
          FROM (SELECT x.job_id FROM entitlement_sync.observation AS x
                UNION ALL
                SELECT h.id FROM entitlement_sync.job_history AS h
                  JOIN entitlement_sync.decision AS d ON d.id = h.confirms
                  JOIN entitlement_sync.observation AS x ON x.job_id = d.job_id) AS o
         GROUP BY o.job_id
        UNION ALL
        SELECT concat_ws('|', 'alarm', a.name) FROM entitlement_sync.alarm AS a
        UNION ALL
        SELECT 'broken|' || b.what FROM hist.broken AS b
        UNION ALL
        SELECT 'broken|L10: ' || t.user_id || ' went to ' || t.after || ' with ' || n.decisions || ' decisions'
          FROM hist.type_change AS t
         CROSS JOIN LATERAL (
               SELECT count(*) AS decisions FROM hist.said AS x
                 JOIN entitlement_sync.decision AS d ON d.id = x.decision
                WHERE x.tx = t.tx AND d.user_key = t.user_key AND d.type_before = t.before AND d.type_after = t.after) AS n
         WHERE n.decisions <> 1
        UNION ALL
        SELECT 'broken|L10: a decision says that the user of key ' || d.user_key || ' changed'
          FROM entitlement_sync.decision AS d
          JOIN hist.said AS x ON x.decision = d.id
         WHERE d.type_before <> d.type_after AND NOT d.observed
           AND NOT EXISTS (SELECT 1 FROM hist.type_change AS t WHERE t.tx = x.tx AND t.user_key = d.user_key)
        UNION ALL
        SELECT 'broken|L10: assets of ' || a.user_id || ' changed without a decision' FROM hist.asset_change AS a
         WHERE NOT EXISTS (
               SELECT 1 FROM (SELECT * FROM hist.said UNION ALL SELECT * FROM hist.batch) AS x
                 JOIN entitlement_sync.decision AS d ON d.id = x.decision
                WHERE x.tx = a.tx AND d.user_key = a.user_key)
        UNION ALL
        SELECT 'broken|L1: the name ' || i.value || ' leads to a row that is merged'
          FROM entitlement_sync.purchase_identifier AS i
          JOIN entitlement_sync.purchase AS x ON x.id = i.purchase_id WHERE x.merged_into IS NOT NULL
        UNION ALL
        SELECT 'broken|L8: two open tickets of claimant ' || t.claimant_key
          FROM entitlement_sync.ticket AS t WHERE t.state = 'new'
         GROUP BY t.claimant_key, coalesce(t.purchase_id, 0) HAVING count(*) > 1
        UNION ALL
        SELECT 'broken|L10: job ' || h.id || ' ended with ' || n.decisions || ' decisions'
          FROM entitlement_sync.job_history AS h
         CROSS JOIN LATERAL (SELECT count(*) AS decisions FROM entitlement_sync.job_decision AS d
                              WHERE d.job_id = h.id) AS n
         WHERE n.decisions <> CASE h.state WHEN 'done' THEN 1 ELSE 0 END;
        """
}
