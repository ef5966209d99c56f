"""What users, stores and operators write, on pages and terminals that show it."""

import os
import subprocess
import uuid
from urllib.parse import quote

import access
from target import (
    ADMIN, JSON, PROGRAM, STAFF, Category, ask, bearer, dumps, form_key, page, post, psql, rows, sign_in, token,
)

# Beside the words: signs that move a terminal's cursor, ring its bell, name its window or turn writing.
EVIL = [
    "\"><script>alert(1)</script>", "</textarea><img src=x onerror=alert(3)>",
    "\"\u0301 onfocus=alert(2) autofocus x=\"", "{{me}} {{{me}}} {{> layout}}'`",
    "javascript:alert(1)", "<!--", "]]>", "&lt;script&gt;", "=HYPERLINK(1)", "\u202etpecca\u202c \u2066x\u2069",
    "\u0085\u2028\u2029", "\u200f\u061c",
    "\x1b[2J\x1b]0;owned\x07\x9b31m", "\x08\x08\r\x7f",
]
SIGNS = "\x1b\x07\x08\r\x7f\x9b\u0085\u2028\u2029"
SIGNS += "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
MARK = "tpecca"


def evil(text):
    """What a page holds of markup that was written into a text, and of signs that turn writing."""
    markup = [part for part in ("<script>alert", "<img src=x", '"\u0301', "</textarea><img", "<!-->") if part in text]
    return markup + [f"U+{ord(sign):04X}" for sign in SIGNS if sign in text and sign != "\r"]


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def run():
    category = Category("stored text")
    mine = access.case(category)
    _, bea = sign_in("bea")
    key = form_key(bea)
    ticket = rows(
        "SELECT max(t.id) FROM entitlement_sync.ticket AS t"
        " JOIN entitlement_sync.user_sync AS u ON u.user_key = t.claimant_key WHERE u.user_id = 'claimant'"
    )[0]
    post(f"/console/tickets/{ticket}/claim", {"key": key}, bea)
    # By the ways that people have: some signs are refused there, the others are kept.
    kept = 0
    for words in EVIL:
        answer = ask(
            "POST", f"/v1/tickets/{mine['id']}/replies", [bearer(token("claimant")), JSON], dumps({"text": words})
        )
        kept += answer.status == 202
        kept += post(f"/console/tickets/{ticket}/note", {"key": key, "text": words}, bea).status == 303
    category.control("replies and notes are kept", kept >= 8, kept)
    # And whatever else may come to stand in the records one day.
    every, name = literal(" ".join(EVIL)), f"evil-{uuid.uuid4()}-" + EVIL[0] + EVIL[9] + EVIL[12]
    _, err = psql(
        f"""
        SET search_path = entitlement_sync, public;
        INSERT INTO public.users (id) VALUES ({literal(name)});
        SELECT user_key_of({literal(name)});
        UPDATE ticket SET original_id = {every}, store = {every} WHERE id = {ticket};
        UPDATE purchase SET product_id = {every}, status = {every}, store = {every};
        INSERT INTO "grant" (user_key, until, reason)
        SELECT u.user_key, now() + interval '1 day', {every} FROM user_sync AS u;
        INSERT INTO job_history (id, user_key, finished_at, kind, attempt, state, last_error)
        SELECT new_id(), u.user_key, now(), 0, 1, 'dead', {every} FROM user_sync AS u;
        INSERT INTO run (scope, is_dry, state, asked_by, schedule, outcomes)
        VALUES ('all', true, 'done', {every}, NULL, jsonb_build_object({every}, 1));
        """
    )
    category.control("the records take such words", "ERROR" not in err, err)
    user = rows(f"SELECT u.user_key FROM entitlement_sync.user_sync AS u WHERE u.user_id = {literal(name)}")[0]
    shown = 0
    users = rows("SELECT user_key FROM entitlement_sync.user_sync WHERE user_id IN ('claimant', 'owner', 'ann')") + [
        user,
    ]
    paths = [
        "/console", f"/console/tickets/{ticket}", "/console/dead", "/console/runs", "/console/causes",
        "/console/figures", "/console/help",
    ]
    paths += [f"/console/users/{one}" for one in users] + [
        f"/console/search?q={quote(name)}", "/console/search?q=claimant"
    ]
    for number, words in enumerate(EVIL):
        paths += [
            f"/console/search?q={quote(words)}&n={number}",
            f"/console?kind={quote(words)}&done={quote(words)}&not={quote(words)}&n={number}",
        ]
    for path in paths:
        answer = page(path, bea)
        shown += MARK in answer.text
        category.note(
            f"the page {path[:60]}", evil(answer.text) or answer.status in (0, 500, 503),
            f"{evil(answer.text)} {answer}",
        )
    for path in (f"/console/tickets/{ticket}/reveal", f"/console/users/{user}/reveal"):
        answer = post(path, {"key": key}, bea)
        shown += MARK in answer.text
        category.note(f"the page {path}", evil(answer.text) or answer.status != 200, f"{evil(answer.text)} {answer}")
    category.control("pages show what was written", shown >= 5, shown)

    shown = 0
    session = ["--session", f"{STAFF}/bea/session"]
    reference = rows(f"SELECT reference FROM entitlement_sync.ticket_status WHERE id = {ticket}")[0]
    for words in (
        ["explain", name], ["explain", "claimant"], ["explain", "owner"], ["tickets", *session],
        ["ticket", ticket, *session], ["ticket", reference, *session], ["grant", "list"],
        ["queue", "dead"], ["queue", "stats"], ["runs", "list"], ["doctor"],
        ["replay", name, "--since", "2026-01-01", "--csv"], ["tickets", "--output", "json", *session],
        ["ticket", ticket, "--output", "json", *session], ["explain", name, "--output", "json"],
        ["grant", "list", "--output", "json"], ["queue", "dead", "--output", "json"],
        ["restore", EVIL[0] + EVIL[9] + EVIL[12]],
    ):
        done = subprocess.run([PROGRAM, *words], capture_output=True, timeout=60, env=os.environ)
        # Lines of CSV end with two signs.
        text = (done.stdout + done.stderr).decode("utf-8", "replace").replace("\r\n", "\n")
        shown += MARK in text
        odd = [f"U+{ord(sign):04X}" for sign in SIGNS if sign in text]
        seen = f"{done.returncode} {' '.join(odd) or repr(text[:200])}"
        name = " ".join(word for word in words if "/" not in word)
        category.note(f"the command {name}", bool(odd) or done.returncode < 0, seen)
    category.control("commands show what was written", shown >= 5, shown)
    answer = ask("GET", "/v1/tickets", [bearer(token("claimant"))])
    category.note("what the app shows", answer.status != 200 or evil(answer.text), answer)
    answer = ask("GET", "/metrics", port=ADMIN)
    category.note("metrics", answer.status != 200 or evil(answer.text) or MARK in answer.text, answer)
    return category
