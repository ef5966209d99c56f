#!/usr/bin/env bash
# Sends an API whatever its OpenAPI document allows and forbids, and checks each answer against the document.
#
#   schemathesis.sh URL TOKEN FOLDER [EXAMPLES]
#
#   URL        the API's base address, such as http://127.0.0.1:8080; its document is read from URL/openapi.json
#   TOKEN      an ID token of a user whom the API knows, valid for as long as this runs
#   FOLDER     kept between runs: the tools are installed there once, from PyPI; nothing outside it is written
#   EXAMPLES   generated requests for each route at most, beside the fixed ones; 50 if left out
#
# The API should have a worker beside it, and no limits of requests a minute. Ends with the status of the checks: 0 where all
# hold, 1 where one does not; 64 for wrong arguments, 69 where the tools can't be had.

set -euo pipefail

fail() {
    printf '%s\n' "$1" >&2
    exit "$2"
}

(($# == 3 || $# == 4)) || fail "usage: $0 URL TOKEN FOLDER [EXAMPLES]" 64
url=${1%/}
token=$2
folder=$3
examples=${4:-50}
[[ $url =~ ^https?://[^/]+$ ]] || fail "not an address without a path: $1" 64
[[ -n $token && $token != *[[:space:]]* ]] || fail 'not a token: it is empty, or holds white space' 64
[[ $examples =~ ^[1-9][0-9]*$ ]] || fail "not a number of examples: $examples" 64

# What requests are made of and in which order depends on both.
version=4.32.5
packages=("schemathesis==$version" hypothesis==6.170.15)

mkdir -p "$folder"
folder=$(realpath "$folder")
tool=$folder/venv/bin/schemathesis
if [[ $("$tool" --version 2>/dev/null || true) != *" $version" ]]; then
    {
        python3 -m venv --clear "$folder/venv"
        "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "${packages[@]}"
    } >&2 || fail "schemathesis $version could not be installed into $folder/venv" 69
fi

# - Headers hold no control characters: such bytes are no HTTP, and are refused without a word.
# - A key that comes again with other content is answered with 422, although each request is sound by itself. Values of
#   allowed length may make a body too long, and values that are too long always may: that is 413.
# - Nobody has a case here, and after a few references a day others are refused.
# - The stores' webhook endpoints refuse every request here. Numbers beyond any double are sound JSON, and make an event
#   malformed.
# - A stream is read for so long in all.
# - No schema can say what a whole proof is, so a restore may be refused for that, and for that alone.
cat >"$folder/hooks.py" <<'PY'
import re

import schemathesis


@schemathesis.check
def only_proofs_are_refused(ctx, response, case):
    """A sound request for a restore is refused only where a proof is not whole."""
    operation = case.operation.definition.raw.get("operationId")
    if operation != "requestRestore" or response.status_code != 400:
        return
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    detail = str(response.json().get("detail", ""))
    assert re.search(r"proofs\[\d+\]\.value: not a whole ", detail), f"refused for another reason: {detail}"
PY
cat >"$folder/schemathesis.toml" <<'TOML'
request-timeout = 40
hooks = "hooks.py"

[cache]
enabled = false

[generation]
database = "none"
exclude-header-characters = "\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008\u000a\u000b\u000c\u000d\u000e\u000f\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f\u007f"

[auth.openapi.firebase]
bearer = "${API_TOKEN}"

[[operations]]
include-operation-id = "requestRestore"

[operations.checks.positive_data_acceptance]
expected-statuses = ["202", "400", "413", "422"]

[operations.checks.negative_data_rejection]
expected-statuses = ["400", "401", "413"]

[[operations]]
include-operation-id = "replyToTicket"

[operations.checks.positive_data_acceptance]
expected-statuses = ["202", "404", "413", "422"]

[operations.checks.negative_data_rejection]
expected-statuses = ["400", "401", "404", "413"]

[[operations]]
include-operation-id = "releasePurchase"

[operations.checks.positive_data_acceptance]
expected-statuses = ["202", "413", "429"]

[operations.checks.negative_data_rejection]
expected-statuses = ["400", "401", "413"]

[[operations]]
include-operation-id = "followRestore"
request-timeout = 30

[[operations]]
include-tag = "webhooks"
warnings = false

[operations.checks.positive_data_acceptance]
expected-statuses = ["400", "401", "413"]

[operations.checks.negative_data_rejection]
expected-statuses = ["400", "401", "413"]
TOML

# Whatever the environment says of proxies or certificates is not for an address of our own.
clean=("PATH=$PATH" "HOME=$folder" LANG=C.UTF-8 'NO_PROXY=*' "API_TOKEN=$token")
[[ -z ${ENTITLEMENT_SYNC_RUN:-} ]] || clean+=("ENTITLEMENT_SYNC_RUN=$ENTITLEMENT_SYNC_RUN")
cd "$folder"
# The document's own route is sent to only where routes are asked for. A request that is told of may have a line of megabytes.
env -i "${clean[@]}" "$tool" --config-file "$folder/schemathesis.toml" run "$url/openapi.json" --url "$url" \
    --checks all --phases examples,coverage,fuzzing,stateful --mode all --max-examples "$examples" --seed 20261121 \
    --include-path-regex . --workers 1 --max-redirects 0 --no-color | cut -b 1-2000
