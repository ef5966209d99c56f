#!/usr/bin/env bash
# Moves an app's database to another server: dump, restore, and the old place is closed.
#
#   deploy/move.sh FROM TO [SWITCH...]
#
# FROM, TO: connection strings of superusers, to the app's database and to a database of the same or another name that does not exist
# yet. SWITCH: what tells the processes of the new place, such as a command that writes the app's file; it runs once the data are there.
#
# From the first step to SWITCH no process and no host reaches the database: its name is taken away, so that every statement fails and is
# tried again. If a step fails before SWITCH, the old place is opened again.
set -euo pipefail

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 2 ] || usage
from=$1 to=$2
shift 2

say() { echo "move: $*" >&2; }
die() { say "$*"; exit 1; }
at() { psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --dbname="$1" --command="$2"; }

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

name=$(at "$from" 'SELECT current_database()')
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
moving="${name}_moved"
case $name$new$moving in *[!A-Za-z0-9_.-]*) die "the databases' names have other characters than letters, digits, _ . and -" ;; esac

# ---- Before anything is closed --------------------------------------------------------------------------------------

[ "$(at "$from_server" "SELECT count(*) FROM pg_database WHERE datname = '$moving'")" = 0 ] ||
    die "the old server has a database $moving already"
[ "$(at "$to_server" "SELECT count(*) FROM pg_database WHERE datname = '$new'")" = 0 ] ||
    die "the new server has a database $new already"
[ "$(at "$from_server" 'SELECT system_identifier FROM pg_control_system()')" != \
    "$(at "$to_server" 'SELECT system_identifier FROM pg_control_system()')" ] || [ "$name" != "$new" ] ||
    die "FROM and TO are one database"
# Roles belong to the server. Ours are made here; those of the host and its people are yours to make, with their passwords.
for role in $(at "$from" "
    SELECT DISTINCT r.rolname FROM pg_shdepend AS d JOIN pg_roles AS r ON r.oid = d.refobjid
     WHERE d.refclassid = 'pg_authid'::regclass AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
     UNION SELECT '$owner' ORDER BY 1"); do
    [ "$(at "$to_server" "SELECT count(*) FROM pg_roles WHERE rolname = '$role'")" = 0 ] || continue
    case $role in
    entitlement_sync_*) at "$to_server" "CREATE ROLE \"$role\" NOLOGIN" ;;
    *) die "the new server lacks the role $role, which owns or may use something here; create it first" ;;
    esac
done

# ---- The move -------------------------------------------------------------------------------------------------------

work=$(mktemp -d)
closed=no
restored=no
finish() {
    status=$?
    if [ "$status" != 0 ] && [ "$closed" = yes ] && [ "$restored" = no ]; then
        say "failed; the old place is opened again"
        at "$to_server" "DROP DATABASE IF EXISTS \"$new\" WITH (FORCE)" || true
        at "$from_server" "ALTER DATABASE \"$moving\" WITH ALLOW_CONNECTIONS true" || true
        at "$from_server" "ALTER DATABASE \"$moving\" RENAME TO \"$name\"" ||
            at "$from_server" "ALTER DATABASE \"$name\" WITH ALLOW_CONNECTIONS true" || true
    fi
    rm -rf "$work"
}
trap finish EXIT

started=$(date +%s)
say "closing $name"
closed=yes
at "$from_server" "ALTER DATABASE \"$name\" WITH ALLOW_CONNECTIONS false"
for _ in $(seq 50); do
    at "$from_server" "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '$name'" >"$work/ended"
    at "$from_server" "ALTER DATABASE \"$name\" RENAME TO \"$moving\"" 2>"$work/rename" && break
    sleep 0.1
done
[ "$(at "$from_server" "SELECT count(*) FROM pg_database WHERE datname = '$moving'")" = 1 ] || { cat "$work/rename" >&2; die "sessions stay in $name"; }
at "$from_server" "ALTER DATABASE \"$moving\" WITH ALLOW_CONNECTIONS true"

say "copying"
pg_dump --format=directory --jobs="${JOBS:-2}" --compress=0 --file="$work/dump" --dbname="$(in_database "$from" "$moving")"
at "$to_server" "CREATE DATABASE \"$new\" OWNER \"$owner\" TEMPLATE template0"
pg_restore --exit-on-error --jobs="${JOBS:-2}" --dbname="$to" "$work/dump"
at "$to" 'ANALYZE' &
analysis=$!

if [ $# -gt 0 ]; then
    say "switching"
    "$@"
fi
restored=yes
wait "$analysis"
# The old data stay, and no process finds them under the name that it knows.
at "$from_server" "ALTER DATABASE \"$moving\" WITH ALLOW_CONNECTIONS false"
say "moved in $(($(date +%s) - started)) s; the old data are $moving at the old server: drop them once all is well"
