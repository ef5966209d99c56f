#!/usr/bin/env python3
"""Checks that alerts.yml and dashboard.json name no metric that the program does not export.

What is exported is read from the sources: each counter, gauge, timer and recorder that is made there, with the endings
that Sources/Telemetry gives its series. A timer or an aggregating recorder is a histogram: its bare name is no series.
Prints every name that is wrong, and ends with 1 where there is one.

    Tests/Checks/check_metrics.py [FILE]...
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX = "entitlement_sync_"
COMMENT = re.compile(r"(?m)^\s*//.*$")
# A name's declaration: `static let breaker = "entitlement_sync_..."`, or `= name("...")` where Telemetry makes its own.
CONSTANT = re.compile(r'\blet\s+(\w+)\s*(?::\s*String\s*)?=\s*(?:"(entitlement_sync_\w+)"|name\(\s*"(\w+)"\s*\))')
TYPE = re.compile(r"\b(?:enum|struct|class|actor|extension)\s+([\w.]+)")
MADE = re.compile(r"\b(FloatingPointCounter|Counter|Gauge|Meter|Timer|Recorder)\(\s*label:\s*(\"[^\"]+\"|[\w.]+)([^)]*)")
NAMED = re.compile(r"\b" + PREFIX + r"[A-Za-z0-9_]+")


def exported(kind, label, rest):
    """The names of the series of a metric, as Sources/Telemetry/Registry.swift makes them."""
    if kind in ("Counter", "FloatingPointCounter"):
        return {label if label.endswith("_total") else label + "_total"}
    if kind in ("Gauge", "Meter") or (kind == "Recorder" and re.search(r"aggregate:\s*false", rest)):
        return {label}
    if kind == "Timer" and not label.endswith("_seconds"):
        label += "_seconds"
    return {label + ending for ending in ("_bucket", "_sum", "_count")}


def constants(text):
    """Names of metrics that constants hold, by type and constant; `` for a constant of any type."""
    found = {}
    owner = ""
    for line in text.splitlines():
        if match := TYPE.search(line):
            owner = match[1]
        if match := CONSTANT.search(line):
            name = match[2] or PREFIX + match[3]
            found[owner, match[1]] = name
    return found


def sources():
    """Every name that a scrape can show, and what was made of a name that could not be read."""
    texts = {
        path: COMMENT.sub("", path.read_text(encoding="utf-8")) for path in sorted((ROOT / "Sources").rglob("*.swift"))
    }
    everywhere = {}
    for text in texts.values():
        everywhere |= constants(text)
    names, unread = set(), []
    for path, text in texts.items():
        here = {constant: name for (_, constant), name in constants(text).items()}
        for kind, label, rest in MADE.findall(text):
            if label.startswith('"'):
                name = label.strip('"')
            else:
                owner, _, constant = label.rpartition(".")
                name = here.get(constant) if owner in ("", "Self", "self") else everywhere.get((owner, constant))
            if name is None:
                # A parameter of the metrics library's own, or a name made at run time.
                unread.append(f"{path.relative_to(ROOT)}: {kind}(label: {label})")
            elif name.startswith(PREFIX):
                names |= exported(kind, name, rest)
    # Made by the registry itself.
    names.add(everywhere["MetricNames", "droppedSeries"])
    return names, unread


def main():
    files = [pathlib.Path(name) for name in sys.argv[1:]] or [ROOT / "deploy/alerts.yml", ROOT / "deploy/dashboard.json"]
    names, unread = sources()
    for line in unread:
        print(f"not read: {line}", file=sys.stderr)
    wrong = 0
    for file in files:
        unknown = sorted(set(NAMED.findall(file.read_text(encoding="utf-8"))) - names)
        wrong += len(unknown)
        for name in unknown:
            histogram = all(name + ending in names for ending in ("_bucket", "_sum", "_count"))
            why = "is a histogram: take _bucket, _sum or _count" if histogram else "is exported by no source"
            print(f"{file.name}: {name} {why}")
    print(f"{len(names)} series are exported; {wrong} names are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
