"""Writes a CycloneDX SBOM of a binary's crates: cargo tree's output on standard input, the document on standard output.

cargo decides which crates the binary has. This file translates them and decides nothing. The document is the same for the
same crates: its serial number follows from its content, and it has a time only with SOURCE_DATE_EPOCH.
"""

import datetime
import os
import sys
import tomllib
import uuid

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL


def crates(lines, root):
    """The root's crates by name and version, each with its licence and the crates that it needs.

    A line is `DEPTH|PACKAGE|LICENCE`. cargo shows the children of a repeated crate once, maybe below another root.
    """
    found, above = {}, []
    for line in filter(None, map(str.rstrip, lines)):
        depth, package, licence = line.removesuffix(" (*)").split("|")
        name, version = package.split(" ")[:2]
        key, depth = (name, version.removeprefix("v")), int(depth)
        found.setdefault(key, (licence, set()))
        del above[depth:]
        if above:
            found[above[-1]][1].add(key)
        above.append(key)
    roots = [key for key in found if key[0] == root]
    if len(roots) != 1:
        sys.exit(f"sbom: cargo tree shows {len(roots)} crates `{root}`")
    reached, open_keys = {}, list(roots)
    while open_keys:
        key = open_keys.pop()
        if key not in reached:
            reached[key] = found[key]
            open_keys.extend(found[key][1])
    return roots[0], reached


def checksums(lock):
    """The SHA-256 of each crate's archive, by name and version; our own crates have none."""
    with open(lock, "rb") as file:
        packages = tomllib.load(file)["package"]
    return {(package["name"], package["version"]): package.get("checksum") for package in packages}


def component(key, licence, checksum, kind):
    name, version = key
    # `/` is the old form of `OR`.
    expression = licence.replace(" / ", " OR ").replace("/", " OR ")
    url = PackageURL("cargo", None, name, version)
    return Component(
        type=kind,
        name=name,
        version=version,
        # Our own crates aren't on crates.io, where a package URL would point.
        purl=url if checksum else None,
        bom_ref=url.to_string(),
        licenses=[LicenseFactory().make_from_string(expression)] if expression else None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else None,
    )


def main():
    root, lock = sys.argv[1:]
    top, reached = crates(sys.stdin, root)
    sums = checksums(lock)
    bom = Bom()
    parts = {}
    for key, (licence, _) in sorted(reached.items()):
        kind = ComponentType.APPLICATION if key == top else ComponentType.LIBRARY
        parts[key] = component(key, licence, sums[key], kind)
        if key == top:
            bom.metadata.component = parts[key]
        else:
            bom.components.add(parts[key])
    for key, (_, needed) in reached.items():
        bom.register_dependency(parts[key], [parts[other] for other in needed])
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch else None
    content = "\n".join(f"{name} {version} {sums[name, version]}" for name, version in sorted(reached))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, content)
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"sbom: the document doesn't fulfil its schema: {error!r}")
    print(text)


main()
