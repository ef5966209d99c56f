#!/usr/bin/env python3
"""Checks the clients for apps (deploy/clients) against openapi.json and the documented table of retries.

Of each file: the requests it sends, the members it reads and whether they may be null, the words it compares with, the endings
of a restore, and what follows each status. Prints every difference, and ends with 1 where there is one.

    Tests/Checks/check_clients.py [--compile | --kotlin FOLDER SOURCE]

--compile   also compiles the Swift package, the TypeScript file, and the Kotlin file; what they call of StoreKit, RevenueCat and
            Google Play Billing is declared in the folder clients. There is no compiler for Dart: that file is checked by its names alone.
--kotlin    compiles the Kotlin client with a program that calls it, and prints the class path to run it by.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "deploy/clients"
FILES = {
    "swift": CLIENTS / "swift/Sources/EntitlementClient.swift",
    "typescript": CLIENTS / "typescript/entitlement-client.ts",
    "kotlin": CLIENTS / "kotlin/EntitlementClient.kt",
    "dart": CLIENTS / "dart/entitlement_client.dart",
}
REQUESTS = {
    ("GET", "/entitlement"), ("POST", "/restores"), ("GET", "/restores/{id}"), ("GET", "/tickets"),
    ("POST", "/tickets/{id}/replies"), ("POST", "/releases"),
}
# A type of the clients, and the schema that it reads.
READ = {"Access": "Entitlement", "Restore": "Restore", "Product": "RestoredProduct", "Ticket": "Case", "StoreState": "StoreState"}
# The user's case stands in full behind GET /v1/tickets.
LEFT_OUT = {("Access", "tickets")}
# Words of the clients' own, and errors of the store's library, which the API takes as text.
OWN = {"no_answer", "sign_in", "connection_error", "service_unavailable"}
KOTLIN = ("kotlin-jupyter-kernel", "0.19.0.944")

api = json.loads((ROOT / "Sources/WebAPI/OpenAPI/openapi.json").read_text(encoding="utf-8"))
schemas = api["components"]["schemas"]


def vocabulary(node, found):
    """Every member's name and every listed value of the description."""
    if isinstance(node, dict):
        found.update(node.get("properties", {}))
        found.update(value for value in node.get("enum", []) if isinstance(value, str))
        for value in node.values():
            vocabulary(value, found)
    elif isinstance(node, list):
        for value in node:
            vocabulary(value, found)
    return found


def snake(name):
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def block(text, start):
    """What stands between the braces that open at or after a place."""
    begin = text.index("{", start)
    depth = 0
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin + 1 : place]
    return text[begin:]


def without_comments(text):
    return re.sub(r"(?m)(?<![:\"'])//.*$|/\*.*?\*/", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def members(language, text, name):
    """The members that a type reads: by name, whether null is taken."""
    if language == "swift":
        found = re.search(rf"public struct {name}: [^{{]*\{{", text)
        body = re.sub(r"public var [^\n{]*\{[^{}]*\}", "", block(text, found.start()))
        pairs = {}
        for line in re.findall(r"public var ([^\n]*)", body):
            if "= false" in line:
                continue
            names = []
            for part in re.split(r",\s*", line):
                one, _, kind = part.partition(":")
                names.append(one.strip())
                if kind:
                    pairs |= {snake(each): kind.strip().endswith("?") for each in names}
                    names = []
        return pairs
    if language == "typescript":
        if name == "StoreState":
            body = re.search(r"stores: \{([^}]*)\}", text)[1]
        else:
            body = re.sub(r"\{[^{}]*\}", "", block(text, text.index(f"export interface {name} ")))
        found = re.findall(r"(\w+)(\??): ([^;\n]+)", body)
        return {one: "null" in kind or bool(mark) for one, mark, kind in found if one != "is_from_disk"}
    if language == "kotlin":
        body = block(text, re.search(rf"\nclass {name}\(json", text).start())
        nullable = re.findall(r'(?:text|time|isNull|optJSONArray)\("(\w+)"\)', body)
        return {one: one in nullable for one in re.findall(r'json\.\w+\("(\w+)"\)', body)}
    body = re.search(rf"\n  {name}\(Json json.*?;\n", text, re.S)[0]
    pairs = {}
    for before, one, after in re.findall(r"(\w*\()?\(?json\['(\w+)'\]([^,;]*)", body):
        pairs[one] = before == "_time(" or after.strip().endswith("?") or one == "entitlements" and before == "_list("
    return pairs


def check_members(language, text):
    described = dict(READ)
    pairs = [(name, schemas[schema]) for name, schema in described.items()]
    listed = schemas["Entitlement"]["properties"].get("entitlements", {}).get("items")
    if listed:
        pairs.append(("Entitlement", schemas[listed["$ref"].split("/")[-1]] if "$ref" in listed else listed))
    for name, schema in pairs:
        known = schema["properties"]
        read = members(language, text, name)
        for one in sorted(read.keys() - known.keys()):
            if listed or one != "entitlements":
                yield f"{name}.{one}: the description has no such member"
        for one in sorted(known.keys() - read.keys()):
            if (name, one) not in LEFT_OUT:
                yield f"{name}.{one}: is not read"
        for one in sorted(known.keys() & read.keys()):
            types = known[one].get("type", "object")
            if "null" in types and isinstance(types, list) and not read[one]:
                yield f"{name}.{one}: may be null, and is not read as such"


def check_requests(text):
    sent = set()
    for method, path in re.findall(r"""["'](GET|POST)["'],\s*["'`](/[^"'`]*)["'`]""", text):
        path, _, query = re.sub(r"\\\([^)]*\)|\$\{[^}]*\}", "{id}", path).partition("?")
        sent.add((method, path))
        operation = api["paths"].get("/v1" + path, {}).get(method.lower())
        if operation is None:
            yield f"{method} /v1{path}: the description has no such request"
        elif query:
            names = {api["components"]["parameters"][one["$ref"].split("/")[-1]]["name"] for one in operation["parameters"]}
            if query.partition("=")[0] not in names:
                yield f"{method} /v1{path}: takes no {query}"
    for method, path in sorted(REQUESTS - sent):
        yield f"{method} /v1{path}: is not sent"


def check_words(text):
    known = vocabulary(api, set()) | OWN
    for word in sorted(set(re.findall(r"""["']([a-z]+(?:[_.][a-z]+)+)["']""", text))):
        if word not in known:
            yield f"{word}: the description has no such word"
    outcomes = {one for one in schemas["Restore"]["properties"]["outcome"]["enum"] if one}
    table = re.search(r"endings\b[^\n]*(?:\[|\{|mapOf\()\n(.*?)\n\s*(?:\]|\}|\))", text, re.S)[1]
    ended = set(re.findall(r"[\"']?(\w+)[\"']?(?=:| to )", table))
    for one in sorted(outcomes ^ ended):
        yield f"{one}: has no ending, or is no outcome"
    states = set(schemas["Restore"]["properties"]["state"]["enum"]) - {"queued", "running"}
    over = re.search(r"""["']done["'], ["'][^\]})]*""", text)[0]
    if set(re.findall(r"\w+", over)) != states:
        yield f"a restore ends in {', '.join(sorted(states))}, and not in {over}"


def documented():
    """What the table for apps' developers says: statuses by what follows, pauses in seconds, the longest pause."""
    page = (ROOT / "deploy/docs/integrate/http.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|$", page[page.index("## Errors and limits") :])
    numbers = {}
    for answer, follows in rows:
        for kind, word in (("fresh", "fresh token"), ("asked", "`Retry-After`"), ("again", "pauses that grow")):
            if word in follows:
                numbers.setdefault(kind, (set(), follows))[0].update(map(int, re.findall(r"\b\d{3}\b", answer)))
    pauses = [float(one) for one in re.findall(r"\d+", re.search(r"([\d, and]+) s\b", numbers["again"][1])[1])]
    longest = float(re.search(r"more than (\d+) s", numbers["asked"][1])[1])
    return {kind: codes for kind, (codes, _) in numbers.items()}, pauses, longest


def check_retries(text):
    table, pauses, longest = documented()
    start = re.search(r'What follows a status: the table "Errors and limits"', text).end()
    body = text[start : start + 700]
    rows = [line for line in body.splitlines() if re.search(r"\b\d{3}\b", line)]
    for kind, pattern in (("fresh", "401"), ("asked", "429"), ("again", "502")):
        line = next((line for line in rows if pattern in line), "")
        if set(map(int, re.findall(r"\b[45]\d\d\b", line))) != table[kind]:
            yield f"of {sorted(table[kind])}, as the page has them, this differs: {line.strip()}"
    written = re.search(r"(?i)\b_?pauses\b[^\n]*?(?:\[|listOf\()([\d., ]+)", text)[1]
    if [float(one) for one in written.split(",")] != pauses:
        yield f"pauses are {pauses}, and not {written}"
    if float(re.search(r"(?i)longest_?pause = ([\d.]+)", text)[1]) != longest:
        yield f"the longest pause is {longest} s"
    if not re.search(r"259_200|Duration\(days: 3\)", text):
        yield "the answer on disk is not shown for three days"


def check_brackets(text):
    """For the language that no compiler reads here."""
    bare = re.sub(r"(?m)//.*$", "", text)
    bare = re.sub(r"'(?:\\.|\$\{[^}]*\}|[^'\\\n])*'", "''", bare)
    open_ones = []
    for number, line in enumerate(bare.splitlines(), 1):
        for one in line:
            if one in "([{":
                open_ones.append(one)
            elif one in ")]}" and (not open_ones or "([{".index(open_ones.pop()) != ")]}".index(one)):
                yield f"line {number}: {one} closes nothing"
    if open_ones:
        yield f"{len(open_ones)} brackets are not closed"


# ---- Compiling ------------------------------------------------------------------------------------------------------


def run(*command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    return [] if done.returncode == 0 else [f"{' '.join(map(str, command[:3]))}…\n{done.stdout[-4000:]}"]


def kotlin(folder, *sources):
    """Compiles sources with the client into a folder; the compiler is installed from PyPI once.

    - Returns: the class path of the result, and what failed.
    """
    place = ROOT / ".build/clients"
    installed = place / f"kotlin-{KOTLIN[1]}"
    jars = installed / "run_kotlin_kernel/jars"
    if not jars.exists():
        with tempfile.TemporaryDirectory() as work:
            failed = run(sys.executable, "-m", "venv", f"{work}/venv") or run(
                f"{work}/venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps",
                "--target", f"{work}/site", "==".join(KOTLIN),
            )
            if failed:
                return "", failed
            place.mkdir(parents=True, exist_ok=True)
            shutil.move(f"{work}/site", installed)
    everything = sorted(jars.glob("*-all.jar")) + sorted(jars.glob("kotlin-stdlib-*.jar"))
    compiler = os.pathsep.join(map(str, everything + sorted(jars.glob("kotlin-reflect-*.jar"))))
    libraries = os.pathsep.join(map(str, everything + ["/usr/share/java/com.android.json.jar"]))
    failed = run(
        "java", "-cp", compiler, "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect", "-Werror", "-cp",
        libraries, "-d", folder, ROOT / "Tests/Checks/clients/Billing.kt", FILES["kotlin"], *sources,
    )
    return os.pathsep.join([str(folder), libraries]), failed


def compile_kotlin():
    """Once for what the sources say: it takes longer than all else here."""
    sources = [ROOT / "Tests/Checks/clients/Billing.kt", FILES["kotlin"]]
    stamp = ROOT / ".build/clients" / ("kotlin-" + hashlib.sha256(b"".join(one.read_bytes() for one in sources)).hexdigest()[:16])
    if stamp.exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        failed = kotlin(folder)[1]
    if not failed:
        stamp.touch()
    return failed


def compile_swift():
    """The package as it is here, then with what stands in for StoreKit alone, then with RevenueCat beside it."""
    failed = run(
        "swift", "build", "--package-path", CLIENTS / "swift", "--scratch-path", ".build/clients/swift-package",
        "-Xswiftc", "-warnings-as-errors",
    )
    language = ("swiftc", "-swift-version", "6", "-warnings-as-errors", "-parse-as-library")
    with tempfile.TemporaryDirectory() as folder:
        for module in ("StoreKit", "RevenueCat"):
            failed = (
                failed
                or run(
                    *language, "-emit-module", "-module-name", module, "-o", f"{folder}/{module}.swiftmodule",
                    ROOT / f"Tests/Checks/clients/{module}.swift",
                )
                or run(
                    *language, "-typecheck", "-I", folder, "-module-name", "EntitlementClient", FILES["swift"],
                    ROOT / "Tests/Checks/clients/Purchase.swift",
                )
            )
    return failed


COMPILERS = {
    "swift": compile_swift,
    "typescript": lambda: run("tsc", "-p", CLIENTS / "typescript", "--noEmit"),
    "kotlin": compile_kotlin,
}


def main(arguments):
    if arguments[:1] == ["--kotlin"]:
        path, failed = kotlin(*arguments[1:])
        print(*(failed or [path]))
        return 1 if failed else 0
    faults = []
    for language, path in FILES.items():
        text = path.read_text(encoding="utf-8")
        bare = without_comments(text)
        checks = [check_requests(bare), check_members(language, bare), check_words(bare), check_retries(text)]
        if language == "dart":
            checks.append(check_brackets(text))
        found = [fault for check in checks for fault in check]
        if "--compile" in arguments and language in COMPILERS:
            found += COMPILERS[language]()
        faults += [f"{path.relative_to(ROOT)}: {fault}" for fault in found]
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{len(FILES)} clients agree with openapi.json and with the table of retries")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
