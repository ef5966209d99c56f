#!/usr/bin/env bash
# Builds everything, runs every test, checks the format, the words, the clients for apps, the docs, the alerts, the manifests and
# the bill of materials. The tests start a PostgreSQL of their own.
#
#   deploy/test.sh [--full] [-c CONFIGURATION] [-j JOBS] [-X... VALUE]... [--filter REGEX | --skip REGEX]...
#
#   --full                        the full profile: more seeds, more users, more kills; then, unless --filter, --skip or --sanitize
#                                 is given, the bounded profile of PostgresTests, WebAPITests and SystemTests under the thread
#                                 sanitizer
#   --sanitize thread | address   under that sanitizer, in a build of its own (.build-thread, .build-address) unless
#                                 --scratch-path names another
#
# Prints the time that each step took and the slowest tests, and exits with the status of the first step that failed.

# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build_arguments=()
test_arguments=()
sanitizer=
scratch=
selected=
while (($#)); do
    case $1 in
        --full) export ENTITLEMENT_SYNC_TEST_PROFILE=full ;;
        -h | --help)
            usage
            exit 0
            ;;
        --sanitize | --sanitize=*)
            if [[ $1 == *=* ]]; then sanitizer=${1#*=}; else
                sanitizer=${2:?a value has to follow $1}
                shift
            fi
            build_arguments+=(--sanitize "$sanitizer")
            ;;
        --scratch-path | --scratch-path=*)
            if [[ $1 == *=* ]]; then scratch=${1#*=}; else
                scratch=${2:?a value has to follow $1}
                shift
            fi
            ;;
        -c | --configuration | -j | --jobs | -debug-info-format | -Xswiftc | -Xcc | -Xlinker)
            build_arguments+=("$1" "${2:?a value has to follow $1}")
            shift
            ;;
        --configuration=* | --jobs=*) build_arguments+=("$1") ;;
        --filter | --skip)
            test_arguments+=("$1" "${2:?a value has to follow $1}")
            selected=1
            shift
            ;;
        --filter=* | --skip=*)
            test_arguments+=("${1%%=*}" "${1#*=}")
            selected=1
            ;;
        *) fail "unknown argument: $1; see deploy/test.sh --help" 64 ;;
    esac
    shift
done

given=("${build_arguments[@]}")
if [[ -z $sanitizer ]]; then build_arguments=("${build_flags[@]}" "${build_arguments[@]}"); fi
# A sanitizer changes every product: the usual build stays as it is.
[[ -n $scratch || -z $sanitizer ]] || scratch=.build-$sanitizer
if [[ -n $scratch ]]; then
    build_arguments+=(--scratch-path "$scratch")
fi

require_swift
install_missing pkg-config libpq libcurl postgres openssl python3 venv pgbouncer patroni etcd iptables chromium promtool nginx caddy glewlwyd curl \
    docker-compose yaml tsc java android-json
# What is written where TMPDIR points is gone with this run; the tests' servers have folders of their own, which go with
# them. Others may pass through, as those servers are not root's.
TMPDIR=$(mktemp --directory --tmpdir test.XXXXXX)
export TMPDIR
chmod 711 "$TMPDIR"
at_exit rm -rf "$TMPDIR"
at_exit stop_strays 0 INT TERM
export NO_COLOR=1
# If too many tests with servers run at once, they exceed their time limits on a small machine.
export SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=${SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH:-4}
# Files of each step: `log`; `times`, the clock and the processor time at its start and end; `status` and `failure` after a
# failure; `events` and `turns`, which its tests write.
results=$TMPDIR/results
mkdir -p "$results"

# processor_seconds: the time that the machine's processors have worked since it started, for users and the system. That of a
# process and its children would leave out the servers and browsers of tests, which detach.
processor_seconds() { awk -v "hz=$(getconf CLK_TCK)" '/^cpu /{ printf "%.2f\n", ($2 + $3 + $4 + $7 + $8) / hz }' /proc/stat; }

# step NAME COMMAND [ARGUMENT]...: a failure is remembered with the lines that tell of it.
step() {
    local name=$1 status=0 began=$EPOCHREALTIME worked
    local result=$results/$name
    worked=$(processor_seconds)
    shift
    say "== $name"
    # shellcheck disable=SC2016 # It is the inner shell's to expand.
    local copied='set -o pipefail; log=$1; shift; setpriv --pdeathsig TERM -- "$@" 2>&1 | tee -i "$log"'
    run bash -c "$copied" step "$result.log" "$@" || status=$?
    printf '%s %s %s %s %s\n' "$name" "$began" "$EPOCHREALTIME" "$worked" "$(processor_seconds)" >"$result.times"
    if ((status != 0)); then
        printf '%s\n' "$status" >"$result.status"
        {
            say "$name failed with status $status"
            grep -E -A 12 '^✘|error:' "$result.log" | head -n 60 || true
        } >"$result.failure"
    fi
    return "$status"
}

# test_step NAME ARGUMENT...: runs the tests that the arguments select. It starts the test executable: `swift test` plans the build
# each time, which takes longer than most targets' tests.
test_step() {
    local name=$1
    shift
    ENTITLEMENT_SYNC_TEST_TURNS=$results/$name.turns \
        step "$name" "$products/entitlement-syncPackageTests.xctest" --testing-library swift-testing \
        --event-stream-output-path "$results/$name.events" "$@"
}

case $sanitizer in
    thread)
        # Says what the standard library's mutexes do out of the sanitizer's sight; nothing has to be suppressed then.
        mkdir -p "$scratch"
        shim=$(realpath "$scratch")/tsan-mutex.o
        # The toolchain brings one; a toolchain manager's is on the PATH.
        clang=$(dirname "$(realpath "$(command -v swift)")")/clang
        [[ -x $clang ]] || clang=clang
        "$clang" -O1 -g -fPIC -c Tests/Sanitizers/tsan-mutex.c -o "$shim"
        build_arguments+=(-Xlinker "$shim")
        ;;
    address)
        export ASAN_OPTIONS=detect_leaks=1:${ASAN_OPTIONS:-}
        export LSAN_OPTIONS=suppressions=$PWD/Tests/Sanitizers/lsan-suppressions.txt:print_suppressions=0:${LSAN_OPTIONS:-}
        ;;
esac

# checks: everything but the tests.
checks() {
    step alerts bash -c 'promtool check rules deploy/alerts.yml && promtool test rules Tests/Checks/alerts_test.yml' || true
    step metrics python3 Tests/Checks/check_metrics.py || true
    step clients python3 Tests/Checks/check_clients.py --compile || true
    step words python3 Tests/Checks/check_words.py || true
    step budget python3 Tests/Checks/check_budget.py --table || true
    step docs python3 Tests/Checks/check_docs.py --site || true
    step compose Tests/Checks/check_compose.py || true
    step kubernetes python3 Tests/Checks/check_kubernetes.py || true
    if [[ -n $products ]]; then
        # shellcheck disable=SC2016 # It is the inner shell's to expand.
        local make_and_check='deploy/sbom.py --binary "$1" --scratch-path "$2" >"$3" && deploy/sbom.py --check "$3"'
        step sbom bash -c "$make_and_check" sbom "$products/entitlement-sync" "${scratch:-.build}" "$TMPDIR/sbom.cdx.json" || true
    fi
    step format swift format lint --strict --recursive Sources Tests Package.swift deploy/clients/swift/Sources || true
}

# stop_background: ends the steps that still run in the background, and shows what they printed.
stop_background() {
    [[ -n $background ]] || return 0
    stop_process "$background" 5 TERM
    cat "$TMPDIR/background.log"
}

products=
if step build swift build --build-tests --disable-xctest --explicit-target-dependency-import-check error "${build_arguments[@]}"; then
    products=$(swift build --show-bin-path "${build_arguments[@]}")
fi
if [[ -z $products ]]; then
    checks
elif [[ -n $selected ]]; then
    test_step test "${test_arguments[@]}" || true
    checks
else
    # ProcessTests mostly wait: they, HistoryTests and the checks run in the background.
    (
        trap - EXIT
        test_step ProcessTests --filter '^ProcessTests\.' || true
        test_step HistoryTests --filter '^HistoryTests\.' || true
        checks
    ) >"$TMPDIR/background.log" 2>&1 &
    background=$!
    at_exit stop_background
    test_step libraries --skip '^(ProcessTests|SystemTests|HistoryTests)\.' || true
    test_step SystemTests --filter '^SystemTests\.' || true
    # Steps note their own failures: it ends with another status only where it was killed before the last step.
    wait "$background" || {
        printf '%s\n' "$?" >"$results/background.status"
        say 'the steps in the background were stopped before their end' >"$results/background.failure"
    }
    background=
    cat "$TMPDIR/background.log"
    if [[ ${ENTITLEMENT_SYNC_TEST_PROFILE:-} == full && -z $sanitizer ]]; then
        # The workers of SystemTests are composed as the program composes them.
        step threads env --unset ENTITLEMENT_SYNC_TEST_PROFILE \
            deploy/test.sh --sanitize thread ${scratch:+--scratch-path "$scratch-thread"} "${given[@]}" \
            --filter '^(PostgresTests|WebAPITests|SystemTests)\.' || true
    fi
fi
python3 Tests/Checks/report_times.py "$results" || warn "the times could not be read"
worst=0
while read -r result; do
    ((worst)) || {
        say '== failures'
        worst=$(<"$result")
    }
    cat "${result%.status}.failure"
done < <(find "$results" -name '*.status' -printf '%T@ %p\n' | sort -n | cut -d ' ' -f 2-)
exit "$worst"
