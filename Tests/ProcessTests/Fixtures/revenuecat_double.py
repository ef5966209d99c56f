"""A double of RevenueCat's REST API v2, as far as a worker reads it. Python 3, standard library only.

Prints its port, then answers until it is killed. `GET /requests` tells what it was asked, as a JSON list
of objects with a path and the seconds at which it came.
"""

import json
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

KEY = "sk_process_tests"
PROJECT = "proj0a1b2c3d"
DAY = 86_400_000
NOW = int(time.time() * 1000)

lock = threading.Lock()
asked = []
failures_left = {"double-throttled": 1, "double-failing": 1, "double-page": 1}


def number_of(*parts):
    """The same number for the same words in every run."""
    return zlib.crc32(repr(parts).encode())


def entitlements(project, subscription):
    return {
        "object": "list",
        "items": [{"object": "entitlement", "project_id": project, "id": "entl9f8e7d6c5b", "lookup_key": "premium",
                   "display_name": "Premium", "created_at": 1_700_000_000_000}],
        "next_page": None,
        "url": f"/v2/projects/{project}/subscriptions/{subscription}/entitlements",
    }


def subscription(customer, number=1, status="active", access=True, ends=12 * DAY, **other):
    """A subscription as section 2.6 of the reference lists its fields."""
    identifier = f"sub{number_of(customer, number):010d}"
    item = {
        "object": "subscription", "id": identifier, "customer_id": customer, "original_customer_id": customer,
        "product_id": "prod1122334455", "starts_at": NOW - 48 * DAY, "current_period_starts_at": NOW + ends - 30 * DAY,
        "current_period_ends_at": NOW + ends, "ends_at": NOW + ends, "gives_access": access, "pending_payment": False,
        "auto_renewal_status": "will_renew" if access else "will_not_renew", "status": status,
        "total_revenue_in_usd": {"currency": "USD", "gross": 19.98, "commission": 2.99, "tax": 3.4, "proceeds": 13.59},
        "presented_offering_id": None, "entitlements": entitlements(PROJECT, identifier), "environment": "production",
        "store": "app_store", "store_subscription_identifier": f"48000{number_of(number, customer):010d}",
        "ownership": "purchased", "pending_changes": None, "country": "PT",
        "management_url": "https://apps.apple.com/account/subscriptions",
    }
    item.update(other)
    return item


def expired(customer, number=1):
    return subscription(customer, number, status="expired", access=False, ends=-number * DAY)


SUBSCRIPTIONS = {
    "double-active": [subscription("double-active")],
    "double-expired": [expired("double-expired")],
    # Three pages of twenty, and what counts is the very last item.
    "double-paged": [expired("double-paged", n) for n in range(1, 60)] + [subscription("double-paged", 60)],
    "double-throttled": [subscription("double-throttled")],
    "double-failing": [subscription("double-failing")],
    "double-page": [subscription("double-page")],
    "double-owner": [subscription("double-owner", store_subscription_identifier="480001234567890")],
    # Two of the app's users are one customer, and the store names the other one.
    "double-second": [subscription("double-owner", store_subscription_identifier="480001234567890")],
    # Somebody else's subscription in the list of a customer who is no alias of theirs: an answer that makes no sense.
    "double-foreign": [subscription("double-stranger")],
    # The same, where that somebody is a user of the app.
    "double-taker": [subscription("double-owner", store_subscription_identifier="480001234567890")],
    # A subscription of an anonymous id that is an alias of the customer.
    "double-merged": [subscription("$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0")],
}
ALIASES = {
    "double-merged": ["double-merged", "$RCAnonymousID:0f1e2d3c4b5a69788796a5b4c3d2e1f0"],
    "double-owner": ["double-owner", "double-second"],
}
ALIASES.update({alias: aliases for aliases in list(ALIASES.values()) for alias in aliases})
KNOWN = set(SUBSCRIPTIONS) | set(ALIASES)


class Double(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urlsplit(self.path)
        if path.path == "/requests":
            with lock:
                return self.answer(200, list(asked))
        with lock:
            asked.append({"path": self.path, "at": time.monotonic()})
        if self.headers.get("Authorization") != "Bearer " + KEY:
            return self.error(401, "authentication_error")
        parts = [unquote(part) for part in path.path.split("/")][1:]
        query = parse_qs(path.query)
        if parts[:2] != ["v2", "projects"] or len(parts) < 4:
            return self.error(404, "resource_missing")
        if parts[2] != PROJECT:
            return self.error(403, "authorization_error")
        if parts[3] == "customers" and len(parts) == 6 and parts[4] in KNOWN:
            return self.customer(parts[4], parts[5], query, path.path)
        if parts[3] in ("subscriptions", "purchases") and len(parts) == 4:
            return self.lookup(parts[3], query, path.path)
        return self.error(404, "resource_missing")

    def customer(self, name, what, query, path):
        with lock:
            fails = failures_left.get(name, 0) > 0
            if fails:
                failures_left[name] -= 1
        if fails and name == "double-throttled":
            return self.error(429, "rate_limit_error", retryable=True, wait=1)
        if fails and name == "double-failing":
            return self.error(500, "server_error", retryable=True)
        if fails and name == "double-page":
            return self.send(200, b"<!DOCTYPE html><html><body>We are back soon.</body></html>", "text/html")
        if what == "subscriptions":
            return self.page(SUBSCRIPTIONS.get(name, []), query, path)
        if what == "purchases":
            return self.page([], query, path)
        if what == "aliases":
            items = [{"object": "customer.alias", "id": alias, "created_at": NOW - 90 * DAY}
                     for alias in ALIASES.get(name, [name])]
            return self.page(items, query, path)
        return self.error(404, "resource_missing")

    def lookup(self, what, query, path):
        """Who owns a store transaction (section 2.9)."""
        wanted = query.get("store_subscription_identifier", [""])[0]
        items = [item for items in SUBSCRIPTIONS.values() for item in items
                 if item["store_subscription_identifier"] == wanted] if what == "subscriptions" else []
        self.page(items, query, path)

    def page(self, items, query, path):
        limit = min(max(int(query.get("limit", ["20"])[0]), 1), 20)
        after = query.get("starting_after", [None])[0]
        first = next((n + 1 for n, item in enumerate(items) if item["id"] == after), 0)
        shown = items[first:first + limit]
        answer = {"object": "list", "items": shown, "url": path}
        if first + limit < len(items):
            relative = f"{path}?limit={limit}&starting_after={shown[-1]['id']}"
            # Both forms are met: the published samples show paths, live answers whole addresses of the real host.
            answer["next_page"] = relative if first == 0 else "https://api.revenuecat.com" + relative
        elif first == 0:
            answer["next_page"] = None
        # Behind the last of several pages the key is left out, which means the same.
        self.answer(200, answer, limited=True)

    def error(self, status, kind, retryable=False, wait=None):
        body = {"object": "error", "type": kind, "message": "invented", "retryable": retryable,
                "doc_url": "https://errors.rev.cat/" + kind.replace("_", "-")}
        headers = {}
        if wait is not None:
            body["backoff_ms"] = wait * 1000
            headers["Retry-After"] = str(wait)
        self.answer(status, body, headers)

    def answer(self, status, value, headers=None, limited=False):
        headers = dict(headers or {})
        if limited or status == 429:
            headers["RevenueCat-Rate-Limit-Current-Usage"] = "1"
            headers["RevenueCat-Rate-Limit-Current-Limit"] = "480"
        self.send(status, json.dumps(value).encode(), "application/json", headers)

    def send(self, status, body, kind, headers=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", "req-1")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Double)
server.daemon_threads = True
print("listening on port", server.server_address[1], flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(0)
