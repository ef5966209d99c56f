#!/usr/bin/env python3
"""Checks the pages that readers see: every link leads to a file and a heading that exist, every page is in the site's
navigation and reached by a link, README is short, and paths of the tree that pages name are there.

    Tests/Checks/check_docs.py [--site]

--site also builds the static site, with mkdocs-material in a virtual environment of its own. Ends with 1 and each fault.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "deploy/docs"
MOST_OF_README = 10_000
PACKAGES = ("mkdocs-material==9.8.2", "mkdocs==1.6.1")
LINK = re.compile(r"(?<!!)\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
CODE = re.compile(r"(?ms)^```.*?^```|^(?:    |\t).*?$|`[^`\n]*`")
# Paths in backticks whose first part is a folder of the tree.
NAMED = re.compile(r"`((?:Sources|Tests|sql|deploy|\.github|\.ci)/[\w./@-]+)`")


def pages():
    found = [ROOT / "README.md", ROOT / "Tests/README.md", ROOT / "deploy/CHANGELOG.md"]
    found += sorted((ROOT / ".github").glob("*.md")) + sorted(DOCS.rglob("*.md"))
    return [page for page in found if page.exists()]


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    seen = {}
    for line in re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8")).splitlines():
        heading = re.match(r"#{1,6} (.+)", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        yield slug if count == 0 else f"{slug}-{count}"


def check_links():
    linked = set()
    for page in pages():
        name = page.relative_to(ROOT)
        text = page.read_text(encoding="utf-8")
        for match in LINK.finditer(CODE.sub("", text)):
            target = next(group for group in match.groups() if group)
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                yield f"{name}: the link {target} leads nowhere"
                continue
            linked.add(file)
            if DOCS in page.parents and DOCS not in file.parents:
                yield f"{name}: the link {target} leaves deploy/docs, so the site has it not: write the path instead"
            if anchor and file.suffix == ".md" and anchor not in set(anchors(file)):
                yield f"{name}: {file.relative_to(ROOT)} has no heading #{anchor}"
        for path in NAMED.findall(text):
            if not (ROOT / path.rstrip("/.")).exists():
                yield f"{name}: there is no {path}"
    navigation = set(re.findall(r"[\w./-]+\.md", (ROOT / "deploy/mkdocs.yml").read_text(encoding="utf-8")))
    for page in sorted(DOCS.rglob("*.md")):
        path = str(page.relative_to(DOCS))
        if path not in navigation:
            yield f"deploy/mkdocs.yml: {path} is not in the navigation"
        if page not in linked:
            yield f"deploy/docs/{path}: no page links to it"


def check_size():
    size = (ROOT / "README.md").stat().st_size
    if size > MOST_OF_README:
        yield f"README.md: {size} bytes, more than {MOST_OF_README}: move what a task needs to deploy/docs"


def check_playbooks():
    text = (ROOT / "deploy/alerts.yml").read_text(encoding="utf-8")
    for path, anchor in set(re.findall(r"playbook: (\S+)#(\S+)", text)):
        file = ROOT / path
        if not file.exists() or anchor not in set(anchors(file)):
            yield f"deploy/alerts.yml: {path}#{anchor} leads nowhere"


def build_site():
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/venv/bin/python"
        steps = [
            [sys.executable, "-m", "venv", f"{folder}/venv"],
            [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *PACKAGES],
            [python, "-m", "mkdocs", "--quiet", "build", "--strict", "--config-file", str(ROOT / "deploy/mkdocs.yml"),
             "--site-dir", f"{folder}/site"],
        ]
        for step in steps:
            quiet = dict(os.environ, NO_MKDOCS_2_WARNING="1")
            done = subprocess.run(step, capture_output=True, text=True, check=False, env=quiet)
            if done.returncode != 0:
                yield f"{' '.join(step[1:4])} failed:\n{done.stdout}{done.stderr}"
                return
        if not (pathlib.Path(folder) / "site/start/quickstart/index.html").exists():
            yield "the site has no page of the quickstart"


faults = [*check_links(), *check_size(), *check_playbooks()]
if "--site" in sys.argv[1:] and not faults:
    faults += build_site()
print(*faults, sep="\n", end="\n" if faults else "")
if not faults:
    print(f"{len(pages())} pages are linked right")
sys.exit(bool(faults))
