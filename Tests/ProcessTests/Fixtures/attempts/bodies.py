"""Bodies that are no JSON, or JSON that nothing should come of."""

import time

from access import case
from target import JSON, Category, ask, bearer, number, token

PROOF = '{"store": "app_store", "kind": "storekit_jws", "value": %s}'
# Far more than the slowest takes of a release build: a debug build reads a million lists for seconds.
LONGEST = 20.0


def proof(**members):
    whole = {"store": '"app_store"', "kind": '"storekit_jws"', "value": '"x"', **members}
    return '{"proofs": [{%s}]}' % ", ".join(f'"{name}": {value}' for name, value in whole.items())


def nested(levels, left="[", right="]"):
    return left * levels + right * levels


NUL, LONE, PAIR = '"a\\u0000b"', '"\\ud800"', '"\\udc00\\ud800"'
# In the place of a text.
ODD = {"NUL": NUL, "a lone surrogate": LONE, "a number": "7", "a list": "[]", "an object": "{}"}


def broken():
    """No JSON at all, as bytes."""
    yield "null", b"null"
    yield "a list", b"[]"
    yield "a number", b"7"
    yield "a text", b'"{}"'
    yield "true", b"true"
    yield "cut off", b"{"
    yield "two", b"{} {}"
    yield "more behind", b"{}}"
    yield "apostrophes", b"{'origin': null}"
    yield "no quotation marks", b"{origin: null}"
    yield "no colon", b'{"origin" null}'
    yield "a comma too many", b'{"origin": null,,}'
    yield "a comment", b'{/* */ "origin" null}'
    yield "NUL between", b'{"origin"\0: null}'
    yield "NUL", b"\0"
    yield "not a number", b'{"origin": NaN}'
    yield "infinite", b'{"origin": Infinity}'
    yield "hexadecimal", b'{"origin": 0x1}'
    yield "a line end in a text", b'{"client_error": "a\nb"}'
    yield "an escape that is none", b'{"client_error": "\\x41"}'
    yield "half an escape", b'{"client_error": "\\u12"}'
    yield "overlong UTF-8", b'{"client_error": "\xc0\xaf"}'
    yield "UTF-8 cut off", b'{"client_error": "\xe2\x82"}'
    yield "UTF-8 of a surrogate", b'{"client_error": "\xed\xa0\x80"}'
    yield "UTF-8 beyond Unicode", b'{"client_error": "\xf5\x80\x80\x80"}'
    yield "Latin-1", b'{"client_error": "\xe4"}'
    yield "gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\3\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0"
    yield "XML", b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'
    yield "a form", b"origin=paywall"
    for levels in (600, 10_000, 100_000, 1_000_000):
        yield f"{levels} lists in one another", nested(levels).encode()
        yield f"{levels} lists in a member", b'{"x": %s}' % nested(levels).encode()
    yield "100,000 objects in one another", nested(100_000, '{"a":', "}").replace(":}", ":1}", 1).encode()
    yield "100,000 lists that do not end", b"[" * 100_000


def wrong_restores():
    """JSON in which something is not what it has to be."""
    for field in ("client_error", "origin"):
        for name, value in {**ODD, "surrogates the wrong way": PAIR, "true": "true"}.items():
            yield f"{field}: {name}", '{"%s": %s}' % (field, value)
    yield "client_error: 501 signs", '{"client_error": "%s"}' % ("a" * 501)
    yield "client_error: a megabyte", '{"client_error": "%s"}' % ("a" * (1 << 20))
    for word in ("web", "", "PAYWALL", "profile ", "' OR 1=1 --"):
        yield f"origin: {word!r}", '{"origin": "%s"}' % word
    for name, value in {
        "a text": '"p"', "a number": "7", "an object": "{}", "numbers": "[7]", "null": '["p", null]',
        "NUL": f'["p", {NUL}]', "lists": "[[]]",
        "a lone surrogate": f"[{LONE}]", "a long id": '["%s"]' % ("a" * 256),
        "101": "[%s]" % ", ".join(f'"p{n}"' for n in range(101)),
        "100,000": "[%s]" % ", ".join(f'"p{n}"' for n in range(100_000)),
    }.items():
        yield f"product_ids: {name}", '{"product_ids": %s}' % value
    for name, value in {
        "an object": "{}", "a text": '"x"', "numbers": "[7]", "null": "[null]", "lists": "[[[[]]]]",
        "empty objects": "[{}]",
        "21": "[%s]" % ", ".join(PROOF % f'"v{n}"' for n in range(21)),
        "40,000": "[%s]" % ", ".join(PROOF % f'"v{n}"' for n in range(40_000)),
    }.items():
        yield f"proofs: {name}", '{"proofs": %s}' % value
    for member in ("store", "kind", "value"):
        for name, value in {**ODD, "null": "null", "nothing": '""'}.items():
            yield f"a proof's {member}: {name}", proof(**{member: value})
        yield f"a proof without {member}", proof().replace(f'"{member}"', '"other"')
    yield "a proof of no store", proof(store='"steam"')
    yield "a proof of another store's kind", proof(store='"onside"')
    yield "a proof of no kind", proof(kind='"coupon"')
    yield "a proof of a megabyte", proof(value='"%s"' % ("a" * ((1 << 20) + 1)))


def odd():
    """JSON that may be taken, and is taken as what it is."""
    yield "300,000 keys", "{%s}" % ", ".join(f'"k{n}": 1' for n in range(300_000))
    yield "a key of a megabyte", '{"%s": 1}' % ("k" * (1 << 20))
    yield "a number of 5,000 digits", '{"x": %s}' % ("9" * 5_000)
    yield "a number beyond a double", '{"x": 1e999}'
    yield "10,000 keys alike", "{%s}" % ", ".join('"k": 1' for n in range(10_000))
    yield "a member twice", '{"origin": "paywall", "origin": "profile"}'
    yield "a member's name in other letters", '{"Origin": 7, "ORIGIN": []}'
    yield "a prototype", '{"__proto__": {"origin": 7}, "constructor": {"prototype": {}}}'
    yield "a mark of the byte order", "\ufeff{}"
    yield "a comma at the end", '{"origin": null,}'
    yield "a zero before", '{"x": 01}'


def run():
    category = Category("JSON")
    caller = bearer(token("ann"))

    def send(body, where="/v1/restores", kind=JSON):
        began = time.monotonic()
        answer = ask("POST", where, [caller, kind], body)
        return answer, time.monotonic() - began

    def expect(name, body, allowed, where="/v1/restores", kind=JSON):
        answer, took = send(body, where, kind)
        category.note(name, answer.status not in allowed or took > LONGEST, f"{took:.1f} s, {answer}")

    good, _ = send(b'{"origin": "paywall", "client_error": "x", "proofs": []}')
    category.control("a body that is right", good.status == 202, good)
    jobs = "SELECT count(*) FROM entitlement_sync.job_request WHERE client_error LIKE '%%hunter%%'"
    before = number(jobs)
    refusals = {400, 413, 415, 422}
    for name, body in broken():
        expect(name, body, refusals)
    for name, body in wrong_restores():
        expect(name, body, refusals)
    for name, body in odd():
        expect(name, body, refusals | {202})
    for kind in (
        "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "application/jsonp",
        "json", "", "application/xml",
        "text/json", "application/json, text/plain",
    ):
        expect(f"of the type {kind!r}", b'{"client_error": "hunter"}', {415}, kind=("Content-Type", kind))
    kept = number(jobs) - before
    category.note("nothing of another type was kept", kept != 0, f"{kept} requests")

    mine = case(category)
    caller = bearer(token("claimant"))
    where = f"/v1/tickets/{mine['id']}/replies"
    answer, _ = send(b'{"text": "right"}', where)
    category.control("a reply that is right", answer.status == 202, answer)
    before = number("SELECT count(*) FROM entitlement_sync.ticket_reply")
    for name, body in {
        "NUL": '{"text": %s}' % NUL, "a lone surrogate": '{"text": %s}' % LONE, "a number": '{"text": 7}',
        "a list": '{"text": []}', "nothing": "{}",
        "an empty text": '{"text": ""}', "spaces": '{"text": "   "}', "40 kB": '{"text": "%s"}' % ("a" * 40_000),
        "5,000 signs": '{"text": "%s"}' % ("\u20ac" * 5_000),
        "a decision": '{"text": "x", "decision": "allow"}',
        "a decision of nothing known": '{"text": "x", "decision": "yes"}',
        "NUL in a decision": '{"decision": %s}' % NUL,
        "a question that is a list": '{"text": "x", "question_id": []}', "a list around": '[{"text": "x"}]',
        "lists": '{"text": %s}' % nested(10_000),
    }.items():
        expect(f"reply: {name}", body.encode("utf-8", "surrogatepass"), refusals | {409, 422}, where)
    kept = number("SELECT count(*) FROM entitlement_sync.ticket_reply") - before
    category.note("no wrong reply was kept", kept != 0, f"{kept} replies")
    for name, body in {
        "NUL": '{"reference": "R-7K3Q-9\\u0000"}', "a number": '{"reference": 7}', "nothing": "{}",
        "null": '{"reference": null}', "empty": '{"reference": ""}',
        "30 kB": '{"reference": "%s"}' % ("R" * 30_000), "a lone surrogate": '{"reference": %s}' % LONE,
        "a list": '{"reference": ["R-7K3Q-92"]}',
    }.items():
        expect(f"release: {name}", body, refusals, "/v1/releases")
    return category
