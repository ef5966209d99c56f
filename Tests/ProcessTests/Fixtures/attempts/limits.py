"""Limits of requests a minute, and what may pass for another address or another user."""

import random
import time
import uuid

from target import LIMITED, Category, ask, bearer, number, rows, token

SPOOFED = [
    ("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-For", "203.0.113.9, 127.0.0.1"),
    ("X-Forwarded-For", ""),
    ("X-Forwarded-For", "::1"), ("X-Forwarded-For", "unknown"), ("X-Forwarded-For", "a" * 1000),
    ("X-Forwarded-For", "203.0.113.9:1"),
    ("X-Real-IP", "203.0.113.9"), ("Forwarded", "for=203.0.113.9"), ("Forwarded", 'for="[2001:db8::1]";proto=https'),
    ("Client-IP", "203.0.113.9"),
    ("True-Client-IP", "203.0.113.9"), ("CF-Connecting-IP", "203.0.113.9"), ("X-Client-IP", "203.0.113.9"),
    ("X-Cluster-Client-IP", "203.0.113.9"),
    ("X-Original-Forwarded-For", "203.0.113.9"), ("X-Forwarded", "for=203.0.113.9"), ("X-Remote-Addr", "203.0.113.9"),
    ("X-Remote-IP", "203.0.113.9"),
    ("Fastly-Client-IP", "203.0.113.9"), ("X-Envoy-External-Address", "203.0.113.9"), ("Via", "1.1 203.0.113.9"),
    ("X-Forwarded-Host", "other.example"),
    ("User-Agent", "ELB-HealthChecker/2.0"), ("Cache-Control", "no-cache"), ("X-Request-Id", "other"),
    ("Origin", "http://other.example"),
]
PATHS = [
    "/v1/entitlement?x=1", "/v1/entitlement?", "//v1/entitlement", "/v1//entitlement", "/v1/./entitlement",
    "/v1/x/../entitlement", "/v1/entitlement/",
    "/v1/%65ntitlement", "/V1/entitlement", "/v1/entitlement%00", "/v1/entitlement;x=1", "/v1/entitlement#x",
    "/health/../v1/entitlement",
    "/v1/webhooks/../entitlement", "/v1/tickets", "/v1/restores/x",
]


def used_up(category, name, headers, served, source="127.0.0.1", most=60):
    """Asks until the limit is met; answers how many were served, all in one minute that the server counts."""
    for count in range(most + 1):
        answer = ask("GET", "/v1/entitlement", headers(count), port=LIMITED, source=source)
        if answer.status == 429:
            category.control(
                f"{name}: a refusal says when to come again", (answer["retry-after"] or "0").isdigit(), answer
            )
            return count
        category.control(f"{name}: request {count}", answer.status == served, answer)
    category.control(f"{name} is limited", False, f"{most} were served")


def run():
    """The process that is asked serves 20 requests a minute of a user, and 40 of an address without a right token."""
    category = Category("limits")

    def refused(name, answer):
        # A way that is not there tells nothing, whatever its limit.
        category.expect(name, answer, {400, 404, 405, 429})

    # Of this run's own: the process remembers for a minute who has used theirs up.
    user, net = f"limited-{uuid.uuid4()}", f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"
    rows(f"INSERT INTO users (id) VALUES ('{user}')")
    # Most come from an address of their own, so that it is the user's limit that refuses.
    addresses = (f"{net}.{place}" for place in range(1, 255))
    # Each request with another token: one a user is signed in with, many that the issuer made for them.
    tokens = [token(user, iat=int(rows("SELECT extract(epoch FROM now())::bigint")[0]) - age) for age in range(30)]
    # In all processes, of all addresses: no more than what is set, and what one process may take ahead.
    began = time.monotonic()
    served = used_up(category, "a user", lambda count: [bearer(tokens[count % len(tokens)])], 200, next(addresses))
    category.note("a user's requests by many tokens", not 19 <= served <= 21, f"{served} were served")
    for place in range(30):
        answer = ask("GET", "/v1/entitlement", [bearer(tokens[place])], port=LIMITED, source=next(addresses))
        refused(f"another token, number {place}", answer)
    for place in range(30):
        answer = ask("GET", "/v1/entitlement", [bearer(tokens[0])], port=LIMITED, source=next(addresses))
        refused(f"another address, number {place}", answer)
    for name, value in SPOOFED:
        answer = ask("GET", "/v1/entitlement", [bearer(tokens[0]), (name, value)], port=LIMITED, source=next(addresses))
        refused(f"a user with {name}: {value[:30]}", answer)
    for path in PATHS:
        refused(f"a user at {path}", ask("GET", path, [bearer(tokens[0])], port=LIMITED, source=next(addresses)))
    refused("a user by HEAD", ask("HEAD", "/v1/entitlement", [bearer(tokens[0])], port=LIMITED, source=next(addresses)))
    refused(
        "a user by POST", ask("POST", "/v1/restores", [bearer(tokens[0])], b"{}", port=LIMITED, source=next(addresses))
    )
    took = time.monotonic() - began
    category.control("all of the user's requests came within the minute", took < 55, f"{took:.0f} s")
    other = ask("GET", "/v1/entitlement", [bearer(token("bob"))], port=LIMITED, source=next(addresses))
    category.control("another user is served meanwhile", other.status == 200, other)

    # Without a token, from an address that has asked for nothing yet.
    source = next(addresses)
    began = time.monotonic()
    served = used_up(category, "an address", lambda count: [SPOOFED[count % len(SPOOFED)]], 401, source)
    category.note("an address under many names", not 38 <= served <= 42, f"{served} were answered")
    for name, value in SPOOFED:
        answer = ask("GET", "/v1/entitlement", [(name, value)], port=LIMITED, source=source)
        refused(f"an address with {name}: {value[:30]}", answer)
    for name, value in SPOOFED[:12]:
        refused(
            f"an address with {name} twice: {value[:30]}",
            ask("GET", "/v1/entitlement", [(name, value)] * 2, port=LIMITED, source=source),
        )
    for place in range(20):
        answer = ask("GET", "/v1/entitlement", [bearer(f"guess-{place}")], port=LIMITED, source=source)
        refused(f"a token that is guessed, number {place}", answer)
    for path in PATHS:
        refused(f"an address at {path}", ask("GET", path, port=LIMITED, source=source))
    answer = ask("POST", "/v1/webhooks/app-store", [], b'{"signedPayload": "a.b.c"}', port=LIMITED, source=source)
    refused("an address at a store's way", answer)
    took = time.monotonic() - began
    category.control("all of the address's requests came within the minute", took < 55, f"{took:.0f} s")
    alive = ask("GET", "/health/live", port=LIMITED, source=source)
    category.control("health is answered all the same", alive.status == 200, alive)
    # As they are counted: the bytes of an address in hexadecimal digits, eight of sixteen.
    names = ":".join(f"{int(part):x}" for part in source.split(".")), "cb:0:71:9", "20:1:d:b8:0:0:0:0"
    counted = [
        number(f"SELECT count(*) FROM entitlement_sync.request_count WHERE key = sha256('address {name}')")
        for name in names
    ]
    category.control("the address is counted under its name", counted[0] == 1, counted)
    category.note("no address was counted that was made up", counted[1:] != [0, 0], counted)
    return category
