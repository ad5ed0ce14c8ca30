#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""archive_size.py TREE BYTES: whether `git archive` of the tree is below BYTES; 77 where there is no repository."""

import subprocess
import sys

tree, limit = sys.argv[1], int(sys.argv[2])
try:
    done = subprocess.run(["git", "-C", tree, "archive", "--worktree-attributes", "--format=tar.gz", "HEAD"],
                          capture_output=True, check=True)
except (OSError, subprocess.CalledProcessError) as error:
    print(f"no repository to archive: {error}")
    sys.exit(77)
print(f"{len(done.stdout)} bytes, {limit} at most")
sys.exit(len(done.stdout) > limit)
