"""Requests whose beginning or end is not clear: what one side takes for a body, another may take for a request."""

import uuid

from target import ADMIN, API, JSON, Category, answers, ask, bearer, exchange, number, request, rows, token

CHUNKED = [("Transfer-Encoding", "chunked")]


def run():
    category = Category("HTTP/1.1 framing")
    # One of this run's own: what another run left behind would count as smuggled.
    user = f"smuggled-{uuid.uuid4()}"
    rows(f"INSERT INTO users (id) VALUES ('{user}')")
    ann = [bearer(token("ann")), JSON]
    # What is smuggled leaves a job behind where it is taken for a request.
    inner = request("POST", "/v1/restores", [bearer(token(user)), JSON, ("Content-Length", "2")]) + b"{}"
    size = len(inner)

    def head(fields, method="POST", path="/v1/restores", version="HTTP/1.1", host="127.0.0.1"):
        return request(method, path, [*ann, *fields], host=host).replace(b"HTTP/1.1", version.encode(), 1)

    def chunk(data, line=None):
        return (f"{len(data):x}".encode() if line is None else line) + b"\r\n" + data + b"\r\n"

    last = b"0\r\n\r\n"
    both = head([("Connection", "close")], "GET", "/health/live")
    for name, data in {
        "a whole body": head([("Content-Length", "2"), ("Connection", "close")]) + b"{}",
        "whole chunks": head([*CHUNKED, ("Connection", "close")]) + chunk(b"{}") + last, "nothing odd": both,
    }.items():
        found = answers(exchange(API, data)[0])
        category.control(name, [one.status for one in found] in ([202], [200]), found and found[0])
    found = answers(exchange(API, head([], "GET", "/health/live") + both)[0])
    category.control("two requests at once", [one.status for one in found] == [200, 200], found and found[0])

    def attempt(name, data, may_answer=False, port=API, most=1, harmless=""):
        """Nothing is taken, or where the oddity means nothing (`may_answer`) one answer comes, and never silence."""
        came, is_closed = exchange(port, data, end=True, timeout=8)
        found = answers(came)
        statuses = [one.status for one in found]
        is_odd = len(found) > most or any(
            status >= 500 and status not in (501, 505) or status < 200 for status in statuses
        )
        is_taken = not may_answer and any(200 <= status < 300 for status in statuses)
        seen = f"{statuses}, {'closed' if is_closed else 'open'}"
        # No word about harm covers an error of the server's own, or silence.
        is_broken = any(status >= 500 and status not in (501, 505) for status in statuses) or not is_closed
        category.note(name, is_odd or is_taken or not is_closed, seen, "" if is_broken else harmless)

    # Two lengths.
    length = ("Content-Length", "2")
    for name, fields in {
        "length, then chunks": [length, *CHUNKED], "chunks, then length": [*CHUNKED, length],
        "length 0, then chunks": [("Content-Length", "0"), *CHUNKED],
        "chunks and a length of all": [("Content-Length", str(size + 12)), *CHUNKED],
        "chunks in capitals and length": [("TRANSFER-ENCODING", "CHUNKED"), length],
    }.items():
        attempt(name, head(fields) + chunk(b"{}") + last + inner)
    attempt("CL.TE", head([("Content-Length", str(len(last) + size)), *CHUNKED]) + last + inner)
    attempt("TE.CL", head([("Content-Length", "4"), *CHUNKED]) + chunk(inner) + last)
    for first, second in [("2", "2"), ("2", "3"), ("0", "2"), ("2", "0"), ("2", "02"), (str(size), "2"), ("2", "")]:
        attempt(
            f"lengths {first} and {second}",
            head([("Content-Length", first), ("Content-Length", second)]) + b"{}" + inner,
        )
    for value in [
        "+2", "-2", "0x2", "2 2", "2,2", "2, 2", "2;", "2.0", "2e0", "", "two", "\xb2", "99999999999999999999",
        "18446744073709551618", "4294967298",
        "2\0", "\x0b2", "_2", "2_",
    ]:
        attempt(f"length {value!r}", head([("Content-Length", value)]) + b"{}" + inner)
    for name in [
        "Content-Length ", " Content-Length", "Content-Length\t", "Content_Length", "Content-Length\0",
        "Content-Length\x0b",
    ]:
        data = head([]).replace(b"\r\n\r\n", f"\r\n{name}: {size}\r\n\r\n".encode("latin-1"))
        # A field of another name says nothing of a body: what follows is a request of its own, as on any connection.
        is_other = name == "Content_Length"
        attempt(f"field {name!r}", data + (both if is_other else inner), may_answer=is_other, most=2 if is_other else 1)
    # Odd encodings.
    for value in [
        "xchunked", "chunked, identity", "identity", "chunked, chunked", "chunked, gzip", "gzip", "cow", "\x0bchunked",
        "chunked\x0b",
        '"chunked"', "chunked;q=1", "chunked,", "chunk\x00ed", "trailers",
    ]:
        attempt(f"encoding {value!r}", head([("Transfer-Encoding", value)]) + chunk(b"{}") + last + inner)
    for value in ["identity, chunked", "gzip, chunked", "deflate, chunked", ", chunked"]:
        data = head([("Transfer-Encoding", value), ("Connection", "close")]) + chunk(b"{}") + last
        attempt(f"encoding {value!r}", data, harmless="where the body ends is clear, and it has to be JSON as it is")
    data = head([("Transfer-Encoding", "")]) + chunk(b"{}") + last
    attempt("encoding ''", data, most=2, harmless="it is taken for none, as by those who read empty fields so")
    data = head([("Transfer-Encoding", ""), ("Content-Length", "2"), ("Connection", "close")]) + b"{}"
    attempt("encoding '' and a length", data, harmless="it is taken for none, as by those who read empty fields so")
    for name in ["Transfer-Encoding ", " Transfer-Encoding", "Transfer-Encoding\t", "Transfer-Encoding\0"]:
        data = head([length]).replace(b"\r\n\r\n", f"\r\n{name}: chunked\r\n\r\n".encode("latin-1")) + b"{}" + inner
        attempt(f"field {name!r} beside a length", data)
    attempt("two encodings", head([*CHUNKED, ("Transfer-Encoding", "identity")]) + chunk(b"{}") + last + inner)
    attempt("the same encoding twice", head([*CHUNKED, *CHUNKED]) + chunk(b"{}") + last + inner)
    old = head([*CHUNKED, ("Connection", "keep-alive")], version="HTTP/1.0") + chunk(b"{}") + last
    rare = "only a proxy that speaks HTTP/1.0 with chunks would read it in another way"
    attempt("chunks of HTTP/1.0", old, harmless=rare)
    attempt("chunks of HTTP/1.0, and a request", old + both, most=2, harmless=rare)
    # Lines.
    for name, written in {
        "a folded field": "X-A: b\r\n Content-Length: 2", "a folded encoding": "Transfer-Encoding:\r\n chunked",
        "a line feed alone": "X-A: b\nX-B: c",
        "a line feed and a length": f"X-A: b\nContent-Length: {size}", "a carriage return alone": "X-A: b\rX-B: c",
        "a carriage return and a length": f"X-A: b\rContent-Length: {size}", "NUL in a value": "X-A: b\0c",
        "NUL in a name": "X\0A: b", "no colon": "X-A",
        "an empty name": ": b", "a space in a name": "X A: b", "DEL in a name": "X\x7fA: b",
        "ESC in a value": "X-A: \x1b[31m", "umlauts in a name": "X-\xe4: b",
        "a bracket in a name": "X(A: b",
    }.items():
        # Without a body: nothing but the odd line can make what follows belong to this request.
        attempt(name, head([]).replace(b"\r\n\r\n", f"\r\n{written}\r\n\r\n".encode("latin-1")) + inner)
    attempt("line feeds alone", head([length]).replace(b"\r\n", b"\n") + b"{}")
    attempt("carriage returns alone", head([length]).replace(b"\r\n", b"\r") + b"{}")
    attempt("a space before the first field", head([length]).replace(b"\r\nHost", b"\r\n Host", 1) + b"{}")
    attempt("a NUL before the request", b"\0" + head([length]) + b"{}")
    for name, line in {
        "no version": "POST /v1/restores", "HTTP/0.9": "GET /health/live", "HTTP/2.0": "POST /v1/restores HTTP/2.0",
        "HTTP/1.2": "POST /v1/restores HTTP/1.2",
        "HTTP/1.10": "POST /v1/restores HTTP/1.10", "HTTP/11": "POST /v1/restores HTTP/11",
        "http/1.1": "POST /v1/restores http/1.1", "HTP/1.1": "POST /v1/restores HTP/1.1",
        "two spaces": "POST  /v1/restores HTTP/1.1", "a tab": "POST\t/v1/restores HTTP/1.1",
        "a space in the path": "POST /v1/ restores HTTP/1.1",
        "more behind": "POST /v1/restores HTTP/1.1 x", "NUL in the path": "POST /v1/restores\0 HTTP/1.1",
        "a method in small letters": "post /v1/restores HTTP/1.1",
        "a method of odd signs": "PO{ST /v1/restores HTTP/1.1", "no path": "POST HTTP/1.1",
        "a path without a slash": "POST v1/restores HTTP/1.1",
        "a fragment": "POST /v1/restores#x HTTP/1.1", "umlauts in the path": "POST /v1/rest\xf6res HTTP/1.1",
    }.items():
        data = head([length]).replace(b"POST /v1/restores HTTP/1.1", line.encode("latin-1"), 1) + b"{}"
        # The standard lets a server be so lenient, and nothing of the request can be read in two ways.
        attempt(f"first line with {name}", data, may_answer=name in ("HTTP/1.2", "a fragment", "two spaces"))
    # Chunks.
    for name, line in {
        "a sign": b"+2", "a minus": b"-2", "0x": b"0x2", "a space before": b" 2", "no number": b"g", "nothing": b"",
        "too large": b"fffffffffffffffff",
        "beyond 64 bits": b"10000000000000002", "NUL": b"2\0", "a space within": b"0 2",
        "a line feed in an extension": b"2;a=\nb", "a quotation": b"2;a=\"\r\n",
        "underscores": b"0_2", "a point": b"2.0",
    }.items():
        attempt(f"a chunk's size with {name}", head(CHUNKED) + chunk(b"{}", line) + last + inner)
    attempt("a chunk that is shorter", head(CHUNKED) + b"1\r\n{}\r\n" + last + inner)
    attempt("a chunk that is longer", head(CHUNKED) + b"4\r\n{}\r\n" + last)
    attempt("a chunk without its line end", head(CHUNKED) + b"2\r\n{}0\r\n\r\n" + inner)
    attempt("chunks ended by line feeds", head(CHUNKED) + b"2\n{}\n0\n\n" + inner)
    attempt("chunks without an end", head(CHUNKED) + chunk(b"{}"))
    long = head([*CHUNKED, ("Connection", "close")]) + chunk(b"{}", b"2;" + b"a" * 100_000) + last
    attempt("an extension of 100 kB", long, harmless="it is read past, within the request's time")
    for name, trailer in {
        "a length": f"Content-Length: {size}", "an encoding": "Transfer-Encoding: chunked",
        "a token": "Authorization: Bearer x", "a host": "Host: evil.example",
        "no colon": "evil", "100 kB": "X-A: " + "a" * 100_000,
    }.items():
        data = head([*CHUNKED, ("Connection", "close")]) + chunk(b"{}") + b"0\r\n" + trailer.encode() + b"\r\n\r\n"
        # Fields behind a body are read past: what they say counts for nothing.
        attempt(f"a trailer with {name}", data, may_answer=True)
    # Hosts and other protocols.
    for name, hosts in {
        "none": b"", "two": b"Host: a\r\nHost: b\r\n", "the same twice": b"Host: a\r\nHost: a\r\n",
        "a space behind the name": b"Host : a\r\n",
    }.items():
        attempt(f"hosts: {name}", head([length], host="HERE").replace(b"Host: HERE\r\n", hosts) + b"{}")
    upgrade = [
        ("Connection", "Upgrade, HTTP2-Settings, close"), ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA"),
    ]
    attempt("an upgrade to HTTP/2", head(upgrade, "GET", "/v1/entitlement"), may_answer=True)
    attempt(
        "an upgrade to a socket",
        head(
            [("Connection", "Upgrade, close"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "eA==")],
            "GET", "/v1/entitlement",
        ),
        may_answer=True,
    )
    attempt("HTTP/2 without its agreement", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    attempt("TLS", b"\x16\3\1\2\0\1\0\1\xfc\3\3" + bytes(300))
    for method, path in [
        ("CONNECT", "127.0.0.1:1"), ("TRACE", "/health/live"), ("GET", "http://evil.example/v1/x"), ("OPTIONS", "*"),
        ("DEBUG", "/health/live"),
    ]:
        attempt(f"{method} {path}", head([("Connection", "close")], method, path))
    # Too much.
    attempt("a field of 20 kB", head([("X-A", "a" * 20_000), length]) + b"{}")
    attempt("101 fields", head([*((f"X-{place}", "a") for place in range(101)), length]) + b"{}")
    attempt("40 kB of fields", head([*((f"X-{place}", "a" * 1000) for place in range(40)), length]) + b"{}")
    attempt("a path of 40 kB", head([length], path="/v1/restores?" + "a" * 40_000) + b"{}")
    attempt("a body of 5 MiB", head([("Content-Length", str(5 << 20))]) + b" " * (1 << 20))
    attempt("5 MiB in chunks", head(CHUNKED) + chunk(b" " * (1 << 20)) * 5)
    attempt("a body that is never sent", head([("Content-Length", "100")]))
    # And where operators are served.
    for name, fields, rest in [
        ("length, then chunks", [length, *CHUNKED], last),
        ("lengths that differ", [length, ("Content-Length", "3")], b"{}"),
        ("a sign", [("Content-Length", "+2")], b"{}"),
        ("an odd encoding", [("Transfer-Encoding", "xchunked")], last),
    ]:
        data = request("GET", "/metrics", fields, host=f"127.0.0.1:{ADMIN}") + rest + request(
            "GET", "/metrics", host=f"127.0.0.1:{ADMIN}"
        )
        # A page is answered when its head is there; then the connection ends with the fault.
        attempt(f"operators' address: {name}", data, may_answer=True, port=ADMIN, most=2 if "encoding" in name else 1)
    jobs = number(f"SELECT count(*) FROM entitlement_sync.job_status WHERE user_id = '{user}'")
    category.note("no request was smuggled", jobs != 0, f"{jobs} jobs")
    found = ask("POST", "/v1/restores", [bearer(token(user)), JSON], b"{}")
    jobs = number(f"SELECT count(*) FROM entitlement_sync.job_status WHERE user_id = '{user}'")
    category.control(
        "what is smuggled would have left a job", found.status == 202 and jobs == 1, f"{found} {jobs} jobs"
    )
    return category
