#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""latency_test.py LATHE_BENCH FOLDER: runs a row of --latency, and looks at its table, its plot and the baseline of it."""

import pathlib
import subprocess
import sys

import baseline
import latency
import report

program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
folder.mkdir(exist_ok=True)
run, kept = folder / "latency.json", folder / "kept.json"
subprocess.run([program, "--latency", "--benchmark_filter=^V4Decode/model:flash/layer:window/", f"--benchmark_out={run}",
                "--benchmark_min_time=0.001"], check=True)
assert report.main(["report.py", str(run)]) == 0
assert (folder / "latency_threads.svg").exists() == (len(report.read_report(run)["benchmarks"]) > 1)
baseline.main(run, kept)

tables = []
for file in (run, kept):
    written = report.read_report(file)
    rows = report.load_rows(written)
    threads = [fields["threads"] for _, fields, _ in rows]
    assert threads[0] == 1 and threads == sorted(set(threads)), threads
    target = rows[0][1]["target"]
    one = rows[0][2]["median_ms"]
    for _, fields, counters in rows:
        # Fractions of the nearer ceiling, and times over that of one thread.
        nearer = max(counters["of_flop_ceiling"], counters["of_read_ceiling"])
        assert 0 < nearer <= counters["of_limit"] * 1.001, counters
        assert counters["flop_ceiling_GFLOP/s"] > 0 and counters["read_ceiling_GB/s"] > 0, counters
        if fields["threads"] > 1:
            assert abs(counters["speedup"] * counters["median_ms"] / one - 1) < 1e-3, counters
        assert f"read_ceiling/threads:{fields['threads']}" in written["context"], written["context"]
    tables.append(latency.table(rows, target))
assert len(tables[0]) == len(threads), tables
for line, again in zip(*tables):
    assert line[:2] == again[:2], (line, again)
    # Five digits are kept of a time, of which a table shows three decimals.
    assert abs(float(line[2]) - float(again[2])) <= 1e-3 + 1e-4 * float(line[2]), (line, again)
assert written["context"]["host_name"] == "" and written["context"]["threads"] == " ".join(map(str, threads))
assert all(written["context"][key] for key in ("compiler", "cpu", "cores", "lathe_version", "date"))
