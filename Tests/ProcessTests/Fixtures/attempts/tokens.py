"""ID tokens that are not right in everything, where an app's token belongs and elsewhere."""

import time

from target import (
    FILES, JSON, KEYS, SIMULATOR, Category, ask, b64, bearer, control, dumps, jws, mac, number, openssl, own_rsa, rsa,
    token, unb64,
)

HEADER = {"alg": "RS256", "kid": "firebase-key-1", "typ": "JWT"}


def claims_of(text):
    import json

    return json.loads(unb64(text.split(".")[1]))


def der(tag, *parts):
    body = b"".join(parts)
    size = len(body)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + body


def public_keys():
    """The public key in every form in which a verifier may take it for a secret."""
    key = f"{KEYS}/firebase-1.pem"
    pem = openssl("pkey", "-in", key, "-pubout")
    plain = openssl("rsa", "-in", key, "-RSAPublicKey_out")
    jwk = ask("GET", "/google-keys/firebase", port=SIMULATOR).json()["keys"][0]
    return {
        "PEM": pem, "PEM without its last line end": pem.rstrip(),
        "DER": openssl("pkey", "-in", key, "-pubout", "-outform", "DER"),
        "PKCS 1": plain, "its modulus": unb64(jwk["n"]), "its modulus in Base64": jwk["n"].encode(), "JWK": dumps(jwk),
        "its name": jwk["kid"].encode(), "nothing": b"",
    }


def wrong_headers(claims):
    """Headers that choose another key or algorithm; all but the unsigned ones carry the issuer's own signature."""
    sign = rsa(f"{KEYS}/firebase-1.pem")
    for word in ["none", "None", "NONE", "nOnE", "none ", " none", "none\0", "", None, "null", 0, False, [], ["none"]]:
        header = {**HEADER, "alg": word}
        yield f"alg {word!r}, unsigned", jws(header, claims)
        yield f"alg {word!r}, signed", jws(header, claims, sign)
    yield "no alg", jws({"kid": HEADER["kid"]}, claims, sign)
    for name, secret in public_keys().items():
        yield f"HS256 with {name}", jws({**HEADER, "alg": "HS256"}, claims, mac(secret))
    pem = public_keys()["PEM"]
    for digest in ("384", "512"):
        yield f"HS{digest}", jws({**HEADER, "alg": f"HS{digest}"}, claims, mac(pem, f"sha{digest}"))
        yield f"RS{digest}", jws(
            {**HEADER, "alg": f"RS{digest}"}, claims, rsa(f"{KEYS}/firebase-1.pem", f"sha{digest}"),
        )
        yield f"RS256 that is RS{digest}", jws(HEADER, claims, rsa(f"{KEYS}/firebase-1.pem", f"sha{digest}"))
    pss = ("-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1")
    yield "PS256", jws({**HEADER, "alg": "PS256"}, claims, rsa(f"{KEYS}/firebase-1.pem", "sha256", *pss))
    yield "RS256 that is PS256", jws(HEADER, claims, rsa(f"{KEYS}/firebase-1.pem", "sha256", *pss))
    for word in ["rs256", "RS256 ", ["RS256"], "ES256", "EdDSA", "RS1"]:
        yield f"alg {word!r} over RS256", jws({**HEADER, "alg": word}, claims, sign)
    for name in [
        "", None, 0, [], ["firebase-key-1"], {}, "../../../../../../dev/null", "/dev/null", "file:///dev/null",
        "firebase-key-1\0", "firebase-key-1 ", "FIREBASE-KEY-1", "firebase-key-2", "oauth-key-1", "' OR '1'='1", "%00",
        "\u202e",
        "http://127.0.0.1:1/key", "k" * 4000,
    ]:
        yield f"kid {str(name)[:40]!r} ({type(name).__name__})", jws({**HEADER, "kid": name}, claims, sign)
    yield "no kid", jws({"alg": "RS256", "typ": "JWT"}, claims, sign)
    yield "crit", jws({**HEADER, "crit": ["exp"]}, claims, sign)
    yield "crit b64", jws({**HEADER, "crit": ["b64"], "b64": False}, claims, sign)
    yield "crit of nothing known", jws({**HEADER, "crit": ["urn:x"], "urn:x": 1}, claims, sign)
    yield "doubled alg", jws(b'{"alg":"none","alg":"RS256","kid":"firebase-key-1"}', claims, sign)
    yield "a header that is no object", jws(b'["RS256"]', claims, sign)


def own_keys(claims):
    """Signed with a key of the attacker's own, which the header offers in every way that there is."""
    key = own_rsa()
    sign, modulus = rsa(key), openssl("rsa", "-in", key, "-noout", "-modulus").decode().strip().split("=")[1]
    jwk = {"kty": "RSA", "n": b64(bytes.fromhex(modulus)), "e": "AQAB", "kid": "own", "alg": "RS256", "use": "sig"}
    certificate = openssl("req", "-x509", "-key", key, "-subj", "/CN=own", "-outform", "DER")
    import base64

    offers = {
        "nothing": {}, "jwk": {"jwk": jwk}, "jku": {"jku": f"http://127.0.0.1:{SIMULATOR}/own"},
        "x5u": {"x5u": f"http://127.0.0.1:{SIMULATOR}/own"}, "x5c": {"x5c": [base64.b64encode(certificate).decode()]},
        "x5t": {"x5t": b64(certificate[:20])},
    }
    for name, offer in offers.items():
        for kid in ("firebase-key-1", "own"):
            yield f"own key with {name} as {kid}", jws({**HEADER, "kid": kid, **offer}, claims, sign)
    other = rsa(f"{KEYS}/oauth-1.pem")
    yield "the issuer's key for pushes", jws(HEADER, claims, other)
    yield "the issuer's key for pushes by its name", jws({**HEADER, "kid": "oauth-key-1"}, claims, other)


def wrong_claims(claims, now):
    """Signed by the issuer's own key, and yet not for this API, this moment or a user."""
    project = claims["aud"]
    wrong = {
        "aud": [
            "other-project", [project], [], None, 0, "", project + " ", project.upper(), project + "\0", {"a": project},
        ],
        "iss": [
            "https://securetoken.google.com/other", f"https://securetoken.google.com/{project}/",
            f"http://securetoken.google.com/{project}", f"https://securetoken.google.com.evil.example/{project}",
            f"https://session.firebase.google.com/{project}", "", None, [claims["iss"]], "https://accounts.google.com",
        ],
        "exp": [now - 3600, now - 90, 0, -1, None, str(now + 3600), 1e300, 2**63, now + 10**12, []],
        "iat": [now + 600, now + 10**9, None, str(now), -1, 2**64],
        "auth_time": [now + 86_400, None, str(now), -1],
        "sub": ["", "a" * 129, None, 7, ["ann"], {"ann": 1}, True, "ann\0", "\ud800"],
    }
    sign = rsa(f"{KEYS}/firebase-1.pem")
    for member, values in wrong.items():
        yield f"no {member}", jws(HEADER, {key: value for key, value in claims.items() if key != member}, sign)
        for value in values:
            yield f"{member} {str(value)[:50]!r} ({type(value).__name__})", jws(HEADER, {**claims, member: value}, sign)
    yield "a tenant's", jws(HEADER, {**claims, "firebase": {"tenant": "t1", "sign_in_provider": "password"}}, sign)
    for member in ("sub", "aud", "exp"):
        text = dumps(claims)[:-1] + b"," + dumps({member: claims[member]})[1:]
        yield f"{member} twice", jws(HEADER, text, sign)
    whole = dumps(claims)
    texts = {"a list": b"[]", "null": b"null", "cut off": whole[:-1], "more behind": whole + b"{}"}
    for name, text in texts.items():
        yield f"claims that are {name}", jws(HEADER, text, sign)
    yield "expired long ago, by the issuer", token("ann", iat=now - 7200, exp=now - 3600)


def altered(genuine, other):
    """A genuine token, altered on its way."""
    header, payload, signature = genuine.split(".")
    claims = unb64(payload)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet[alphabet.index(signature[-1]) ^ 1]
    yield "another's claims", f"{header}.{other.split('.')[1]}.{signature}"
    yield "claims with a space behind", f"{header}.{b64(claims + b' ')}.{signature}"
    yield "a header with a space behind", f"{b64(unb64(header) + b' ')}.{payload}.{signature}"
    yield "bits behind the signature", f"{header}.{payload}.{signature[:-1]}{last}"
    yield "a first byte that differs", f"{header}.{payload}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
    yield "padded", f"{header}.{payload}.{signature}=="
    yield "padded claims", f"{header}.{payload}=.{signature}"
    yield "the usual alphabet", f"{header}.{payload}.{signature.replace('-', '+').replace('_', '/')}"
    yield "a byte less", f"{header}.{payload}.{b64(unb64(signature)[:-1])}"
    yield "a byte more", f"{header}.{payload}.{b64(unb64(signature) + b'x')}"
    yield "a zero before", f"{header}.{payload}.{b64(chr(0).encode() + unb64(signature))}"
    yield "twice the signature", f"{header}.{payload}.{signature}{signature}"
    yield "nothing but zeros", f"{header}.{payload}.{b64(bytes(256))}"
    yield "no signature", f"{header}.{payload}."
    yield "two parts", f"{header}.{payload}"
    yield "four parts", f"{genuine}.{signature}"
    yield "five parts", f"{genuine}.a.b"
    yield "an empty header", f".{payload}.{signature}"
    yield "a space within", f"{header}.{payload} .{signature}"
    yield "a quotation", f'"{genuine}"'
    # An integer of which the modulus was added once verifies like the first one, unless its size is checked.
    jwk = ask("GET", "/google-keys/firebase", port=SIMULATOR).json()["keys"][0]
    larger = int.from_bytes(unb64(signature), "big") + int.from_bytes(unb64(jwk["n"]), "big")
    yield "the modulus added", f"{header}.{payload}.{b64(larger.to_bytes(257, 'big'))}"


def elsewhere(genuine, other):
    """A genuine token in places where none is read, and in odd company."""
    for name in ("token", "access_token", "id_token", "authorization", "auth", "Authorization"):
        yield f"in the query as {name}", f"/v1/entitlement?{name}={genuine}", []
    for name in ("Authorization", "token", "id_token", "session", "__session"):
        yield f"in the cookie {name}", "/v1/entitlement", [("Cookie", f"{name}={genuine}")]
    for name in (
        "Proxy-Authorization", "X-Authorization", "X-Forwarded-Authorization", "X-Goog-IAP-JWT-Assertion", "X-Id-Token"
    ):
        yield f"in {name}", "/v1/entitlement", [(name, f"Bearer {genuine}")]
    for value in (
        genuine, f"Basic {genuine}", f"Token {genuine}", f"Bearer{genuine}", f"Bearer {genuine} {genuine}",
        f"Bearer, {genuine}",
        f"Bearer {genuine}, Bearer {other}", f"Bearer token={genuine}", "Bearer", "Bearer ", "Bearer null",
        "Bearer undefined",
    ):
        name = value.replace(genuine, "TOKEN").replace(other, "OTHER")
        yield f"Authorization: {name}", "/v1/entitlement", [("Authorization", value)]
    yield "two Authorizations", "/v1/entitlement", [bearer(genuine), bearer(other)]
    yield "none at all", "/v1/entitlement", []


def run():
    category = Category("ID tokens")
    now = int(time.time())
    genuine, other = token("ann"), token("bob")
    # The issuer makes its other key with its first use.
    push = control("identity/push-token", {})["token"]
    claims = claims_of(genuine)
    good = ask("GET", "/v1/entitlement", [bearer(genuine)])
    category.control("a genuine token", good.status == 200, good)
    good = ask("GET", "/v1/entitlement", [bearer(jws(HEADER, claims, rsa(f"{KEYS}/firebase-1.pem")))])
    category.control("what the script signs as the issuer would", good.status == 200, good)
    before = number("SELECT count(*) FROM entitlement_sync.user_sync")
    for source in (
        wrong_headers(claims), own_keys(claims), wrong_claims(claims, now), altered(genuine, other),
    ):
        for name, text in source:
            category.expect(name, ask("GET", "/v1/entitlement", [bearer(text)]), {401})
    for size in (9_000, 15_000, 60_000):
        long = jws(HEADER, {**claims, "x": "y" * size}, rsa(f"{KEYS}/firebase-1.pem"))
        category.expect(f"{size} bytes too many", ask("GET", "/v1/entitlement", [bearer(long)]), {400, 401, 431})
    with open(f"{FILES}/proofs.tsv") as file:
        proof = next(line.split("\t")[2].strip() for line in file if line.startswith("storekit_jws"))
    category.expect("a signed transaction", ask("GET", "/v1/entitlement", [bearer(proof)]), {401})
    category.expect("the token of a push", ask("GET", "/v1/entitlement", [bearer(push)]), {401})
    for name, where, headers in elsewhere(genuine, other):
        category.expect(name, ask("GET", where, headers), {400, 401})
    body = dumps({"token": genuine, "authorization": f"Bearer {genuine}"})
    category.expect("in the body", ask("POST", "/v1/restores", [JSON], body), {401})
    added = number("SELECT count(*) FROM entitlement_sync.user_sync") - before
    category.note("nothing was written of all these", added != 0, f"{added} users more")
    return category
