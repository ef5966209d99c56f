#!/usr/bin/env python3
"""Limits the size of the project: prints it by part, and ends with 1 where a part is not as large as its ceiling says.

A change that makes a part smaller lowers its ceiling in the same commit. Only a commit of its own that gives the reason raises one.

    check_budget.py [--table]      with the lines of each target
"""

import pathlib
import re
import sys

from check_words import ROOT, banned, files

# What a part may have at the most. Lines are of Swift or SQL, without blank ones and comments.
CEILINGS = {
    "lines of Sources": 61_761,
    "lines of Tests": 73_455,
    "lines of sql": 9_208,
    "bytes of pages": 334_800,
    "doc comments that open with a question word, per thousand": 232,
    "banned words in Tests": 1_637,
}
# The languages that are counted, and where their comments begin.
COMMENTS = {".swift": "//", ".sql": "--"}
QUESTION = re.compile(r"(?:What|How|Whether|Whose|Who|Which|When|Where|Why)\b")


def code_lines(path):
    """The lines of a source file that are neither blank nor a comment."""
    comment = COMMENTS.get(path.suffix)
    if comment is None:
        return 0
    count, inside = 0, False
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.strip()
        if inside:
            inside = "*/" not in text
            continue
        if not text or text.startswith(comment):
            continue
        if text.startswith("/*"):
            inside = "*/" not in text
            continue
        count += 1
    return count


def by_folder(place):
    """The lines of code of each folder directly below a place."""
    lines = {}
    for path in files(place):
        parts = path.relative_to(ROOT / place).parts
        if count := code_lines(path):
            name = parts[0] if len(parts) > 1 else "."
            lines[name] = lines.get(name, 0) + count
    return lines


def doc_openings():
    """The doc comments of Sources, and those of them that open with a question word."""
    all_of_them = questions = 0
    for path in files("Sources"):
        if path.suffix != ".swift":
            continue
        former = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            text = line.strip()
            if text.startswith("///") and not former.startswith("///"):
                all_of_them += 1
                questions += bool(QUESTION.match(text[3:].strip()))
            former = text
    return all_of_them, questions


def pages():
    """The bytes of the pages that people write: those of `reference` are made from the program, but for the glossary."""
    return sum(
        path.stat().st_size
        for path in files("deploy/docs") + files("README.md")
        if path.suffix == ".md" and ("reference" not in path.parts or path.name == "glossary.md")
    )


def main():
    parts = {place: by_folder(place) for place in ("Sources", "Tests", "sql")}
    docs, questions = doc_openings()
    figures = {f"lines of {place}": sum(lines.values()) for place, lines in parts.items()}
    figures["bytes of pages"] = pages()
    figures["doc comments that open with a question word, per thousand"] = 1000 * questions // docs
    figures["banned words in Tests"] = sum(1 for _ in banned(["Tests"]))
    if "--table" in sys.argv:
        for place, lines in parts.items():
            for name, count in sorted(lines.items(), key=lambda row: -row[1]):
                print(f"{count:8,}  {place}/{name}")
    is_right = True
    for name, figure in figures.items():
        ceiling = CEILINGS[name]
        is_right &= figure == ceiling
        mark = "  over its ceiling" if figure > ceiling else "  lower its ceiling" if figure < ceiling else ""
        print(f"{figure:10,} of {ceiling:10,}  {name}{mark}")
    return not is_right


if __name__ == "__main__":
    sys.exit(main())
