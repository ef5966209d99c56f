#!/usr/bin/env python3
"""Prints the time that each step of deploy/test.sh took, and the slowest tests.

    report_times.py FOLDER

FOLDER has a file STEP.times for each step, and for each that ran tests STEP.events, the event stream of Swift Testing, and STEP.turns,
in which tests note when they began.
Processor time is that of the whole machine while the step ran: of steps that ran side by side it counts in both, in the sum once.
"""

import collections
import json
import os
import pathlib
import sys

SLOWEST = 20


def steps(folder):
    """Each step's name, and when it began and ended by the clock and by the processors, in the order in which they began."""
    rows = (path.read_text().split() for path in folder.glob("*.times"))
    return sorted(((row[0], *map(float, row[1:])) for row in rows), key=lambda row: row[1])


def tests(path, width):
    """The seconds that each test of an event stream ran, all its cases together.

    A test is said to start when it begins to wait for one of `width` places; only cases of a test with arguments are said to start
    when they do. A test without arguments is taken to have run since it noted so; one that noted nothing, since a place became free,
    the last one that did.
    """
    noted = {}
    turns = path.with_suffix(".turns")
    for line in turns.read_text(encoding="utf-8").splitlines() if turns.exists() else []:
        at, test = line.split(" ", 1)
        noted.setdefault(test, float(at))
    names, takes_arguments = {}, {}
    seconds, began, free = collections.Counter(), collections.defaultdict(collections.deque), []
    for line in path.open(encoding="utf-8"):
        record = json.loads(line)
        payload = record["payload"]
        test = payload.get("testID")
        if record["kind"] == "test" and payload["kind"] == "function":
            names[payload["id"]] = payload.get("displayName", payload["name"])
            takes_arguments[payload["id"]] = payload.get("isParameterized", False)
        if record["kind"] != "event" or test not in names:
            continue
        at, kind = payload["instant"]["since1970"], payload["kind"]
        if not seconds and not began:
            free = [at] * width
        if kind == "testCaseStarted":
            began[test].append(at)
            free[-1:] = []
        elif kind == "testCaseEnded" and began[test]:
            seconds[test] += at - began[test].popleft()
            free.append(at)
        elif kind == "testEnded" and not takes_arguments[test] and free:
            began_last = free.pop()
            seconds[test] += at - noted.get(test, began_last)
            free.append(at)
    return {f"{test.split('/')[0]}: {names[test]}": took for test, took in seconds.items()}


def main():
    folder = pathlib.Path(sys.argv[1])
    rows = steps(folder)
    if not rows:
        return
    print("== time\n processors    clock   step (seconds; of the whole machine while it ran)")
    for name, began, ended, worked, done in rows:
        print(f"{done - worked:11.1f} {ended - began:8.1f}   {name}")
    print(f"{max(row[4] for row in rows) - rows[0][3]:11.1f} {max(row[2] for row in rows) - rows[0][1]:8.1f}   in all")
    width = int(os.environ.get("SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH", 1))
    seconds = collections.Counter()
    for path in folder.glob("*.events"):
        seconds.update(tests(path, width))
    if seconds:
        print("== the slowest tests (seconds by the clock, all arguments of a test together)")
    for test, took in seconds.most_common(SLOWEST):
        print(f"{took:11.1f}   {test}")


if __name__ == "__main__":
    main()
