#!/usr/bin/env python3
"""A real OpenID Connect provider for tests: Debian's glewlwyd 2.7.5, on 127.0.0.1 alone.

    glewlwyd.py PORT REDIRECT_URI POST_LOGOUT_URI

Prints one line of JSON when it is ready. What is posted to /control is obeyed then:

    groups USER [GROUP ...]   the user's groups from now on
    logout USER               ends the user's sessions here
    rotate                    makes a new signing key
    down | up                 answers 503 to everything else, or works again

Glewlwyd itself listens on another port; PORT is a small proxy before it. The ID token's auth_time would be that of the session cookie
of the *token* request, which a client's server does not have, and so always 0: the proxy keeps the cookie with which the browser
got the code, and adds it to the token request with that code. OIDC_PLAIN=1 leaves the 0. Ends, with everything it made, on SIGTERM.
"""
import atexit, ctypes, http.client, http.cookiejar, http.server, json, os, re, secrets, shutil, signal, socket
import sqlite3, subprocess, sys, tempfile, threading, time, urllib.error, urllib.parse, urllib.request

if len(sys.argv) != 4:
    sys.exit(__doc__)
PORT, REDIRECT, POST_LOGOUT = int(sys.argv[1]), sys.argv[2], sys.argv[3]
BASE = f"http://127.0.0.1:{PORT}"
with socket.create_server(("127.0.0.1", 0)) as free:
    INNER = free.getsockname()[1]  # where glewlwyd listens
ISSUER = BASE + "/api/oidc"  # so that the discovery document is where a client looks for it
SECRET = secrets.token_urlsafe(24)
PASSWORD = "a horse of another colour"
USERS = {"bea": ["support-approvers"], "cid": ["support-seniors"], "root": ["support-admins"], "ada": []}
SCOPES = ["openid", "profile"]
LIB, WEB = "/usr/lib/glewlwyd", "/usr/share/glewlwyd"
SQL = "/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3"

work = tempfile.mkdtemp(prefix="glewlwyd-")  # below $TMPDIR, mode 0700
daemon = None


def clean_up():
    if daemon and daemon.poll() is None:
        daemon.terminate()
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    shutil.rmtree(work, ignore_errors=True)


atexit.register(clean_up)
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, lambda *_: sys.exit(0))


def prepare():
    """The database, the web files and the configuration."""
    db = sqlite3.connect(work + "/glewlwyd.db")
    with open(SQL) as f:
        db.executescript(f.read())
    # Two properties that the default data format lacks: the one behind the claim `groups`, and the one
    # which 2.7.5's end_session really reads (the admin page's `post_logout_redirect_uri` is not looked at).
    for table, column, name in (("g_user_module_instance", "gumi_parameters", "groups"),
                                ("g_client_module_instance", "gcmi_parameters", "post_logout_redirect_uris")):
        (text,) = db.execute(f"SELECT {column} FROM {table}").fetchone()
        parameters = json.loads(text)
        parameters["data-format"][name] = {"multiple": True, "read": True, "write": True}
        db.execute(f"UPDATE {table} SET {column} = ?", [json.dumps(parameters)])
    db.execute("UPDATE g_scope SET gs_password_required = 1 WHERE gs_name = 'openid'")
    db.commit()
    db.close()
    # A copy: glewlwyd refuses symbolic links that lead out of its folder, and the package's own
    # webapp/config.json points to a folder instead of to a file.
    shutil.copytree(WEB + "/webapp", work + "/web", ignore=shutil.ignore_patterns("config.json"))
    shutil.copyfile(WEB + "/templates/config.json", work + "/web/config.json")
    os.mkdir(work + "/none")
    types = {"html": "text/html", "css": "text/css", "js": "application/javascript", "json": "application/json",
             "png": "image/png", "ico": "image/x-icon", "woff": "font/woff", "woff2": "font/woff2", "ttf": "font/ttf"}
    with open(work + "/glewlwyd.conf", "w") as f:
        f.write(f"""
port={INNER}
bind_address="127.0.0.1"
external_url="{BASE}"
login_url="login.html"
api_prefix="api"
static_files_path="{work}/web/"
static_files_mime_types = ({", ".join('{extension=".%s" mime_type="%s"}' % t for t in types.items())})
log_mode="console"
log_level="WARNING"
cookie_secure=0
session_key="GLEWLWYD2_SESSION_ID"
session_expiration=2419200
admin_session_authentication="cookie,api_key"
admin_scope="g_admin"
profile_scope="g_profile"
user_module_path="{LIB}/user"
user_middleware_module_path="{work}/none"
client_module_path="{LIB}/client"
user_auth_scheme_module_path="{LIB}/scheme"
plugin_module_path="{LIB}/plugin"
hash_algorithm="SHA512"
database = {{ type="sqlite3" path="{work}/glewlwyd.db" }};
""")


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes everything on to glewlwyd; see the top for why."""
    protocol_version = "HTTP/1.1"
    cookies = {}  # code -> the cookie it was got with
    down, admin = False, None

    def log_message(self, *_):
        pass

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("connection", "content-length")}
        path = self.path.partition("?")[0]
        if path == "/control":
            try:
                obey(Proxy.admin, *body.decode().split())
                status, answer, content = 200, [], b""
            except Exception as e:
                status, answer, content = 500, [], str(e).encode()
            return self.answer(status, answer, content)
        if path == "/api/oidc/token" and not os.environ.get("OIDC_PLAIN"):
            code = dict(urllib.parse.parse_qsl(body.decode(errors="replace"))).get("code")
            if code in self.cookies:
                headers["Cookie"] = self.cookies[code]
        if Proxy.down:
            status, answer, content = 503, [], b""
        else:
            inner = http.client.HTTPConnection("127.0.0.1", INNER, timeout=60)
            inner.request(self.command, self.path, body or None, headers)
            r = inner.getresponse()
            status, answer, content = r.status, r.getheaders(), r.read()
            inner.close()
            code = re.search(r"[?&#]code=([^&#]+)", r.getheader("Location") or "")
            if path == "/api/oidc/auth" and code:
                self.cookies[urllib.parse.unquote(code[1])] = self.headers.get("Cookie", "")
        self.answer(status, answer, content)

    def answer(self, status, answer, content):
        self.send_response_only(status)
        for k, v in answer:
            if k.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(k, v)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_HEAD = pass_on


class Session:
    """A session at glewlwyd's JSON API, with cookies or with the API key."""

    def __init__(self, username=None, password=None):
        self.headers = {"Content-Type": "application/json"}
        self.http = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        if username:
            self("POST", "auth/", {"username": username, "password": password})

    def __call__(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{INNER}/api/{path}", data, self.headers, method=method)
        try:
            with self.http.open(request, timeout=10) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            raise RuntimeError(f"{method} {path}: {e.code} {e.read().decode(errors='replace')}") from None


def plugin():
    """The OIDC plugin's instance `oidc`, with a new RS256 key."""
    def openssl(*words, stdin=None):
        return subprocess.run(["openssl", *words], input=stdin, capture_output=True, check=True, text=True).stdout
    key = openssl("genrsa", "2048")
    public = openssl("rsa", "-pubout", stdin=key)
    return {"module": "oidc", "name": "oidc", "display_name": "OIDC", "order_rank": 0, "readonly": False, "parameters": {
        "iss": ISSUER, "jwt-type": "rsa", "jwt-key-size": "256", "key": key, "cert": public,
        "subject-type": "public", "jwks-show": True, "jwks-x5c": [],
        "access-token-duration": 300, "refresh-token-duration": 1209600, "code-duration": 60,
        "refresh-token-rolling": True, "refresh-token-one-use": "always",
        "allow-non-oidc": False, "auth-type-code-enabled": True, "auth-type-code-revoke-replayed": True,
        "auth-type-token-enabled": False, "auth-type-id-token-enabled": True, "auth-type-none-enabled": False,
        "auth-type-password-enabled": False, "auth-type-client-enabled": False,
        "auth-type-device-enabled": False, "auth-type-refresh-enabled": True,
        "pkce-allowed": True, "pkce-method-plain-allowed": False, "pkce-required": True,
        "allowed-scope": SCOPES, "scope": [], "additional-parameters": [],
        "claims": [{"name": "groups", "user-property": "groups", "type": "string", "mandatory": True,
                    "on-demand": False, "scope": []}],
        "name-claim": "mandatory", "email-claim": "mandatory", "scope-claim": "no", "address-claim": {"type": "no"},
        "request-parameter-allow": False,
        "introspection-revocation-allowed": True, "introspection-revocation-allow-target-client": True,
        "session-management-allowed": True, "session-cookie-name": "GLEWLWYD2_OIDC_SID",
        "session-cookie-expiration": 2419200,
        "front-channel-logout-allowed": False, "back-channel-logout-allowed": False}}


def provision(admin):
    admin("POST", "scope/", {"name": "profile", "display_name": "Name and groups",
                             "password_required": True, "password_max_age": 0, "scheme": {}})
    admin("POST", "mod/plugin/", plugin())
    admin("POST", "client/", {
        "client_id": "console", "name": "Console", "enabled": True, "confidential": True, "client_secret": SECRET,
        "token_endpoint_auth_method": ["client_secret_basic", "client_secret_post"],
        "authorization_type": ["code", "refresh_token", "client_credentials"], "scope": SCOPES,
        "redirect_uri": [REDIRECT],
        "post_logout_redirect_uris": [POST_LOGOUT]})
    for name, groups in USERS.items():
        admin("POST", "user/", {"username": name, "name": name.capitalize(), "email": name + "@example.org",
                                "password": PASSWORD, "enabled": True, "scope": SCOPES, "groups": groups})
        user = Session(name, PASSWORD)
        # Consent, given in advance.
        user("PUT", "auth/grant/console", {"scope": " ".join(SCOPES)})


def obey(admin, word, name=None, *rest):
    if word == "groups":
        user = admin("GET", f"user/{name}")
        user = {k: v for k, v in user.items() if k not in ("source", "last_login")}
        admin("PUT", f"user/{name}", {**user, "groups": list(rest)})
    elif word == "rotate":
        admin("PUT", "mod/plugin/oidc", plugin())
        admin("PUT", "mod/plugin/oidc/reset")
    elif word == "logout":
        db = sqlite3.connect(work + "/glewlwyd.db", timeout=10)
        db.execute("UPDATE g_user_session SET gus_enabled = 0 WHERE gus_username = ?", [name])
        db.commit()
        db.close()
    elif word in ("down", "up"):
        Proxy.down = word == "down"
    else:
        raise RuntimeError("unknown word")


def main():
    global daemon
    prepare()
    outer = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Proxy)
    outer.daemon_threads = True
    parent = os.getpid()

    def child():  # the daemon must not outlive this script, not even a killed one
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)
    daemon = subprocess.Popen(["glewlwyd", "--config-file", work + "/glewlwyd.conf"], preexec_fn=child, cwd=work,
                              stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr, start_new_session=True)
    for _ in range(100):
        if daemon.poll() is not None:
            sys.exit(f"glewlwyd ended with {daemon.returncode}")
        try:
            admin = Session("admin", "password")
            break
        except (OSError, RuntimeError):
            time.sleep(0.1)
    else:
        sys.exit("glewlwyd does not answer")
    key = admin("POST", "key/")["key"]
    admin = Session()
    admin.headers["Authorization"] = "token " + key
    provision(admin)
    threading.Thread(target=outer.serve_forever, daemon=True).start()
    Proxy.admin = admin
    print(json.dumps({"issuer": ISSUER, "client_id": "console", "client_secret": SECRET}), flush=True)
    sys.exit(f"glewlwyd ended with {daemon.wait()}")


main()
