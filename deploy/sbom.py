#!/usr/bin/env python3
"""Prints a software bill of materials of a build: CycloneDX 1.6 as JSON.

It names each package of Package.resolved. With --binary, it names the Debian packages of the shared libraries that the
binary loads as well, and the Swift toolchain on the PATH. The same build gives the same document; a timestamp is in it
where SOURCE_DATE_EPOCH is set.

--check FILE prints no document. It compares the packages in FILE with Package.resolved and Package.swift, prints each
difference, and ends with 1 where there is one.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = "entitlement-sync"


def output(*command):
    """What a command prints; nothing where it is missing. Tools that find only a part end with 1: callers check."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    except OSError:
        return ""


def escaped(text):
    """A part of a package URL, which leaves the colon of Debian's epochs as it is."""
    return urllib.parse.quote(text, safe=":")


def pins():
    """The packages of Package.resolved by the name in their URL, which is a checkout's folder too."""
    found = {}
    for pin in json.loads((ROOT / "Package.resolved").read_text(encoding="utf-8"))["pins"]:
        location, state = pin["location"], pin["state"]
        host, _, name = location.removesuffix(".git").removeprefix("https://").rpartition("/")
        if not location.startswith("https://") or not state.get("version"):
            sys.exit(f"error: Package.resolved: {location} has no exact version or no https URL")
        found[name] = (host, location, state["version"], state["revision"])
    return found


def license_of(checkout):
    """The license that a checkout's LICENSE file names, as SPDX; nothing where the file is of another kind."""
    for file in sorted(checkout.glob("LICENSE*")):
        text = " ".join(file.read_text(encoding="utf-8").split())
        if "Apache License Version 2.0" in text:
            if "Runtime Library Exception" in text:
                return {"licenses": [{"expression": "Apache-2.0 WITH Swift-exception"}]}
            return {"licenses": [{"license": {"id": "Apache-2.0"}}]}
        if "MIT License" in text:
            return {"licenses": [{"license": {"id": "MIT"}}]}
    return {}


def component(name, version, purl, **rest):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl} | rest


def swift_packages(checkouts):
    for name, (host, location, version, revision) in pins().items():
        yield component(
            name,
            version,
            f"pkg:swift/{host}/{name}@{escaped(version)}",
            group=host,
            externalReferences=[{"type": "vcs", "url": f"git+{location}@{revision}"}],
            **license_of(checkouts / name),
        )


def toolchain():
    version = re.search(r"Swift version (\S+) \((swift-\S+)\)", output("swift", "--version"))
    if not version:
        sys.exit("error: swift --version names no release")
    return component(
        "swift",
        version[1],
        f"pkg:github/swiftlang/swift@{version[2]}",
        group="swiftlang",
        description="The toolchain, with the libraries that come with it",
        licenses=[{"expression": "Apache-2.0 WITH Swift-exception"}],
    )


def debian_packages(binary, root):
    """The packages that own the shared libraries, as they are installed in the file system at root."""
    libraries = re.findall(r"(?m)^\s*(?:(\S+) => )?(/\S+|not found)", output("ldd", str(binary)))
    if missing := [name for name, path in libraries if path == "not found"]:
        sys.exit(f"error: {binary}: not found: {' '.join(missing)}")
    # The toolchain's own libraries are no package of Debian's.
    paths = {path.removeprefix("/usr") for _, path in libraries if "/lib/swift/" not in path}
    if not paths:
        sys.exit(f"error: {binary} is no program that ldd can read")
    query = ("dpkg-query", f"--admindir={root}/var/lib/dpkg")
    # Packages name files by /lib or by /usr/lib, which are one folder.
    owners = {}
    for line in output(*query, "--search", *sorted(paths), *sorted("/usr" + path for path in paths)).splitlines():
        package, _, path = line.rpartition(": ")
        owners[path.removeprefix("/usr")] = package.split(",")[0]
    if unowned := sorted(paths - owners.keys()):
        sys.exit(f"error: no Debian package owns {' '.join(unowned)}")
    release = dict(re.findall(r'(?m)^(\w+)="?([^"\n]*)', (root / "usr/lib/os-release").read_text(encoding="utf-8")))
    system = release["ID"]
    # Advisories name source packages: scanners read them from `upstream`.
    fields = "${Package} ${Version} ${Architecture} ${source:Package}\\n"
    for line in output(*query, "--show", f"--showformat={fields}", *sorted(set(owners.values()))).splitlines():
        name, version, architecture, source = line.split()
        purl = f"pkg:deb/{system}/{escaped(name)}@{escaped(version)}"
        purl += f"?arch={architecture}&distro={system}-{release['VERSION_ID']}"
        yield component(name, version, purl if source == name else f"{purl}&upstream={escaped(source)}")


def document(options):
    program = {"type": "application", "bom-ref": PROGRAM, "name": PROGRAM}
    program["version"] = (
        options.version
        or output("git", "-C", str(ROOT), "describe", "--always", "--dirty")
        or (output(str(options.binary), "--version") if options.binary else "")
        or sys.exit("error: no version: there is no git repository; pass --version")
    )
    components = list(swift_packages(options.scratch_path / "checkouts"))
    if options.binary:
        components += [toolchain(), *debian_packages(options.binary, options.root)]
        program["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(options.binary.read_bytes()).hexdigest()}]
    components.sort(key=lambda component: component["purl"])
    metadata = {"component": program}
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        moment = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc)
        metadata["timestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    content = {
        "version": 1,
        "metadata": metadata,
        "components": components,
        "dependencies": [{"ref": PROGRAM, "dependsOn": [component["bom-ref"] for component in components]}],
    }
    # Derived from the content, so that a document's number changes only with it.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}"} | content


def differences(bom):
    """Where the packages of a document, of Package.resolved and of Package.swift are not the same."""
    listed = {}
    for entry in bom["components"]:
        if entry["purl"].startswith("pkg:swift/"):
            revisions = [reference["url"].rpartition("@")[2] for reference in entry["externalReferences"]]
            listed[entry["name"].lower()] = (entry["version"], *revisions)
    resolved = {name.lower(): (version, revision) for name, (_, _, version, revision) in pins().items()}
    manifest = re.sub(r"(?m)^\s*//.*$", "", (ROOT / "Package.swift").read_text(encoding="utf-8"))
    pinned = {}
    for package in re.findall(r"\.package\(([^)]*)\)", manifest):
        exact = re.fullmatch(r'\s*url:\s*"([^"]+)",\s*exact:\s*"([^"]+)"(?:,\s*traits:\s*\[[^]]*\])?,?\s*', package)
        if exact:
            pinned[exact[1].removesuffix(".git").rpartition("/")[2].lower()] = exact[2]
        else:
            yield f"Package.swift: not pinned as exact: {package.strip()}"
    for name in sorted(listed.keys() | resolved.keys() | pinned.keys()):
        if listed.get(name) != resolved.get(name):
            have, want = (" ".join(found.get(name, ["nothing"])) for found in (listed, resolved))
            yield f"{name}: the document has {have}, Package.resolved {want}"
        if listed.get(name, [None])[0] != pinned.get(name):
            have, want = listed.get(name, ["nothing"])[0], pinned.get(name, "nothing")
            yield f"{name}: the document has {have}, Package.swift pins {want} as exact"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, help="the program that was built")
    parser.add_argument("--version", help="its version; by default what git describes, or what the program prints")
    parser.add_argument("--scratch-path", type=pathlib.Path, default=ROOT / ".build", help="the one of swift build")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"), help="where the libraries are")
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="check a document instead")
    options = parser.parse_args()
    if not options.check:
        print(json.dumps(document(options), indent=2))
        return 0
    bom = json.loads(options.check.read_text(encoding="utf-8"))
    wrong = list(differences(bom))
    for line in wrong:
        print(f"error: {line}")
    packages = sum(entry["purl"].startswith("pkg:swift/") for entry in bom["components"])
    print(f"{len(bom['components'])} components, {packages} of them Swift packages; {len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
