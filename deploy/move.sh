#!/usr/bin/env bash
# Moves an app's database to another server: dump, restore, and the old place is closed.
#
#   deploy/move.sh FROM TO [SWITCH...]
#
# FROM, TO: connection strings of superusers, to the app's database and to a database of the same or another name that does not exist
# yet. SWITCH: what tells the processes of the new place, such as a command that writes the app's file; it runs once the data are there.
#
# From the first step to SWITCH no process and no host reaches the database: its name is taken away, so that every statement fails and is
# tried again. If a step fails before SWITCH, the new database is dropped and the old one is opened again under its name. Without SWITCH,
# or where it fails, the data are at the new place and both names are as they are: tell the processes and the host yourself.
#
# Needs psql, pg_dump and pg_restore of the newer server's version, and python3. JOBS (2): how many tables are copied at a time.
set -euo pipefail

usage() { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 2 ] || usage
from=$1 to=$2
shift 2

say() { echo "move: $*" >&2; }
die() { say "$*"; exit 1; }
at() { psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --dbname="$1" --command="$2"; }

# Which roles the users of our roles are in, as statements.
memberships() {
    at "$1" "
        SELECT format('GRANT %I TO %I;', g.rolname, m.rolname) FROM pg_auth_members AS a
          JOIN pg_roles AS g ON g.oid = a.roleid JOIN pg_roles AS m ON m.oid = a.member
         WHERE g.rolname LIKE 'entitlement\\_sync\\_%' AND m.rolcanlogin" | LC_ALL=C sort -u
}

# The same server, another database.
in_database() {
    case $1 in
    postgres://* | postgresql://*) python3 - "$1" "$2" <<'PY'
import sys
from urllib.parse import quote, urlsplit
parts = urlsplit(sys.argv[1])
print(parts._replace(path="/" + quote(sys.argv[2], safe="")).geturl())
PY
        ;;
    *) printf "%s dbname='%s'\n" "$1" "$2" ;;
    esac
}

name=$(at "$from" 'SELECT current_database()') ||
    die "FROM can't be reached; if a move was made before, its data are at the new place, and only SWITCH is left to run"
for server in "$from" "$(in_database "$to" postgres)"; do
    [ "$(at "$server" "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")" = t ] || die "FROM and TO have to be superusers'"
done
owner=$(at "$from" 'SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()')
from_server=$(in_database "$from" postgres)
to_server=$(in_database "$to" postgres)
new=$(python3 - "$to" <<'PY'
import re, sys
from urllib.parse import unquote, urlsplit
text = sys.argv[1]
if text.startswith(("postgres://", "postgresql://")):
    print(unquote(urlsplit(text).path.lstrip("/")))
else:
    found = re.findall(r"dbname\s*=\s*('(?:[^'\\]|\\.)*'|\S+)", text)
    print(found[-1].strip("'") if found else "")
PY
)
[ -n "$new" ] || die "TO: name the new database"
locale=$(at "$from" "
    SELECT format('ENCODING %L LC_COLLATE %L LC_CTYPE %L', pg_encoding_to_char(encoding), datcollate, datctype)
      FROM pg_database WHERE datname = current_database()")
old_name="${name}_moved"
case $name$new in *[!A-Za-z0-9_.-]*) die "the databases' names have other characters than letters, digits, _ . and -" ;; esac

# ---- Before anything is closed --------------------------------------------------------------------------------------

[ "$(at "$from_server" "SELECT count(*) FROM pg_database WHERE datname = '$old_name'")" = 0 ] ||
    die "the old server has a database $old_name already"
[ "$(at "$to_server" "SELECT count(*) FROM pg_database WHERE datname = '$new'")" = 0 ] ||
    die "the new server has a database $new already"
[ "$(at "$from_server" 'SELECT system_identifier FROM pg_control_system()')" != \
    "$(at "$to_server" 'SELECT system_identifier FROM pg_control_system()')" ] ||
    { [ "$new" != "$name" ] && [ "$new" != "$old_name" ]; } || die "FROM and TO are one database"
# Roles belong to the server. Ours are made here; those of the host and its people are yours to make, with their passwords.
# A user who may log in and is a member of one of them has to be there as well, or is locked out.
lacking=""
made=""
for role in $(at "$from" "
    WITH RECURSIVE used AS (
        SELECT d.refobjid AS oid FROM pg_shdepend AS d
         WHERE d.refclassid = 'pg_authid'::regclass AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
         UNION SELECT oid FROM pg_roles WHERE rolname = '$owner'
         UNION SELECT m.member FROM pg_auth_members AS m JOIN used AS u ON u.oid = m.roleid)
    SELECT r.rolname FROM used AS u JOIN pg_roles AS r ON r.oid = u.oid ORDER BY r.rolname"); do
    [ "$(at "$to_server" "SELECT count(*) FROM pg_roles WHERE rolname = '$role'")" = 0 ] || continue
    case $role in
    entitlement_sync_*) made+="CREATE ROLE \"$role\" NOLOGIN;" ;;
    *) lacking+="  CREATE ROLE \"$role\" LOGIN;"$'\n' ;;
    esac
done
[ -z "$lacking" ] || die "the new server lacks roles that own or may use objects of $name; run there first, with their passwords:
$lacking"
[ -z "$made" ] || at "$to_server" "$made"
lacking=$(comm -23 <(memberships "$from") <(memberships "$to_server"))
[ -z "$lacking" ] || die "the new server lacks memberships; run there first:
$lacking"

# ---- The move -------------------------------------------------------------------------------------------------------

work=$(mktemp -d)
closed=no
created=no
restored=no
switched=yes

# Gives a database another name, and ends all sessions in it; none begins meanwhile.
rename() {
    at "$from_server" "ALTER DATABASE \"$1\" WITH ALLOW_CONNECTIONS false"
    for _ in $(seq 50); do
        at "$from_server" "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '$1'" >"$work/ended"
        if at "$from_server" "ALTER DATABASE \"$1\" RENAME TO \"$2\"" 2>"$work/rename"; then
            at "$from_server" "ALTER DATABASE \"$2\" WITH ALLOW_CONNECTIONS true"
            return 0
        fi
        sleep 0.1
    done
    cat "$work/rename" >&2
    return 1
}

# Runs what takes long: a signal ends the wait for it at once.
child=""
following() {
    "$@" &
    child=$!
    wait "$child"
}

finish() {
    status=$?
    trap - EXIT
    [ -z "$child" ] || kill "$child" 2>"$work/kill" || true
    if [ "$status" != 0 ] && [ "$closed" = yes ] && [ "$restored" = no ]; then
        [ "$created" = no ] || at "$to_server" "DROP DATABASE \"$new\" WITH (FORCE)" || true
        present=$(at "$from_server" "SELECT datname FROM pg_database WHERE datname IN ('$name', '$old_name')" || true)
        if [ "$present" = "$name" ]; then
            at "$from_server" "ALTER DATABASE \"$name\" WITH ALLOW_CONNECTIONS true" && say "failed; the old place is open again"
        elif rename "$old_name" "$name"; then
            say "failed; the old place is open again"
        else
            say "failed, and the old place is closed: ALTER DATABASE \"$old_name\" RENAME TO \"$name\" opens it"
        fi
    fi
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

started=$(date +%s)
say "closing $name"
closed=yes
rename "$name" "$old_name" || die "sessions stay in $name"

say "copying"
following pg_dump --format=directory --jobs="${JOBS:-2}" --compress=0 --file="$work/dump" --dbname="$(in_database "$from" "$old_name")"
at "$to_server" "CREATE DATABASE \"$new\" OWNER \"$owner\" TEMPLATE template0 $locale"
created=yes
following pg_restore --exit-on-error --jobs="${JOBS:-2}" --dbname="$to" "$work/dump"
at "$to" 'ANALYZE' &
analysis=$!

restored=yes
if [ $# -gt 0 ]; then
    say "switching"
    "$@" || switched=no
fi
wait "$analysis"
# The old data stay, and no process finds them under the name that it knows.
at "$from_server" "ALTER DATABASE \"$old_name\" WITH ALLOW_CONNECTIONS false"
[ "$switched" = yes ] || die "the data are at the new place, but SWITCH failed: run it again by itself. To go back instead, drop $new there and run
  ALTER DATABASE \"$old_name\" WITH ALLOW_CONNECTIONS true; ALTER DATABASE \"$old_name\" RENAME TO \"$name\"; at the old server"
say "moved in $(($(date +%s) - started)) s; the old data are $old_name at the old server: drop them once all is well"
