"""The database's own roles: what the desk lets each operator do, and what no login of ours may."""

import os
from contextlib import contextmanager

import access
from target import DATABASE, Category, number, psql, rows, states

ROLES = ("client", "worker", "api", "support", "auditor")
# What an operator's role may do, independently of what the database has on record.
DUTIES = {
    "view": "viewer agent approver senior auditor admin", "reveal": "agent approver senior auditor",
    "audit": "auditor admin", "open": "agent approver senior",
    "work": "agent approver senior", "refuse": "agent approver senior", "give_access": "agent approver senior",
    "restore": "agent approver senior",
    "approve": "approver senior", "transfer": "approver senior", "override": "senior", "retry": "senior admin",
    "manage": "admin",
}
# The duty that each function of the desk asks for.
FUNCTIONS = {
    "view": "desk_causes desk_counts desk_dead desk_dead_errors desk_figures desk_me desk_queue desk_search desk_timeline desk_user"
    " allow_terminal end_other_sessions linked_tickets list_tickets terminal_asking"
    " own_sessions show_ticket ticket_named ticket_replies ticket_tokens ticket_waiver ticket_window",
    "reveal": "reveal_list reveal_ticket reveal_user", "audit": "desk_log operators", "open": "note_order open_ticket",
    "work": "ask_claimant assign_ticket note_ticket refresh_evidence unassign_ticket", "refuse": "refuse_ticket",
    "give_access": "give_temporary_access",
    "restore": "desk_dry_run desk_restore", "approve": "approve_ticket withdraw_approval",
    "transfer": "begin_transfer resolve_transfer retry_tokens",
    "override": "waive_owner_window", "retry": "desk_retry desk_retry_all",
    "manage": "add_operator confirm_operator disable_operator identify_operator link_operator mark_break_glass reset_operator",
}
# What asks for no duty: who a session is, that it has ended, that one was refused, and signing in.
DUTYLESS = {"acting", "ask_terminal", "desk_alive", "note_refusal", "session_name", "sign_in", "sign_out"}
WEIGHTY = ("refuse", "give_access", "approve", "transfer", "override", "manage")


@contextmanager
def logins(roles=ROLES):
    """Logins of this run's own, each with one of the roles alone; answers how to reach the database as each."""
    names = {role: f"attempt_{os.getpid()}_{role}" for role in roles}
    drop = "".join(f"DROP OWNED BY {name}; DROP ROLE {name};\n" for name in names.values())
    options = "LOGIN PASSWORD 'attempts' IN ROLE entitlement_sync_"
    _, err = psql("".join(f"CREATE ROLE {name} {options}{role};\n" for role, name in names.items()))
    try:
        if "ERROR" in err:
            raise RuntimeError(err)
        yield {role: f"{DATABASE} user='{name}' password='attempts'" for role, name in names.items()}
    finally:
        psql(drop)


def session(name):
    """What a function is given as a session: its digest is what the database keeps."""
    return f"sha256('{name}')"


def call(function, types, who, reveal=False):
    """A call with nothing but the session; the role is checked before anything that is asked for."""
    rest = [
        f"reveal => {str(reveal).lower()}" if name == "reveal" else f"{name} => NULL::{kind}"
        for name, kind in types
        if name != "session"
    ]
    return f"SELECT entitlement_sync.{function}({', '.join([f'session => {who}', *rest])})"


def operators():
    category = Category("what each role may at the desk")
    access.case(category)
    found = rows(
        "SELECT p.proname || '|' || coalesce((SELECT string_agg(a.name || ' ' || format_type(a.kind, NULL), ','"
        " ORDER BY a.place)"
        " FROM unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]),"
        " coalesce(p.proargmodes, array_fill('i'::\"char\", ARRAY[p.pronargs])))"
        " WITH ORDINALITY AS a(name, kind, mode, place) WHERE a.mode = 'i'), '') FROM pg_proc AS p"
        " WHERE p.pronamespace = 'entitlement_sync'::regnamespace AND 'session' = ANY (p.proargnames)"
        " AND has_function_privilege('entitlement_sync_support', p.oid, 'EXECUTE') ORDER BY 1"
    )
    functions = {
        name: [tuple(part.split(" ", 1)) for part in types.split(",")] for name,
        types in (line.split("|") for line in found)
    }
    duty_of = {function: duty for duty, names in FUNCTIONS.items() for function in names.split()}
    unknown = set(functions) ^ (set(duty_of) | DUTYLESS)
    category.control(
        "each function of the desk has its duty in the script, and no others are there", not unknown, unknown
    )
    names = [f"try-{os.getpid()}-{role}" for role in (*DUTIES["view"].split(), "held", "gone", "late")]
    role_of = {name: name.rsplit("-", 1)[1] for name in names}
    script = "SET search_path = entitlement_sync, public;\n"
    for name, role in role_of.items():
        kind = {"held": "senior", "gone": "senior", "late": "senior"}.get(role, role)
        script += f"INSERT INTO operator (name, role) VALUES ('{name}', '{kind}');\n"
        script += (
            "INSERT INTO operator_session (digest, operator_id, kind)"
            f" SELECT sha256(sha256('{name}')), id, 'terminal' FROM operator WHERE name = '{name}';\n"
        )
    prefix = f"try-{os.getpid()}"
    script += f"""
        UPDATE operator SET held_until = 'infinity' WHERE name = '{prefix}-held';
        UPDATE operator SET disabled_at = now() WHERE name = '{prefix}-gone';
        UPDATE operator_session SET started_at = now() - interval '13 hours'
         WHERE digest = sha256(sha256('{prefix}-late'));
    """
    _, err = psql(script)
    category.control("operators of every role", "ERROR" not in err, err)
    # Each with what has to come of it: True where the role may, False where not, None without a session that holds.
    calls = []
    for function, duty in duty_of.items():
        reveals = (False, True) if any(name == "reveal" for name, _ in functions[function]) else (False,)
        for reveal in reveals:
            wanted = "reveal" if reveal else duty
            label = f"{function}{' with reveal' if reveal else ''}"
            for name, role in role_of.items():
                may = role in DUTIES[wanted].split() if role not in ("held", "gone", "late") else None
                if role == "held":
                    may = "senior" in DUTIES[wanted].split() and wanted not in WEIGHTY
                calls.append((f"{label} by {role}", call(function, functions[function], session(name), reveal), may))
            for who, text in {
                "a session that is made up": session("made up"), "no session": "NULL::bytea",
                "an empty session": "'\\x'::bytea",
                "what the database keeps of a session": f"sha256(sha256('{prefix}-senior'))",
            }.items():
                calls.append((f"{label} by {who}", call(function, functions[function], text, reveal), None))
    with logins(["support"]) as urls:
        results = states([statement for _, statement, _ in calls], urls["support"])
    for (name, _, may), (state, message) in zip(calls, results):
        is_refused = state == "ES009" and (
            "may not do this" in message or "signed in" in message or "was added or reset" in message
        )
        if may:
            category.control(
                f"{name}, whose role may", not is_refused and state[:2] not in ("42", "XX"), f"{state} {message}"
            )
        else:
            category.note(name, not is_refused, f"{state} {message}")
    psql(
        "DELETE FROM entitlement_sync.operator_session"
        f" WHERE operator_id IN (SELECT id FROM entitlement_sync.operator WHERE name LIKE '{prefix}-%')"
    )
    rows(f"UPDATE entitlement_sync.operator SET disabled_at = now(), held_until = NULL WHERE name LIKE '{prefix}-%'")
    return category


# ---- SQL ------------------------------------------------------------------------------------------------------------

S = "entitlement_sync"
# What none of these roles may.
FORBIDDEN = [
    # The host's tables are reached by the adapter alone.
    "SELECT * FROM public.users", "SELECT count(*) FROM public.assets", "UPDATE public.users SET type = 'subscriber'",
    "INSERT INTO public.users (id) VALUES ('x')",
    "DELETE FROM public.users", "TRUNCATE public.users CASCADE", "UPDATE public.assets SET frozen_at = NULL",
    "INSERT INTO public.assets (user_id) VALUES ('ann')",
    "DELETE FROM public.assets", "LOCK TABLE public.users IN ACCESS EXCLUSIVE MODE",
    "ALTER TABLE public.users ADD COLUMN x text", "DROP TABLE public.assets",
    "CREATE INDEX ON public.users (type)",
    "CREATE TRIGGER x BEFORE UPDATE ON public.users FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE RULE x AS ON UPDATE TO public.users DO INSTEAD NOTHING", "ALTER TABLE public.users OWNER TO CURRENT_USER",
    "GRANT ALL ON public.users TO CURRENT_USER",
    # Signing in.
    f"SELECT * FROM {S}.operator_secret", f"SELECT * FROM {S}.operator_session", f"SELECT * FROM {S}.sign_in_attempt",
    f"SELECT * FROM {S}.known_client", f"SELECT * FROM {S}.terminal_request", f"SELECT * FROM {S}.operator_identity",
    f"INSERT INTO {S}.operator_identity SELECT id, 'x', 'x' FROM {S}.operator LIMIT 1", f"DELETE FROM {S}.operator_ban",
    f"DELETE FROM {S}.sign_in_provider", f"SELECT {S}.use_provider('x')", f"SELECT {S}.leave_provider()",
    f"SELECT {S}.provider_sign_in('x', 'x', '{{x}}', 'admin', '0', sha256('x'), '1 hour')",
    f"SELECT * FROM {S}.desk_secret", f"UPDATE {S}.operator_secret SET verifier = '\\x00'",
    f"DELETE FROM {S}.sign_in_attempt", f"DELETE FROM {S}.sign_in_refusal",
    f"UPDATE {S}.operator_session SET proved_at = now()",
    f"INSERT INTO {S}.operator_session (digest, operator_id, kind) SELECT sha256('x'), 1, 'console'",
    f"UPDATE {S}.operator SET role = 'admin'",
    f"UPDATE {S}.operator SET held_until = NULL", f"INSERT INTO {S}.operator (name, role) VALUES ('x', 'admin')",
    f"DELETE FROM {S}.operator",
    f"INSERT INTO {S}.operator_permission (duty, role) VALUES ('manage', 'viewer')", f"UPDATE {S}.desk_setting SET value = 1",
    f"DELETE FROM {S}.operator_account",
    # Evidence, approvals, transfers.
    f"INSERT INTO {S}.ticket_approval OVERRIDING USER VALUE SELECT * FROM {S}.ticket_approval",
    f"UPDATE {S}.ticket_approval SET ended_at = NULL", f"DELETE FROM {S}.ticket_approval",
    f"UPDATE {S}.ticket_evidence SET hash = '\\x00'", f"DELETE FROM {S}.ticket_evidence",
    f"UPDATE {S}.ticket SET assignee_id = 1",
    f"INSERT INTO {S}.owner_waiver (ticket_id, operator_id, hash) SELECT t.id, 1, sha256('x') FROM {S}.ticket AS t", f"UPDATE {S}.ticket SET evidence_id = NULL",
    f"DELETE FROM {S}.ticket", f"TRUNCATE {S}.ticket CASCADE",
    f"UPDATE {S}.transfer SET step = 'done'", f"DELETE FROM {S}.transfer",
    f"INSERT INTO {S}.transfer_step OVERRIDING USER VALUE SELECT * FROM {S}.transfer_step",
    f"INSERT INTO {S}.ticket_event (ticket_id, kind, operator_id) SELECT t.id, 'approved', 1 FROM {S}.ticket AS t",
    f"INSERT INTO {S}.grant_approval SELECT * FROM {S}.grant_approval", f"UPDATE {S}.ticket_note SET words = 'x'",
    f"UPDATE {S}.ticket_reply SET words = 'x'",
    f"INSERT INTO {S}.purchase_consent (owner_key, reference) VALUES (1, 'R-0000-00')",
    f"UPDATE {S}.chargeback SET lifted_at = now()",
    # What may only be added to.
    f"UPDATE {S}.decision SET rule = 'x'", f"DELETE FROM {S}.decision", f"TRUNCATE {S}.decision CASCADE",
    f"UPDATE {S}.ticket_event SET kind = 'x'",
    f"DELETE FROM {S}.ticket_event", f"TRUNCATE {S}.ticket_event", f"UPDATE {S}.operator_event SET kind = 'x'",
    f"DELETE FROM {S}.operator_event",
    f"TRUNCATE {S}.operator_event", f"UPDATE {S}.observation SET source = 'x'", f"DELETE FROM {S}.observation",
    f"DELETE FROM {S}.asset_batch", f"DELETE FROM {S}.ticket_reveal",
    f"UPDATE {S}.schema_release SET compatible_from = 99", f"DELETE FROM {S}.schema_release",
    f"DELETE FROM {S}.schema_migration", f"DELETE FROM {S}.schema_object",
    f"UPDATE {S}.role_privilege SET role = 'public'", f"DELETE FROM {S}.user_reveal",
    f"ALTER TABLE {S}.decision DISABLE TRIGGER ALL", f"DROP TRIGGER append_only ON {S}.decision",
    f"ALTER TABLE {S}.operator_event DISABLE TRIGGER append_only",
    "SET session_replication_role = replica", "SELECT set_config('session_replication_role', 'replica', false)",
    # Other roles and the schema itself.
    "SET ROLE postgres", "SET SESSION AUTHORIZATION postgres", "SELECT set_config('role', 'postgres', false)",
    "ALTER ROLE CURRENT_USER SUPERUSER",
    "ALTER ROLE CURRENT_USER CREATEROLE", "ALTER ROLE CURRENT_USER BYPASSRLS", "CREATE ROLE attempt_other",
    "ALTER ROLE entitlement_sync_client LOGIN",
    "GRANT pg_execute_server_program TO CURRENT_USER", "GRANT pg_read_server_files TO CURRENT_USER",
    f"ALTER DEFAULT PRIVILEGES FOR ROLE postgres IN SCHEMA {S} GRANT ALL ON TABLES TO PUBLIC",
    f"CREATE TABLE {S}.x (a integer)", f"CREATE FUNCTION {S}.x() RETURNS integer LANGUAGE sql RETURN 1",
    "CREATE TABLE public.x (a integer)", "CREATE SCHEMA x",
    f"DROP SCHEMA {S} CASCADE", f"ALTER SCHEMA {S} OWNER TO CURRENT_USER",
    f"ALTER TABLE {S}.operator OWNER TO CURRENT_USER", f"ALTER FUNCTION {S}.check_isolation() OWNER TO CURRENT_USER",
    f"CREATE OR REPLACE FUNCTION {S}.check_isolation() RETURNS void LANGUAGE sql AS ''",
    f"DROP FUNCTION {S}.check_isolation()", f"DROP TABLE {S}.alarm", f"CREATE VIEW {S}.x AS SELECT 1",
    f"ALTER TABLE {S}.product ADD COLUMN x text", f"CREATE INDEX ON {S}.operator (role)",
    "CREATE EVENT TRIGGER x ON ddl_command_end EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
    # The server.
    "COPY (SELECT 1) TO PROGRAM 'true'", "CREATE TEMPORARY TABLE t (a text) \\; COPY t FROM PROGRAM 'echo x'",
    "CREATE TEMPORARY TABLE t (a text) \\; COPY t FROM '/etc/passwd'",
    "DO $$ BEGIN EXECUTE 'COPY (SELECT 1) TO PROGRAM ''true'''; END $$", "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')", "SELECT pg_stat_file('/etc/passwd')", "SELECT lo_import('/etc/passwd')",
    "SELECT * FROM pg_authid", "SELECT * FROM pg_shadow",
    "SELECT * FROM pg_user_mapping", "SELECT pg_current_logfile()", "SELECT pg_ls_logdir()",
    "SELECT * FROM pg_hba_file_rules", "SELECT * FROM pg_file_settings",
    "SET log_statement = 'none'", "SET log_min_messages = 'panic'", "SET lc_messages = 'C'",
    "CREATE EXTENSION file_fdw", "CREATE EXTENSION dblink", "CREATE EXTENSION postgres_fdw",
    "ALTER LANGUAGE plpgsql OWNER TO CURRENT_USER", "CREATE PUBLICATION x FOR ALL TABLES",
    "CREATE FOREIGN DATA WRAPPER x", "SELECT pg_create_restore_point('x')", "LOAD '/tmp/x.so'",
    "CREATE FUNCTION pg_temp.x() RETURNS integer LANGUAGE c AS '/tmp/x.so', 'x'",
    "CREATE FUNCTION pg_temp.x() RETURNS integer LANGUAGE internal AS 'pg_backend_pid'",
    "SELECT pg_replication_origin_create('x')", "CREATE CAST (text AS integer) WITHOUT FUNCTION",
    # Functions that only the owner calls, and sessions that are none.
    f"SELECT {S}.revoke_privilege('entitlement_sync_worker', 'table', 'queue', '', 'SELECT')",
    f"SELECT {S}.apply_privileges('{{\"(entitlement_sync_client,table,operator_secret,\\\"\\\",SELECT)\"}}')",
    f"SELECT {S}.apply_privileges()",
    f"SELECT {S}.acting(sha256('x'), 'manage')", f"SELECT {S}.desk_me(NULL)",
    f"SELECT {S}.confirm_operator(NULL, 'root')", f"SELECT {S}.disable_operator(sha256('x'), 'root')",
    f"SELECT {S}.add_operator(NULL, 'x', 'senior', NULL, NULL, NULL, NULL)",
    f"SELECT {S}.approve_ticket(sha256('x'), 1, '\\x00', '{{}}')", f"SELECT {S}.begin_transfer(NULL, 1)",
    f"SELECT {S}.reveal_user(sha256('x'), 1)", f"SELECT {S}.operators(NULL)",
    # Tables of our names, before ours in the path.
    "CREATE TEMPORARY TABLE operator_session (digest bytea, operator_id bigint, kind text, started_at timestamptz,"
    " proved_at timestamptz, seen_at timestamptz) \\;"
    f" INSERT INTO operator_session SELECT sha256('x'), 1, 'console', now(), now(), now() \\; SELECT {S}.desk_me('x')",
    "CREATE TEMPORARY TABLE operator_permission (duty text, role text) \\; INSERT INTO operator_permission VALUES ('manage', 'viewer') \\;"
    f" SELECT {S}.operators('x')",
    f"SET LOCAL search_path = pg_temp, {S} \\; CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql"
    f" AS $$SELECT digest FROM {S}.operator_session LIMIT 1$$ \\; SELECT {S}.desk_me('x')",
]
# What one role or another may, and the others not.
ONLY = {
    f"SELECT count(*) FROM {S}.job_status": "client worker auditor",
    f"SELECT count(*) FROM {S}.ticket_status": "client worker auditor",
    f"SELECT {S}.request_restore('ann')": "client worker",
    f"SELECT count(*) FROM {S}.purchase_identifier_log": "auditor", f"SELECT count(*) FROM {S}.job_request": "worker",
    f"SELECT count(*) FROM {S}.idempotency": "worker", f"SELECT token FROM {S}.acknowledgement": "worker",
    f"SELECT lookup_id FROM {S}.purchase": "worker",
    f"SELECT value FROM {S}.purchase_identifier": "worker", f"SELECT count(*) FROM {S}.inbox_body": "worker",
    f"SELECT count(*) FROM {S}.operator_event": "auditor",
    f"SELECT words FROM {S}.ticket_reply": "auditor", f"UPDATE {S}.product SET grants_access = true": "client",
    f"INSERT INTO {S}.sandbox_user VALUES ('x', now())": "client",
    f"INSERT INTO {S}.\"grant\" (user_key, until, reason) SELECT user_key, now(), 'x'"
    f" FROM {S}.user_sync LIMIT 1": "worker",
    f"UPDATE {S}.purchase SET owner_key = 1": "worker",
    f"DELETE FROM {S}.inbox": "worker", f"UPDATE {S}.ticket SET owner_key = owner_key": "worker",
    f"DELETE FROM {S}.control": "worker", f"DELETE FROM {S}.queue": "worker", f"SELECT {S}.erase_user('x')": "worker",
    f"SELECT {S}.user_key_of('ann')": "worker", f"SELECT {S}_host.set_type(ARRAY['ann'], 'subscriber')": "worker",
    f"SELECT * FROM {S}_host.read_users(ARRAY['ann'])": "worker",
    f"SELECT {S}.take_requests('x', 1, 1)": "worker api", f"SELECT {S}.ticket_answers('claimant')": "worker api",
    f"SELECT {S}.consent_to_transfer('ann', 'R-0000-00')": "worker api",
    f"SELECT {S}.entitlement_answer('ann')": "worker api", f"SELECT {S}.announce_sign_in('x', NULL, NULL, NULL, NULL)": "support",
    f"SELECT {S}.sign_in_salt('root', NULL, NULL, NULL)": "support",
    "SET ROLE entitlement_sync_worker": "worker", "SET ROLE entitlement_sync_support": "support",
}
# A statement that is broken is refused for that: these say so, to the owner as well.
BROKEN = ("42601", "42P01", "42883", "42703", "3F000", "42P02", "42725", "42809", "42804")


def run():
    category = Category("SQL by each database role")
    # The owner may all of it, or is refused for another reason than a name that is not there.
    # Whole schemas are not dropped under a server that works, not even for a moment.
    every = [statement for statement in FORBIDDEN + list(ONLY) if not statement.startswith("DROP SCHEMA")]
    found = zip(every, states(every, DATABASE, "SET lock_timeout = '2s';\n"))
    broken = [f"{statement}: {state} {message}" for statement, (state, message) in found if state in BROKEN]
    category.control("statements that name what is there", not broken, broken)
    before = number("SELECT count(*) FROM entitlement_sync.operator_event")
    ours = "p.pronamespace IN ('entitlement_sync'::regnamespace, 'entitlement_sync_host'::regnamespace)"
    with logins() as urls:
        for role, url in urls.items():
            for statement, (state, message) in zip(FORBIDDEN, states(FORBIDDEN, url)):
                # Sessions that are none are refused by the desk's functions, everything else by the server.
                category.note(f"{role}: {statement}", state not in ("42501", "ES009"), f"{state} {message}")
            for (statement, may), (state, message) in zip(ONLY.items(), states(list(ONLY), url)):
                if role in may.split():
                    category.control(f"{role} may {statement}", state not in ("42501", *BROKEN), f"{state} {message}")
                else:
                    category.note(f"{role}: {statement}", state != "42501", f"{state} {message}")
        public = rows(
            "SELECT p.oid::regprocedure || CASE WHEN p.prosecdef THEN ' as its owner' ELSE '' END FROM pg_proc AS p"
            f" WHERE {ours} AND EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
            " WHERE a.grantee = 0)"
        )
        harmless = "" if any("owner" in one for one in public) else "it runs with the caller's own rights"
        category.note("functions that everybody may call", public != [], public, harmless)
        loose = rows(
            f"SELECT p.oid::regprocedure FROM pg_proc AS p WHERE {ours}"
            " AND p.prosecdef AND NOT EXISTS (SELECT 1 FROM unnest(p.proconfig) AS c"
            " WHERE c LIKE 'search_path=%pg_temp')"
        )
        category.note("functions of the owner's whose path others choose", loose != [], loose)
    after = number("SELECT count(*) FROM entitlement_sync.operator_event")
    category.note("nothing was left behind", after != before, f"{after - before} events")
    return category
