#!/usr/bin/env python3
"""Checks the words of the program and the numbers of its tests.

Names, texts, comments and pages say each thing with one word, the field's where it has one: no word of the list below
stands in them. A number before a test's name leads to a line of Tests/README.md. Ends with 1 where either fails, with
each place and the reason.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = frozenset(
    "whoever whom nobody somebody anew told untold doors courtesy purse foresee foresight lend lent"
    " look looks looked looking".split()
)
PLACES = ("Sources", "sql", "deploy", "README.md", "Tests/README.md", "Tests/Checks", "Tests/Support", "Package.swift")
# Lines that have to say one of them, each with its reason: the file, and what stands in the line.
ALLOWED = (
    ("Tests/Checks/check_words.py", ""),  # The list itself.
    # The system's user of least rights.
    ("Tests/Support/ServerUser.swift", "getpwnam"),
    ("deploy/lib.sh", "server_user="),
    # libcurl's name of an option.
    ("Sources/Transport/TransferSetup.swift", "CURLOPT_"),
)
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words(line):
    """The words of a line in small letters, identifiers split at case and underscore."""
    return {part.lower() for name in re.findall(r"[A-Za-z]+", line) for part in PART.findall(name)}


def files(place):
    path = ROOT / place
    found = [path] if path.is_file() else sorted(entry for entry in path.rglob("*") if entry.is_file())
    return [entry for entry in found if not any(part.startswith(".build") for part in entry.parts)]


def is_allowed(name, line):
    return any(name == file and part in line for file, part in ALLOWED)


def banned(places):
    """The banned words in places, each as its file, its line's number and the word."""
    for place in places:
        for path in files(place):
            name = str(path.relative_to(ROOT))
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except UnicodeDecodeError:
                continue
            for number, line in enumerate(lines, 1):
                for word in sorted(words(line) & WORDS):
                    if not is_allowed(name, line):
                        yield name, number, word


def check_words():
    for name, number, word in banned(PLACES):
        yield f"{name}:{number}: “{word}”: say it with another word"


def check_numbers():
    page = (ROOT / "Tests/README.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| (L?\d+) \|", page, re.MULTILINE))
    used = set()
    # A name begins with its numbers: `71, 157: a name`, `L4: a name`, or `75 91 A name`.
    start = re.compile(r'(?:func `|@(?:Test|Suite)\(\s*")((?:L?\d+[, ]+)*L?\d+)(:| (?=[A-Z]))')
    for path in files("Tests"):
        if path.suffix != ".swift":
            continue
        text = path.read_text(encoding="utf-8")
        for match in start.finditer(text):
            for number in re.findall(r"L?\d+", match.group(1)):
                used.add(number)
                if number not in known:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path.relative_to(ROOT)}:{line}: number {number} has no line in Tests/README.md"
    for number in sorted(known - used):
        if not number.startswith("L"):
            yield f"Tests/README.md: no test's name has the number {number}"


if __name__ == "__main__":
    faults = [*check_words(), *check_numbers()]
    print(*faults, sep="\n", end="\n" if faults else "")
    sys.exit(bool(faults))
