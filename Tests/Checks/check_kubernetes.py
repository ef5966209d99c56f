#!/usr/bin/env python3
"""Checks that the manifests in kubernetes/ set no variable that the program does not read.

Every name in capitals with an underscore counts as a variable, and MODE; each has to stand in entitlement-sync.env.example, by
itself or, with _FILE, as the name of a file with the value. Prints what does not, and ends with 1 where there is any.
"""

import pathlib
import re
import sys

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
NAMED = re.compile(r"\b(?:MODE|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b")


def main():
    example = (DEPLOY / "entitlement-sync.env.example").read_text(encoding="utf-8")
    known = set(re.findall(r"(?m)^#?([A-Z][A-Z0-9_]*)=", example))
    files = sorted((DEPLOY / "kubernetes").rglob("*.yaml"))
    used, wrong = set(), 0
    for file in files:
        text = re.sub(r"(?m)^\s*#.*$", "", file.read_text(encoding="utf-8"))
        for name in sorted(set(NAMED.findall(text))):
            used.add(name)
            if name not in known and name.removesuffix("_FILE") not in known:
                wrong += 1
                print(f"{file.relative_to(DEPLOY)}: {name} is no variable of the program")
    print(f"{len(files)} manifests set {len(used)} variables; {wrong} are wrong")
    return 1 if wrong or not used else 0


if __name__ == "__main__":
    sys.exit(main())
