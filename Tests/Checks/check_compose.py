#!/usr/bin/python3
"""Checks compose.yaml, and the Containerfile that its images are built from.

docker-compose checks the file against the Compose schema. Beyond it, each service has a read-only root, a user other than
root, no capability, no way to more privileges, and a pinned image; its ports are on loopback; it is checked for health, or
another service waits for its end. Each variable of the program's stands in entitlement-sync.env.example, by itself or, with
_FILE, as the name of a file with the value. Prints what does not hold, and ends with 1 where there is any.

Needs Debian's docker-compose and python3-yaml, hence Debian's Python. Another file may be named: check_compose.py FILE.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# A version of two numbers at least, or a digest.
PINNED = re.compile(r"^[a-z0-9.-]+/[^:@]+(:\d+\.\d+[\w.-]*|@sha256:[0-9a-f]{64})$")
DEFAULT = re.compile(r"\$\{\w+:?-([^}]*)\}")
OPEN_NAMESPACES = ("network_mode", "pid", "ipc", "userns_mode", "uts")


def names(environment):
    """The variables of a service, which are a mapping or a list of NAME=VALUE."""
    return [str(entry).partition("=")[0] for entry in environment or ()]


def schema_faults(file):
    """What docker-compose says against the file; it asks no daemon for that."""
    program = shutil.which("docker-compose")
    if not program:
        yield "docker-compose is missing, which has the Compose schema: apt-get install docker-compose"
        return
    done = subprocess.run([program, "-f", file, "config", "--quiet"], capture_output=True, text=True)
    if done.returncode:
        yield f"docker-compose config: {' '.join((done.stderr or done.stdout).split())}"


def service_faults(service, known, targets, awaited):
    """What is wrong with one service."""
    if service.get("read_only") is not True:
        yield "has a root that can be written to: set read_only: true"
    user = str(service.get("user", ""))
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user):
        yield f"runs as {user or 'its image says'}: set user to the numbers of a user and a group other than root"
    if service.get("cap_drop") != ["ALL"] or service.get("cap_add"):
        yield "keeps capabilities: set cap_drop: [ALL], and no cap_add"
    options = [str(option) for option in service.get("security_opt", ())]
    if not any(re.fullmatch(r"no-new-privileges([:=]true)?", option) for option in options):
        yield "may gain privileges: set security_opt: [no-new-privileges]"
    if any(re.search(r"unconfined|disable", option) for option in options) or service.get("privileged"):
        yield "is not confined: take out what lifts the confinement"
    for key in OPEN_NAMESPACES:
        if service.get(key) == "host":
            yield f"shares the machine's own {key}"
    for port in service.get("ports", ()):
        if not str(port).startswith("127.0.0.1:"):
            yield f"publishes {port} beyond loopback: begin it with 127.0.0.1:"
    for volume in service.get("volumes", ()):
        if "docker.sock" in str(volume) or "podman.sock" in str(volume):
            yield f"reaches the engine by {volume}"
    if "healthcheck" not in service and not awaited:
        yield "has no healthcheck, and no service waits for its end"
    build = service.get("build")
    if not build:
        image = DEFAULT.sub(r"\1", str(service.get("image", "")))
        if not PINNED.match(image):
            yield f"has an image that is not pinned to a registry and a version: {image or 'none'}"
        return
    if build.get("dockerfile") != "deploy/Containerfile" or build.get("target") not in targets:
        yield f"is built from {build.get('dockerfile')}, target {build.get('target')}, which is not there"
    for name in names(service.get("environment")):
        if name not in known and name.removesuffix("_FILE") not in known:
            yield f"sets {name}, which is no variable of the program"


def faults(file):
    compose = yaml.safe_load(file.read_text(encoding="utf-8"))
    yield from schema_faults(file)
    services = compose.get("services") or {}
    if not services:
        yield "there is no service"
    example = (DEPLOY / "entitlement-sync.env.example").read_text(encoding="utf-8")
    known = set(re.findall(r"(?m)^#?([A-Z][A-Z0-9_]*)=", example))
    containerfile = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?m)^FROM \S+ AS (\S+)$", containerfile))
    awaited = {
        name
        for service in services.values()
        if isinstance(service.get("depends_on"), dict)
        for name, wait in service["depends_on"].items()
        if wait.get("condition") == "service_completed_successfully"
    }
    for name, service in services.items():
        for fault in service_faults(service, known, targets, name in awaited):
            yield f"service {name} {fault}"
    said = re.findall(r"(?m)^ARG VERSION=(\S+)$", containerfile)
    built = re.findall(r'static let version = "([^"]+)"', (ROOT / "Sources/Telemetry/Build.swift").read_text(encoding="utf-8"))
    if said != built:
        yield f"Containerfile: VERSION is {said}, and the program's is {built}"


def main():
    file = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DEPLOY / "compose.yaml"
    try:
        found = list(faults(file))
        count = len(yaml.safe_load(file.read_text(encoding="utf-8")).get("services") or {})
    except (OSError, AttributeError, TypeError, ValueError, yaml.YAMLError) as error:
        found, count = [f"can't be read as a Compose file: {' '.join(str(error).split())}"], 0
    for fault in found:
        print(f"{file.name}: {fault}")
    print(f"{count} services are checked; {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
