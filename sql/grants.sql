-- What each database role may do. `migrate` makes the roles if it may, grants what they lack and revokes what is no longer listed;
-- `doctor` compares. PUBLIC gets nothing. `table.column` is a privilege on a column. The worker may also use the adapter's schema and call
-- each function in it; `missing_privileges` adds that.
SELECT apply_privileges(ARRAY(
    SELECT DISTINCT ROW('entitlement_sync_' || v.role, v.kind, split_part(o.name, '.', 1), split_part(o.name, '.', 2),
        p.name)::role_privilege
      FROM (VALUES
        ('client', 'schema', 'USAGE',
         'entitlement_sync'),
        ('client', 'table', 'DELETE INSERT SELECT UPDATE',
         'product sandbox_user'),
        ('client', 'table', 'SELECT',
         'dead_job decision_log entitlement_status inbox_log job_status schema_release ticket_status'),
        ('client', 'function', 'EXECUTE',
         'end_access id_time put_access reference_of request_reconcile request_restore'),
        ('api', 'schema', 'USAGE',
         'entitlement_sync'),
        ('api', 'table', 'SELECT',
         'installation schema_release'),
        ('api', 'function', 'EXECUTE',
         'accept_events app_restores consent_to_transfer entitlement_answer estimated_wait host_id id_time reference_of
         reply_to_ticket restore_answers take_requests ticket_answers'),
        ('worker', 'schema', 'USAGE',
         'entitlement_sync'),
        ('worker', 'table', 'DELETE INSERT SELECT UPDATE',
         'acknowledgement alarm asset_run brake brake_minute control decision_log dry_run firebase_claims grant idempotency inbox inbox_body
         inbox_log invariant_check job_history job_request job_status outbox purchase purchase_identifier queue rate_budget
         request_count schedule shown_proof store_health ticket_status user_sync worker'),
        ('worker', 'table', 'INSERT',
         'ticket_event.job_id ticket_event.kind ticket_event.ticket_id'),
        ('worker', 'table', 'INSERT SELECT',
         'asset_batch decision observation store_credential ticket'),
        ('worker', 'table', 'INSERT SELECT UPDATE',
         'submitted_account upkeep'),
        ('worker', 'table', 'SELECT',
         'account_index account_walk chargeback chargeback_name check_round confirmation confirmed_decision dead_job
         entitlement_status evidence_request import import_line installation job_decision leader owner_window past_decision
         past_observation product product_access
         role_privilege run
         run_backfill run_change run_part sandbox_access sandbox_user schema_release store_absence store_knowledge
         ticket_approval
         ticket_event ticket_evidence ticket_move ticket_reported_id transfer transfer_step transfer_token'),
        ('worker', 'table', 'UPDATE',
         'evidence_request.answers evidence_request.due_at evidence_request.error evidence_request.taken_at
         evidence_request.tries run.predicted_end run_part.due ticket.deadline ticket.kind ticket.original_id ticket.owner_key
         ticket.priority ticket.purchase_id ticket.store ticket.touches ticket.visible transfer.due transfer.last_error
         transfer.tries transfer_token.due transfer_token.ended_at transfer_token.reason transfer_token.state
         transfer_token.tries transfer_token.turn'),
        ('worker', 'sequence', 'USAGE',
         'asset_batch_id_seq decision_id_seq grant_id_seq inbox_id_seq observation_id_seq outbox_id_seq purchase_id_block
         ticket_event_id_seq ticket_number user_sync_user_key_seq worker_epoch'),
        ('worker', 'function', 'EXECUTE',
         'accept_events account_lines add_accounts add_import_lines allow_transfer app_restores apply_ticket_deadlines
         approve_import approve_run ask_accounts ask_backfill ask_dry_run ask_import ask_run begin_account_walk begin_claims cancel_import
         cancel_run charged_back checked_proofs close_parts compact_queue consent_to_transfer count_run days_to_partition
         drain_inbox due_claims end_account_walk enqueue enqueue_free enqueue_reconciles entitlement_answer entitlement_names
         entitlement_words erase_user estimated_wait expire_questions feed_run first_id_at first_id_of
         forget_absences forget_accounts forget_events forget_questions forget_requests forget_runs forget_sign_ins
         has_owner_consent hold_import_lines host_id id_time is_eligible is_named_by_reported_id is_open judge_credentials keep_answers
         keep_backfill keep_evidence keep_import_lines keep_part maintain_partitions means_access meet_free missing_privileges
         move_backfill name_found name_hash name_purchase new_id note_absences note_credentials note_known note_other_access
         note_server note_touched partitioned_tables partitions_of plan_backfills plan_checks postpone_backfill predict_run
         product_access_of product_changed publish_ticket_news record_access reference_of reply_to_ticket request_reconcile
         request_restore requeue_dead restore_answers restored_products restored_products_of runs_of set_switch
         settle_call settle_imports settle_run settle_sandbox settle_transfer spell_inbox stacked_ends standbys start_scheduled step_down
         store_accounts surviving_purchase take_asks take_backfill take_import_lines take_lead take_outbox take_part
         take_requests ticket_answers united_proofs user_events user_key_of user_standing users_of_account
         ways_in'),
        ('support', 'schema', 'USAGE',
         'entitlement_sync'),
        ('support', 'table', 'SELECT',
         'alarm asset_batch asset_run brake chargeback.at chargeback.lifted_at chargeback.lifted_by chargeback.lifted_for
         chargeback.noted_at chargeback.purchase_id chargeback_name.at chargeback_name.lifted_at chargeback_name.lifted_by
         chargeback_name.lifted_for chargeback_name.noted_at control decision desk_clock desk_lane desk_question inbox.attempt
         inbox.due inbox.event_id inbox.id inbox.is_access_event inbox.is_backfilled inbox.kind inbox.occurred_at
         inbox.received_at inbox.source inbox.state inbox.user_keys inbox_log installation invariant_check job_decision leader operator
         operator_permission product purchase.account_key purchase.end_announced purchase.entitlements purchase.environment
         purchase.first_seen_at purchase.former_owner_key purchase.gives_access purchase.id purchase.kind purchase.merged_into
         purchase.observed_at purchase.owner_key purchase.owner_rule purchase.owner_since purchase.ownership
         purchase.period_ends_at purchase.product_id purchase.renewal purchase.source purchase.stated_at purchase.status
         purchase.store purchase.store_app
         purchase.revenuecat_project purchase.transferred_at rate_budget run.asked_at run.asked_by run.confirmed_at run.confirmed_by
         run.counted run.cursor_at run.cursor_key run.demotion_limit run.ended run.ended_at run.errors run.fed run.hash
         run.held run.id run.is_backfill_only run.is_confirmed run.is_dry run.is_fed run.is_paged run.late run.late_due
         run.late_since run.listed run.max_demotions run.of_run run.outcomes run.parts run.predicted_end run.progress
         run.rules run.schedule run.scope run.settled_at run.since run.skipped run.started_at run.state run.subscribers
         run.total run_backfill run_change run_part schedule schema_release store_absence store_credential.since
         store_credential.state store_credential.store store_health store_knowledge ticket_move worker'),
        ('support', 'function', 'EXECUTE',
         'acting add_operator allow_terminal announce_sign_in approve_ticket ask_claimant ask_terminal assign_ticket begin_transfer
         confirm_operator days_to_partition desk_alive desk_causes desk_counts desk_dead desk_dead_errors desk_dry_run desk_figures
         desk_log desk_me desk_queue desk_restore desk_retry desk_retry_all desk_search desk_timeline desk_user disable_operator
         end_other_sessions first_id_of give_temporary_access id_time identify_operator is_eligible link_operator linked_tickets
         list_tickets mark_break_glass new_id note_order note_refusal note_ticket open_ticket operators own_sessions partitioned_tables
         partitions_of provider_in_use reference_of refresh_evidence refuse_ticket reset_operator resolve_transfer retry_tokens
         reveal_list reveal_ticket reveal_user session_name show_ticket sign_in sign_in_salt sign_out terminal_asking ticket_named
         ticket_replies ticket_tokens ticket_waiver ticket_window unassign_ticket waive_owner_window withdraw_approval'),
        ('console', 'schema', 'USAGE',
         'entitlement_sync'),
        ('console', 'function', 'EXECUTE',
         'provider_in_use provider_sign_in use_provider'),
        ('auditor', 'schema', 'USAGE',
         'entitlement_sync'),
        ('auditor', 'table', 'SELECT',
         'alarm asset_batch asset_run brake chargeback.at chargeback.lifted_at chargeback.lifted_by chargeback.lifted_for
         chargeback.noted_at chargeback.purchase_id chargeback_name.at chargeback_name.lifted_at chargeback_name.lifted_by
         chargeback_name.lifted_for chargeback_name.noted_at confirmation confirmed_decision control decision decision_log
         dead_job desk_clock desk_lane desk_question desk_setting dry_run entitlement_status evidence_request firebase_claims grant import
         import_line.attempt import_line.detail import_line.due import_line.gives_access import_line.import_id import_line.kind
         import_line.number import_line.result import_line.store import_line.user_key inbox.attempt inbox.due inbox.event_id
         inbox.id inbox.is_access_event inbox.is_backfilled inbox.kind inbox.occurred_at inbox.received_at inbox.source
         inbox.state inbox.user_keys inbox_log installation invariant_check job_decision job_history job_status leader list_reveal
         observation operator operator_event operator_permission outbox owner_waiver owner_window past_decision
         past_observation product product_access purchase.account_key purchase.end_announced purchase.entitlements
         purchase.environment purchase.first_seen_at purchase.former_owner_key purchase.gives_access purchase.id purchase.kind
         purchase.merged_into purchase.observed_at purchase.owner_key purchase.owner_rule purchase.owner_since
         purchase.ownership purchase.period_ends_at purchase.product_id purchase.renewal purchase.source purchase.stated_at
         purchase.status purchase.store purchase.store_app
         purchase.revenuecat_project purchase.transferred_at purchase_consent purchase_identifier_log queue rate_budget
         run.asked_at run.asked_by run.confirmed_at run.confirmed_by run.counted run.cursor_at run.cursor_key
         run.demotion_limit run.ended run.ended_at run.errors run.fed run.hash run.held run.id run.is_backfill_only
         run.is_confirmed run.is_dry run.is_fed run.is_paged run.late run.late_due run.late_since run.listed run.max_demotions
         run.of_run run.outcomes run.parts run.predicted_end run.progress run.rules run.schedule run.scope run.settled_at
         run.since run.skipped run.started_at run.state run.subscribers run.total run_backfill run_change run_part
         sandbox_access sandbox_user schedule schema_release sign_in_refusal store_absence store_credential.since store_credential.state
         store_credential.store store_health store_knowledge ticket ticket_approval ticket_event ticket_evidence ticket_move
         ticket_note ticket_question ticket_reply ticket_reported_id ticket_reveal ticket_status transfer transfer_step
         transfer_token user_reveal user_sync worker'),
        ('auditor', 'function', 'EXECUTE',
         'days_to_partition entitlement_words first_id_of id_time is_eligible
         means_access partitioned_tables partitions_of product_access_of
         reference_of user_events user_standing')
           ) AS v(role, kind, privileges, objects)
     CROSS JOIN LATERAL regexp_split_to_table(v.objects, '\s+') AS o(name)
     CROSS JOIN LATERAL regexp_split_to_table(v.privileges, ' ') AS p(name)));
