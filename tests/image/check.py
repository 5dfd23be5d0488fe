"""Checks what the registry says of the agent's image, and its SBOMs. Called by tests/image/run, which fetched them."""

import json
import pathlib
import re
import sys

work, most_bytes, sbom, *names = sys.argv[1:]
work = pathlib.Path(work)
manifest = pathlib.Path("Cargo.toml").read_text()
version = re.search(r'^\[workspace\.package\]\nversion = "(.*)"$', manifest, re.MULTILINE)[1]
wrong = []


def check(found, expected, what):
    if found != expected:
        wrong.append(f"{what}: {found!r}, not {expected!r}")


def read(name):
    return json.loads((work / name).read_text())


def check_image(name):
    layers = read(f"{name}-manifest.json")["layers"]
    size = sum(layer["size"] for layer in layers)
    print(f"image: {name}: {size / 1e6:.1f} MB compressed, {layers[-1]['size'] / 1e6:.1f} MB of it the agent's layer")
    if size > int(most_bytes):
        wrong.append(f"{name}: {size} bytes compressed, more than {most_bytes}")
    document = read(f"{name}-config.json")
    check(document["architecture"], name, f"{name}: architecture")
    config = document["config"]
    check(config.get("User"), "65532:65532", f"{name}: user")
    check(config.get("Entrypoint"), ["/tenon-agent"], f"{name}: entry point")
    check(config.get("Cmd"), None, f"{name}: command")
    check(list(config.get("ExposedPorts", {})), ["8080/tcp"], f"{name}: ports")
    labels = config["Labels"]
    annotations = read(f"{name}-manifest.json")["annotations"]
    for key, expected in {"title": "tenon-agent", "version": version, "licenses": "Apache-2.0"}.items():
        check(labels.get(f"org.opencontainers.image.{key}"), expected, f"{name}: label {key}")
    # The base may have labels of its own.
    for key in ("title", "description", "version", "revision", "licenses", "base.name"):
        value = labels.get(f"org.opencontainers.image.{key}")
        if not value:
            wrong.append(f"{name}: no label {key}")
        check(annotations.get(f"org.opencontainers.image.{key}"), value, f"{name}: annotation {key}")
    if not annotations.get("org.opencontainers.image.base.digest"):
        wrong.append(f"{name}: no annotation base.digest")


def check_sbom(name):
    document = read(f"{name}/{sbom}")
    check((document["bomFormat"], document["specVersion"]), ("CycloneDX", "1.6"), f"{name}: SBOM's form")
    top = document["metadata"]["component"]
    check((top["name"], top["version"]), ("tenon-agent", version), f"{name}: SBOM's subject")
    urls = {part["purl"].split("@")[0] for part in document["components"] if "purl" in part}
    print(f"image: {name}: the SBOM lists {len(document['components'])} crates")
    # Linked into the binary.
    for crate in ("aws-sdk-dynamodb", "kube", "rustls", "tokio"):
        if f"pkg:cargo/{crate}" not in urls:
            wrong.append(f"{name}: `{crate}` isn't in the SBOM")
    # Of tests, of the functions, and of compiling.
    for crate in ("insta", "proptest", "lambda_runtime", "aws-sdk-ec2", "syn"):
        if f"pkg:cargo/{crate}" in urls:
            wrong.append(f"{name}: `{crate}` is in the SBOM, and not in the binary")


# An image without an index has no list.
entries = [entry["platform"] for entry in read("index.json").get("manifests", [])]
platforms = sorted(f"{entry['os']}/{entry['architecture']}" for entry in entries)
check(platforms, ["linux/amd64", "linux/arm64"], "platforms")
for name in names:
    check_image(name)
    check_sbom(name)
if wrong:
    sys.exit("image: " + "\nimage: ".join(wrong))
