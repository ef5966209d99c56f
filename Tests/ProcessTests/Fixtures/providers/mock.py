#!/usr/bin/env python3
"""A second OpenID Connect provider for tests, whose tokens can be made to say anything: PyPI's oidc-provider-mock 0.3.4.

    mock.py PORT FOLDER

Takes any client, secret and redirect URI. FOLDER is kept between runs: the tool is installed there once. Prints one line of JSON when
it is ready. `PUT /users/NAME` with JSON replaces a user's claims, those of the ID token itself (iss, aud, exp, ...) among them.
"""
import atexit, ctypes, json, os, shutil, signal, subprocess, sys, tempfile, time, urllib.request

PINS = ["oidc-provider-mock==0.3.4", "Authlib==1.9.10", "joserfc==1.8.0", "cryptography==50.0.2", "cffi==2.1.1",
        "pycparser==3.12", "Flask==3.1.3", "Werkzeug==3.1.9", "Jinja2==3.1.6", "MarkupSafe==3.0.4", "blinker==1.9.0",
        "itsdangerous==2.2.0", "click==8.5.1", "htpy==26.5.1", "httpx==0.28.1", "httpcore==1.0.9", "h11==0.16.0",
        "anyio==4.16.0", "idna==3.20", "certifi==2026.10.19.post1", "uvicorn==0.54.0", "pydantic==2.14.4",
        "pydantic_core==2.50.5", "annotated-types==0.8.0", "typing-inspection==0.4.5", "typing_extensions==4.16.0"]
USERS = {"bea": ["support-approvers"], "cid": ["support-seniors"], "root": ["support-admins"], "ada": []}

if len(sys.argv) != 3:
    sys.exit(__doc__)
PORT, FOLDER = int(sys.argv[1]), sys.argv[2]
BASE = f"http://127.0.0.1:{PORT}"
work = tempfile.mkdtemp(prefix="oidc-mock-")
server = None


def clean_up():
    if server and server.poll() is None:
        server.terminate()
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:
            server.kill()
    shutil.rmtree(work, ignore_errors=True)


atexit.register(clean_up)
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(s, lambda *_: sys.exit(0))
http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(method, path, body=None):
    request = urllib.request.Request(BASE + path, None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json"}, method=method)
    with http.open(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


# Named when it is whole: a run that was stopped leaves none that looks so.
venv = FOLDER + "/oidc-provider-mock-0.3.4"
if not os.path.exists(venv + "/whole"):
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, stdout=sys.stderr)
    subprocess.run([venv + "/bin/python", "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", *PINS], check=True, stdout=sys.stderr)
    open(venv + "/whole", "w").close()
python = venv + "/bin/python"

users = []
for name, groups in USERS.items():
    users += ["--user-claims", json.dumps({"sub": name, "name": name.capitalize(), "preferred_username": name,
                                           "email": name + "@example.org", "groups": groups})]
parent = os.getpid()


def child():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


server = subprocess.Popen([python, "-m", "oidc_provider_mock", "--host", "127.0.0.1", "--port", str(PORT), *users,
                           ], preexec_fn=child, cwd=work,
                          stdin=subprocess.DEVNULL, stdout=sys.stderr, env={**os.environ, "NO_COLOR": "1", "HOME": work})
for _ in range(200):
    if server.poll() is not None:
        sys.exit(f"oidc-provider-mock ended with {server.returncode}")
    try:
        issuer = call("GET", "/.well-known/openid-configuration")["issuer"]
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("oidc-provider-mock does not answer")
print(json.dumps({"issuer": issuer, "client_id": "console", "client_secret": "any secret"}), flush=True)
sys.exit(f"oidc-provider-mock ended with {server.wait()}")
