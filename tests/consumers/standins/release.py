#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""release.py TREE ARCHIVE FOLDER: what tools/registry.py makes of an archive of the tree's library part."""

import pathlib
import subprocess
import sys
import tarfile

tree, archive, folder = map(pathlib.Path, sys.argv[1:])
with tarfile.open(archive, "w:gz") as tar:
    for part in ("CMakeLists.txt", "LICENSE", "cmake", "include", "src"):
        tar.add(tree / part, f"lathe-release/{part}")
subprocess.run([sys.executable, tree / "tools/registry.py", "https://github.com/someone/lathe", archive, folder],
               check=True)
for path in (p for p in folder.rglob("*") if p.is_file()):
    rest = [line for line in path.read_text(encoding="utf-8").splitlines() if "@" in line and "@property" not in line]
    assert not rest, f"{path} is not filled in: {rest}"
