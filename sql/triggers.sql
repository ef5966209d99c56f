-- All triggers, table by table, in the order in which they fire: BEFORE triggers by name, then AFTER triggers by name.

CREATE OR REPLACE TRIGGER product_changed AFTER INSERT OR UPDATE OR DELETE ON product
    FOR EACH STATEMENT EXECUTE FUNCTION product_changed();

CREATE OR REPLACE TRIGGER spell_sandbox_user BEFORE INSERT OR UPDATE OF user_id ON sandbox_user
    FOR EACH ROW EXECUTE FUNCTION spell_sandbox_user();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON decision FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON decision FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE OR REPLACE TRIGGER accept_credentials AFTER UPDATE OF paused ON control FOR EACH ROW
    WHEN (NEW.name = 'demotions' AND OLD.paused AND NOT NEW.paused AND NEW.by <> 'entitlement-sync')
    EXECUTE FUNCTION accept_credentials();

CREATE OR REPLACE TRIGGER forget_cursors BEFORE UPDATE ON run FOR EACH ROW EXECUTE FUNCTION forget_cursors();

CREATE OR REPLACE TRIGGER notify_desk AFTER UPDATE OF ended_at ON dry_run FOR EACH ROW WHEN (NEW.ended_at IS NOT NULL)
    EXECUTE FUNCTION notify_desk();

CREATE OR REPLACE TRIGGER hold_new_operator BEFORE INSERT ON operator FOR EACH ROW EXECUTE FUNCTION hold_operator();
CREATE OR REPLACE TRIGGER hold_reset_operator BEFORE UPDATE OF held_by ON operator FOR EACH ROW EXECUTE FUNCTION hold_operator();
CREATE OR REPLACE TRIGGER note_lost_role BEFORE UPDATE OF role, disabled_at, held_until ON operator FOR EACH ROW
    WHEN (NEW.role <> OLD.role OR NEW.disabled_at IS DISTINCT FROM OLD.disabled_at
          OR NEW.held_until > OLD.held_until OR NEW.held_until IS NOT NULL AND OLD.held_until IS NULL)
    EXECUTE FUNCTION note_lost_role();
CREATE OR REPLACE TRIGGER end_lost_approvals AFTER UPDATE ON operator FOR EACH ROW
    WHEN (NEW.lost_at IS DISTINCT FROM OLD.lost_at)
    EXECUTE FUNCTION end_lost_approvals();
CREATE OR REPLACE TRIGGER keep_operator_account AFTER INSERT OR UPDATE OF user_key ON operator FOR EACH ROW
    WHEN (NEW.user_key IS NOT NULL) EXECUTE FUNCTION keep_operator_account();
CREATE OR REPLACE TRIGGER tell_held_operator AFTER INSERT OR UPDATE OF held_until, disabled_at ON operator
    FOR EACH ROW EXECUTE FUNCTION hold_operator();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON operator_event FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON operator_event FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE OR REPLACE TRIGGER clock_changed AFTER INSERT OR UPDATE OR DELETE ON desk_clock FOR EACH STATEMENT EXECUTE FUNCTION clock_changed();

CREATE OR REPLACE TRIGGER count_request BEFORE UPDATE OF evidence_due ON ticket FOR EACH ROW
    WHEN (NEW.evidence_due IS NOT NULL) EXECUTE FUNCTION count_request();
CREATE OR REPLACE TRIGGER guard_first_state BEFORE INSERT ON ticket FOR EACH ROW
    WHEN (NEW.state <> 'new') EXECUTE FUNCTION guard_ticket_state();
CREATE OR REPLACE TRIGGER guard_state BEFORE UPDATE OF state ON ticket FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION guard_ticket_state();
CREATE OR REPLACE TRIGGER keep_agreement
    BEFORE UPDATE OF state, evidence_id, owner_asked_at, owner_until, owner_consented_at, owner_waived_at ON ticket FOR EACH ROW
    WHEN (NEW.owner_consented_at IS NOT NULL OR NEW.owner_waived_at IS NOT NULL) EXECUTE FUNCTION keep_agreement();
CREATE OR REPLACE TRIGGER keep_clock BEFORE INSERT OR UPDATE OF state, assigned_at, kind, priority, deadline ON ticket
    FOR EACH ROW EXECUTE FUNCTION keep_clock();
CREATE OR REPLACE TRIGGER keep_owner BEFORE UPDATE OF owner_key, owner_asked_at, owner_until, owner_objected_at, state ON ticket
    FOR EACH ROW EXECUTE FUNCTION keep_owner();
CREATE OR REPLACE TRIGGER keep_request BEFORE UPDATE OF evidence_id ON ticket FOR EACH ROW
    WHEN (NEW.evidence_id IS NOT NULL) EXECUTE FUNCTION keep_request();
CREATE OR REPLACE TRIGGER notify_claimant AFTER UPDATE OF verdict ON ticket FOR EACH ROW
    WHEN (NEW.state = 'refused' AND NEW.verdict IS NOT NULL) EXECUTE FUNCTION notify_claimant();
CREATE OR REPLACE TRIGGER notify_owner AFTER UPDATE OF state ON ticket FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION notify_owner();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON ticket_event FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON ticket_event FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER keep_reported_ids AFTER INSERT ON ticket_event FOR EACH ROW
    WHEN (NEW.job_id IS NOT NULL AND NEW.kind IN ('opened', 'touched')) EXECUTE FUNCTION keep_reported_ids();
CREATE OR REPLACE TRIGGER notify_desk AFTER INSERT ON ticket_event FOR EACH ROW EXECUTE FUNCTION notify_desk();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON ticket_evidence FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON ticket_evidence FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER notify_desk AFTER INSERT ON ticket_evidence FOR EACH ROW EXECUTE FUNCTION notify_desk();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON ticket_reveal FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON ticket_reveal FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON user_reveal FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON user_reveal FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON list_reveal FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON list_reveal FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON transfer_step FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON transfer_step FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER notify_desk AFTER INSERT ON transfer_step FOR EACH ROW EXECUTE FUNCTION notify_desk();

CREATE OR REPLACE TRIGGER notify_desk AFTER INSERT OR UPDATE OF state ON transfer_token FOR EACH ROW EXECUTE FUNCTION notify_desk();
