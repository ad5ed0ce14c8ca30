#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""registry.py HOMEPAGE ARCHIVE FOLDER

Writes what registries of packages take for a release, out of packaging/registry: FOLDER/conan for ConanCenter
(config.yml, conandata.yml, recipe, test package), FOLDER/vcpkg/lathe for vcpkg's. HOMEPAGE is the repository's address,
https://github.com/OWNER/NAME; ARCHIVE the file that HOMEPAGE/archive/refs/tags/vVERSION.tar.gz gives, whose hashes
are written down."""

import hashlib
import json
import pathlib
import re
import shutil
import sys

TREE = pathlib.Path(__file__).resolve().parent.parent


def version():
    text = (TREE / "include/lathe/version.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define LATHE_VERSION_[A-Z]+ ([0-9]+)$", text, re.MULTILINE))


def fill(folder, values):
    """Every @NAME@ in the files of the folder becomes its value."""
    for path in (p for p in folder.rglob("*") if p.is_file()):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub("@([A-Z0-9_]+)@", lambda name: values[name[1]], text), encoding="utf-8")


def main(homepage, archive, folder):
    content = pathlib.Path(archive).read_bytes()
    match = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", homepage)
    if match is None:
        sys.exit(f"registry.py: {homepage} is not https://github.com/OWNER/NAME")
    values = {"HOMEPAGE": homepage, "REPOSITORY": match[1], "VERSION": version(),
              "ARCHIVE_URL": f"{homepage}/archive/refs/tags/v{version()}.tar.gz",
              "SHA256": hashlib.sha256(content).hexdigest(), "SHA512": hashlib.sha512(content).hexdigest()}
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TREE / "packaging/registry", folder)
    fill(folder, values)
    shutil.copytree(TREE / "test_package", folder / "conan/all/test_package", ignore=shutil.ignore_patterns("build"))
    port = TREE / "packaging/vcpkg/ports/lathe"
    shutil.copy(port / "usage", folder / "vcpkg/lathe")
    manifest = json.loads((port / "vcpkg.json").read_text(encoding="utf-8"))
    entries = []
    for key, value in manifest.items():
        entries.append((key, value))
        if key == "description":
            entries.append(("homepage", homepage))
    (folder / "vcpkg/lathe/vcpkg.json").write_text(json.dumps(dict(entries), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
