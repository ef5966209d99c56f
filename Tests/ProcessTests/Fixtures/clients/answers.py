"""A service that answers as it is given.

Each argument is a status, `STATUS:SECONDS` with Retry-After, `queued` for a restore that has not ended, `late` for what the user has
after a second, or a proxy's page: `page`, or `STATUS-page`.

Prints its port, then a line a request: method, path, idempotency key and token. What comes after the last answer is not found.
"""

import http.server
import json
import sys
import time

answers = sys.argv[1:]
RESTORE = {
    "id": "0199a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b", "reference": "R-7K3Q-92", "state": "done", "outcome": "restored",
    "message_key": "restored", "message": "Your subscription is active again.", "products": [], "estimated_wait_s": None,
}
ACCESS = {"type": "subscriber", "until": None, "restore_suggested": False, "entitlements": [], "stores": []}


class Answers(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        print(self.command, self.path, self.headers.get("Idempotency-Key"), self.headers.get("Authorization"), flush=True)
        status, _, seconds = (answers.pop(0) if answers else "404").partition(":")
        body, kind = b"<!doctype html><title>Sign in to the network</title>", "text/html"
        if status == "202":
            body, kind = json.dumps(RESTORE).encode(), "application/json"
        elif status == "queued":
            body, kind = json.dumps(RESTORE | {"state": "queued", "outcome": None, "message_key": None}).encode(), "application/json"
        elif status == "late":
            time.sleep(1)
            body, kind = json.dumps(ACCESS).encode(), "application/json"
        elif not status.endswith("page"):
            body, kind = json.dumps({"type": "urn:x", "status": int(status), "field": "here"}).encode(), "application/problem+json"
        self.send_response({"page": 200, "late": 200, "queued": 202}.get(status) or int(status.removesuffix("-page")))
        if seconds:
            self.send_header("Retry-After", seconds)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
print(server.server_address[1], flush=True)
server.serve_forever()
