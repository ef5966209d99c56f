"""A service that answers as it is given: each argument is a status, `STATUS:SECONDS` with Retry-After, or `page` for a proxy's page.

Prints its port, then a line a request: method, path, idempotency key and token. What comes after the last answer is not found.
"""

import http.server
import json
import sys

answers = sys.argv[1:]
RESTORE = {
    "id": "0199a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b", "reference": "R-7K3Q-92", "state": "done", "outcome": "restored",
    "message_key": "restored", "message": "Your subscription is active again.", "products": [], "estimated_wait_s": None,
}


class Answers(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        print(self.command, self.path, self.headers.get("Idempotency-Key"), self.headers.get("Authorization"), flush=True)
        status, _, seconds = (answers.pop(0) if answers else "404").partition(":")
        body = b"<!doctype html><title>Sign in to the network</title>"
        if status != "page":
            body = json.dumps(RESTORE if status == "202" else {"type": "urn:x", "status": int(status), "field": "here"}).encode()
        self.send_response(200 if status == "page" else int(status))
        if seconds:
            self.send_header("Retry-After", seconds)
        self.send_header("Content-Type", "text/html" if status == "page" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
print(server.server_address[1], flush=True)
server.serve_forever()
