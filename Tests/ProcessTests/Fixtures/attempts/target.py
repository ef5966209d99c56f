"""The site that is attacked, and how an attacker speaks to it: bytes over sockets, tokens, and SQL through psql."""

import base64
import glob
import hashlib
import hmac
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from urllib.parse import urlencode

ENV = os.environ
API = int(ENV["ATTEMPTS_API_PORT"])
ADMIN = int(ENV["ATTEMPTS_ADMIN_PORT"])
LIMITED = int(ENV["ATTEMPTS_LIMITED_PORT"])
SIMULATOR = int(ENV["ATTEMPTS_SIMULATOR_PORT"])
KEYS, FILES, STAFF = ENV["ATTEMPTS_KEYS"], ENV["ATTEMPTS_FILES"], ENV["ATTEMPTS_STAFF"]
PROGRAM, DATABASE = ENV["ATTEMPTS_PROGRAM"], ENV["ATTEMPTS_DATABASE"]
PSQL = shutil.which("psql") or max(glob.glob("/usr/lib/postgresql/*/bin/psql"), default="psql")
FOLDER = tempfile.mkdtemp(prefix="attempts-")
PASSWORD = "a horse of another colour"


class Unready(Exception):
    """Something legitimate did not work: refusals would show nothing then."""


# ---- What was tried -------------------------------------------------------------------------------------------------


class Category:
    """Attempts of one kind, and which of them the server accepted."""

    def __init__(self, what):
        self.what, self.names, self.accepted, self.refused, self.lenient = what, set(), [], [], []

    def control(self, name, is_right, seen=""):
        if not is_right:
            raise Unready(f"{self.what}: {name}: {str(seen)[:600]}")

    def note(self, name, is_accepted, seen="", harmless=""):
        """Counts one attempt; names differ, so that none is counted twice.

        `harmless` says why the server may accept it: it is listed apart then, for a standard asks for a refusal.
        """
        self.control(f"two attempts are named {name}", name not in self.names)
        self.names.add(name)
        if is_accepted and harmless:
            self.lenient.append(f"{name}: {seen} ({harmless})")
        else:
            (self.accepted if is_accepted else self.refused).append(f"{name}: {str(seen)[:300]}")

    def expect(self, name, answer, allowed):
        """Counts one attempt, which any status but those allowed accepts; no answer at all has the status 0."""
        self.note(name, answer.status not in allowed, answer)

    def report(self):
        examples = self.accepted[:40] or self.refused[:1] + self.refused[-1:]
        report = {"what": self.what, "attempts": len(self.names), "accepted": len(self.accepted), "examples": examples}
        return {**report, "lenient": self.lenient} if self.lenient else report


# ---- HTTP -----------------------------------------------------------------------------------------------------------


class Answer:
    def __init__(self, status=0, headers=(), body=b""):
        self.status, self.headers, self.body = status, list(headers), body

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def __getitem__(self, name):
        return next((value for key, value in self.headers if key == name.lower()), None)

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    def __str__(self):
        return f"{self.status} {self['location'] or ''} {self.text[:250]}"


def exchange(port, data, end=False, timeout=5.0, source="127.0.0.1"):
    """Sends bytes and reads until the server closes or is silent; answers the bytes and whether it closed."""
    came = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout, source_address=(source, 0)) as sock:
            sock.settimeout(timeout)
            try:
                sock.sendall(data)
                if end:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # It may have refused before all was sent; what it said is read all the same.
            while part := sock.recv(65536):
                came += part
        return came, True
    except TimeoutError:
        return came, False
    except OSError:
        return came, True


def answers(came):
    """All answers in what came, the last one as far as it came."""
    found = []
    while came.startswith(b"HTTP/1.1 "):
        head, _, came = came.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        answer = Answer(int(lines[0][9:12]), headers)
        if answer["transfer-encoding"] == "chunked":
            while (size := int((came.partition(b"\r\n")[0] or b"0"), 16)) > 0:
                came = came.partition(b"\r\n")[2]
                answer.body, came = answer.body + came[:size], came[size + 2 :]
            came = came.partition(b"\r\n\r\n")[2]
        else:
            size = int(answer["content-length"] or 0)
            answer.body, came = came[:size], came[size:]
        found.append(answer)
    return found


def request(method, path, headers=(), body=None, host=None, port=API):
    """A request as bytes; headers are pairs, their texts of any bytes as Latin-1."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


def ask(method, path, headers=(), body=None, port=API, host=None, source="127.0.0.1", timeout=30.0):
    """Sends one request on a connection of its own; no answer has the status 0."""
    if isinstance(body, str):
        body = body.encode()
    data = request(method, path, [*headers, ("Connection", "close")], body, host, port)
    return next(iter(answers(exchange(port, data, timeout=timeout, source=source)[0])), Answer())


JSON = ("Content-Type", "application/json")


def bearer(token):
    return ("Authorization", f"Bearer {token}")


def control(path, what):
    """Asks the double of the stores and of the token issuer for something genuine."""
    answer = ask("POST", f"/control/{path}", [JSON], json.dumps(what), port=SIMULATOR)
    if answer.status != 200:
        raise Unready(f"{path}: {answer}")
    return answer.json()


def token(user, **claims):
    return control("identity/firebase-token", {"sub": user, **claims})["token"]


# ---- Signatures -----------------------------------------------------------------------------------------------------


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def dumps(value):
    return json.dumps(value, separators=(",", ":")).encode()


def openssl(*words, data=b""):
    done = subprocess.run(["openssl", *words], input=data, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise Unready(f"openssl {words[0]}: {done.stderr.decode()[:500]}")
    return done.stdout


def path(name, data=None):
    """A file of this run's own."""
    whole = f"{FOLDER}/{name}"
    if data is not None:
        with open(whole, "wb") as file:
            file.write(data)
    return whole


def rsa(key, digest="sha256", *options):
    return lambda data: openssl("dgst", f"-{digest}", "-sign", key, *options, data=data)


def ecdsa(key, digest="sha256"):
    """As JWS has it: both numbers in 32 bytes each, without DER around them."""

    def sign(data):
        der = openssl("dgst", f"-{digest}", "-sign", key, data=data)
        numbers, rest = [], der[2:]
        while rest:
            size = rest[1]
            numbers.append(rest[2 : 2 + size].lstrip(b"\0").rjust(32, b"\0"))
            rest = rest[2 + size :]
        return b"".join(numbers)

    return sign


def mac(secret, digest="sha256"):
    return lambda data: hmac.digest(secret, data, digest)


def jws(header, payload, sign=lambda data: b""):
    """A compact JWS; header and payload are values, or bytes that are taken as they are."""
    parts = [b64(part if isinstance(part, bytes) else dumps(part)) for part in (header, payload)]
    text = ".".join(parts)
    return f"{text}.{b64(sign(text.encode()))}"


def own_rsa(name="own-rsa"):
    if not os.path.exists(path(name)):
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path(name))
    return path(name)


# ---- SQL ------------------------------------------------------------------------------------------------------------


def psql(script, url=DATABASE, timeout=120):
    words = [PSQL, "-XqAt", "--no-password", "-v", "ON_ERROR_STOP=0", "-f", "-", url]
    done = subprocess.run(words, input=script.encode(), capture_output=True, timeout=timeout)
    return done.stdout.decode(), done.stderr.decode()


def rows(query):
    """What a query of the database's owner answers, a line for each row."""
    out, err = psql(query + ";")
    if err and "ERROR" in err:
        raise Unready(err[:600])
    return out.splitlines()


def number(query):
    return int(rows(query)[0])


def states(statements, url, before=""):
    """Runs statements, each in a transaction that is rolled back; answers SQLSTATE and message of each."""
    script = before
    for place, statement in enumerate(statements):
        script += f"BEGIN;\n{statement}\n;\n\\echo @{place} :SQLSTATE :LAST_ERROR_MESSAGE\nROLLBACK;\n"
    out, err = psql(script, url)
    found = {}
    for line in out.splitlines():
        if line.startswith("@"):
            place, state, *message = line[1:].split(" ", 2)
            found[int(place)] = (state, message[0] if message and state != "00000" else "")
    if len(found) != len(statements):
        raise Unready(f"{len(found)} of {len(statements)} statements were answered: {err[-600:]}")
    return [found[place] for place in range(len(statements))]


# ---- Operators ------------------------------------------------------------------------------------------------------


def code(name, later=0):
    """What an operator's device shows, now or some half minutes later."""
    with open(f"{STAFF}/{name}/device") as file:
        secret = base64.b32decode(file.read().strip())
    code = hmac.digest(secret, struct.pack(">Q", int(time.time()) // 30 + later), hashlib.sha1)
    return f"{(struct.unpack('>I', code[code[-1] & 15:][:4])[0] & 0x7FFFFFFF) % 1_000_000:06d}"


def forget_tries():
    """Lets an operator sign in again within the half minute, and makes wrong tries undone."""
    rows(
        "UPDATE entitlement_sync.operator_secret SET last_period = NULL;"
        " DELETE FROM entitlement_sync.sign_in_attempt"
    )


def post(where, fields, cookie=None, headers=None, host=None):
    """Sends a form as the console's own pages do, unless other headers are given."""
    own = [("Origin", f"http://127.0.0.1:{ADMIN}")] if headers is None else headers
    every = [("Content-Type", "application/x-www-form-urlencoded"), *own]
    every += [("Cookie", cookie)] if cookie else []
    return ask("POST", where, every, urlencode(fields), port=ADMIN, host=host)


def page(where, cookie=None, headers=()):
    return ask("GET", where, [*headers, *([("Cookie", cookie)] if cookie else [])], port=ADMIN)


def sign_in(name, cookie=None, **fields):
    """Signs in at the console; answers the answer and the session's cookie."""
    forget_tries()
    given = {"name": name, "password": PASSWORD, "code": code(name), "next": "", **fields}
    answer = post("/console/sign-in", given, cookie)
    set_cookie = answer["set-cookie"] or ""
    return answer, set_cookie.partition(";")[0]


def form_key(cookie):
    text = page("/console", cookie).text
    return text.partition('name="key" value="')[2][:64]


def clean():
    shutil.rmtree(FOLDER, ignore_errors=True)
