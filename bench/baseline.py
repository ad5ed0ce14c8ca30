#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""baseline.py FROM TO: what is kept in bench/baselines of a JSON of lathe_bench.

The context with its ceilings, compiler, CPU and thread counts, without the name of the machine; of each row, a line of the
file, its name and counters in five digits. bench/report.py reads it as it reads FROM. Rows that failed are refused."""

import json
import pathlib
import sys

import report

# Google Benchmark's own of a row: bookkeeping, and times that include probes.
LEFT_OUT = {"family_index", "per_family_instance_index", "run_name", "run_type", "repetitions", "repetition_index",
            "threads", "iterations", "real_time", "cpu_time", "time_unit"}


def kept(value):
    return float(f"{value:.5g}") if isinstance(value, float) else value


def main(source, target):
    run = report.read_report(source)
    failed = [row["name"] for row in run["benchmarks"] if "median_ms" not in row]
    if failed:
        sys.exit(f"not kept, {len(failed)} rows failed: {failed[0]}, ...")
    context = {**run["context"], "host_name": "", "executable": pathlib.Path(run["context"]["executable"]).name}
    counts = {report.parse_name(row["name"])[1].get("threads") for row in run["benchmarks"]}
    context["threads"] = " ".join(str(count) for count in sorted(counts - {None}))
    rows = [json.dumps({key: kept(value) for key, value in row.items() if key not in LEFT_OUT})
            for row in run["benchmarks"]]
    target.write_text('{"context": ' + json.dumps(context, indent=1) + ',\n"benchmarks": [\n' + ",\n".join(rows) + "\n]}\n",
                      encoding="utf-8")
    print(f"wrote {target}: {len(rows)} rows")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
