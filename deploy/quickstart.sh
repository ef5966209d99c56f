#!/usr/bin/env bash
# Shows entitlement-sync at work: a private PostgreSQL, simulated stores, 1,000 users of every kind, one restore each.
#
#   deploy/quickstart.sh [--keep]
#
#   --keep   leaves the database, the simulator and the API running, and says how to talk to them
#
# The program is a debug build, the one that deploy/test.sh uses. ENTITLEMENT_SYNC_BINARY=PATH runs that program instead.
# Beside packages that are missing, nothing outside a temporary folder, .build and Swift's package cache is touched; the
# system's own PostgreSQL is left alone.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

keep=
while (($#)); do
    case $1 in
        --keep) keep=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) fail "unknown argument $1; see $0 --help" 64 ;;
    esac
    shift
done

# What the store's customers are like. Ids are those of the users, `kind-001` and on; the store knows no others.
write_scenario() {
    local n
    cat <<'YAML'
project: proj_demo
rate_limit_per_minute: 0
stores_know_purchases: true
generate:
  - {id: "active-{n:3}", count: 999, state: active, spread: 30d}
  - {id: "onboarding-{n:3}", count: 999, state: active}
  - {id: "subscribed-{n:3}", count: 999, state: active, spread: 30d}
  - {id: "still-frozen-{n:3}", count: 999, state: active}
  - {id: "trial-{n:3}", count: 999, state: trial}
  - {id: "cancelled-{n:3}", count: 999, state: cancelled}
  - {id: "grace-{n:3}", count: 999, state: grace}
  - {id: "lifetime-{n:3}", count: 999, state: lifetime}
  - {id: "promotional-{n:3}", count: 999, state: promotional}
  - {id: "family-{n:3}", count: 999, state: family_shared}
  - {id: "$RCAnonymousID:{n:32}", aliases: ["anonymous-{n:3}"], count: 999, state: active}
  - {id: "new-status-{n:3}", count: 999, state: unknown}
  - {id: "slow-{n:3}", count: 999, state: active}
  - {id: "shaky-{n:3}", count: 999, state: active}
  - {id: "lapsed-{n:3}", count: 999, state: expired}
  - {id: "expired-{n:3}", count: 999, state: expired}
  - {id: "billing-retry-{n:3}", count: 999, state: billing_retry}
  - {id: "paused-{n:3}", count: 999, state: paused}
  - {id: "refunded-{n:3}", count: 999, state: lifetime_refunded}
  - {id: "pending-{n:3}", count: 999, state: incomplete}
  - {id: "sandbox-{n:3}", count: 999, state: sandbox}
  - {id: "tips-only-{n:3}", count: 999, state: consumable}
  - {id: "unmapped-{n:3}", count: 999, state: unmapped}
  - {id: "broken-{n:3}", count: 999, state: active}
  - {id: "banned-{n:3}", count: 999, state: active}
  - {id: "banned-final-{n:3}", count: 999, state: active}
  - {id: "leaving-{n:3}", count: 999, state: active}
  - {id: "gone-{n:3}", count: 999, state: active}
YAML
    printf 'customers:\n'
    # A hundred and twenty ended subscriptions before the one that counts.
    printf '  - id: many-pages-001\n    subscriptions: &many ['
    for ((n = 0; n < 120; n++)); do printf 'expired, '; done
    printf 'active]\n'
    for n in {2..5}; do printf '  - {id: many-pages-00%s, subscriptions: *many}\n' "$n"; done
    # Purchases that others claim: ten by a transaction id, five by having two of our users as one customer.
    for n in {01..20}; do
        printf '  - id: owner-0%s\n' "$n"
        ((10#$n > 5)) || printf '    aliases: [second-login-0%s]\n' "$n"
        printf '    subscriptions: [{state: active, store_subscription_identifier: "20000007000000%s"}]\n' "$n"
    done
    # Their purchases others show: the store knows no owner, RevenueCat does.
    for n in {001..010}; do
        printf '  - {id: sister-%s, subscriptions: [{state: active, store_subscription_identifier: "2000000925%s"}]}\n' \
            "$n" "$n"
    done
    # What the stores themselves hold: some users show a proof of it, some a receipt, a token or an order.
    printf 'app_store:\n  customers:\n'
    for n in {001..010}; do
        apple "apple-$n" "21$n" 'product: premium_monthly, expires: +20d'
        apple "receipt-$n" "22$n" 'product: lifetime, type: non_consumable'
        apple "pass-$n" "23$n" 'product: pass30, type: non_renewing, purchased: -20d'
        apple "apple-expired-$n" "24$n" 'product: premium_monthly, state: expired, expires: -2d'
        apple "apple-owned-$n" "25$n" 'product: premium_monthly, expires: +20d'
    done
    printf 'google_play:\n  purchases:\n'
    for n in {001..010}; do
        printf '    - {token: token-%s, state: active, acknowledged: false}\n' "$n"
        printf '    - {token: hold-%s, state: on_hold}\n' "$n"
    done
    printf 'onside:\n  orders:\n'
    for n in {001..005}; do
        printf '    - {order: 00000000-0000-4000-8000-000000000%s, account: onside-%s, expires: +20d}\n' "$n" "$n"
        printf '    - {order: 00000000-0000-4000-8000-100000000%s, account: onside-order-%s, expires: +20d}\n' "$n" "$n"
        printf '    - {order: 00000000-0000-4000-8000-200000000%s, account: onside-001, expires: +20d}\n' "$n"
    done
    printf 'faults:\n'
    for n in {01..10}; do printf '  - {customer: slow-0%s, latency: 600ms, latency_max: 1200ms}\n' "$n"; done
    for n in {01..15}; do printf '  - {customer: shaky-0%s, status: 503, times: 2}\n' "$n"; done
    for n in {16..20}; do printf '  - {customer: shaky-0%s, status: 429, backoff: 200ms, times: 1}\n' "$n"; done
    for n in {01..05}; do printf '  - {customer: broken-0%s, body: html}\n' "$n"; done
}

# One Apple account with one purchase.
# apple NAME NUMBER FIELDS
apple() {
    printf '    - {id: %s, transactions: [{original: "20000009%s", transaction: "20000009%s", %s}]}\n' "$1" "$2" "$2" "$3"
}

# sql [ARGUMENT]...: psql on the sample database, over the private socket.
sql() {
    PGHOST=$run_folder/postgres PGPORT=$postgres_port PGUSER=demo PGDATABASE=demo \
        "$postgres_bin/psql" --no-psqlrc --quiet --no-password -P pager=off -P footer=off -v ON_ERROR_STOP=1 "$@"
}

# The environment of the program: nothing of the user's own configuration may leak in.
# product [ARGUMENT]...
product() { env -i "${product_environment[@]}" "$binary" "$@"; }

seconds_since() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }

# ---- Prepare --------------------------------------------------------------------------------------------------------

binary=${ENTITLEMENT_SYNC_BINARY:-}
install_missing curl
if [[ -z $binary ]]; then
    require_swift
    install_missing pkg-config libpq libcurl postgres
    say "building (the first time takes about four minutes on two cores)"
    use_build_folder
    build_log=$(mktemp)
    at_exit rm -f "$build_log"
    built=$SECONDS
    at_exit stop_session
    show_steps "$build_log" &
    steps_pid=$!
    disown "$steps_pid"
    stop_steps() { kill "$steps_pid" 2>/dev/null || true; }
    at_exit stop_steps
    # Swift reads all manifests again for an environment that it has not seen: the mark of this run stays out of it.
    if ! run env -u ENTITLEMENT_SYNC_RUN swift build --product entitlement-sync "${build_flags[@]}" >"$build_log" 2>&1; then
        grep -E 'error:' "$build_log" >&2 || tail -n 15 "$build_log" >&2
        fail "the build failed"
    fi
    # After a first build Swift plans once more, for ten seconds: here, and not when the script is called again.
    ((SECONDS - built < 60)) ||
        run env -u ENTITLEMENT_SYNC_RUN swift build --product entitlement-sync "${build_flags[@]}" >>"$build_log" 2>&1 || true
    stop_steps
    [[ ! -t 1 ]] || printf '\r\e[K'
    say "built in $((SECONDS - built)) s"
    binary=$(env -u ENTITLEMENT_SYNC_RUN swift build --show-bin-path)/entitlement-sync
    leave_build_folder
    rm -f "$build_log"
else
    install_missing postgres
fi
[[ -x $binary ]] || fail "no program at $binary"
binary=$(realpath -s "$binary")

[[ -z $keep ]] || death_signal=clear
make_run_folder
started=$EPOCHREALTIME
start_postgres "$run_folder/postgres"
PGHOST=$run_folder/postgres PGPORT=$postgres_port PGUSER=postgres "$postgres_bin/psql" --no-psqlrc --quiet \
    -v ON_ERROR_STOP=1 \
    -c "CREATE ROLE demo LOGIN CREATEROLE PASSWORD '$postgres_password'" -c 'CREATE DATABASE demo OWNER demo'
say "PostgreSQL $("$postgres_bin/postgres" --version | awk '{ print $3 }') of its own on 127.0.0.1:$postgres_port"

settings=(
    "DATABASE_URL=postgresql://demo:$postgres_password@127.0.0.1:$postgres_port/demo"
    "ENTITLEMENT_SYNC_SQL_DIR=$PWD/sql"
    JOB_MAX_ATTEMPTS=4
    JOB_BACKOFF_BASE_MS=50
    JOB_BACKOFF_CAP_MS=500
    # The sample world lapses all at once.
    DEMOTION_BRAKE_MINIMUM=1000
)
product_environment=("PATH=$PATH" "HOME=$run_folder" "ENTITLEMENT_SYNC_RUN=$ENTITLEMENT_SYNC_RUN" "${settings[@]}")
[[ -z ${LD_LIBRARY_PATH:-} ]] || product_environment+=("LD_LIBRARY_PATH=$LD_LIBRARY_PATH")

write_scenario >"$run_folder/scenario.yaml"
mkdir -p "$run_folder/stores"
for attempt in 1 2 3; do
    simulator_port=$(free_port)
    spawn "$run_folder/simulator.log" env -i "${product_environment[@]}" LOG_LEVEL=warning \
        "$binary" simulate --port "$simulator_port" --scenario "$run_folder/scenario.yaml" --files "$run_folder/stores"
    simulator_pid=$spawned_pid
    at_exit stop_group "$simulator_pid" 5 TERM
    for ((left = 600; left > 0; left--)); do
        ! { is_listening "$simulator_port" && [[ -f $run_folder/stores/stores.env ]]; } || break 2
        is_alive "$simulator_pid" || break
        sleep 0.05
    done
    if ((attempt == 3)); then
        tail -n 15 "$run_folder/simulator.log" >&2
        fail "the store simulator did not start"
    fi
done
mapfile -t direct <"$run_folder/stores/stores.env"
settings+=("${direct[@]}")
product_environment+=("${direct[@]}")
say "a simulated RevenueCat, App Store, Google Play and Onside on 127.0.0.1:$simulator_port"

sql -f sql/host/schema.sql
product migrate >"$run_folder/migrate.log" 2>&1 || { cat "$run_folder/migrate.log" >&2; fail "the migration failed"; }
sql -1 -f deploy/quickstart.sql
say "$(sql -Atc "SELECT format('%s users with %s assets', (SELECT count(*) FROM users), count(*)) FROM assets"),"\
    "ready after $(seconds_since "$started") s"

# ---- Work -----------------------------------------------------------------------------------------------------------

# What the users' devices would show.
sql -c "\\copy demo.device FROM '$run_folder/stores/proofs.tsv'"

# One restore a user; some say more. This is all that an app's backend has to do.
sql -Atc "
    SELECT count(entitlement_sync.request_restore(
               user_id      => u.id,
               proofs       => CASE WHEN k.kind IN ('claimant', 'typed-id') THEN jsonb_build_array(jsonb_build_object(
                                   'store', 'app_store', 'kind', 'transaction_id',
                                   'value', '20000007000000' || (right(u.id, 2)::integer % 10 + 11)))
                                ELSE demo.proofs_of(u.id) END,
               client_error => k.client_error))
      FROM users AS u JOIN demo.kind AS k ON k.kind = demo.kind_of(u.id)" >/dev/null
# Five accounts are deleted before a worker reads their restores.
sql -1 -c "DELETE FROM assets WHERE user_id LIKE 'gone-%'" -c "DELETE FROM users WHERE id LIKE 'gone-%'"

say "running entitlement-sync worker --until-idle"
started=$EPOCHREALTIME
if ! run env -i "${product_environment[@]}" LOG_LEVEL=warning "$binary" worker --until-idle \
    >"$run_folder/worker.log" 2>&1; then
    tail -n 15 "$run_folder/worker.log" >&2
    fail "the worker failed"
fi
took=$(seconds_since "$started")

# ---- Tell -----------------------------------------------------------------------------------------------------------

say
sql -c "
    SELECT k.kind AS customer, count(*) AS users, coalesce(j.outcome, j.state) AS outcome,
           j.message_key, d.rule, coalesce(u.type, 'deleted') AS type_now,
           CASE WHEN bool_and((j.outcome, j.message_key, coalesce(u.type, 'deleted'))
                              IS NOT DISTINCT FROM (k.outcome, k.message_key, k.type_after))
                THEN '' ELSE 'expected ' || k.outcome || ', ' || k.message_key || ', ' || k.type_after END AS remark
      FROM entitlement_sync.job_status AS j
      JOIN demo.kind AS k ON k.kind = demo.kind_of(j.user_id)
      LEFT JOIN users AS u ON u.id = j.user_id
      LEFT JOIN entitlement_sync.decision_log AS d ON d.job_id = j.id
     WHERE j.kind = 'restore'
     GROUP BY k.place, k.kind, 3, j.message_key, d.rule, 6, k.outcome, k.message_key, k.type_after
     ORDER BY k.place, 2 DESC"
sql -c "
    SELECT CASE WHEN frozen THEN coalesce((SELECT string_agg(r, ' + ' ORDER BY r) FROM unnest(reasons) AS r),
                                          'no recorded reason')
                ELSE 'not frozen' END AS \"assets frozen for\",
           count(*) FILTER (WHERE NOT is_now) AS before, count(*) FILTER (WHERE is_now) AS after
      FROM (SELECT false AS is_now, frozen_reasons AS reasons, frozen_at IS NOT NULL AS frozen FROM demo.asset_before
             WHERE user_id NOT LIKE 'gone-%'
             UNION ALL
            SELECT true, frozen_reasons, frozen_at IS NOT NULL FROM assets) AS a
     GROUP BY 1 ORDER BY 2 DESC"
sql -c "
    SELECT kind AS \"ticket for support\", count(*) AS tickets
      FROM entitlement_sync.ticket_status GROUP BY 1 ORDER BY 1"
for user in active-001 lapsed-001 claimant-001; do
    say "\$ entitlement-sync explain $user"
    product explain "$user" 2>>"$run_folder/worker.log" || fail "explain $user failed"
    say
done

sql -At -v seconds="$took" <<'SQL'
SELECT format('%s jobs in %s s: %s jobs/s, start, slow customers and retries included; nine in ten ended within %s s.',
              count(*), :'seconds', round(count(*) / greatest(:seconds, 0.1)),
              round((:seconds - extract(epoch FROM max(finished_at)
                    - percentile_disc(0.9) WITHIN GROUP (ORDER BY finished_at)))::numeric, 1))
  FROM entitlement_sync.job_status;
SQL
wrong=$(sql -At <<'SQL'
SELECT count(*)
  FROM demo.kind AS k
 CROSS JOIN LATERAL generate_series(1, k.users) AS n
  LEFT JOIN entitlement_sync.job_status AS j ON j.kind = 'restore' AND j.user_id = k.kind || '-' || to_char(n, 'FM000')
  LEFT JOIN users AS u ON u.id = j.user_id
 WHERE (j.outcome, j.message_key, coalesce(u.type, 'deleted'))
       IS DISTINCT FROM (k.outcome, k.message_key, k.type_after);
SQL
)
if ((wrong == 0)); then
    say "All 1,000 restores ended as they should."
else
    warn "$wrong of 1,000 restores ended otherwise than they should: see the remarks above"
fi

# ---- The app's way in -----------------------------------------------------------------------------------------------

# A token as the user's app has it, of the simulated Firebase.
# token USER
token() {
    curl -sS -X POST "http://127.0.0.1:$simulator_port/control/identity/firebase-token" -d "{\"sub\": \"$1\"}" |
        sed 's/.*"token" *: *"\([^"]*\)".*/\1/'
}

# A restore over HTTP as an app does it: asked for, then waited for. Prints the last answer.
# tap USER [BODY]
tap() {
    local token accepted id
    token=$(token "$1")
    accepted=$(curl -sS -X POST "$api/v1/restores" -H "Authorization: Bearer $token" \
        -H 'Content-Type: application/json' -d "${2:-{\}}")
    id=$(member id "$accepted")
    curl -sS "$api/v1/restores/$id?wait=25" -H "Authorization: Bearer $token"
}

# member NAME JSON: a member that is a text.
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" <<<"$2"; }

for attempt in 1 2 3; do
    api_port=$(free_port)
    spawn "$run_folder/api.log" env -i "${product_environment[@]}" HTTP_PORT="$api_port" ADMIN_PORT=0 \
        SUPPORT_CONTACT_URL=mailto:help@example.com "$binary" run
    api_pid=$spawned_pid
    at_exit stop_group "$api_pid" 12 TERM
    for ((left = 400; left > 0; left--)); do
        ! is_listening "$api_port" || break 2
        is_alive "$api_pid" || break
        sleep 0.05
    done
    if ((attempt == 3)); then
        tail -n 15 "$run_folder/api.log" >&2
        fail "the API did not start"
    fi
done
api=http://127.0.0.1:$api_port
say "entitlement-sync run serves the API on 127.0.0.1:$api_port"
say
# The subscription has been renewed since, and the app does not know it.
curl -sS -o /dev/null -X PUT "http://127.0.0.1:$simulator_port/control/customers/expired-001" -d '{"state": "active"}'
user_token=$(token expired-001)
say "\$ curl -X POST $api/v1/restores -H \"Authorization: Bearer \$TOKEN\""
accepted=$(curl -sS -X POST "$api/v1/restores" -H "Authorization: Bearer $user_token")
say "$accepted"
say "\$ curl \"$api/v1/restores/$(member id "$accepted")?wait=25\" -H \"Authorization: Bearer \$TOKEN\""
ended=$(curl -sS "$api/v1/restores/$(member id "$accepted")?wait=25" -H "Authorization: Bearer $user_token")
say "$ended"
say "\$ curl $api/v1/entitlement -H \"Authorization: Bearer \$TOKEN\""
say "$(curl -sS "$api/v1/entitlement" -H "Authorization: Bearer $user_token")"
say
[[ $(member outcome "$ended") == restored ]] || wrong=$((wrong + 1))
while read -r user outcome body; do
    ended=$(tap "$user" "$body")
    say "$(printf '%-18s %-23s %s' "$user" "$(member outcome "$ended")" "$(member message "$ended")")"
    [[ $(member outcome "$ended") == "$outcome" ]] || {
        wrong=$((wrong + 1))
        warn "$user: expected $outcome, heard $ended"
    }
done <<'TAPS'
subscribed-001 already_subscriber {}
claimant-001 store_account_mismatch {"client_error": "receipt_already_in_use"}
broken-001 store_unavailable {}
billing-retry-001 nothing_to_restore {}
newcomer-001 nothing_to_restore {}
banned-001 not_eligible {}
TAPS
((wrong == 0)) || warn "not every restore over HTTP ended as it should"
[[ -n $keep ]] || stop_group "$api_pid" 12 TERM

if [[ -z $keep ]]; then
    cat <<'TEXT'

What next:
  deploy/quickstart.sh --keep          leaves all of this running, and says how to talk to it
  deploy/docs/start/first-week.md      takes your own users from a first reading to MODE=full
  deploy/docs/integrate/sql.md         what your backend calls; http.md is for apps without one
  deploy/docs/integrate/other-tables.md  for tables of other names or uuid keys
  deploy/test.sh                       runs all tests, on top of what is built now
TEXT
fi

# ---- Leave ----------------------------------------------------------------------------------------------------------

if [[ -n $keep ]]; then
    (umask 077 && printf 'export %q\n' "${settings[@]}" >"$run_folder/environment")
    cat >"$run_folder/stop" <<SCRIPT
#!/usr/bin/env bash
# Stops the sample database, the simulator and the API, and removes their folder.
source $(printf %q "$PWD/deploy/lib.sh")
[[ -O \$0 ]] || fail 'only the user who started them may stop them'
at_exit rm -rf $(printf %q "$run_folder")
ENTITLEMENT_SYNC_RUN=$ENTITLEMENT_SYNC_RUN
# SIGINT first: it ends the sessions of PostgreSQL, and the simulator heeds it too.
stop_strays INT TERM
SCRIPT
    chmod 700 "$run_folder/stop"
    admin_port=$(sed -n '/serving metrics/ { s/.*listen\.port=\([0-9]*\).*/\1/p; q }' "$run_folder/api.log")
    cat <<TEXT

All three keep running: the database, the stores, and entitlement-sync run. To talk to them:

  source $run_folder/environment

$(sed 's/^/    /' "$run_folder/environment")

  psql "\$DATABASE_URL"
  $binary queue stats
  $binary doctor

(It points at what the sample users are made to show: dead jobs and a product that is not mapped, subscribers and frozen
assets that nothing explains, purchases without an owner.)

A user whose subscription is renewed, and who taps Restore:

  curl -sS -X PUT http://127.0.0.1:$simulator_port/control/customers/expired-002 -d '{"state": "active"}'
  TOKEN=\$(curl -sS -X POST http://127.0.0.1:$simulator_port/control/identity/firebase-token \\
      -d '{"sub": "expired-002"}' | sed 's/.*"token" *: *"\([^"]*\)".*/\1/')
  ID=\$(curl -sS -X POST $api/v1/restores -H "Authorization: Bearer \$TOKEN" | sed 's/.*"id":"\([^"]*\)".*/\1/')
  curl -sS "$api/v1/restores/\$ID?wait=25" -H "Authorization: Bearer \$TOKEN"
  curl -sS $api/v1/entitlement -H "Authorization: Bearer \$TOKEN"
  $binary explain expired-002

The same with a proof, and its end as a stream of events:

  curl -sS -X PUT http://127.0.0.1:$simulator_port/control/customers/expired-003 -d '{"state": "active"}'
  TOKEN=\$(curl -sS -X POST http://127.0.0.1:$simulator_port/control/identity/firebase-token \\
      -d '{"sub": "expired-003"}' | sed 's/.*"token" *: *"\([^"]*\)".*/\1/')
  ID=\$(curl -sS -X POST $api/v1/restores -H "Authorization: Bearer \$TOKEN" -H 'Content-Type: application/json' \\
      -d '{"proofs": [{"store": "app_store", "kind": "order_id", "value": "MABC123DEF"}]}' \\
      | sed 's/.*"id":"\([^"]*\)".*/\1/')
  curl -sS -N $api/v1/restores/\$ID/events -H "Authorization: Bearer \$TOKEN"

From a backend, in SQL:

  psql "\$DATABASE_URL" -c "SELECT entitlement_sync.request_restore('expired-004')"

Metrics:

  curl -sS http://127.0.0.1:$admin_port/metrics

To stop them and remove everything:

  $run_folder/stop
TEXT
    # From here on the stop script ends them.
    exit_steps=()
fi
((wrong == 0))
