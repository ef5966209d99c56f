"""What belongs to another user, and keys of idempotency."""

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from target import JSON, API, Category, answers, ask, bearer, dumps, exchange, number, request, rows, token

PROOF = {"store": "app_store", "kind": "transaction_id", "value": "200000070000001"}


def restore(user, body=None, headers=()):
    return ask("POST", "/v1/restores", [bearer(token(user)), JSON, *headers], dumps(body or {}))


def end(user, job):
    """Waits for a restore's end."""
    for _ in range(4):
        answer = ask("GET", f"/v1/restores/{job}?wait=15", [bearer(token(user))])
        if answer.json().get("state") in ("done", "dead"):
            break
    return answer


def case(category):
    """A case of `claimant` about the purchase of `owner`, as its claimant sees it; made once for all categories."""
    for _ in range(100):
        answer = ask("GET", "/v1/tickets", [bearer(token("claimant"))])
        if answer.json().get("tickets"):
            return answer.json()["tickets"][0]
        if not rows("SELECT 1 FROM entitlement_sync.job_status WHERE user_id = 'claimant'"):
            owners = restore("owner")
            end("owner", owners.json().get("id"))
            restore("claimant", {"proofs": [PROOF], "client_error": "receipt_already_in_use"})
        time.sleep(0.3)
    category.control("a case", False, answer)


def spellings(job):
    """An id as it may be written to slip by a comparison."""
    plain = job.replace("-", "")
    return {
        "as it is": job, "in capitals": job.upper(), "in braces": f"%7B{job}%7D", "as a URN": f"urn:uuid:{job}",
        "without dashes": plain,
        "a space behind": f"{job}%20", "a space before": f"%20{job}", "NUL behind": f"{job}%00",
        "a slash behind": f"{job}/",
        "escaped": "".join(f"%{ord(sign):02x}" for sign in job), "escaped twice": f"%25{ord(job[0]):02x}{job[1:]}",
        "by way of another": f"x/../{job}", "a dot behind": f"{job}.json", "a semicolon behind": f"{job};x=1",
        "a line end behind": f"{job}%0a", "a quotation": f"{job}'%20OR%20'1'='1", "a list": f"{job},{job}",
        "a star": "*",
    }


def run():
    category = Category("another user's restores, cases and purchases")
    bob, claimant = token("bob"), token("claimant")
    hers = restore("ann", {"client_error": "hunter2"}).json()
    his = restore("bob").json()
    for user, mine in (("ann", hers), ("bob", his)):
        answer = end(user, mine.get("id"))
        category.control(
            f"the restore of {user} to {user}", answer.status == 200 and mine["reference"] in answer.text, answer
        )
    job, unknown_id = hers["id"], str(uuid.uuid4())
    theirs = (hers["id"], hers["reference"])

    def leaks(answer):
        """Whether an answer says anything of ann's restore, or succeeded for an id that is not bob's."""
        return answer.status == 0 or answer.status >= 500 or answer.status < 300 or any(
            word in answer.text for word in theirs[1:]
        )

    def alike(name, answer, unknown):
        """What is another's is answered like what does not exist."""
        def parts(one):
            return one.status, {**one.json(), "instance": ""}

        category.note(name, parts(answer) != parts(unknown) or leaks(answer), answer)

    unknown = ask("GET", f"/v1/restores/{unknown_id}", [bearer(bob)])
    alike("her restore", ask("GET", f"/v1/restores/{job}", [bearer(bob)]), unknown)
    alike("her restore, waited for", ask("GET", f"/v1/restores/{job}?wait=1", [bearer(bob)]), unknown)
    alike("her restore as a stream", ask("GET", f"/v1/restores/{job}/events", [bearer(bob)]), unknown)
    for name, spelled in spellings(job).items():
        for way in ("", "/events"):
            answer = ask("GET", f"/v1/restores/{spelled}{way}", [bearer(bob)], timeout=5)
            category.note(f"her restore{way}, {name}", leaks(answer), answer)
    for name, value in (
        ("X-User-Id", "ann"), ("X-Forwarded-User", "ann"), ("X-HTTP-Method-Override", "DELETE"), ("Last-Event-ID", "0"),
    ):
        for way in ("", "/events"):
            answer = ask("GET", f"/v1/restores/{job}{way}", [bearer(bob), (name, value)], timeout=5)
            category.note(f"her restore{way} with {name}", leaks(answer), answer)
    for query in ("user_id=ann", "sub=ann", "uid=ann", "user=ann"):
        answer = ask("GET", f"/v1/restores/{job}?{query}", [bearer(bob)])
        category.note(f"her restore with {query}", leaks(answer), answer)
        answer = ask("GET", f"/v1/entitlement?{query}", [bearer(bob)])
        own = ask("GET", "/v1/entitlement", [bearer(bob)])
        category.note(f"her entitlement with {query}", answer.body != own.body, answer)
    answer = ask("GET", f"/v1/restores/{hers['reference']}", [bearer(bob)])
    category.note("her restore by its reference", leaks(answer), answer)
    def owner(answer):
        job = answer.json().get("id", unknown_id)
        return rows(f"SELECT user_id FROM entitlement_sync.job_status WHERE id = '{job}'")

    # What the body says of the user means nothing.
    for member in ("user_id", "userId", "sub", "uid", "user", "firebase_uid", "app_user_id"):
        answer = restore("bob", {member: "ann"})
        whose = owner(answer)
        category.note(f"a restore with {member} in its body", whose not in ([], ["bob"]), f"{answer} is of {whose}")
    for header in ("X-User-Id", "X-Forwarded-User", "X-Remote-User", "X-Goog-Authenticated-User-Id"):
        answer = restore("bob", {}, [(header, "ann")])
        whose = owner(answer)
        category.note(f"a restore with {header}", whose not in ([], ["bob"]), f"{answer} is of {whose}")

    # Cases: bob has none, and neither has the owner before anybody asks them.
    mine = case(category)
    category.control("claimant's case has an id and a reference", "id" in mine and "reference" in mine, mine)
    answer = ask("POST", f"/v1/tickets/{mine['id']}/replies", [bearer(claimant), JSON], dumps({"text": "mine"}))
    category.control("a reply of the claimant", answer.status == 202, answer)
    before = number("SELECT count(*) FROM entitlement_sync.ticket_reply")
    unknown = ask("POST", f"/v1/tickets/{unknown_id}/replies", [bearer(bob), JSON], dumps({"text": "x"}))
    for name, spelled in spellings(mine["id"]).items():
        answer = ask("POST", f"/v1/tickets/{spelled}/replies", [bearer(bob), JSON], dumps({"text": "x"}))
        category.note(f"a reply to another's case, {name}", answer.status not in (400, 404, 405), answer)
    for body in (
        {"text": "x", "user_id": "claimant"}, {"decision": "allow"}, {"decision": "refuse"},
        {"decision": "allow", "question_id": unknown_id},
    ):
        answer = ask("POST", f"/v1/tickets/{mine['id']}/replies", [bearer(bob), JSON], dumps(body))
        other = ask("POST", f"/v1/tickets/{unknown_id}/replies", [bearer(bob), JSON], dumps(body))
        alike(f"a reply of {body}", answer, other)
    added = number("SELECT count(*) FROM entitlement_sync.ticket_reply") - before
    category.note("no reply was kept", added != 0, f"{added} replies more")
    for user in ("ann", "bob", "owner"):
        for way in ("", "?user_id=claimant", f"?id={mine['id']}"):
            answer = ask("GET", f"/v1/tickets{way}", [bearer(token(user))])
            is_told = any(word in answer.text for word in (mine["id"], mine["reference"]))
            category.note(f"the claimant's case in those of {user}{way}", is_told or answer.status != 200, answer)
    for way in ("", "/replies", "/events"):
        answer = ask("GET", f"/v1/tickets/{mine['id']}{way}", [bearer(bob)])
        category.note(f"another's case at {way or 'its id'}", answer.status not in (404, 405), answer)

    # Who owns nothing gives nothing away, and does not learn whose a reference is.
    releases = "SELECT count(*) FROM entitlement_sync.ticket_event WHERE kind = 'owner_consented'"
    before = number(releases)
    nothing = ask("POST", "/v1/releases", [bearer(bob), JSON], dumps({"reference": "R-0000-00"}))
    category.control("a release is answered", nothing.status == 202, nothing)
    spoken = mine["reference"]
    for name, reference in {
        "the claimant's": spoken, "in small letters": spoken.lower(), "without dashes": spoken.replace("-", ""),
        "hers": hers["reference"],
        "with a space": f" {spoken}", "a pattern": "R-%", "a quotation": "' OR 1=1 --", "a case's id": mine["id"],
        "of odd signs": "R-\u202e",
    }.items():
        answer = ask("POST", "/v1/releases", [bearer(bob), JSON], dumps({"reference": reference}))
        # What is no reference is refused as such; those that are one get one answer.
        is_alike = answer.status == 400 or answer.status == 202 and answer.body == nothing.body
        category.note(f"a release by reference, {name}", not is_alike, answer)
    released = number(releases) - before
    category.note("nothing was released", released != 0, f"{released} releases")
    return category


def keys():
    """Keys of idempotency, and purchase tokens that are made up."""
    category = Category("idempotency keys")
    rows("INSERT INTO users (id) VALUES ('mallory') ON CONFLICT DO NOTHING")
    key = ("Idempotency-Key", f"key-{uuid.uuid4()}")
    first = restore("ann", {"client_error": "one"}, [key])
    again = restore("ann", {"client_error": "one"}, [key])
    is_same = first.status == again.status == 202 and first.json()["id"] == again.json()["id"]
    category.control("the same key again", is_same, f"{first} {again}")
    for name, body in {
        "another error": {"client_error": "two"}, "nothing": {}, "a proof": {"client_error": "one", "proofs": [PROOF]},
        "an origin": {"client_error": "one", "origin": "paywall"},
        "a product": {"client_error": "one", "product_ids": ["p"]},
        "no product": {"client_error": "one", "product_ids": []},
    }.items():
        category.expect(f"the same key with {name}", restore("ann", body, [key]), {409, 422})
    other = restore("bob", {"client_error": "one"}, [key])
    category.note("her key in his hands", other.status != 202 or other.json()["id"] == first.json()["id"], other)
    for name, value in {
        "empty": "", "256 signs": "k" * 256, "5,000 signs": "k" * 5000, "umlauts": "k\xe4y", "UTF-8": "k\u00c3\u00a4y",
        "NUL": "k\0y",
        "a tab": "k\ty", "DEL": "k\x7fy", "ESC": "k\x1by",
    }.items():
        category.expect(f"a key, {name}", restore("ann", {}, [("Idempotency-Key", value)]), {400})
    category.expect(
        "two keys", restore("ann", {"client_error": "one"}, [key, ("Idempotency-Key", "other")]), {400, 409, 422, 202}
    )

    once = ("Idempotency-Key", f"key-{uuid.uuid4()}")
    data = request("POST", "/v1/restores", [bearer(token("ann")), JSON, once, ("Connection", "close")], b"{}")
    with ThreadPoolExecutor(20) as pool:
        came = list(pool.map(lambda _: answers(exchange(API, data)[0]), range(20)))
    ids = {answer.json().get("id") for found in came for answer in found if answer.status == 202}
    for place in range(20):
        category.note(
            f"at once, number {place}", len(ids) != 1 or [one.status for one in came[place]] != [202], f"{ids}"
        )

    jobs = set()
    for place in range(40):
        proof = {"store": "google_play", "kind": "purchase_token", "value": f"made-up-{place}"}
        answer = restore("mallory", {"proofs": [proof]})
        category.expect(f"a token that is made up, number {place}", answer, {202})
        jobs.add(answer.json().get("id"))
    for job in jobs:
        end("mallory", job)
    became = rows("SELECT type FROM users WHERE id = 'mallory'")
    category.note("a subscription by tokens that are made up", became != ["free"], became)
    return category
