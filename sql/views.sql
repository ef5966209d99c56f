-- Views. Other teams read job_status, ticket_status, entitlement_status, decision_log and inbox_log; the rest is for workers, operators
-- and auditors.

-- What the team's products give, by key: RevenueCat's lookup key, or `store:product` or `store:product:plan`.
CREATE OR REPLACE VIEW product_access AS
SELECT k.key, bool_or(p.grants_access) AS grants_access, bool_or(coalesce(p.duration > interval '0', false)) AS is_timed,
       coalesce(array_agg(DISTINCT p.entitlement) FILTER (WHERE p.grants_access), '{}') AS entitlements
  FROM product AS p
 CROSS JOIN LATERAL (SELECT CASE WHEN p.store = 'revenuecat' THEN p.product_id
                                 ELSE concat_ws(':', CASE p.store WHEN 'play_store' THEN 'google_play' ELSE p.store END,
                                                p.product_id, p.base_plan_id) END AS key) AS k
 GROUP BY k.key;
COMMENT ON TABLE product IS 'Which products and entitlements mean access. The host''s team writes it; '
    'waiting jobs follow a change at once.';
COMMENT ON COLUMN product.store IS 'revenuecat, app_store, google_play or onside';
COMMENT ON COLUMN product.product_id IS 'the store''s product id; for revenuecat the entitlement''s lookup key';
COMMENT ON COLUMN product.base_plan_id IS 'Google Play: one base plan of the product; null: all of them';
COMMENT ON COLUMN product.entitlement IS 'the host''s name for what the product gives';
COMMENT ON COLUMN product.grants_access IS 'false: the product is known and gives no access';
COMMENT ON COLUMN product.duration IS 'how long a purchase without an end of its own gives access; null: for life';
-- SANDBOX as it holds: off, if one live worker says so; without live workers, what is on record.
CREATE OR REPLACE VIEW sandbox_mode AS
SELECT coalesce((SELECT CASE WHEN bool_or(w.sandbox = 'off') THEN 'off' WHEN count(w.sandbox) > 0 THEN 'listed' END
                   FROM worker AS w WHERE w.expires_at > now()), i.sandbox) AS mode
  FROM installation AS i;
-- Until when sandbox purchases of users count. The list decides, unless SANDBOX=off; every reader of the list reads this.
CREATE OR REPLACE VIEW sandbox_access AS
SELECT s.user_id, CASE m.mode WHEN 'listed' THEN s.until ELSE '-infinity' END AS until
  FROM sandbox_user AS s CROSS JOIN sandbox_mode AS m;
COMMENT ON TABLE sandbox_user IS 'Users whose sandbox purchases give access, for testers. The host''s team writes it.';
COMMENT ON COLUMN sandbox_user.user_id IS 'the host''s id of the user';
COMMENT ON COLUMN sandbox_user.until IS 'until when';

-- Every job: queued or running in `queue`, ended in `job_history`. A dead job that is queued again leaves the history.
CREATE OR REPLACE VIEW job_status AS
SELECT j.id, reference_of('R', j.id) AS reference,
       CASE j.kind WHEN 0 THEN 'restore' ELSE 'reconcile' END AS kind,
       u.user_id, j.state, j.outcome, j.message_key, j.ticket_id, j.attempt::integer,
       id_time(j.id) AS created_at, j.finished_at, j.last_error
  FROM (
    SELECT q.restore_id AS id, q.user_key, 0::smallint AS kind,
           CASE WHEN q.owner IS NOT NULL AND q.active = 0 THEN 'running' ELSE 'queued' END AS state,
           NULL::text AS outcome, (SELECT 'still_checking' FROM control AS c WHERE c.name = 'all' AND c.paused) AS message_key,
               NULL::bigint AS ticket_id,
           q.restore_attempt AS attempt, NULL::timestamptz AS finished_at, q.restore_error AS last_error
      FROM queue AS q
    UNION ALL
    SELECT q.reconcile_id, q.user_key, 1::smallint, CASE WHEN q.owner IS NOT NULL AND q.active = 1 THEN 'running' ELSE 'queued' END,
           NULL, NULL, NULL, q.reconcile_attempt, NULL, q.reconcile_error
      FROM queue AS q
    UNION ALL
    SELECT q.restore_next, q.user_key, 0::smallint, 'queued', NULL,
           (SELECT 'still_checking' FROM control AS c WHERE c.name = 'all' AND c.paused), NULL, 0::smallint, NULL, NULL
      FROM queue AS q
    UNION ALL
    SELECT q.reconcile_next, q.user_key, 1::smallint, 'queued', NULL, NULL, NULL, 0::smallint, NULL, NULL
      FROM queue AS q
    UNION ALL
    SELECT h.id, h.user_key, h.kind, h.state, h.outcome, h.message_key, h.ticket_id, h.attempt, h.finished_at, h.last_error
      FROM job_history AS h
  ) AS j
  JOIN user_sync AS u ON u.user_key = j.user_key
 -- Not in the branches, where the condition would keep the planner from using their indexes.
 WHERE j.id IS NOT NULL;
COMMENT ON VIEW job_status IS 'Every job that was ever accepted, until retention. The truth about a job; '
    'the notification entitlement_sync_outcome is a hint.';
COMMENT ON COLUMN job_status.id IS 'what request_restore and request_reconcile return';
COMMENT ON COLUMN job_status.reference IS 'short, for people, such as R-7K3Q-92';
COMMENT ON COLUMN job_status.kind IS 'restore or reconcile';
COMMENT ON COLUMN job_status.state IS 'queued, running, done, dead or canceled';
COMMENT ON COLUMN job_status.outcome IS 'null until the job has ended';
COMMENT ON COLUMN job_status.message_key IS 'refines the outcome of a restore: which text the app shows';
COMMENT ON COLUMN job_status.ticket_id IS 'the ticket that the restore opened, where the claimant may see it';
COMMENT ON COLUMN job_status.attempt IS 'reads that ended in an error';
COMMENT ON COLUMN job_status.last_error IS 'why the last attempt failed';

-- Dead jobs that wait for an operator. A reconcile does not once a later reading found access, or was a full one.
CREATE OR REPLACE VIEW dead_job AS
SELECT h.id, h.user_key, h.kind, h.attempt, h.finished_at, h.last_error, u.user_id
  FROM job_history AS h
  JOIN user_sync AS u ON u.user_key = h.user_key
 WHERE h.state = 'dead'
   AND (h.kind = 0 OR coalesce(greatest(u.full_read_at, CASE WHEN u.decided_subscriber THEN u.read_at END), '-infinity') < h.finished_at);

CREATE OR REPLACE VIEW ticket_status AS
SELECT t.id, reference_of('T', t.uid) AS reference, c.user_id, o.user_id AS purchase_owner_id,
       t.store, t.original_id, t.kind, t.state, t.touches, t.created_at
  FROM ticket AS t
  JOIN user_sync AS c ON c.user_key = t.claimant_key
  LEFT JOIN user_sync AS o ON o.user_key = t.owner_key;
COMMENT ON VIEW ticket_status IS 'Every ticket of the support desk.';
COMMENT ON COLUMN ticket_status.reference IS 'short, for people, such as T-7K3Q-92';
COMMENT ON COLUMN ticket_status.user_id IS 'the claimant';
COMMENT ON COLUMN ticket_status.purchase_owner_id IS 'the owner of the purchase, where it is known';
COMMENT ON COLUMN ticket_status.original_id IS 'the store''s first id of the purchase';
COMMENT ON COLUMN ticket_status.touches IS 'how often a restore or an agent came to the open ticket';

-- How often and when checks confirmed each decision. For a user's newest decision the count is in user_sync; for an earlier one it is
-- in the decision that followed.
CREATE OR REPLACE VIEW confirmation AS
SELECT u.user_key, u.decision_id AS confirms, u.confirmed, u.confirmed_id AS id, u.confirmed_first_at AS first_at,
       u.confirmed_at AS at, u.confirmed_asked_at AS asked_at
  FROM user_sync AS u WHERE u.confirmed > 0
 UNION ALL
SELECT d.user_key, d.previous_id, d.confirmed, d.confirmed_id, d.confirmed_first_at, d.confirmed_at, d.confirmed_asked_at
  FROM decision AS d WHERE d.confirmed > 0;

-- Each decision as a check that confirms it states it: `unchanged`, unless it was `deferred` or `not_eligible`. Confirmation.swift
-- decides what confirms, by the same outcomes and the same sentence.
CREATE OR REPLACE VIEW confirmed_decision AS
SELECT d.id, d.user_key, d.job_id, d.version, d.observed, d.rule,
       CASE WHEN d.outcome IN ('deferred', 'not_eligible') THEN d.outcome ELSE 'unchanged' END AS outcome, d.type_after,
       replace(d.explanation, 'so the user became a subscriber', 'so the user stays a subscriber') AS explanation
  FROM decision AS d;

-- All decisions, and for each the last check that confirmed it, as a row of its own. What is rebuilt from it is the same before and
-- after the retention of jobs.
CREATE OR REPLACE VIEW past_decision AS
SELECT d.id, d.user_key, d.at, d.kind, d.rule, d.outcome, d.type_before, d.type_after, d.observed, d.explanation
  FROM decision AS d
 UNION ALL
SELECT c.id, c.user_key, c.at, 1::smallint, d.rule, d.outcome, d.type_after, d.type_after, d.observed, d.explanation
  FROM confirmation AS c JOIN confirmed_decision AS d ON d.id = c.confirms AND d.user_key = c.user_key;

-- What each reading said. A confirmation repeats the observations of the decision that it confirms.
CREATE OR REPLACE VIEW past_observation AS
SELECT o.id, o.user_key, d.id AS decision_id, d.at AS recorded_at, o.asked_at, o.purchase_id, o.period_starts_at, o.period_ends_at,
       o.gives_access, o.source, o.coverage, o.store, o.environment, o.kind, o.status, o.ownership, o.renewal, o.product_id,
       o.attribution, o.entitlements
  FROM observation AS o JOIN decision AS d ON d.job_id = o.job_id AND d.user_key = o.user_key
 UNION ALL
SELECT o.id, o.user_key, c.id, c.at, c.asked_at, o.purchase_id, o.period_starts_at, o.period_ends_at,
       o.gives_access, o.source, o.coverage, o.store, o.environment, o.kind, o.status, o.ownership, o.renewal, o.product_id,
       CASE o.attribution WHEN 'new' THEN 'own' ELSE o.attribution END, o.entitlements
  FROM confirmation AS c
  JOIN decision AS d ON d.id = c.confirms AND d.user_key = c.user_key
  JOIN observation AS o ON o.job_id = d.job_id AND o.user_key = d.user_key;

-- The decision of every job. A check that confirmed a decision shows that decision, as long as the history keeps its job.
CREATE OR REPLACE VIEW job_decision AS
SELECT d.id, d.user_key, d.job_id, d.at, d.assets_changed, d.observed, d.braked, d.kind, d.rule, d.outcome, d.type_before,
       d.type_after, d.explanation
  FROM decision AS d
 UNION ALL
SELECT h.decision_id, h.user_key, h.id, h.finished_at, 0, d.observed, false, h.kind, d.rule, d.outcome, d.type_after, d.type_after,
       d.explanation
  FROM job_history AS h JOIN confirmed_decision AS d ON d.id = h.confirms AND d.user_key = h.user_key;

CREATE OR REPLACE VIEW decision_log AS
SELECT d.id, u.user_id, d.job_id, d.at, d.rule, d.outcome, d.type_before, d.type_after,
       d.assets_changed + coalesce((SELECT sum(b.changed) FROM asset_batch AS b WHERE b.decision_id = d.id), 0)::integer
           AS assets_changed,
       CASE WHEN d.observed THEN d.explanation || ' (observed only: nothing was written)' ELSE d.explanation END
           AS explanation
  FROM job_decision AS d
  JOIN user_sync AS u ON u.user_key = d.user_key;
COMMENT ON VIEW decision_log IS 'Every applied verdict, one for each done job.';
COMMENT ON COLUMN decision_log.rule IS 'the rule that decided';
COMMENT ON COLUMN decision_log.assets_changed IS 'assets frozen or unfrozen for it so far';
COMMENT ON COLUMN decision_log.explanation IS 'the reason, in sentences';

CREATE OR REPLACE VIEW inbox_log AS
SELECT i.source, i.event_id, i.received_at, i.state FROM inbox AS i;
COMMENT ON VIEW inbox_log IS 'Every accepted store event once, until retention.';

-- What gives each user access, as the last decision left it: it changes in the transaction that changes the type and publishes the news.
CREATE OR REPLACE VIEW entitlement_status AS
SELECT u.user_id, e.id AS entitlement, e.store, e.source, e.product_id,
       CASE WHEN e.store IS NOT NULL THEN coalesce(e.environment, 'production') END AS environment,
       e.ends_at, e.will_renew, coalesce(e.at_risk, false) AS at_risk
  FROM user_sync AS u
 CROSS JOIN LATERAL json_to_recordset(u.entitlements)
         AS e(id text, store text, source text, product_id text, environment text, ends_at timestamptz, will_renew boolean, at_risk boolean)
 WHERE u.user_id IS NOT NULL AND u.entitlements IS NOT NULL
   -- A purchase may give access beyond its period, by its store's word; a grant gives none once it is over, before the check that follows.
   AND (e.store IS NOT NULL OR e.ends_at IS NULL OR e.ends_at > now());
COMMENT ON VIEW entitlement_status IS 'A row for each thing that gives a user access now.';
COMMENT ON COLUMN entitlement_status.entitlement IS 'the name in product; null: access without a name';
COMMENT ON COLUMN entitlement_status.store IS 'where it was bought; null: a grant';
COMMENT ON COLUMN entitlement_status.source IS 'who gave it, grant for the team''s own people; null: a purchase';
COMMENT ON COLUMN entitlement_status.environment IS 'production or the store''s sandbox; null: a grant';
COMMENT ON COLUMN entitlement_status.ends_at IS 'null: it has no end';
COMMENT ON COLUMN entitlement_status.will_renew IS 'null: the store has not said';
COMMENT ON COLUMN entitlement_status.at_risk IS 'the last payment has failed, and the store gives time to mend that';

-- A purchase token gives its holder the purchase, so the view shows that there is one, and hides its value.
CREATE OR REPLACE VIEW purchase_identifier_log AS
SELECT i.purchase_id, i.store, i.environment, i.kind,
       CASE WHEN i.kind <> 'purchase_token' THEN i.value END AS value
  FROM purchase_identifier AS i;
COMMENT ON VIEW purchase_identifier_log IS 'what stores call each purchase; a purchase token''s value is left out';

