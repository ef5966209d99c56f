"""The support console: forms from elsewhere, sessions that are none, and ways out of it."""

import re
from urllib.parse import quote

import access
from target import ADMIN, Category, ask, bearer, code, forget_tries, form_key, number, page, post, rows, sign_in, token

OWN = f"http://127.0.0.1:{ADMIN}"
NEXTS = [
    "https://evil.example/", "//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example",
    "/console/../evil", "/console//evil.example",
    "/console/..%2f..%2fevil", "javascript:alert(1)", "data:text/html,x", "/consoleevil", "/console@evil.example",
    "http:evil.example", "https:/evil.example",
    "/console?\r\nSet-Cookie: a=b", "/console%0d%0aSet-Cookie:%20a=b", "/console/\tx", " //evil.example",
    "/console/sign-out", "/evil", "", "/console#//evil.example",
    "/console/" + "a" * 5_000, "\u202e/console", "/console\0", "//evil.example/console/",
]


def free():
    """How many cases are new: a form that worked would have changed it."""
    return number("SELECT count(*) FROM entitlement_sync.ticket WHERE state = 'new' AND assignee_id IS NULL")


def run():
    category = Category("console")
    access.case(category)
    _, bea = sign_in("bea")
    category.control("bea signs in", bea.startswith("__Host-desk=esop_"), bea)
    _, cid = sign_in("cid")
    category.control("cid signs in", cid.startswith("__Host-desk=esop_"), cid)
    key, other = form_key(bea), form_key(cid)
    category.control("forms carry a key, and each session another", len(key) == len(other) == 64 and key != other, key)
    ticket = rows("SELECT min(id) FROM entitlement_sync.ticket WHERE state = 'new'")[0]
    where, before = f"/console/tickets/{ticket}/claim", free()
    category.control("a case is new", before > 0, before)

    def forms(name, answer, allowed=(403,)):
        category.note(name, answer.status not in allowed or free() != before, answer)

    def elsewhere(name, headers, allowed=(403,), cookie=bea, fields=None):
        forms(name, post(where, {"key": key} if fields is None else fields, cookie, headers), allowed)

    for origin in (
        None, "null", "", "https://evil.example", "http://127.0.0.1:1", "http://127.0.0.1",
        f"http://127.0.0.1:{ADMIN}.evil.example", f"{OWN}/", f"{OWN}/console",
        "http://localhost:1", f"ftp://127.0.0.1:{ADMIN}", f"127.0.0.1:{ADMIN}", f"{OWN}, https://evil.example",
        f"https://evil.example, {OWN}", f"http://user@127.0.0.1:{ADMIN}",
        "file://", "chrome-extension://x",
    ):
        elsewhere(f"Origin {origin!r}", [("Origin", origin)] if origin is not None else [])
    for site in ("cross-site", "same-site", "none", "", "Same-Origin", "same-origin, cross-site"):
        elsewhere(f"Sec-Fetch-Site {site!r}", [("Origin", OWN), ("Sec-Fetch-Site", site)])
    elsewhere("two Origins", [("Origin", OWN), ("Origin", "https://evil.example")])
    elsewhere("a Referer alone", [("Referer", f"{OWN}/console")])
    forms(
        "a Host of another name", post(where, {"key": key}, bea, [("Origin", "http://evil.example")], "evil.example"),
        (400, 403, 421),
    )
    own = [("Origin", OWN)]
    for name, fields in {
        "no key": {}, "an empty key": {"key": ""}, "another session's key": {"key": other},
        "an altered key": {"key": key[:-1] + "!"}, "half a key": {"key": key[:32]},
        "a longer key": {"key": key + "0"}, "a key in capitals": {"key": key.upper() + "A"},
        "the session as key": {"key": bea.partition("=")[2]}, "a key of zeros": {"key": "0" * 64},
        "a wrong key before the right one": [("key", other), ("key", key)],
    }.items():
        elsewhere(name, own, fields=fields)
    elsewhere("another session with this key", own, cookie=cid)
    part = f'--a\r\nContent-Disposition: form-data; name="key"\r\n\r\n{key}\r\n--a--\r\n'.encode()
    for name, kind, body in [
        ("JSON", "application/json", b'{"key": "%s"}' % key.encode()), ("text", "text/plain", f"key={key}".encode()),
        ("nothing", "", f"key={key}".encode()),
        ("several parts", "multipart/form-data; boundary=a", part),
    ]:
        answer = ask("POST", where, [("Content-Type", kind), ("Cookie", bea), *own], body, port=ADMIN)
        forms(f"a form that is {name}", answer, (400, 403, 415))
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
        answer = ask(method, f"{where}?key={key}", [("Cookie", bea), *own], port=ADMIN)
        forms(f"the form by {method}", answer, (404, 405))
    for name in ("X-HTTP-Method-Override", "X-Method-Override", "_method"):
        answer = ask("GET", f"{where}?key={key}&_method=POST", [("Cookie", bea), (name, "POST"), *own], port=ADMIN)
        forms(f"the form by GET with {name}", answer, (404, 405))
    answer = post(
        "/console/sign-in", {"name": "bea", "password": "x", "code": "0"}, None, [("Origin", "https://evil.example")]
    )
    category.note("a sign-in from elsewhere", answer.status != 403 or answer["set-cookie"] is not None, answer)

    # No way leads out of the console.
    for value in NEXTS:
        text = page(f"/console/sign-in?next={quote(value)}").text
        found = re.findall(r'name="next" value="([^"]*)"', text)
        inside = all(one == "/console" or re.fullmatch(r"/console/[a-z0-9/._?&=%-]*", one) for one in found)
        category.note(
            f"next {value[:40]!r} on the page", not inside or "//" in "".join(found) or len("".join(found)) > 400, found
        )
    for value in NEXTS[:6] + NEXTS[14:18]:
        answer, cookie = sign_in("cid", None, next=value)
        category.control(f"cid signs in with next {value[:30]!r}", answer.status == 303, answer)
        target = answer["location"] or ""
        category.note(
            f"next {value[:40]!r} after a sign-in", not re.match(r"/console\?signed-in=1$", target) or "\r" in target,
            target,
        )
        ask(
            "POST", "/console/sign-out",
            [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", cookie), *own],
            f"key={form_key(cookie)}", port=ADMIN,
        )

    # Sessions.
    good = page("/console", bea)
    category.control("the queue for bea", good.status == 200 and 'name="key"' in good.text, good)
    session = bea.partition("=")[2]
    digest = rows("SELECT encode(digest, 'hex') FROM entitlement_sync.operator_session LIMIT 1")[0]
    for name, cookie in {
        "none": None, "empty": "__Host-desk=", "made up": "__Host-desk=esop_" + "ab" * 32,
        "zeros": "__Host-desk=esop_" + "0" * 64, "cut off": bea[:-1], "longer": bea + "0",
        "in capitals": "__Host-desk=" + session.upper(), "another name": "desk=" + session,
        "another prefix": "__Secure-desk=" + session, "the name in capitals": "__HOST-DESK=" + session,
        "without its prefix": "__Host-desk=" + session.removeprefix("esop_"), "a quotation": "__Host-desk=' OR '1'='1",
        "a path": "__Host-desk=../../etc/passwd",
        "NUL": f"__Host-desk={session[:20]}\0", "10 kB": "__Host-desk=" + "a" * 10_000,
        "in quotation marks": f'__Host-desk="{session}"',
        "a made-up one before": f"__Host-desk=esop_{'ab' * 32}; {bea}",
        "escaped": "__Host-desk=" + "".join(f"%{ord(sign):02x}" for sign in session),
        "a session's digest": f"__Host-desk=esop_{digest}",
    }.items():
        answer = page("/console", cookie)
        is_in = answer.status == 200 or answer.status >= 500 or answer.status == 0
        category.note(f"a cookie: {name}", is_in, answer)
    for name, headers in {
        "in Authorization": [("Authorization", f"Bearer {session}")], "as a user's token": [bearer(token("bob"))],
        "in X-Session": [("X-Session", session)],
        "Basic": [("Authorization", "Basic YmVhOng=")],
    }.items():
        category.note(f"a session {name}", page("/console", None, headers).status == 200)
    for query in (f"session={session}", f"__Host-desk={session}", f"key={key}"):
        category.note(f"a session in the query as {query.partition('=')[0]}", page(f"/console?{query}").status == 200)
    for path in (
        "/console/log", "/console/live", f"/console/tickets/{ticket}", "/console/search?q=a", "/console/runs",
        "/console/dead", "/console/users/1", "/console/figures", "/console/help",
    ):
        answer = page(path)
        category.note(
            f"{path} signed out", answer.status != 303 or not (answer["location"] or "").startswith("/console/sign-in"),
            answer,
        )
    # What an attacker has planted is not what the victim signs in with.
    planted = "__Host-desk=esop_" + "cd" * 32
    _, victim = sign_in("cid", planted)
    category.note("a session that was planted", victim in ("", planted), victim)
    category.note("what was planted opens nothing", page("/console", planted).status == 200)
    _, again = sign_in("cid", victim)
    category.note(
        "a session that was there before the sign-in", again == victim or page("/console", victim).status == 200, again
    )
    key_of_again = form_key(again)
    out = post("/console/sign-out", {"key": other}, again)
    category.note("signed out by another's key", out.status != 403 or page("/console", again).status != 200, out)
    out = post("/console/sign-out", {"key": key_of_again}, again)
    category.control("a sign-out", out.status == 303, out)
    category.note("a session after its sign-out", page("/console", again).status == 200, out)
    category.note(
        "a form after the sign-out",
        post(where, {"key": key_of_again}, again).status not in (303, 403) or free() != before,
    )
    answer, cookie = sign_in("cid")
    attributes = answer["set-cookie"] or ""
    for part in ("__Host-", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"):
        category.note(f"a cookie without {part}", part not in attributes, attributes)
    category.note("a cookie for more than one host", "domain" in attributes.lower(), attributes)
    for name, wanted in {
        "content-security-policy": "default-src 'none'", "x-frame-options": "DENY", "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin", "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    }.items():
        category.note(
            f"a page without {name}", wanted not in (page("/console", cookie)[name] or ""),
            page("/console", cookie)[name],
        )
    category.note(
        "a policy that lets scripts stand in pages", "unsafe" in (good["content-security-policy"] or "unsafe"),
        good["content-security-policy"],
    )

    # Codes and passwords.
    def credentials(attempt, allowed=(401,), **fields):
        answer = post(
            "/console/sign-in",
            {"name": "cid", "password": "a horse of another colour", "code": "000000", "next": "", **fields},
        )
        category.note(attempt, answer.status not in allowed or answer["set-cookie"] is not None, answer)

    forget_tries()
    once = code("cid")
    answer = post(
        "/console/sign-in", {"name": "cid", "password": "a horse of another colour", "code": once, "next": ""}
    )
    category.control("a code once", answer.status == 303, answer)
    credentials("a code twice", code=once)
    for name, later in (("of two minutes ago", -4), ("of in two minutes", 4)):
        forget_tries()
        credentials(f"a code {name}", code=code("cid", later))
    for name, fields in {
        "no code": {"code": ""}, "a code of letters": {"code": "abcdef"}, "a code of 5 digits": {"code": "12345"},
        "another's code": {"code": code("bea", 1)}, "no password": {"password": "", "code": code("cid", 1)},
        "a password with a space": {"password": "a horse of another colour ", "code": code("cid", 1)},
        "a password in capitals": {"password": "A HORSE OF ANOTHER COLOUR", "code": code("cid", 1)},
        "a name in capitals": {"name": "CID%", "code": code("cid", 1)},
        "a name with NUL": {"name": "cid\0", "code": code("cid", 1)}, "an unknown name": {"name": "mary"},
        "a quotation": {"name": "cid' OR '1'='1", "code": code("cid", 1)},
        "an enrolment": {"new-password": "another horse of mine", "new-password-again": "another horse of mine"},
        "a device": {"device": "A" * 32}, "a password of 60 kB": {"password": "a" * 60_000, "code": code("cid", 1)},
    }.items():
        forget_tries()
        credentials(f"signed in with {name}", (400, 401, 413), **fields)
    forget_tries()
    known = post("/console/sign-in", {"name": "root", "password": "x", "code": "1", "next": ""})
    unknown = post("/console/sign-in", {"name": "mary", "password": "x", "code": "1", "next": ""})
    differs = known.status != unknown.status or known.text.replace("root", "") != unknown.text.replace("mary", "")
    category.note("whether there is such an operator", differs, unknown)
    # Whatever address is claimed, who guesses has to wait.
    forget_tries()
    waits = 0
    for guess in range(14):
        answer = ask(
            "POST", "/console/sign-in",
            [("Content-Type", "application/x-www-form-urlencoded"), *own, ("X-Forwarded-For", f"203.0.113.{guess}")],
            f"name=root&password=wrong+guess+{guess}&code=000000&next=", port=ADMIN,
        )
        waits += "Too many sign-ins have failed" in answer.text
        category.note(
            f"a guess under another address, number {guess}", answer.status != 401 or answer["set-cookie"] is not None,
            answer,
        )
    category.note("guesses under many addresses are not slowed", waits == 0, waits)
    forget_tries()
    # And a form of bea's own does what it says.
    answer = post(where, {"key": key}, bea)
    category.control("a form of the console itself", answer.status == 303 and free() == before - 1, answer)
    post(where.replace("/claim", "/release"), {"key": key}, bea)
    for host in ("evil.example", "evil.example:80", f"127.0.0.1.evil.example:{ADMIN}", "", "[::1"):
        answer = ask("GET", "/metrics", port=ADMIN, host=host or "\t")
        category.note(f"metrics under the host {host!r}", answer.status == 200 or answer.status >= 500, answer)
    return category
