#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what the Markdown files of the tree link to is there: files, folders, headings of files. Links
to the net are not looked at. Prints FILE: LINK for each that leads nowhere."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(text):
    """The names that headings get."""
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def dead_links(path):
    text = path.read_text(encoding="utf-8")
    for link in LINK.findall(CODE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            yield link


def main():
    pages = [*ROOT.glob("*.md"), *(page for top in ("docs", "examples", "tests") for page in ROOT.glob(f"{top}/**/*.md"))]
    dead = [f"{page.relative_to(ROOT)}: {link}" for page in pages for link in dead_links(page)]
    print("\n".join(dead) if dead else f"{len(pages)} pages, every link leads somewhere")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
