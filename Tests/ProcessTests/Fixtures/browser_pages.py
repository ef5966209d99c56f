"""Pages that are as they should be, and pages that are not, for a browser to tell apart. Python 3, standard library only.

Prints its port, then answers until it is killed.
"""

import html
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'"

STYLE = """
body { background: #fff; color: #111; font: 16px/1.5 sans-serif; margin: 16px; }
a { color: #0b3d91; display: inline-block; padding: 6px; }
input, select, button { font: inherit; min-height: 32px; }
input[type=radio] { height: 24px; width: 24px; }
:focus-visible { outline: 3px solid #b00020; outline-offset: 2px; }
.tall { height: 1500px; }
.pale { color: #bbb; }
.blind:focus-visible { outline: none; }
.wide { width: 900px; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #eee; } a { color: #9ec1ff; } }
"""

SCRIPT = """
document.addEventListener("keydown", event => {
    if (event.key === "j" && event.target === document.body) document.querySelector("#list a").focus();
});
document.querySelector("#later")?.addEventListener("click", () => setTimeout(() => {
    const done = document.createElement("p");
    done.id = "done";
    done.textContent = "It is later now";
    document.querySelector("main").append(done);
}, 300));
for (const trap of document.querySelectorAll(".trap"))
    trap.addEventListener("keydown", event => { if (event.key === "Tab") event.preventDefault(); });
"""

GOOD = """
<header><nav aria-label="Main"><a href="/good">Home</a> <a href="/other">Other</a></nav></header>
<main><h1>Good page</h1>
<form method="post" action="/good">
<p><label for="name">Name</label> <input id="name" name="name" required autocomplete="off"></p>
<p><label for="colour">Colour</label>
<select id="colour" name="colour"><option value="r">Red</option><option value="g">Green</option></select></p>
<p><label for="day">Day</label> <input type="date" id="day" name="day"></p>
<fieldset><legend>Size</legend><label><input type="radio" name="size" value="s" checked> Small</label>
<label><input type="radio" name="size" value="l"> Large</label></fieldset>
<p><button id="send">Send</button> <button type="button" id="later">Later</button></p>
</form>
<ul id="list"><li><a href="/other?1">First</a></li><li><a href="/other?2">Second</a></li></ul>
<p hidden>Never shown</p>
<div class="tall"></div></main>
"""

BAD = """
<main><h1>Bad page</h1>
<p class="pale" id="faint">Hardly to be read</p>
<p><input id="nameless"></p>
<p><a href="/other" class="blind" id="unseen">Without a ring</a></p>
<p><a href="/good" tabindex="1" id="early">Out of turn</a></p>
<div role="button" id="dead">Not for keyboards</div>
<p style="color: red">Inline style</p>
<img src="/missing.png" alt="Missing">
</main><script>document.title = "changed"</script>
"""

TRAP = """
<main><h1>Trap</h1><p><a href="/good">Out</a></p><p><button class="trap" id="pit">Pit</button></p>
<p><button id="beyond">Beyond</button></p></main>
"""


def page(title, body):
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="stylesheet" href="/style.css"><script src="/page.js" defer></script>'
        f"</head><body>{body}</body></html>"
    )


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path = urlsplit(self.path).path
        if path == "/style.css":
            self.send(200, STYLE, "text/css")
        elif path == "/page.js":
            self.send(200, SCRIPT, "text/javascript")
        elif path in ("/good", "/bad", "/trap"):
            body = {"/good": GOOD, "/bad": BAD, "/trap": TRAP}[path]
            self.send(200, page(path[1:].capitalize() + " page", body))
        elif path == "/favicon.ico":
            self.send(204, "")
        elif path == "/other":
            self.send(200, page("Other page", "<main><h1>Other page</h1></main>"))
        elif path == "/cookie":
            headers = {"Set-Cookie": "__Host-x=1; Secure; HttpOnly; SameSite=Strict; Path=/"}
            self.send(200, page("Cookie", "<main><h1>Set</h1></main>"), headers=headers)
        elif path == "/seen":
            seen = html.escape(self.headers.get("Cookie", "nothing"))
            self.send(200, page("Seen", f"<main><h1>Seen</h1><p>{seen}</p></main>"))
        else:
            self.send(404, page("Nothing", "<main><h1>Nothing here</h1></main>"))

    def do_POST(self):
        sent = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())
        said = html.escape(" ".join(f"{name}={' '.join(values)}" for name, values in sorted(sent.items())))
        status = 422 if sent.get("name") == ["nobody"] else 200
        self.send(status, page("Answer", f"<main><h1>Answer</h1><p>{said}</p></main>"))

    def send(self, status, text, kind="text/html; charset=utf-8", headers=None):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
server.daemon_threads = True
print("listening on port", server.server_address[1], flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    sys.exit(0)
