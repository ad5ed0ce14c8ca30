#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stop_test.py LATHE_BENCH JSON: ends a long run after its first row, as Ctrl-C does, and looks at what is left."""

import json
import pathlib
import signal
import subprocess
import sys

import report

program, file = sys.argv[1], pathlib.Path(sys.argv[2])
arguments = [program, "--benchmark_filter=^MlaDecode/heads:.*/keys:128/", "--benchmark_min_time=0.001",
             f"--benchmark_out={file}", "--benchmark_out_format=json"]
bench = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
lines = []
for line in bench.stdout:
    lines.append(line.rstrip("\n"))
    if line.startswith("[") and sum(seen.startswith("[") for seen in lines) == 1:
        bench.send_signal(signal.SIGINT)
assert bench.wait() == 130, bench.returncode

rows = [line for line in lines if line.startswith("[")]
total = int(rows[0].partition("/")[2].partition("]")[0])
assert rows[0].startswith("[" + "1".rjust(len(str(total))) + "/") and 1 <= len(rows) < total, rows
assert max(map(len, lines)) <= 120, max(lines, key=len)
kept = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
assert len(kept) == len(rows) and all("median_ms" in row for row in kept), kept
# A file without an end, as a run leaves it that is killed.
cut = file.with_suffix(".cut.json")
text = file.read_text(encoding="utf-8")
cut.write_text(text[:text.rindex("]")].rstrip() + ',\n    {\n      "name": "half a ro', encoding="utf-8")
assert report.read_report(cut)["benchmarks"] == kept
sys.exit(report.main(["report.py", str(file)]))
