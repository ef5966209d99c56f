-- What each role may do, on record: `migrate` grants what is missing each time it runs, for roles may come after the schema,
-- and `doctor` compares. A migration that makes, drops, grants or revokes something that a role needs changes these rows as well.

CREATE TABLE role_privilege (
    role      text NOT NULL,
    kind      text NOT NULL CHECK (kind IN ('schema', 'table', 'sequence', 'function')),
    object    text NOT NULL,
    -- A column; empty: the whole.
    part      text NOT NULL DEFAULT '',
    privilege text NOT NULL,
    PRIMARY KEY (role, kind, object, part, privilege)
);
COMMENT ON TABLE role_privilege IS 'what each role of entitlement-sync may do; migrate grants it, doctor compares';

INSERT INTO role_privilege (role, kind, object, part, privilege)
SELECT DISTINCT 'entitlement_sync_' || v.role, v.kind, split_part(o.name, '.', 1), split_part(o.name, '.', 2), p.name
  FROM (VALUES
    ('api', 'function', 'EXECUTE', 'accept_events app_restore app_restores entitlement_answer estimated_wait
        host_id id_time reference_of release_purchase reply_to_ticket request_reconcile request_restore
        restore_answers take_requests ticket_answers'),
    ('api', 'schema', 'USAGE', 'entitlement_sync'),
    ('api', 'table', 'SELECT', 'job_status schema_migration ticket_status'),
    ('auditor', 'function', 'EXECUTE', 'first_id_of id_time means_access missing_days partitions_of reference_of
        user_events user_standing'),
    ('auditor', 'schema', 'USAGE', 'entitlement_sync'),
    ('auditor', 'table', 'SELECT', 'alarm asset_batch asset_run brake chargeback.at chargeback.lifted_at
        chargeback.lifted_by chargeback.lifted_for chargeback.noted_at chargeback.purchase_id chargeback_name.at
        chargeback_name.lifted_at chargeback_name.lifted_by chargeback_name.lifted_for chargeback_name.noted_at
        control decision decision_log desk_clock desk_duty desk_lane desk_question desk_setting dry_run grant
        inbox.attempt inbox.due inbox.event_id inbox.id inbox.is_listed inbox.kind inbox.occurred_at
        inbox.promises inbox.received_at inbox.source inbox.state inbox.user_keys inbox_log job_history
        job_status law_check leader list_reveal observation operator operator_event outbox product
        purchase.account_key purchase.end_announced purchase.entitlements purchase.environment
        purchase.first_seen_at purchase.former_owner_key purchase.gives_access purchase.id purchase.kind
        purchase.merged_into purchase.observed_at purchase.owner_key purchase.owner_rule purchase.owner_since
        purchase.ownership purchase.period_ends_at purchase.product_id purchase.renewal purchase.source
        purchase.stated_at purchase.status purchase.store purchase.transferred_at purchase_identifier_log
        purchase_release queue rate_budget run.asked_at run.asked_by run.confirmed_at run.confirmed_by
        run.counted run.cursor_at run.cursor_key run.demotion_limit run.ended run.ended_at run.errors run.fed
        run.hash run.held run.id run.is_confirmed run.is_dry run.is_fed run.is_paged run.late run.late_due
        run.late_since run.listed run.lists_only run.max_demotions run.of_run run.outcomes run.parts
        run.predicted_end run.progress run.rules run.schedule run.scope run.settled_at run.since run.skipped
        run.started_at run.state run.subscribers run.total run_change run_listing run_part sandbox_user schedule
        schema_migration sign_in_refusal store_absence store_credential.since store_credential.state
        store_credential.store store_health store_knowledge ticket ticket_approval ticket_claim ticket_event
        ticket_evidence ticket_move ticket_note ticket_reply ticket_reveal ticket_status transfer transfer_step
        transfer_token user_reveal user_sync worker'),
    ('client', 'function', 'EXECUTE', 'id_time reference_of request_reconcile request_restore'),
    ('client', 'schema', 'USAGE', 'entitlement_sync'),
    ('client', 'table', 'DELETE INSERT SELECT UPDATE', 'product sandbox_user'),
    ('client', 'table', 'SELECT', 'decision_log inbox_log job_status schema_migration ticket_status'),
    ('support', 'function', 'EXECUTE', 'acting add_operator announce_sign_in approve_ticket ask_claimant
        begin_transfer claim_ticket confirm_operator desk_alive desk_causes desk_counts desk_dead desk_dry_run
        desk_figures desk_log desk_me desk_queue desk_restore desk_retry desk_search desk_timeline desk_user
        disable_operator first_id_of id_time lend_access link_operator linked_tickets list_tickets missing_days
        new_id note_order note_refusal note_ticket open_ticket operators partitions_of reference_of
        refresh_evidence refuse_ticket release_ticket reset_operator resolve_transfer retry_tokens reveal_list
        reveal_ticket reveal_user show_ticket sign_in sign_in_salt sign_out ticket_named ticket_replies
        ticket_tokens ticket_waiver ticket_window waive_owner_window withdraw_approval'),
    ('support', 'schema', 'USAGE', 'entitlement_sync'),
    ('support', 'table', 'SELECT', 'alarm asset_batch asset_run brake chargeback.at chargeback.lifted_at
        chargeback.lifted_by chargeback.lifted_for chargeback.noted_at chargeback.purchase_id chargeback_name.at
        chargeback_name.lifted_at chargeback_name.lifted_by chargeback_name.lifted_for chargeback_name.noted_at
        control decision desk_clock desk_duty desk_lane desk_question inbox.attempt inbox.due inbox.event_id
        inbox.id inbox.is_listed inbox.kind inbox.occurred_at inbox.promises inbox.received_at inbox.source
        inbox.state inbox.user_keys inbox_log law_check leader operator product purchase.account_key
        purchase.end_announced purchase.entitlements purchase.environment purchase.first_seen_at
        purchase.former_owner_key purchase.gives_access purchase.id purchase.kind purchase.merged_into
        purchase.observed_at purchase.owner_key purchase.owner_rule purchase.owner_since purchase.ownership
        purchase.period_ends_at purchase.product_id purchase.renewal purchase.source purchase.stated_at
        purchase.status purchase.store purchase.transferred_at purchase_identifier_log rate_budget run.asked_at
        run.asked_by run.confirmed_at run.confirmed_by run.counted run.cursor_at run.cursor_key
        run.demotion_limit run.ended run.ended_at run.errors run.fed run.hash run.held run.id run.is_confirmed
        run.is_dry run.is_fed run.is_paged run.late run.late_due run.late_since run.listed run.lists_only
        run.max_demotions run.of_run run.outcomes run.parts run.predicted_end run.progress run.rules
        run.schedule run.scope run.settled_at run.since run.skipped run.started_at run.state run.subscribers
        run.total run_change run_listing run_part schedule schema_migration store_absence store_credential.since
        store_credential.state store_credential.store store_health store_knowledge ticket_move worker'),
    ('worker', 'function', 'EXECUTE', 'accept_events add_accounts allow_transfer app_restore app_restores
        ask_accounts ask_dry_run ask_lists ask_run begin_account_walk cancel_run charged_back checked_proofs
        close_parts compact_queue count_run drain_inbox end_account_walk enqueue enqueue_reconciles
        enqueue_restores entitlement_answer entitlement_names erase_user estimated_wait expire_questions
        feed_run first_id_at first_id_of forget_absences forget_accounts forget_events forget_questions
        forget_requests forget_runs forget_sign_ins host_id id_time is_named_by_id is_released judge_credentials
        keep_answers keep_evidence keep_listing keep_part living maintain_partitions means_access missing_days
        missing_privileges move_listing name_found name_hash name_purchase new_id note_absences note_credentials
        note_known partitions_of plan_listings plan_looks predict_run product_changed put_off_listing
        reference_of release_purchase release_run reply_to_ticket request_reconcile request_restore requeue_dead
        restore_answers restored_products restored_products_of runs_of settle_call settle_run settle_transfer
        spell_inbox stacked_ends start_scheduled step_down take_asks take_lead take_listing take_outbox
        take_part take_requests tell_tickets tend_tickets ticket_answers united_proofs user_events user_key_of
        user_standing'),
    ('worker', 'schema', 'USAGE', 'entitlement_sync'),
    ('worker', 'function', 'EXECUTE', 'missing_days partitions_of'),
    ('worker', 'table', 'INSERT SELECT UPDATE', 'upkeep'),
    ('worker', 'sequence', 'USAGE', 'asset_batch_id_seq decision_id_seq grant_id_seq inbox_id_seq
        observation_id_seq outbox_id_seq purchase_id_block ticket_event_id_seq ticket_number
        user_sync_user_key_seq worker_epoch'),
    ('worker', 'table', 'DELETE INSERT SELECT UPDATE', 'acknowledgement alarm asset_run brake control
        decision_log dry_run grant idempotency inbox inbox_body inbox_log job_history job_request job_status
        law_check outbox purchase purchase_identifier queue rate_budget request_count schedule schema_migration
        shown_proof store_health ticket_status user_sync worker'),
    ('worker', 'table', 'INSERT SELECT', 'asset_batch decision observation store_credential ticket
        ticket_event'),
    ('worker', 'table', 'INSERT SELECT UPDATE', 'upkeep'),
    ('worker', 'table', 'SELECT', 'account_index account_walk chargeback chargeback_name leader look_round
        product run run_change run_listing run_part sandbox_user store_absence store_knowledge ticket_approval
        ticket_claim ticket_evidence ticket_move transfer transfer_step transfer_token'),
    ('worker', 'table', 'UPDATE', 'run.predicted_end run_part.due ticket.deadline ticket.evidence_due
        ticket.evidence_error ticket.evidence_seen ticket.evidence_taken_at ticket.evidence_tries ticket.kind
        ticket.original_id ticket.owner_key ticket.priority ticket.purchase_id ticket.store ticket.touches
        ticket.visible transfer.due transfer.last_error transfer.tries transfer_token.due
        transfer_token.ended_at transfer_token.reason transfer_token.state transfer_token.tries
        transfer_token.turn'),
    ('worker', 'table', 'SELECT', 'role_privilege')
       ) AS v(role, kind, privileges, objects)
 CROSS JOIN LATERAL regexp_split_to_table(v.objects, '\s+') AS o(name)
 CROSS JOIN LATERAL regexp_split_to_table(v.privileges, ' ') AS p(name);

-- What roles that exist lack, as it has to be granted. What a later migration dropped is left out.
CREATE FUNCTION missing_privileges() RETURNS TABLE (role text, privilege text, target text)
LANGUAGE sql STABLE SET search_path = entitlement_sync, pg_temp AS $$
    SELECT x.role, x.privilege || CASE WHEN x.part <> '' THEN format(' (%I)', x.part) ELSE '' END, x.target
      FROM (SELECT p.role, p.privilege, p.part, format('SCHEMA %I', n.nspname) AS target,
                   has_schema_privilege(r.oid, n.oid, p.privilege) AS has
              FROM role_privilege AS p
              JOIN pg_roles AS r ON r.rolname = p.role
              JOIN pg_namespace AS n ON n.nspname = p.object
             WHERE p.kind = 'schema'
             UNION ALL
            SELECT p.role, p.privilege, p.part,
                   format('%s entitlement_sync.%I', CASE p.kind WHEN 'sequence' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname),
                   CASE WHEN p.kind = 'sequence' THEN has_sequence_privilege(r.oid, c.oid, p.privilege)
                        WHEN p.part = '' THEN has_table_privilege(r.oid, c.oid, p.privilege)
                        ELSE has_column_privilege(r.oid, c.oid, a.attnum, p.privilege) END
              FROM role_privilege AS p
              JOIN pg_roles AS r ON r.rolname = p.role
              JOIN pg_class AS c ON c.relnamespace = 'entitlement_sync'::regnamespace AND c.relname = p.object
              LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = p.part AND NOT a.attisdropped
             WHERE p.kind IN ('table', 'sequence') AND (p.part = '' OR a.attnum IS NOT NULL)
             UNION ALL
            SELECT p.role, p.privilege, p.part, format('FUNCTION %s', f.oid::regprocedure),
                   has_function_privilege(r.oid, f.oid, p.privilege)
              FROM role_privilege AS p
              JOIN pg_roles AS r ON r.rolname = p.role
              JOIN pg_proc AS f ON f.pronamespace = 'entitlement_sync'::regnamespace AND f.proname = p.object
             WHERE p.kind = 'function'
             UNION ALL
            SELECT r.rolname, 'USAGE', '', 'SCHEMA entitlement_sync_host', has_schema_privilege(r.oid, n.oid, 'USAGE')
              FROM pg_roles AS r, pg_namespace AS n
             WHERE r.rolname = 'entitlement_sync_worker' AND n.nspname = 'entitlement_sync_host'
             UNION ALL
            SELECT r.rolname, 'EXECUTE', '', format('FUNCTION %s', f.oid::regprocedure), has_function_privilege(r.oid, f.oid, 'EXECUTE')
              FROM pg_roles AS r
              JOIN pg_namespace AS n ON n.nspname = 'entitlement_sync_host'
              JOIN pg_proc AS f ON f.pronamespace = n.oid
             WHERE r.rolname = 'entitlement_sync_worker') AS x
     WHERE NOT x.has
     ORDER BY 1, 3, 2
$$;

-- Makes the roles that are missing, where this user may, and grants what roles lack. Returns the roles that are still missing.
CREATE FUNCTION apply_privileges() RETURNS text[]
LANGUAGE plpgsql VOLATILE SET search_path = entitlement_sync, pg_temp AS $$
DECLARE
    missing text[] := '{}';
    wanted  text;
    lack    record;
BEGIN
    FOR wanted IN SELECT DISTINCT p.role FROM role_privilege AS p
                   WHERE NOT EXISTS (SELECT 1 FROM pg_roles AS r WHERE r.rolname = p.role) ORDER BY 1 LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN missing := missing || wanted;
        END;
    END LOOP;
    FOR lack IN SELECT m.role, m.privilege, m.target FROM missing_privileges() AS m LOOP
        EXECUTE format('GRANT %s ON %s TO %I', lack.privilege, lack.target, lack.role);
    END LOOP;
    RETURN missing;
END
$$;
REVOKE ALL ON FUNCTION missing_privileges, apply_privileges FROM PUBLIC;

-- ---- What a worker runs with ----------------------------------------------------------------------------------------

ALTER TABLE worker ADD COLUMN mode text;
COMMENT ON COLUMN worker.mode IS 'its MODE; absent: a build that does not say';
COMMENT ON COLUMN worker.version IS 'the build that it runs';

-- ---- Products -------------------------------------------------------------------------------------------------------

-- NOT VALID: what a table holds already does not stop a migration; doctor names such rows.
ALTER TABLE product
    ADD CONSTRAINT product_store_known
        CHECK (store IN ('revenuecat', 'app_store', 'google_play', 'play_store', 'onside')) NOT VALID,
    ADD CONSTRAINT product_id_given CHECK (btrim(product_id) <> '') NOT VALID;
