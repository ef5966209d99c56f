"""Holds connections to a server as an attacker would, and tells how the server fares.

    attack.py KIND COUNT SECONDS PORT [PID] [TOKEN]

COUNT connections come from 127.0.0.1, and once a second somebody at 127.0.0.2 asks for /health/live. It ends SECONDS after
the server could last write to one of the connections: until then it answers, however slow it is, and no deadline counts.
Printed is JSON: `held`: connections that the server still has at the end; `worst`: seconds of the slowest answer to the other
one, null where one failed; `rss_kib`: the most memory that PID had.
"""

import json
import resource
import socket
import sys
import threading
import time

kind, count, seconds, port = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
pid = sys.argv[5] if len(sys.argv) > 5 else None
token = sys.argv[6] if len(sys.argv) > 6 else ""
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def post(path, fields, body):
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


KINDS = {
    # Nothing at all.
    "silent": b"",
    # Answers that nobody reads.
    "unread": b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 300,
    "unread-metrics": b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 60,
    # Bodies that do not end.
    "stranger": post("/v1/webhooks/app-store", ["Content-Length: 130500"], b"x" * 130_000),
    "crumbs": post("/v1/webhooks/app-store", ["Transfer-Encoding: chunked"], b"1\r\nx\r\n" * 20_000),
    "user": post(
        "/v1/restores",
        [f"Authorization: Bearer {token}", "Content-Type: application/json", f"Content-Length: {4 << 20}"],
        b"x" * ((4 << 20) - 2),
    ),
    # Headers that do not end.
    "headers": b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-A: " + b"x" * 15_000 + b"\r\nX-B: " + b"x" * 15_000,
}


def hold(sock, data):
    try:
        sock.sendall(data)
    except OSError:
        pass


def held():
    """Connections that the server has established: what is at their other end, and how many bytes that has not taken."""
    end = f":{port:04X}"
    lines = [line.split() for line in open("/proc/net/tcp")][1:]
    ours = (line for line in lines if line[1].endswith(end) and line[3] in ("01", "08"))
    return {line[2]: int(line[4].split(":")[0], 16) for line in ours}


def memory():
    if not pid:
        return 0
    return next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))


def ask():
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10, source_address=("127.0.0.2", 0)) as sock:
        sock.settimeout(10)
        sock.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := sock.recv(4096):
            answer += part
    return time.monotonic() - began if answer.startswith(b"HTTP/1.1 200") else None


connections, threads = [], []
for _ in range(count):
    sock = socket.socket()
    if kind.startswith("unread"):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.settimeout(seconds)
    try:
        sock.connect(("127.0.0.1", port))
    except OSError:
        continue
    connections.append(sock)
    # All at once, but for what has nothing to send.
    if KINDS[kind]:
        threads.append(threading.Thread(target=hold, args=(sock, KINDS[kind]), daemon=True))
        threads[-1].start()

worst, rss, ends, before = 0.0, memory(), time.monotonic() + seconds, {}
while time.monotonic() < ends:
    now = {peer: bytes for peer, bytes in held().items() if peer.startswith("0100007F")}
    if any(bytes > before.get(peer, 0) for peer, bytes in now.items()):
        ends = time.monotonic() + seconds
    before = now
    try:
        took = ask()
    except OSError:
        took = None
    worst = None if took is None or worst is None else max(worst, took)
    rss = max(rss, memory())
    time.sleep(1)
print(json.dumps({"held": len(held()), "worst": worst, "rss_kib": rss}), flush=True)
