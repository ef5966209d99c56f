"""What an attacker tries, again and again: each attempt is refused, or it is listed.

    attempts [CATEGORY]...

The site is given by the environment: see `target.py`. Traffic goes to 127.0.0.1 alone. Each category begins with what
is legitimate and has to work, or its refusals would show nothing; and first of all, what is genuine is taken for an
attempt, which has to count as accepted. Printed is a line of JSON for each category and one for all:

    {"what", "attempts", "accepted", "examples", "lenient"?, "error"?}

Accepted is what the server did as an attacker wants: it let in, gave away, wrote, broke down, or gave no answer.
Lenient is what a standard lets it refuse and does no harm. A category that could not be tried has an error.
"""

import json
import sys
import traceback

import access
import bodies
import console
import database
import framing
import limits
import target
import texts
import tokens
import webhooks

# In this order: some leave words behind that others would stumble over.
CATEGORIES = {
    "tokens": tokens.run,
    "access": access.run,
    "keys": access.keys,
    "framing": framing.run,
    "bodies": bodies.run,
    "webhooks": webhooks.run,
    "console": console.run,
    "roles": database.operators,
    "sql": database.run,
    "limits": limits.run,
    "texts": texts.run,
}


def check_judgement():
    """Counts what is genuine as if it were an attempt: a script that cannot see that it works misses attacks, too."""
    category = target.Category("judgement")
    ann = target.bearer(target.token("ann"))
    category.expect("a genuine token", target.ask("GET", "/v1/entitlement", [ann]), {401})
    category.expect("no answer", target.Answer(), {401})
    watch = webhooks.Watch(category)
    headers, body = webhooks.genuine("revenuecat", {"event": {"type": "TEST"}})
    watch.refused("a genuine event", webhooks.post("revenuecat", headers, body))
    watch.refused("a refusal that leaves an event behind", target.Answer(401))
    _, cookie = target.sign_in("bea")
    category.note("a genuine session", target.page("/console", cookie).status == 200)
    with database.logins(["client"]) as urls:
        (state, _), = target.states(["SELECT count(*) FROM entitlement_sync.job_status"], urls["client"])
    category.note("what a role may", state != "42501", state)
    wrong = [one for one in category.refused if not one.startswith("a refusal that leaves")]
    category.control("what is genuine counts as accepted", not wrong and len(category.accepted) == 5, category.report())


def main():
    total = {"what": "all", "attempts": 0, "accepted": 0, "errors": 0}
    check_judgement()
    for name in sys.argv[1:] or CATEGORIES:
        try:
            category = CATEGORIES[name]()
            alive = target.ask("GET", "/health/live")
            category.control("the server lives on", alive.status == 200, alive)
            report = category.report()
        except Exception as error:
            if not isinstance(error, target.Unready):
                traceback.print_exc()
            report = {"what": name, "attempts": 0, "accepted": 0, "examples": [], "error": str(error)}
            total["errors"] += 1
        total["attempts"] += report["attempts"]
        total["accepted"] += report["accepted"]
        print(json.dumps(report), flush=True)
    print(json.dumps(total), flush=True)
    sys.exit(0 if total["accepted"] == 0 and total["errors"] == 0 else 1)


try:
    main()
finally:
    target.clean()
