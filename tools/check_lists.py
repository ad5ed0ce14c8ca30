#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the documentation names what the lists of the library have: the README and docs/operations every
operation, the README and docs/formats.md every cache format, the README and docs/dispatch.md every target,
docs/README.md every page and every example; and that tests/build exercises and watches every public function. Prints
FILE: NAME for each that is missing."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "lathe"

# What goes with an operation and is explained beside it: sizes, plans, parts of a run, targets.
HELPER = re.compile(r"(Sizes|WorkspaceBytes|Targets?|DeclineAmx)$|^Plan|^Run\w+(Part|Merge)$")


def read(*paths):
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def functions():
    headers = [*sorted(HEADERS.glob("*.h")), HEADERS / "base" / "target.h"]
    return re.findall(r"^LATHE_API \w+ (\w+)\(", read(*headers), re.MULTILINE)


def operations():
    return [name for name in functions() if not HELPER.search(name)]


def formats():
    return re.findall(r"^LATHE_FORMAT\((\w+),", read(HEADERS / "cache" / "formats.def"), re.MULTILINE)


def targets():
    return re.findall(r'^LATHE_(?:TILE_)?TARGET(?:_ROW)?\(\w+, \d+, "(\w+)"', read(HEADERS / "base" / "targets.def"),
                      re.MULTILINE)


def missing(names, *files):
    text = read(*files)
    place = files[0] if len(files) == 1 else files[0].parent
    for name in names:
        if not re.search(rf"(?<!\w){re.escape(name)}\b", text):
            yield f"{place.relative_to(ROOT)}: {name}"


def main():
    readme, docs = ROOT / "README.md", ROOT / "docs"
    pages = [page.relative_to(docs).as_posix() for page in docs.rglob("*.md") if page != docs / "README.md"]
    examples = [path.stem for path in (ROOT / "examples").glob("[0-9][0-9]_*")]
    lists = {"operations": operations(), "formats": formats(), "targets": targets(), "pages": pages,
             "examples": examples}
    for name, items in lists.items():
        if not items:
            sys.exit(f"no {name} found: the lists are not written as this script reads them")
    lost = [*missing([*operations(), *formats(), *targets()], readme),
            *missing(operations(), *sorted((docs / "operations").glob("*.md"))),
            *missing(formats(), docs / "formats.md"),
            *missing(targets(), docs / "dispatch.md"),
            *missing([*pages, *examples], docs / "README.md"),
            *missing([f"ops::{name}" for name in functions()], *sorted((ROOT / "tests/build").glob("exercise*.h"))),
            *missing([f"#define {name}" for name in functions()], ROOT / "tests/build/watched.cc")]
    counts = ", ".join(f"{len(items)} {name}" for name, items in lists.items())
    print("\n".join(lost) if lost else f"all are named: {counts}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
