#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""selection_test.py LATHE_BENCH FORMATS_DEF: what the selections of a run consist of.

A default run has rows of every operation that --all has, and at most 140; --latency has every line of its table, at 1,
2, 4, ... and all cores; LATHE_BENCH_THREADS holds everywhere; every cache format is written; --perf wants one row."""

import os
import re
import subprocess
import sys

import latency
import report

program, formats = sys.argv[1], open(sys.argv[2], encoding="utf-8").read()


def bench(*arguments, threads=""):
    environment = {**os.environ, "LATHE_BENCH_THREADS": threads}
    return subprocess.run([program, *arguments], capture_output=True, text=True, env=environment)


def rows(*arguments, threads=""):
    run = bench("--benchmark_list_tests", *arguments, threads=threads)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def threads_of(names):
    return {report.parse_name(name)[1]["threads"] for name in names}


default, everything = rows(), rows("--all")
assert len(default) == len(set(default)) and set(default) < set(everything), sorted(set(default) - set(everything))
assert {row.split("/")[0] for row in default} == {row.split("/")[0] for row in everything}
assert len(default) <= 140, len(default)

cores = max(threads_of(default))
counts = sorted({2 ** i for i in range(cores.bit_length())} | {cores})
times = rows("--latency")
parsed = [(*report.parse_name(name), {}) for name in times]
target = parsed[0][1]["target"]
found = list(latency.latencies(parsed, target))
if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 15 << 30:  # with less, long rows may be left out
    assert [preset for preset, executor, _ in found if executor is None] == latency.PRESETS
assert all(sorted(measured) == counts for _, _, measured in found), found
assert sum(len(measured) for _, _, measured in found) == len(times), "rows without a line"

for selection in ((), ("--all",), ("--latency",), ("--benchmark_filter=^MlaDecode/heads:16/keys:128/",)):
    assert threads_of(rows(*selection, threads=str(cores))) == {cores}, selection
assert threads_of(rows(threads=f"{cores},1")) == {1, cores}
for wrong in ("0", "-1", "1,", ",1", "1;2", "x", str(cores + 1)):
    assert bench("--benchmark_list_tests", threads=wrong).returncode != 0, wrong

# A format that is listed and not benchmarked would be one that nobody notices.
written = rows(f"--benchmark_filter=^LatentWrite/tokens:32/from:bf16/to:.*/target:{target}/threads:1$")
assert len(written) == len(re.findall(r"^LATHE_FORMAT\(", formats, re.MULTILINE)), written

for wrong in (("--perf=0",), ("--perf=x",), ("--perf=10",)):
    run = bench(*wrong)
    assert run.returncode != 0 and "--perf" in run.stderr, run
print(f"{len(default)} rows of {len(everything)}, {len(times)} of latencies")
