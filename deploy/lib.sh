# shellcheck shell=bash
# Functions that the scripts beside this file share: messages, packages, processes, a private PostgreSQL.
# Source it; it sets the shell's options and its traps.

set -euo pipefail

# The user's own database settings must not reach what is started here, nor the other way round.
unset "${!PG@}"

# ---- Messages -------------------------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }

warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# usage: prints the comment at the head of the script.
script=$(realpath "$0")
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$script"; }

# fail MESSAGE [STATUS]: says why and ends the script.
fail() {
    warn "$1"
    exit "${2:-1}"
}

# ---- The end --------------------------------------------------------------------------------------------------------

exit_steps=()

# at_exit COMMAND [ARGUMENT]...: remembers a step; steps run last to first, however the script ends, and after the
# command that `run` was waiting for.
at_exit() {
    local step
    printf -v step '%q ' "$@"
    exit_steps+=("$step")
}

run_exit_steps() {
    local status=$? index
    # A second Ctrl-C, or a closed pipe, must not leave half of it behind; every step below is bounded in time.
    trap - EXIT
    trap '' HUP INT PIPE TERM
    stop_running || true
    for ((index = ${#exit_steps[@]} - 1; index >= 0; index--)); do
        eval "${exit_steps[index]}" || true
    done
    exit "$status"
}

trap run_exit_steps EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

# ---- Processes ------------------------------------------------------------------------------------------------------

# Every process started below inherits this mark, so that the strays of strays are found too.
export ENTITLEMENT_SYNC_RUN="$$-${RANDOM}${RANDOM}"

# What a background process hears when this script dies without having stopped it; `clear`: nothing, it lives on.
death_signal=TERM

# spawn LOG COMMAND [ARGUMENT]...: starts a command in a session of its own, away from the terminal's Ctrl-C, and sets
# spawned_pid. Its output goes to the file LOG.
spawn() {
    local log=$1
    shift
    # The shell starts background commands with SIGINT ignored; programs that stop on it want the default back.
    setsid env --default-signal=INT,QUIT setpriv --pdeathsig "$death_signal" -- "$@" </dev/null >>"$log" 2>&1 &
    spawned_pid=$!
    disown "$spawned_pid"
}

# run COMMAND [ARGUMENT]...: runs a command to its end and returns its status. A signal to this script ends the command
# and its children at once, instead of being heard only after a long build.
run() {
    local status=0
    setsid env --default-signal=INT,QUIT setpriv --pdeathsig TERM -- "$@" </dev/null &
    running_pid=$!
    last_session=$running_pid
    wait "$running_pid" || status=$?
    running_pid=
    return "$status"
}

running_pid=
last_session=
# SIGINT first, as from a terminal: `swift test` hands it on to the tests, which SIGTERM would leave behind.
stop_running() {
    [[ -z $running_pid ]] || stop_group "$running_pid" 10 INT TERM
}

# stop_session: ends what is left of the session that `run` began last. A build's compilers have process groups of their
# own in it, and nothing to tidy up.
stop_session() {
    local stat
    for stat in /proc/[0-9]*/stat; do
        ! awk -v session="$last_session" '{ sub(/.*\) /, ""); exit $4 != session }' "$stat" 2>/dev/null ||
            kill -s KILL -- "$(basename "${stat%/stat}")" 2>/dev/null || true
    done
}

is_alive() { kill -0 -- "$1" 2>/dev/null; }

# wait_gone TARGET SECONDS: whether a process (or -GROUP) ended in time.
wait_gone() {
    local left=$(($2 * 20))
    while is_alive "$1"; do
        ((left-- > 0)) || return 1
        sleep 0.05
    done
}

# stop_process PID SECONDS SIGNAL...: sends each signal in turn with SECONDS to obey, then SIGKILL.
stop_process() {
    local target=$1 seconds=$2 signal
    shift 2
    for signal in "$@" KILL; do
        is_alive "$target" || return 0
        kill -s "$signal" -- "$target" 2>/dev/null || return 0
        wait_gone "$target" "$seconds" && return 0
    done
}

# stop_group PID SECONDS SIGNAL...: the same for a spawned command with all its children.
stop_group() { stop_process "-$1" "${@:2}"; }

# stop_strays SIGNAL...: ends the processes that were started under this mark and still run, whichever their parents are
# now; each signal has five seconds to work. 0 ends no process: it gives those that tidy up two seconds to do so.
stop_strays() {
    local signal deadline sent
    local -a strays
    for signal in "$@" KILL; do
        sent=
        deadline=$((SECONDS + 5))
        [[ $signal != 0 ]] || deadline=$((SECONDS + 2))
        while :; do
            # The process that searches must not find itself.
            mapfile -t strays < <(
                env -u ENTITLEMENT_SYNC_RUN grep -lsz "^ENTITLEMENT_SYNC_RUN=$ENTITLEMENT_SYNC_RUN\$" /proc/[0-9]*/environ
            )
            ((${#strays[@]})) || return 0
            strays=("${strays[@]#/proc/}")
            [[ $sent ]] || kill -s "$signal" "${strays[@]%/environ}" 2>/dev/null || true
            sent=1
            # By the clock: on a busy machine a search takes longer than the rest between two.
            ((SECONDS < deadline)) || break
            sleep 0.05
        done
    done
}

# free_port: prints a loopback port without a listener. Another process may still take it first: the caller tries again.
free_port() {
    local port
    while :; do
        # Below the range from which the kernel takes the local ends of connections.
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    printf '%s\n' "$port"
}

# is_listening PORT
is_listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# ---- Packages -------------------------------------------------------------------------------------------------------

# What each thing that may be missing is called in Debian; more than one package, where it takes more.
declare -A package_of=(
    [postgres]=postgresql
    [libpq]=libpq-dev
    [libcurl]=libcurl4-openssl-dev
    [pkg-config]=pkg-config
    [curl]=curl
    [openssl]=openssl
    [python3]=python3
    [venv]=python3-venv
    [pgbouncer]=pgbouncer
    [patroni]='patroni python3-etcd'
    [etcd]=etcd-server
    [iptables]=iptables
    [promtool]=prometheus
    [nginx]=nginx-light
    [glewlwyd]='glewlwyd dbconfig-sqlite3'
    [caddy]=caddy
    [docker-compose]=docker-compose
    [yaml]=python3-yaml
    [tsc]=node-typescript
    [java]=default-jre-headless
    [android-json]=libandroid-json-java
    [chromium]='chromium chromium-driver'
)

is_present() {
    case $1 in
        postgres) find_postgres ;;
        # Debian keeps it in /usr/sbin, which is in the PATH of administrators alone.
        pgbouncer | nginx | iptables) command -v "$1" >/dev/null || [[ -x /usr/sbin/$1 ]] ;;
        chromium) command -v chromium >/dev/null && command -v chromedriver >/dev/null ;;
        android-json) [[ -f /usr/share/java/com.android.json.jar ]] ;;
        yaml) /usr/bin/python3 -c 'import yaml' 2>/dev/null ;;
        venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
        libpq | libcurl) command -v pkg-config >/dev/null && pkg-config --exists "$1" ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

# install_missing THING...: installs the Debian packages of those things (keys of package_of) that are not there.
install_missing() {
    local thing
    local -a packages=() as_root=() names
    for thing in "$@"; do
        if is_present "$thing"; then continue; fi
        read -r -a names <<<"${package_of[$thing]}"
        packages+=("${names[@]}")
    done
    ((${#packages[@]})) || return 0
    local advice="install them first: apt-get install ${packages[*]}"
    command -v apt-get >/dev/null || fail "missing (by Debian's names): ${packages[*]}, and there is no apt-get"
    if ((EUID != 0)); then
        command -v sudo >/dev/null || fail "missing packages, and neither root nor sudo is at hand; $advice"
        if ! sudo -n true 2>/dev/null; then
            [[ -t 0 && -t 2 ]] || fail "missing packages, and sudo asks for a password; $advice"
        fi
        as_root=(sudo)
    fi
    say "installing ${packages[*]}"
    local log
    log=$(mktemp)
    at_exit rm -f "$log"
    apt() {
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" \
            </dev/null >"$log" 2>&1
    }
    # A machine that had no PostgreSQL gets its programs, but no cluster: nothing of the system's is created or started.
    local setting=/etc/postgresql-common/createcluster.d/entitlement-sync.conf
    if [[ " ${packages[*]} " == *" postgresql "* ]]; then
        "${as_root[@]}" mkdir -p "${setting%/*}"
        "${as_root[@]}" tee "$setting" >/dev/null <<<'create_main_cluster = false'
        at_exit "${as_root[@]}" rm -f "$setting"
    fi
    # These packages would start a service; only a program of theirs is wanted.
    local policy=/usr/sbin/policy-rc.d service
    local -a quiet=() services=()
    for service in pgbouncer patroni etcd-server prometheus nginx-light caddy glewlwyd; do
        [[ " ${packages[*]} " != *" $service "* ]] || services+=("$service")
    done
    if ((${#services[@]})) && [[ ! -e $policy ]]; then
        quiet=("$policy")
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        at_exit "${as_root[@]}" rm -f "$policy"
    fi
    if ! apt update || ! apt install --no-install-recommends -y "${packages[@]}"; then
        tail -n 15 "$log" >&2
        fail "apt-get could not install them; $advice"
    fi
    "${as_root[@]}" rm -f "$setting" "${quiet[@]}"
    for service in "${services[@]}"; do
        service=${service%-light}
        "${as_root[@]}" update-rc.d "${service%-server}" disable >/dev/null 2>&1 || true
    done
    # `--keep` forgets the steps of the end.
    rm -f "$log"
    for thing in "$@"; do
        is_present "$thing" || fail "installed: ${package_of[$thing]}, but $thing is still not to be found"
    done
}

# require_swift: the toolchain is the one thing that no package brings.
require_swift() {
    command -v swift >/dev/null || fail "swift is not on the PATH; install Swift 6.3: https://www.swift.org/install/" 69
}

# What quickstart.sh and test.sh build alike, so that the one uses what the other has built. What is built here is neither
# debugged nor opened in an editor: without debug information and an index it takes a third less time. The C is that of
# cryptography: optimised, it takes no longer to build, and tests spend a tenth of the time in it.
build_flags=(-debug-info-format none --disable-index-store -Xcc -O2)

# show_steps LOG: shows the last step in a build's log and the time so far, as one line on a terminal, else as a line every 15 s.
# It goes on until it is killed.
show_steps() {
    local started=$SECONDS shown=0 passed step
    while sleep 1; do
        step=$(grep -aoE '^\[[0-9]+/[0-9]+\]' "$1" | tail -n 1 | tr -d '[]') || true
        passed=$((SECONDS - started))
        if [[ -z $step ]]; then continue; fi
        step="step ${step%/*} of ${step#*/}, $((passed / 60)) min $((passed % 60)) s"
        if [[ -t 1 ]]; then
            printf '\r  %s\e[K' "$step"
        elif ((passed >= shown + 15)); then
            shown=$passed
            say "  $step"
        fi
    done
}

# use_build_folder: keeps what a build writes beside its products in .build and not in /tmp, where the locks and folders
# that Swift leaves would stop the builds of another user.
use_build_folder() {
    outer_tmpdir=${TMPDIR-}
    mkdir -p .build/tmp
    export TMPDIR=$PWD/.build/tmp
    at_exit rm -rf "$TMPDIR"
}

# leave_build_folder: what follows writes where it did before.
leave_build_folder() {
    rm -rf "$PWD/.build/tmp"
    if [[ -n $outer_tmpdir ]]; then export TMPDIR=$outer_tmpdir; else unset TMPDIR; fi
}

# ---- A private PostgreSQL -------------------------------------------------------------------------------------------

postgres_bin=

# find_postgres: sets postgres_bin to the newest server's programs (15 or later); false where there is none.
find_postgres() {
    local folder version best=14
    for folder in /usr/lib/postgresql/*/bin "$(dirname "$(command -v postgres || echo /none)")"; do
        [[ -x $folder/postgres && -x $folder/initdb && -x $folder/psql ]] || continue
        version=$("$folder/postgres" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
        if ((version > best)); then
            best=$version
            postgres_bin=$folder
        fi
    done
    [[ -n $postgres_bin ]]
}

# The server refuses to run as root; then this user runs it.
server_user=
if ((EUID == 0)); then
    server_user=nobody
    ! id postgres >/dev/null 2>&1 || server_user=postgres
fi

# as_server COMMAND [ARGUMENT]...: replaces this (sub)shell by a command run as the server's user.
as_server() {
    if [[ -z $server_user ]]; then exec "$@"; fi
    exec setpriv --reuid "$server_user" --regid "$(id -g "$server_user")" --init-groups -- env HOME=/ "$@"
}

# make_run_folder: sets run_folder, a new folder for everything this script writes; it goes when the script ends.
make_run_folder() {
    local base
    for base in "${TMPDIR:-/tmp}" /tmp; do
        # Named before it is made: a signal in between must not leave it behind.
        run_folder=$(mktemp -du "$base/entitlement-sync.XXXXXX")
        at_exit rm -rf "$run_folder"
        mkdir -m 700 "$run_folder" || continue
        # Unix sockets have short names, and the server's user has to get there.
        chmod 711 "$run_folder"
        if ((${#run_folder} < 60)) && (as_server test -x "$run_folder/."); then
            return 0
        fi
        rmdir "$run_folder"
    done
    fail "no temporary folder that ${server_user:-$USER} may enter; set TMPDIR to one with a short path"
}

# start_postgres FOLDER [NAME=VALUE]...: makes and starts a PostgreSQL of its own in a new folder, with settings.
# Sets postgres_port and postgres_password (user postgres, on 127.0.0.1) and postgres_pid. Its Unix socket is FOLDER
# itself, which no other user may enter: there no password is asked.
start_postgres() {
    local folder=$1 setting attempt left
    local -a settings=()
    shift
    for setting in "$@"; do settings+=(-c "$setting"); done
    find_postgres || fail "no PostgreSQL server, version 15 or later, is installed"
    mkdir -m 700 "$folder"
    postgres_password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    printf '%s\n' "$postgres_password" >"$folder/password"
    chmod 600 "$folder/password"
    [[ -z $server_user ]] || chown -R "$server_user:$(id -g "$server_user")" "$folder"
    if ! (cd "$folder" && as_server "$postgres_bin/initdb" -D "$folder/data" -U postgres -E UTF8 --locale=C.UTF-8 \
        --no-sync --auth-local=trust --auth-host=scram-sha-256 --pwfile="$folder/password") >"$folder/log" 2>&1; then
        tail -n 15 "$folder/log" >&2
        fail "initdb failed"
    fi
    rm -f "$folder/password"
    for attempt in 1 2 3 4 5; do
        postgres_port=$(free_port)
        spawn_postgres "$folder" -p "$postgres_port" -k "$folder" -h 127.0.0.1 "${settings[@]}"
        for ((left = 600; left > 0; left--)); do
            if "$postgres_bin/pg_isready" -q -t 1 -h "$folder" -p "$postgres_port"; then return 0; fi
            is_alive "$postgres_pid" || break
            sleep 0.05
        done
        stop_process "$postgres_pid" 10 INT QUIT
        grep -q 'Address already in use' "$folder/log" || break
    done
    tail -n 15 "$folder/log" >&2
    fail "PostgreSQL did not start ($attempt attempts)"
}

# spawn_postgres FOLDER [OPTION]...: like `spawn`, but as the server's user and with the server's own signals.
spawn_postgres() {
    local folder=$1
    local -a identity=()
    shift
    [[ -z $server_user ]] ||
        identity=(--reuid "$server_user" --regid "$(id -g "$server_user")" --init-groups)
    local signal=$death_signal
    # SIGTERM would wait for clients to leave; SIGINT ends their sessions.
    [[ $signal == clear ]] || signal=INT
    (
        cd "$folder"
        exec setsid env --default-signal=INT,QUIT setpriv "${identity[@]}" --pdeathsig "$signal" -- \
            "$postgres_bin/postgres" -D "$folder/data" "$@"
    ) </dev/null >>"$folder/log" 2>&1 &
    postgres_pid=$!
    disown "$postgres_pid"
    at_exit stop_process "$postgres_pid" 10 INT QUIT
}
