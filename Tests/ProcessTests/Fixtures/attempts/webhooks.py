"""What the stores send, from a sender that is no store."""

import base64
import hmac
import json
import time
import uuid

from target import (
    FILES, JSON, KEYS, Category, ask, b64, control, dumps, ecdsa, jws, mac, number, openssl, own_rsa, path, rows, rsa,
    token, unb64,
)
from tokens import HEADER, claims_of

EVENTS = "SELECT count(*) FROM entitlement_sync.inbox_log"


def post(store, headers, body):
    return ask("POST", f"/v1/webhooks/{store}", [JSON, *headers], body)


def genuine(store, what):
    sent = control(f"webhooks/{store}", what)
    return list(sent["headers"].items()), sent["body"].encode()


class Watch:
    """Counts an attempt as accepted where it is answered well or leaves an event behind."""

    def __init__(self, category):
        self.category, self.count = category, number(EVENTS)

    def refused(self, name, answer, allowed=(401,)):
        count = number(EVENTS)
        self.category.note(
            name, answer.status not in allowed or count != self.count, f"{count - self.count} events, {answer}",
        )
        self.count = count

    def kept(self, name, answer, more=1):
        count = number(EVENTS)
        self.category.control(
            name, answer.status == 200 and count == self.count + more, f"{count - self.count} events, {answer}",
        )
        self.count = count


# ---- RevenueCat -----------------------------------------------------------------------------------------------------

AUTHORIZATION, SIGNATURE = "Authorization", "X-RevenueCat-Webhook-Signature"


def revenue_cat(category):
    watch = Watch(category)
    headers, body = genuine("revenuecat", {"event": {"type": "RENEWAL", "app_user_id": "ann"}})
    watch.kept("RevenueCat: an event", post("revenuecat", headers, body))
    answer = post("revenuecat", headers, body)
    category.note("RevenueCat: the same event again", answer.status != 200 or number(EVENTS) != watch.count, answer)
    headers, body = genuine("revenuecat", {"event": {"type": "RENEWAL", "app_user_id": "ann"}})
    word, signature = dict(headers)[AUTHORIZATION], dict(headers)[SIGNATURE]
    now, code = signature[2:].split(",v1=")

    def send(name, word=word, signature=signature, body=body, allowed=(401,)):
        given = [(AUTHORIZATION, word)] if word is not None else []
        given += [(SIGNATURE, signature)] if signature is not None else []
        watch.refused(f"RevenueCat: {name}", post("revenuecat", given, body), allowed)

    def signed(when, text=body, secret=b"revenuecat-demo-webhook-secret", digest="sha256"):
        return f"t={when},v1={hmac.digest(secret, f'{when}.'.encode() + text, digest).hex()}"

    category.control("RevenueCat: the script signs as RevenueCat does", signed(now) == signature, signature)
    send("nothing", None, None)
    send("the word alone", signature=None)
    send("the signature alone", None)
    for name, wrong in {
        "other": "other", "in capitals": word.upper(), "with Bearer": f"Bearer {word}", "with a space": f"{word} x",
        "cut off": word[:-1], "empty": "",
        "twice": f"{word}, {word}", "quoted": f'"{word}"', "NUL behind": f"{word}\\0", "5,000 signs": "a" * 5_000,
    }.items():
        send(f"the word {name}", wrong)
    watch.refused(
        "RevenueCat: two words",
        post("revenuecat", [(AUTHORIZATION, word), (AUTHORIZATION, word), (SIGNATURE, signature)], body),
    )
    seconds = int(now)
    for name, wrong in {
        "five minutes old": signed(seconds - 330), "five minutes early": signed(seconds + 330), "of 1970": signed(0),
        "of another secret": signed(now, secret=b"other"),
        "of no secret": signed(now, secret=b""), "of SHA-1": signed(now, digest="sha1"),
        "of another body": signed(now, b"{}"), "of another time": f"t={seconds + 1},v1={code}",
        "without a time": f"v1={code}", "without a code": f"t={now}", "empty": "",
        "in capitals": f"t={now},v1={code.upper()}", "cut off": signature[:-2],
        "with a byte more": signature + "00", "as v0": f"t={now},v0={code}", "as V1": f"T={now},V1={code}",
        "of two times": f"t={now},t={seconds - 1},v1={code}",
        "behind eight others": f"t={now}," + ",".join(["v1=" + "0" * 64] * 8) + f",v1={code}",
        "negative": f"t=-{now},v1={code}", "a fraction": f"t={now}.0,v1={code}",
        "spaces in the time": f"t= {now},v1={code}",
        "in Base64": f"t={now},v1={base64.b64encode(bytes.fromhex(code)).decode()}",
        "of 5,000 signs": signature + "," * 5_000,
        "of zeros": f"t={now},v1={'0' * 64}", "of a time of 30 digits": signed("0" * 20 + now),
        "of no number": signed("now"),
    }.items():
        send(f"a signature {name}", signature=wrong)
    send("an altered body", body=body.replace(b"ann", b"bob"))
    send("a space behind the body", body=body + b" ")
    send("no body", body=b"")

    def event(name, text, allowed=(400,)):
        """RevenueCat's own words, and yet no event."""
        text = text.encode() if isinstance(text, str) else text
        send(f"a body: {name}", signature=signed(int(time.time()), text), body=text, allowed=allowed)

    fresh = json.loads(body)["event"]
    deep = "[" * 100_000 + "]" * 100_000
    event("no JSON", "x")
    event("a list", "[]")
    event("null", "null")
    event("no event", "{}")
    event("an event that is a text", '{"event": "x"}')
    event("no id", dumps({"event": {key: value for key, value in fresh.items() if key != "id"}}))
    event("an id that is a number", dumps({"event": {**fresh, "id": 7}}))
    event("an id with NUL", dumps({"event": {**fresh, "id": "a\0b"}}))
    event("an id of 5,000 signs", dumps({"event": {**fresh, "id": "a" * 5_000}}))
    event("an empty id", dumps({"event": {**fresh, "id": ""}}))
    event("two events", b'{"event":' + dumps(fresh) + b',"event":' + dumps(fresh) + b"}")
    event("two ids", b'{"event":{"id":"x",' + dumps(fresh)[1:] + b"}")
    event("100,000 lists", '{"event": {"id": "x", "type": "TEST", "x": %s}}' % deep)
    event("2 MB", b'{"event": {"x": "' + b"a" * (2 << 20) + b'"}}', (413,))
    event("more behind", body + b"{}")
    event("overlong UTF-8", b'{"event": {"id": "\xc0\xaf", "type": "TEST"}}')
    event("an id with a lone surrogate", '{"event": {"id": "\\ud800", "type": "TEST"}}')
    # What is genuine is taken after all that: the attempts were refused for what was wrong with them.
    watch.kept("RevenueCat: the genuine event", post("revenuecat", headers, body))


# ---- App Store ------------------------------------------------------------------------------------------------------

LEAF = "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n1.2.840.113635.100.6.11.1=ASN1:NULL\n"
AUTHORITY = "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,digitalSignature\n"
AUTHORITY += "1.2.840.113635.100.6.2.1=ASN1:NULL\n"


def own_chain(names):
    """A chain of the attacker's own, under the names of the genuine one; answers its certificates as DER."""
    for part, curve in (("root", "secp384r1"), ("authority", "secp384r1"), ("leaf", "prime256v1")):
        openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", path(part))
    openssl(
        "req", "-x509", "-key", path("root"), "-subj", names[2], "-days", "9", "-out", path("root.pem"), "-addext",
        "keyUsage=critical,keyCertSign,cRLSign",
    )
    issuer = "root"
    for part, name, extensions in (("authority", names[1], AUTHORITY), ("leaf", names[0], LEAF)):
        openssl("req", "-new", "-key", path(part), "-subj", name, "-out", path(f"{part}.csr"))
        file = path(f"{part}.ext", extensions.encode())
        openssl(
            "x509", "-req", "-in", path(f"{part}.csr"), "-CA", path(f"{issuer}.pem"), "-CAkey", path(issuer),
            "-set_serial", "7", "-days", "9", "-extfile", file,
            "-out", path(f"{part}.pem"),
        )
        issuer = part
    return [openssl("x509", "-in", path(f"{part}.pem"), "-outform", "DER") for part in ("leaf", "authority", "root")]


def subject(certificate):
    text = openssl("x509", "-inform", "DER", "-noout", "-subject", "-nameopt", "compat", data=certificate).decode()
    return "/" + text.strip().removeprefix("subject=").strip().lstrip("/").replace(", ", "/")


def app_store(category):
    watch = Watch(category)
    _, body = genuine("app-store", {})
    watch.kept("App Store: a notification", post("app-store", [], body))
    answer = post("app-store", [], body)
    category.note(
        "App Store: the same notification again", answer.status != 200 or number(EVENTS) != watch.count, answer
    )
    signed = json.loads(genuine("app-store", {})[1])["signedPayload"]
    header, payload, signature = signed.split(".")
    chain = json.loads(unb64(header))["x5c"]
    claims = json.loads(unb64(payload))
    own = own_chain([subject(base64.b64decode(one)) for one in chain])
    leaf, authority, root = (base64.b64encode(one).decode() for one in own)
    sign, stranger = ecdsa(path("leaf")), ecdsa(path("authority"), "sha384")
    claims["notificationUUID"] = str(uuid.uuid4())

    def send(name, text, allowed=(401,)):
        watch.refused(f"App Store: {name}", post("app-store", [], dumps({"signedPayload": text})), allowed)

    def make(chain, sign=sign, **header):
        return jws({"alg": "ES256", "x5c": chain, **header}, claims, sign)

    for name, certificates in {
        "an own chain": [leaf, authority, root], "an own chain under the genuine root": [leaf, authority, chain[2]],
        "an own leaf under the genuine authority": [leaf, *chain[1:]],
        "an own root behind the genuine ones": [leaf, chain[1], root], "two certificates": [leaf, authority],
        "one": [leaf], "four": [leaf, authority, root, chain[2]],
        "five": [leaf, authority, *chain], "none": [],
        "the genuine ones behind an own leaf": [leaf, chain[0], chain[1]],
        "the genuine leaf as authority": [leaf, chain[0], chain[2]],
        "empty certificates": ["", "", ""], "no certificates": ["x", "y", "z"], "numbers": [1, 2, 3],
        "null": [None, None, None], "a root as leaf": [root, root, root],
        "an authority as leaf": [authority, authority, root], "the genuine chain": chain,
        "the genuine chain the other way": chain[::-1],
        "spaces in a certificate": [f" {leaf}", authority, root], "100 certificates": [leaf, authority] + [root] * 98,
    }.items():
        # A body of a hundred of them is longer than any that is read.
        send(f"a chain: {name}", make(certificates), (400, 401))
    for name, wrong in {"a text": leaf, "null": None, "an object": {}, "a number": 7}.items():
        send(f"x5c that is {name}", make(wrong))
    send("no x5c", jws({"alg": "ES256"}, claims, sign))
    send("a key in the header", jws({"alg": "ES256", "jwk": {"kty": "EC", "crv": "P-256"}}, claims, sign))
    send("an address of certificates", jws({"alg": "ES256", "x5u": "http://127.0.0.1:1/"}, claims, sign))
    for word in ("none", "None", "", "HS256", "RS256", "ES384", "es256", None, ["ES256"]):
        send(f"alg {word!r} and no signature", jws({"alg": word, "x5c": chain}, claims))
        send(
            f"alg {word!r} over the genuine signature",
            f"{b64(dumps({'alg': word, 'x5c': chain}))}.{payload}.{signature}",
        )
    secret = base64.b64decode(chain[0])
    send("HS256 with the genuine certificate", make(chain, mac(secret), alg="HS256"))
    send("ES384 of an own authority", make([authority, authority, root], stranger, alg="ES384"))
    send("RS256 of an own key", make(chain, rsa(own_rsa()), alg="RS256"))
    send("crit", make(chain, crit=["b64"], b64=False))
    for name, wrong in {
        "no signature": "", "zeros": b64(bytes(64)), "r and s of one": b64((bytes(31) + b"\1") * 2),
        "63 bytes": b64(unb64(signature)[:-1]), "65 bytes": b64(unb64(signature) + b"\0"),
        "twice": signature * 2, "the other half first": b64(unb64(signature)[32:] + unb64(signature)[:32]),
        "padded": signature + "==",
        "DER": b64(openssl("dgst", "-sha256", "-sign", path("leaf"), data=f"{header}.{payload}".encode())),
    }.items():
        send(f"a signature: {name}", f"{header}.{payload}.{wrong}")
    send("altered claims", f"{header}.{b64(dumps(claims))}.{signature}")
    send("a space in the claims", f"{header}.{b64(unb64(payload) + b' ')}.{signature}")
    send("two parts", f"{header}.{payload}")
    send("four parts", f"{signed}.{signature}")
    send("an ID token", token("ann"))
    with open(f"{FILES}/proofs.tsv") as file:
        lines = [line.strip().split("\t") for line in file]
    # What Apple signed for a device is no notification.
    send("a signed transaction", next(proof for kind, _, proof in lines if kind == "storekit_jws"))
    send("a receipt", next(proof for kind, _, proof in lines if kind == "app_receipt"))

    def shape(name, text, allowed=(400,)):
        watch.refused(f"App Store: a body: {name}", post("app-store", [], text), allowed)

    inner = dumps(signed)
    for name, text in {
        "nothing": b"", "no JSON": b"x", "a list": b"[]", "null": b"null", "no payload": b"{}",
        "a number": b'{"signedPayload": 7}', "NUL": b'{"signedPayload": "a\\u0000"}x',
        "two payloads": b'{"signedPayload":' + inner + b',"signedPayload":' + inner + b"}",
        "more behind": b'{"signedPayload":' + inner + b"}x",
        "100,000 lists": b'{"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        "another member alone": b'{"signedpayload":' + inner + b"}",
    }.items():
        shape(name, text)
    shape("200 kB", b'{"signedPayload": "' + b"a" * 200_000 + b'"}', (413,))
    shape("a payload of 120 kB", b'{"signedPayload": "' + b"a" * 120_000 + b'"}', (400, 401))
    shape("an empty payload", b'{"signedPayload": ""}', (400, 401))
    watch.kept("App Store: the genuine notification", post("app-store", [], dumps({"signedPayload": signed})))


# ---- Google Play ----------------------------------------------------------------------------------------------------


def google_play(category):
    watch = Watch(category)
    what = {"subscription": {"notificationType": 4, "purchaseToken": "tok-a"}}
    headers, body = genuine("google-play", what)
    watch.kept("Google Play: a push", post("google-play", headers, body))
    answer = post("google-play", headers, body)
    category.note("Google Play: the same push again", answer.status != 200 or number(EVENTS) != watch.count, answer)
    headers, body = genuine("google-play", what)
    good = dict(headers)["Authorization"].removeprefix("Bearer ")
    claims, now = claims_of(good), int(time.time())
    sign, header = rsa(f"{KEYS}/oauth-1.pem"), {**HEADER, "kid": "oauth-key-1"}
    made = post("google-play", [("Authorization", "Bearer " + jws(header, claims, sign))], body)
    watch.kept("Google Play: what the script signs as Google would", made)
    body = genuine("google-play", what)[1]

    def send(name, text):
        watch.refused(f"Google Play: {name}", post("google-play", [("Authorization", f"Bearer {text}")], body))

    watch.refused("Google Play: no token", post("google-play", [], body))
    watch.refused("Google Play: Basic", post("google-play", [("Authorization", f"Basic {good}")], body))
    watch.refused(
        "Google Play: in the query",
        ask("POST", f"/v1/webhooks/google-play?token={good}&access_token={good}", [JSON], body),
    )
    send("an ID token", token("ann"))
    send("an ID token's key", jws({**HEADER}, claims, rsa(f"{KEYS}/firebase-1.pem")))
    send("an own key", jws(header, claims, rsa(own_rsa())))
    send("HS256", control("identity/push-token", {"alg": "HS256"})["token"])
    send("none", control("identity/push-token", {"alg": "none"})["token"])
    send("altered", control("identity/push-token", {"tampered": True})["token"])
    send("no name of a key", control("identity/push-token", {"kid": ""})["token"])
    send("an unknown key", control("identity/push-token", {"kid": "other"})["token"])
    for member, values in {
        "aud": ["https://other.example", [claims["aud"]], "", None, claims["aud"] + "/", claims["aud"].upper()],
        "iss": ["https://evil.example", "", None, "accounts.google.com.evil.example"],
        "email": ["other@example.iam.gserviceaccount.com", "", None, claims["email"].upper(), [claims["email"]]],
        "email_verified": [False, None, "true", 1, 0],
        "exp": [now - 600, None, "9999999999", 2**63], "iat": [now + 600, None, -1],
    }.items():
        send(f"no {member}", jws(header, {key: value for key, value in claims.items() if key != member}, sign))
        for value in values:
            send(f"{member} {value!r}", jws(header, {**claims, member: value}, sign))
    send("a life of two days", jws(header, {**claims, "exp": now + 172_800}, sign))

    def shape(name, text, allowed=(400,)):
        watch.refused(f"Google Play: a body: {name}", post("google-play", headers, text), allowed)

    whole = json.loads(body)
    message = whole["message"]
    other = json.loads(base64.b64decode(message["data"]))

    def data(**members):
        return {"data": base64.b64encode(dumps({**other, **members})).decode()}

    shape("no JSON", b"x")
    shape("a list", b"[]")
    shape("no message", b"{}")
    shape("no id", dumps({**whole, "message": {"data": message["data"]}}))
    shape("an id with NUL", dumps({**whole, "message": {**message, "messageId": "a\0"}}))
    shape(
        "an id of 5,000 signs",
        dumps({**whole, "message": {**message, "messageId": "a" * 5_000, "message_id": "a" * 5_000}}),
    )
    shape("two messages", b'{"message":' + dumps(message) + b',"message":' + dumps(message) + b"}")
    # What Google pushes and is about nothing of ours is kept, so that it is not sent again, and does nothing.
    changes = {"data that is no Base64": {"data": "!"}, "another app's": data(packageName="com.other")}
    for name, change in changes.items():
        one = str(uuid.uuid4())
        changed = {**message, **change, "messageId": one, "message_id": one}
        answer = post("google-play", headers, dumps({**whole, "message": changed}))
        state = rows(f"SELECT state FROM entitlement_sync.inbox_log WHERE event_id = '{one}'")
        category.note(f"Google Play: a body: {name}", state not in ([], ["ignored"]), f"{state}, {answer}")
    watch.count = number(EVENTS)
    shape("100,000 lists", b'{"message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    shape("2 MB", b'{"x": "' + b"a" * (2 << 20) + b'"}', (413,))
    shape("more behind", body + b"x")
    watch.kept("Google Play: the genuine push", post("google-play", headers, body))


def run():
    category = Category("webhooks")
    revenue_cat(category)
    app_store(category)
    google_play(category)
    for path in (
        "/v1/webhooks/other", "/v1/webhooks/", "/v1/webhooks/revenuecat/x", "/v1/webhooks/onside",
        "/v1/apps/x/webhooks/app-store",
    ):
        category.expect(path, ask("POST", path, [JSON], b"{}"), {404})
    return category
