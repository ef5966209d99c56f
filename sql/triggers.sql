-- All triggers, table by table, in the order in which they fire: BEFORE triggers by name, then AFTER triggers by name. A trigger guards
-- what holds for every statement, also one by hand; it answers rows that a team writes by hand (`product`, `sandbox_user`, `desk_clock`);
-- or it notifies the console's pages. What else follows from an act is called by the function of the act.

CREATE OR REPLACE TRIGGER product_changed AFTER INSERT OR UPDATE OR DELETE ON product
    FOR EACH STATEMENT EXECUTE FUNCTION product_changed();

CREATE OR REPLACE TRIGGER spell_sandbox_user BEFORE INSERT OR UPDATE OF user_id ON sandbox_user
    FOR EACH ROW EXECUTE FUNCTION spell_sandbox_user();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON decision FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON decision FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE OR REPLACE TRIGGER notify_desk AFTER UPDATE OF ended_at ON dry_run FOR EACH ROW WHEN (NEW.ended_at IS NOT NULL)
    EXECUTE FUNCTION notify_desk();

CREATE OR REPLACE TRIGGER note_lost_role BEFORE UPDATE OF role, disabled_at, held_until ON operator FOR EACH ROW
    WHEN (NEW.role <> OLD.role OR NEW.disabled_at IS DISTINCT FROM OLD.disabled_at
          OR NEW.held_until > OLD.held_until OR NEW.held_until IS NOT NULL AND OLD.held_until IS NULL)
    EXECUTE FUNCTION note_lost_role();
CREATE OR REPLACE TRIGGER end_lost_approvals AFTER UPDATE ON operator FOR EACH ROW
    WHEN (NEW.lost_at IS DISTINCT FROM OLD.lost_at)
    EXECUTE FUNCTION end_lost_approvals();
CREATE OR REPLACE TRIGGER keep_operator_account AFTER INSERT OR UPDATE OF user_key ON operator FOR EACH ROW
    WHEN (NEW.user_key IS NOT NULL) EXECUTE FUNCTION keep_operator_account();
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON operator_event FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON operator_event FOR EACH STATEMENT EXECUTE FUNCTION append_only();

CREATE OR REPLACE TRIGGER clock_changed AFTER INSERT OR UPDATE OR DELETE ON desk_clock FOR EACH STATEMENT EXECUTE FUNCTION clock_changed();

CREATE OR REPLACE TRIGGER guard_first_state BEFORE INSERT ON ticket FOR EACH ROW
    WHEN (NEW.state <> 'new') EXECUTE FUNCTION guard_ticket_state();
CREATE OR REPLACE TRIGGER guard_state BEFORE UPDATE OF state ON ticket FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION guard_ticket_state();

CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON ticket_event FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE OR REPLACE TRIGGER no_truncate BEFORE TRUNCATE ON ticket_event FOR EACH STATEMENT EXECUTE FUNCTION append_only();
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
