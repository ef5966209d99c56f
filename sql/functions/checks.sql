-- Scheduled checks; the access that products give; and what is on record of a user, as events and as a summary.

-- Plans checks for users of a pass that have none: for the next `batch` users, or up to the `most`th without one. A user whose account is
-- eligible again is checked within five minutes, any other eligible user within `background` seconds (null: not at all). Returns how many
-- checks it planned; 0 also if another process plans at this moment, or if the last pass is over and began less than ten minutes ago.
CREATE OR REPLACE FUNCTION plan_checks(batch integer, most integer, background bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp
SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    r       check_round;
    last    bigint;
    ids     text[];
    planned bigint;
BEGIN
    PERFORM check_isolation();
    SELECT x.* INTO r FROM check_round AS x FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR r.after_key = 0 AND r.began_at > clock_timestamp() - interval '10 minutes' THEN
        RETURN 0;
    END IF;
    WITH w AS MATERIALIZED (
        SELECT u.user_key, u.user_id, u.next_check_at, u.awaits_eligibility, u.is_dry_run_only, u.read_at FROM user_sync AS u
         WHERE u.user_key > r.after_key ORDER BY u.user_key LIMIT batch
    ), c AS MATERIALIZED (
        SELECT w.user_key, w.user_id FROM w
         WHERE w.user_id IS NOT NULL AND w.next_check_at IS NULL AND (w.awaits_eligibility OR background IS NOT NULL)
           AND (NOT w.is_dry_run_only OR w.read_at IS NOT NULL
                OR EXISTS (SELECT 1 FROM job_history AS h WHERE h.user_key = w.user_key))
         ORDER BY w.user_key LIMIT most
    )
    SELECT CASE WHEN (SELECT count(*) FROM c) = most THEN (SELECT max(c.user_key) FROM c)
                WHEN (SELECT count(*) FROM w) = batch THEN (SELECT max(w.user_key) FROM w) END,
           (SELECT array_agg(c.user_id ORDER BY c.user_id) FROM c)
      INTO last, ids;
    UPDATE check_round AS x
       SET after_key = coalesce(last, 0),
           began_at = CASE WHEN r.after_key = 0 THEN clock_timestamp() ELSE x.began_at END;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    WITH able AS MATERIALIZED (
        SELECT h.id FROM entitlement_sync_host.read_users(ids) AS h WHERE is_eligible(h.status)
    ), wanted AS MATERIALIZED (
        -- A user whose account is still not eligible is left as it is.
        SELECT u.user_key, u.awaits_eligibility, a.id IS NOT NULL AS is_able
          FROM unnest(ids) AS i(id) LEFT JOIN able AS a ON a.id = i.id
         CROSS JOIN LATERAL (SELECT x.user_key, x.awaits_eligibility FROM user_sync AS x
                              WHERE x.user_id = i.id AND x.next_check_at IS NULL AND (NOT x.awaits_eligibility OR a.id IS NOT NULL)
                                FOR NO KEY UPDATE SKIP LOCKED) AS u
    ), written AS (
        UPDATE user_sync AS u
           SET awaits_eligibility = NOT n.is_able,
               next_check_at = CASE WHEN NOT n.is_able THEN NULL
                                WHEN n.awaits_eligibility THEN clock_timestamp() + random() * interval '5 minutes'
                                ELSE clock_timestamp() + random() * background * interval '1 second' END
          FROM wanted AS n WHERE u.user_key = n.user_key
        RETURNING n.is_able
    )
    SELECT count(*) FILTER (WHERE w.is_able) INTO planned FROM written AS w;
    RETURN planned;
END
$$;

-- What the products of an entitlement give: `key` is a RevenueCat lookup key or the key of a store's product. A row without a base plan
-- holds for every plan that has no row of its own.
CREATE OR REPLACE FUNCTION product_access_of(key text) RETURNS TABLE (grants_access boolean, entitlements text[])
LANGUAGE sql STABLE ROWS 1 SET search_path = entitlement_sync, pg_temp AS $$
    SELECT a.grants_access, a.entitlements FROM product_access AS a
     WHERE a.key IN (product_access_of.key, regexp_replace(product_access_of.key, '^([^:]*:[^:]*):[^:]*$', '\1'))
     ORDER BY length(a.key) DESC LIMIT 1
$$;

-- Whether a purchase with these entitlements gives access by the present rows of `product`.
CREATE OR REPLACE FUNCTION means_access(entitlements text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM unnest(entitlements) AS e(key) CROSS JOIN LATERAL product_access_of(e.key) AS a WHERE a.grants_access)
$$;

-- When non-renewing purchases end, in the order of the arguments. Purchases of one kind add up: each begins when the one before it ends,
-- or when it was bought, if that is later. `lengths`: the products' durations.
CREATE OR REPLACE FUNCTION stacked_ends(kinds text[], bought timestamptz[], lengths interval[]) RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    ends jsonb := '{}';
    item record;
    last timestamptz;
    made timestamptz[] := array_fill(NULL::timestamptz, ARRAY[cardinality(kinds)]);
BEGIN
    FOR item IN
        SELECT n.kind, n.at, n.length, n.place
          FROM unnest(kinds, bought, lengths) WITH ORDINALITY AS n(kind, at, length, place)
         ORDER BY n.at, n.place
    LOOP
        last := (ends ->> item.kind)::timestamptz;
        -- Days and months are counted in UTC, whatever the session's time zone.
        last := (greatest(last, item.at) AT TIME ZONE 'UTC' + item.length) AT TIME ZONE 'UTC';
        ends := jsonb_set(ends, ARRAY[item.kind], to_jsonb(last));
        made[item.place] := last;
    END LOOP;
    RETURN QUERY SELECT m.at FROM unnest(made) WITH ORDINALITY AS m(at, place) ORDER BY m.place;
END
$$;

-- A set of entitlements, as user_sync and decision have it, in words.
CREATE OR REPLACE FUNCTION entitlement_words(entitlements json) RETURNS text
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
    SELECT coalesce(string_agg(format('%s (%s%s%s)', coalesce(e.id, 'access'),
                                      concat_ws(' ', coalesce(e.store, e.source), e.product_id),
                                      coalesce(', ' || to_char(e.ends_at, '"until" YYYY-MM-DD HH24:MI "UTC"'), ', without an end'),
                                      CASE WHEN e.will_renew THEN ', renews' ELSE '' END), ', '), 'none')
      FROM json_to_recordset(entitlements) AS e(id text, store text, source text, product_id text, ends_at timestamptz, will_renew boolean)
$$;

-- What happened to a user, in plain sentences, which name no other user. The rows have no order: the caller sorts them.
CREATE OR REPLACE FUNCTION user_events(which bigint) RETURNS TABLE (at timestamptz, place bigint, kind text, words text)
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
    WITH me AS MATERIALIZED (
        SELECT which AS user_key
    ), stretches AS MATERIALIZED (
        SELECT c.*, c.confirmed > (SELECT count(*) FROM job_history AS h
                                    WHERE h.user_key = which AND h.confirms = c.confirms) AS is_folded
          FROM confirmation AS c WHERE c.user_key = which
    ), events AS (
        SELECT o.asked_at AS at, o.id AS place, 'observation' AS kind,
               CASE WHEN o.store IS NULL THEN
                        CASE o.coverage WHEN 'full' THEN 'Every store was read to the end and holds no purchase.'
                                        ELSE 'The stores could not be read to the end.' END
                    ELSE format('%s shows a %s of the store %s (%s%s%s): status %s%s%s%s.',
                                CASE o.source WHEN 'revenuecat' THEN 'RevenueCat' WHEN 'app_store' THEN 'The App Store'
                                              WHEN 'google_play' THEN 'Google Play' WHEN 'onside' THEN 'Onside'
                                              ELSE o.source END,
                                CASE o.kind WHEN 'subscription' THEN 'subscription' ELSE 'one-time purchase' END,
                                o.store, o.environment,
                                -- What RevenueCat states is its project's; what a store states, that of its own app.
                                coalesce(', ' || (SELECT CASE o.source WHEN 'revenuecat' THEN coalesce(p.revenuecat_project, p.store_app)
                                                              ELSE p.store_app END
                                                    FROM purchase AS p WHERE p.id = o.purchase_id), ''),
                                CASE o.ownership WHEN 'family_shared' THEN ', family shared' ELSE '' END, o.status,
                                CASE o.gives_access WHEN true THEN ', gives access' WHEN false THEN ', gives no access'
                                                    ELSE '' END,
                                coalesce(', period ends ' || to_char(o.period_ends_at AT TIME ZONE 'UTC',
                                                                     'YYYY-MM-DD HH24:MI') || ' UTC', ''),
                                CASE WHEN o.attribution IN ('new', 'own') THEN ''
                                     ELSE ', attribution ' || o.attribution END) END AS words
          FROM observation AS o JOIN me USING (user_key)
        UNION ALL
        SELECT d.at, d.id, 'decision',
               format('Rule %s, outcome %s: %s%s%s%s', d.rule, d.outcome,
                      CASE WHEN d.observed THEN replace(d.explanation, 'the user became a subscriber', 'the user would become a subscriber')
                           ELSE d.explanation END,
                      CASE WHEN d.type_before IS DISTINCT FROM d.type_after
                           THEN format(CASE WHEN d.observed THEN ' Type %s would become %s.' ELSE ' Type %s became %s.' END,
                                       d.type_before, d.type_after) ELSE '' END
                      || CASE WHEN d.entitlements IS NOT NULL
                              THEN format(' Entitlements: %s; before: %s.', entitlement_words(d.entitlements),
                                          entitlement_words((SELECT x.entitlements FROM decision AS x
                                                              WHERE x.user_key = which AND x.id < d.id AND x.entitlements IS NOT NULL
                                                              ORDER BY x.id DESC LIMIT 1))) ELSE '' END,
                      CASE WHEN d.assets_changed > 0
                           THEN format(' %s %s %s.', d.assets_changed, CASE d.assets_changed WHEN 1 THEN 'asset' ELSE 'assets' END,
                                       CASE WHEN d.observed THEN 'would change' ELSE 'changed' END) ELSE '' END,
                      CASE WHEN d.observed THEN ' Observed only: nothing was written.' ELSE '' END)
          FROM decision AS d JOIN me USING (user_key)
        UNION ALL
        -- Each check while all of a stretch are in the jobs' history, and then the stretch as one.
        SELECT h.finished_at, h.decision_id, 'decision',
               format('Rule %s, outcome %s: the stores showed what decision %s rests on, and it was confirmed.', d.rule, d.outcome, d.id)
          FROM stretches AS s JOIN job_history AS h ON h.user_key = which AND h.confirms = s.confirms
          JOIN confirmed_decision AS d ON d.id = s.confirms AND d.user_key = which WHERE NOT s.is_folded
        UNION ALL
        SELECT s.at, s.id, 'decision',
               format('Rule %s, outcome %s: decision %s was confirmed %s %s, first at %s UTC, last at %s UTC.', d.rule, d.outcome, d.id,
                      s.confirmed, CASE s.confirmed WHEN 1 THEN 'time' ELSE 'times' END,
                      to_char(s.first_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), to_char(s.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'))
          FROM stretches AS s JOIN confirmed_decision AS d ON d.id = s.confirms AND d.user_key = which WHERE s.is_folded
        UNION ALL
        SELECT b.at, b.id, 'assets',
               CASE WHEN b.failed IS NULL
                   THEN format('%s more %s changed.', b.changed, CASE b.changed WHEN 1 THEN 'asset' ELSE 'assets' END)
                    ELSE format('An asset was refused by the host''s database (%s).', b.failed) END
          FROM asset_batch AS b
          JOIN decision AS d ON d.id = b.decision_id JOIN me USING (user_key)
        UNION ALL
        SELECT g.created_at, g.id, 'grant',
               format(CASE WHEN g.source = 'grant' THEN 'Access was granted %s: %s' ELSE 'Access from %3$s was recorded %1$s%4$s.' END,
                      CASE WHEN isfinite(g.until)
                           THEN 'until ' || to_char(g.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC'
                           ELSE 'without an end' END, g.reason, g.source, coalesce(' (' || g.entitlement || ')', ''))
          FROM "grant" AS g JOIN me USING (user_key)
        UNION ALL
        -- What was changed goes on as the row that it became.
        SELECT g.revoked_at, g.id, 'grant',
               CASE WHEN g.is_asked THEN format('The host no longer says that %s gives access until then.', g.source)
                    ELSE format('Grant %s was revoked.', coalesce(g.version_of, g.id)) END
          FROM "grant" AS g JOIN me USING (user_key)
         WHERE g.revoked_at IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM "grant" AS n
                            WHERE g.version_of IN (n.id, n.version_of) AND n.user_key = g.user_key AND n.created_at = g.revoked_at)
        UNION ALL
        SELECT e.at, e.id, 'ticket',
               format('Ticket %s (%s) %s.', reference_of('T', t.uid), t.kind,
                      CASE e.kind
                          WHEN 'approved' THEN 'was approved'
                          WHEN 'temporary_access_given' THEN 'gives access while it is open'
                          WHEN 'approval_withdrawn' THEN 'lost an approval'
                          WHEN 'approvals_voided' THEN 'lost its approvals'
                          WHEN 'claimant_asked' THEN 'has a question for the claimant'
                          WHEN 'claimant_replied' THEN 'was answered by the claimant'
                          WHEN 'expired' THEN 'was closed: no answer came in time'
                          WHEN 'lease_ended' THEN 'is unassigned again'
                          WHEN 'note' THEN 'was remarked on'
                          WHEN 'owner_agreed' THEN 'has the owner''s consent'
                          WHEN 'owner_asked' THEN CASE WHEN (e.detail ->> 'until')::timestamptz > e.at
                                                       THEN 'leaves the owner time to object' ELSE 'leaves the owner no time to object' END
                          WHEN 'owner_objected' THEN 'was objected to by the owner'
                          WHEN 'owner_consented' THEN 'is about a purchase that its owner releases'
                          WHEN 'owner_replied' THEN 'was answered by the owner'
                          WHEN 'owner_read' THEN 'had its owner read again'
                          WHEN 'owner_window_waived' THEN 'waits for the owner no longer'
                          WHEN 'revealed' THEN 'was shown with the users'' ids'
                          WHEN 'token_asked' THEN 'has another call to the App Store planned'
                          WHEN 'transfer_begun' THEN 'is being carried out'
                          WHEN 'transfer_resolved' THEN 'had its transfer ended by hand'
                          WHEN 'transfer_stopped' THEN 'was not carried out'
                          WHEN 'transferred' THEN 'is done: the purchase is this user''s'
                          WHEN 'window_ended' THEN 'may be carried out: the owner''s time is over'
                          ELSE 'was ' || e.kind END)
          FROM ticket AS t JOIN me ON me.user_key = t.claimant_key
          JOIN ticket_event AS e ON e.ticket_id = t.id
        UNION ALL
        -- Tickets of other users about a purchase of this user: the sentences do not name the claimant.
        SELECT e.at, e.id, 'ticket',
               format('Ticket %s: this user %s.', reference_of('T', t.uid),
                      CASE e.kind WHEN 'owner_asked' THEN CASE WHEN (e.detail ->> 'until')::timestamptz > e.at THEN 'has' ELSE 'has no' END
                                      || ' time to object to a transfer of a purchase'
                                  WHEN 'owner_agreed' THEN 'agreed to the transfer'
                                  WHEN 'owner_objected' THEN 'objected to the transfer'
                                  WHEN 'owner_consented' THEN 'released the purchase'
                                  ELSE 'is waited for no longer' END)
          FROM ticket AS t JOIN me ON me.user_key = t.owner_key
          JOIN ticket_event AS e ON e.ticket_id = t.id
         WHERE e.kind IN ('owner_asked', 'owner_agreed', 'owner_objected', 'owner_consented', 'owner_window_waived')
        UNION ALL
        SELECT i.received_at, i.id, 'event',
               format('%s said %s%s; that is a reason for a check, and no more.',
                      CASE i.source WHEN 'revenuecat' THEN 'RevenueCat' WHEN 'app_store' THEN 'The App Store'
                                    WHEN 'google_play' THEN 'Google Play' ELSE i.source END, i.kind,
                      coalesce(', of ' || to_char(i.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC', ''))
          FROM inbox AS i JOIN me ON i.user_keys @> ARRAY[me.user_key]
        UNION ALL
        SELECT x.ended_at, x.id, 'transfer',
               CASE WHEN x.to_key = me.user_key
                    THEN format('A purchase was moved to this user by support (ticket %s).', reference_of('T', t.uid))
                    ELSE format('A purchase of this user was moved to another account by support (ticket %s).',
                                reference_of('T', t.uid)) END
          FROM me JOIN transfer AS x ON me.user_key IN (x.from_key, x.to_key) AND x.step = 'done'
          JOIN ticket AS t ON t.id = x.ticket_id
        UNION ALL
        SELECT h.finished_at, 0, 'job',
               format('Job %s ended %s%s%s.', reference_of('R', h.id), h.state,
                      coalesce(' with ' || h.outcome, ''), coalesce(' (' || h.last_error || ')', ''))
          FROM job_history AS h JOIN me USING (user_key)
    )
    SELECT e.at, e.place, e.kind, e.words FROM events AS e
$$;

-- A user's state as one JSON object, as far as the user may know it; null: neither the host nor our records have the user. It leaves out
-- a ticket that its claimant does not know of. Of other users' tickets it says only whether one has moved a purchase away.
CREATE OR REPLACE FUNCTION user_standing(known text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = entitlement_sync, pg_temp SET timezone = 'UTC' AS $$
DECLARE
    me   user_sync;
    host record;
BEGIN
    SELECT u.* INTO me FROM user_sync AS u WHERE u.user_id = known;
    SELECT h.* INTO host FROM entitlement_sync_host.read_users(ARRAY[known]) AS h WHERE known IS NOT NULL;
    IF me.user_key IS NULL AND host.id IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object(
        'account', CASE WHEN host.id IS NULL THEN 'gone' WHEN is_eligible(host.status) THEN 'eligible'
                        ELSE 'barred' END,
        'subscriber', coalesce(host.type = 'subscriber', false),
        -- The day on which access ends; null: there is no access, it has no known end, or it has ended and was not read since.
        'until', (SELECT CASE WHEN NOT bool_or(a.until IS NULL) THEN to_char(max(a.until), 'YYYY-MM-DD') END
                    FROM (SELECT p.period_ends_at AS until FROM purchase AS p
                           WHERE p.owner_key = me.user_key AND p.merged_into IS NULL
                             AND coalesce(p.gives_access, p.status = 'owned')
                             AND (p.environment = 'production'
                                  OR EXISTS (SELECT 1 FROM sandbox_access AS s WHERE s.user_id = known AND s.until > now()))
                           UNION ALL
                          SELECT g.until FROM "grant" AS g WHERE g.user_key = me.user_key AND g.revoked_at IS NULL) AS a
                   WHERE a.until IS NULL OR a.until > now()),
        'ended', (SELECT to_char(max(p.period_ends_at), 'YYYY-MM-DD') FROM purchase AS p
                   WHERE p.owner_key = me.user_key AND p.merged_into IS NULL AND p.kind = 'subscription'
                     AND p.environment = 'production' AND p.period_ends_at <= now()
                     AND p.gives_access IS NOT TRUE AND p.status <> 'refunded'),
        -- With the reference that its claimant knows, as in `ticket_answers`.
        'case', (SELECT jsonb_build_object('state', t.state, 'verdict', t.verdict,
                                           'reference', coalesce((SELECT c.reference FROM case_of(me.user_key) AS c),
                                                                 reference_of('T', t.uid)))
                   FROM ticket AS t
                  WHERE t.claimant_key = me.user_key AND t.visible
                    -- A claimant who has asked for a restore since then writes about that restore.
                    AND (is_open(t.state)
                         OR t.closed_at > clock_timestamp() - interval '90 days'
                            AND NOT EXISTS (SELECT 1 FROM job_history AS j
                                             WHERE j.user_key = me.user_key AND j.kind = 0 AND j.finished_at > t.closed_at))
                  ORDER BY is_open(t.state) DESC, t.id DESC LIMIT 1),
        'moved', EXISTS (SELECT 1 FROM owner_cases(me.user_key) AS o WHERE o.state = 'decided'),
        'waiting', EXISTS (SELECT 1 FROM queue AS q WHERE q.user_key = me.user_key),
        'failed', coalesce((SELECT j.state = 'dead' OR j.outcome = 'store_unavailable' FROM job_history AS j
                             WHERE j.user_key = me.user_key ORDER BY j.finished_at DESC, j.id DESC LIMIT 1), false),
        -- Restores before reconciles: an agent finds a restore by the reference that the user reads out.
        'reference', coalesce(
            (SELECT reference_of('R', coalesce(q.restore_id, q.restore_next)) FROM queue AS q WHERE q.user_key = me.user_key),
            (SELECT reference_of('R', j.id) FROM job_history AS j WHERE j.user_key = me.user_key AND j.kind = 0
              ORDER BY j.finished_at DESC, j.id DESC LIMIT 1),
            (SELECT reference_of('R', coalesce(q.reconcile_id, q.reconcile_next)) FROM queue AS q WHERE q.user_key = me.user_key),
            (SELECT reference_of('R', j.id) FROM job_history AS j WHERE j.user_key = me.user_key
              ORDER BY j.finished_at DESC, j.id DESC LIMIT 1)));
END
$$;
