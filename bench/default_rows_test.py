#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""default_rows_test.py LATHE_BENCH: a default run has rows of every operation that --all has, and at most 140."""

import subprocess
import sys


def rows(*arguments):
    command = [sys.argv[1], "--benchmark_list_tests", *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


default, long = rows(), rows("--all")
assert default < long, sorted(default - long)
assert {row.split("/")[0] for row in default} == {row.split("/")[0] for row in long}
print(f"{len(default)} rows of {len(long)}")
sys.exit(len(default) > 140)
