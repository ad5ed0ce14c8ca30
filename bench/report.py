#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the JSON of lathe_bench into tables and plots.

  bench/report.py FILE.json [FOLDER]

Prints a table for the models that people run, one of the latency of one token against threads, and one for each
operation, and writes SVG plots into FOLDER, or beside the file. Of a run of --latency it is that table and its plot alone. A plot whose rows are missing is left out. The file may be that of a run that was ended."""

import json
import pathlib
import statistics
import sys

import conditions
import latency
import models
import roofline
from svg import COLOURS, Series, draw_chart, linear, logarithmic

# ------------------------------------------------------------------------------------------- rows


def parse_name(name):
    """'MlaDecode/heads:16/...' -> ('MlaDecode', {'heads': 16, ...})"""
    operation, *parts = name.split("/")
    fields = {}
    for part in parts:
        key, _, value = part.partition(":")
        fields[key] = int(value) if value.isdigit() else value
    return operation, fields


def load_rows(report):
    """[(operation, fields, counters)]; repetitions of a row become their median, errors are named."""
    runs = {}
    for run in report["benchmarks"]:
        if run.get("run_type") == "aggregate":
            continue
        if run.get("error_occurred"):
            print(f"FAILED {run['name']}: {run.get('error_message', '')}")
        else:
            runs.setdefault(run["name"], []).append(run)
    rows = []
    for name, repetitions in runs.items():
        counters = {}
        for key, value in repetitions[0].items():
            if isinstance(value, (int, float)) and all(key in r for r in repetitions):
                counters[key] = statistics.median(r[key] for r in repetitions)
        rows.append((*parse_name(name), counters))
    return rows


def read_report(file):
    """The JSON, which has no end where the run had none: the rows that are whole count."""
    text = file.read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(text[:text.rindex("\n    }") + len("\n    }")] + "]}")


# ------------------------------------------------------------------------------------------ tables

COUNTERS = [  # counter, title, format, factor
    ("median_ms", "ms", "{:.3f}", 1),
    ("mad_percent", "+-%", "{:.1f}", 1),
    ("GFLOP/s", "GFLOP/s", "{:.1f}", 1),
    ("GB/s", "GB/s", "{:.2f}", 1),
    ("of_flop_ceiling", "% flop", "{:.1f}", 100),
    ("of_read_ceiling", "% read", "{:.1f}", 100),
    ("speedup", "speedup", "{:.2f}x", 1),
    ("of_limit", "% limit", "{:.1f}", 100),
    ("of_memcpy", "% memcpy", "{:.1f}", 100),
    ("of_decode", "% decode", "{:.2f}", 100),
    ("tokens/s", "tokens/s", "{:.0f}", 1),
    ("vs_copy", "copy", "{:.2f}x", 1),
    ("vs_dense", "dense", "{:.2f}x", 1),
    ("vs_onednn", "onednn", "{:.2f}x", 1),
    ("vs_openblas", "openblas", "{:.2f}x", 1),
    ("vs_scalar", "scalar", "{:.1f}x", 1),
    ("vs_nth_element", "nth_el.", "{:.1f}x", 1),
    ("vs_vqselect", "vqselect", "{:.1f}x", 1),
]
LEGEND = """ms  median time of a call        +-%  median deviation of its samples from that, percent
GFLOP/s, GB/s  products, and bytes of keys (or bytes read and written), a second
% flop, % read  of the arithmetic and the reading that this machine showed around each sample; % limit  of
    the nearer of both; speedup  over one thread; % memcpy  of a copy of as many bytes; % decode  of the time of a decode
copy, dense, onednn, openblas, scalar, nth_el., vqselect, and `vs` above  how many times as long the same takes:
    copying the keys, dense attention over as many, compositions of oneDNN's or OpenBLAS's products, a plain loop, std::nth_element,
    Highway's VQSelect"""
MAX_COLUMNS = 120
FIELD_ORDER = ["target", "call", "model", "layer", "format", "precision", "from", "to", "parts", "tokens", "batch",
               "context", "keys", "rows", "columns", "k", "threads", "executor", "cache", "dims", "q_len", "heads"]


def widths_of(lines):
    return [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]


def width_of(lines):
    return sum(widths_of(lines)) + 2 * (len(lines[0]) - 1)


def print_lines(lines):
    widths = widths_of(lines)
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip())


def print_models(rows, target):
    found = models.summary(rows, target)
    if found is None:
        return
    threads, lines = found
    print(f"\nOne layer of models that people run, target {target}, {threads} threads, caches in memory; tokens/s as if the"
          "\nmodel had this layer alone; % of the ceiling that is nearer")
    print_lines([models.TITLE] + [[str(cell) for cell in line] for line in lines])


def print_latency(rows, target):
    lines = latency.table(rows, target)
    if not lines:
        return
    print(f"\nOne token of one layer, target {target}, caches in memory; speedup over one thread, of_limit: the least time"
          "\nthat its products or its bytes take as many threads of this machine, over the time it took")
    label, *others = zip(latency.TITLE, *lines)
    width = max(map(len, label))
    print_lines(list(zip([cell.ljust(width) for cell in label], *others)))


def print_table(operation, rows, target_rank):
    values_seen = {f: {row[1].get(f, "") for row in rows} for f in FIELD_ORDER}
    fields = [f for f, seen in values_seen.items() if len(seen) > 1]
    shared = [f"{f} {min(seen)}" for f, seen in values_seen.items() if len(seen) == 1 and seen != {""}]
    shown = [c for c in COUNTERS if any(c[0] in row[2] for row in rows)]

    def sort_key(row):
        key = []
        for field in fields:
            value = row[1].get(field, "")
            if field == "target":
                value = target_rank.get(value, len(target_rank))
            key.append((isinstance(value, str), value))
        return key

    is_doubtful = False
    lines = [fields + [title for _, title, _, _ in shown]]
    for _, values, counters in sorted(rows, key=sort_key):
        line = [str(values.get(f, "")) for f in fields]
        for counter, _, form, factor in shown:
            cell = form.format(counters[counter] * factor) if counter in counters else ""
            if counter == "of_flop_ceiling" and counters.get(counter, 0) > 1.005:
                cell, is_doubtful = "!" + cell, True
            line.append(cell)
        lines.append(line)
    print(f"\n{operation}" + (": " if shared else "") + ", ".join(shared))
    # What follows from the rest is left out first.
    for title in ("tokens/s", "% limit", "GB/s"):
        if width_of(lines) > MAX_COLUMNS and title in lines[0]:
            at = lines[0].index(title)
            lines = [line[:at] + line[at + 1:] for line in lines]
    print_lines(lines)
    if is_doubtful:
        print("! above the ceiling: its probes were disturbed, measure again on a quiet machine")


# ------------------------------------------------------------------------------------------- plots


def select(rows, **wanted):
    """Decode rows of DeepSeek's width and one query a sequence, unless `wanted` says otherwise."""
    wanted = {"q_len": None, "dims": None, "executor": None, **wanted}
    return [r for r in rows if r[0] == "MlaDecode" and all(r[1].get(k) == v for k, v in wanted.items())]


def values_of(rows, field):
    return sorted({r[1][field] for r in rows})


def plot_against_heads(path, rows, target, cpu, counter, title, threads=1):
    """One panel for each format, one line for each number of keys and cold or warm, batch 1."""
    chosen = [r for r in select(rows, target=target, threads=threads, batch=1) if counter in r[2]]
    colours = dict(zip(values_of(chosen, "keys"), COLOURS))
    panels = []
    for form in values_of(chosen, "format"):
        series = []
        for cache in ("warm", "cold"):
            for keys, colour in colours.items():
                points = [(r[1]["heads"], 100 * r[2][counter])
                          for r in select(chosen, format=form, keys=keys, cache=cache)]
                if points:
                    series.append(Series(f"{keys} keys, {cache}", points, colour, cache == "warm"))
        panels.append((form, series))
    if not panels:
        return
    y_max = max([100.0] + [y for _, series in panels for s in series for _, y in s.points])
    draw_chart(path, title, f"target {target}, batch 1, {threads} thread, {cpu}", panels, "heads", "of the ceiling",
               linear(y_max), "%")


def plot_comparators(path, rows, target, cpu, threads=1):
    """One panel for each format and library, one line for each number of keys and cold or warm, batch 1."""
    chosen = select(rows, target=target, threads=threads, batch=1)
    colours = dict(zip(values_of(chosen, "keys"), COLOURS))
    panels = []
    for form in values_of(chosen, "format"):
        for name in ("onednn", "openblas"):
            series = []
            for cache in ("warm", "cold"):
                for keys, colour in colours.items():
                    points = [(r[1]["heads"], r[2]["vs_" + name])
                              for r in select(chosen, format=form, keys=keys, cache=cache) if "vs_" + name in r[2]]
                    if points:
                        series.append(Series(f"{keys} keys, {cache}", points, colour, cache == "warm"))
            if series:
                heads = sorted({x for s in series for x, _ in s.points})
                panels.append((f"{form}, {name}", series + [Series("equal", [(n, 1.0) for n in heads], "#8c959f")]))
    if panels:
        y_max = max(y for _, series in panels for s in series for _, y in s.points)
        draw_chart(path, "MlaDecode: time of a composition over ours",
                   f"target {target}, batch 1, {threads} thread, {cpu}", panels, "heads", "their time over ours",
                   linear(y_max * 1.05), "x")


def plot_speedup(path, rows, target, cpu):
    """Time with one thread over time with more, for the longest sequences that were measured cold."""
    chosen = select(rows, target=target, batch=1, cache="cold")
    if not chosen or len(values_of(chosen, "threads")) < 2:
        return
    keys = values_of(chosen, "keys")[-1]
    panels = []
    for form in values_of(chosen, "format"):
        series = []
        for i, heads in enumerate(values_of(chosen, "heads")):
            time = {r[1]["threads"]: r[2]["median_ms"]
                    for r in select(chosen, format=form, keys=keys, heads=heads)}
            if 1 in time and len(time) > 1:
                points = [(threads, time[1] / ms) for threads, ms in time.items()]
                series.append(Series(f"{heads} heads", points, COLOURS[i % len(COLOURS)]))
        if series:
            threads = sorted({x for s in series for x, _ in s.points})
            panels.append((form, series + [Series("ideal", [(n, n) for n in threads], "#8c959f", True)]))
    if panels:
        y_max = max(y for _, series in panels for s in series for _, y in s.points)
        draw_chart(path, "MlaDecode: speed-up by threads", f"target {target}, batch 1, {keys} keys, cold, {cpu}",
                   panels, "threads", "times one thread", linear(y_max * 1.05))


def plot_latency(path, rows, target, cpu, threads):
    """One panel for each format, one line for each number of heads: time against context, cold, batch 1."""
    chosen = select(rows, target=target, threads=threads, batch=1, cache="cold")
    colours = dict(zip(values_of(chosen, "heads"), COLOURS))
    panels = []
    for form in values_of(chosen, "format"):
        series = []
        for heads, colour in colours.items():
            points = [(r[1]["keys"], r[2]["median_ms"]) for r in select(chosen, format=form, heads=heads)]
            if len(points) > 1:
                series.append(Series(f"{heads} heads", points, colour))
        if series:
            panels.append((form, series))
    if panels:
        times = [y for _, series in panels for s in series for _, y in s.points]
        draw_chart(path, "MlaDecode: time of one layer against context",
                   f"target {target}, batch 1, cold, {threads} threads, {cpu}", panels, "keys", "ms", logarithmic(times))


def main(argv):
    if len(argv) not in (2, 3) or argv[1].startswith("-"):
        print(__doc__)
        return 2
    file = pathlib.Path(argv[1])
    folder = pathlib.Path(argv[2]) if len(argv) == 3 else file.parent
    report = read_report(file)
    context = report.get("context", {})
    cpu = f"{context.get('cpu', 'unknown CPU')}, {context.get('cores', '?')} cores"
    print(f"lathe {context.get('lathe_version', '?')} on {cpu}, last-level cache "
          f"{int(context.get('llc_bytes', 0)) >> 20} MiB, {context.get('date', '')}")
    rows = load_rows(report)
    if not rows:
        print("nothing was measured")
        return 1
    for line in conditions.ceilings(rows, context):
        print(f"  {line}")
    for key in ("onednn", "openblas"):
        if key in context:
            print(f"  {key}: {context[key]}")
    for line in conditions.warnings(rows, context):
        print(f"WARNING: {line}")

    targets = context.get("targets", "").split()
    rank = {name: i for i, name in enumerate(targets)}
    measured = [r[1]["target"] for r in rows if "target" in r[1]]
    best = min(measured, key=lambda name: rank.get(name, len(rank)), default=None)
    if best is not None:
        if context.get("selection") != "latency":
            print_models(rows, best)
        print_latency(rows, best)
        latency.plot(folder / "latency_threads.svg", rows, best, cpu)
    if context.get("selection") == "latency":
        return 0
    for operation in dict.fromkeys(row[0] for row in rows):
        print_table(operation, [r for r in rows if r[0] == operation], rank)
    print(f"\n{LEGEND}\n")
    if select(rows, target=best):
        threads = values_of(select(rows, target=best), "threads")[-1]
        plot_against_heads(folder / "mla_decode_of_flop_ceiling.svg", rows, best, cpu, "of_flop_ceiling",
                           "MlaDecode: fraction of the arithmetic ceiling")
        plot_against_heads(folder / "mla_decode_of_read_ceiling.svg", rows, best, cpu, "of_read_ceiling",
                           "MlaDecode: fraction of the streaming-read ceiling")
        plot_comparators(folder / "mla_decode_comparators.svg", rows, best, cpu)
        plot_speedup(folder / "mla_decode_threads.svg", rows, best, cpu)
        plot_latency(folder / "mla_decode_latency.svg", rows, best, cpu, threads)
        roofline.plot(folder / "mla_decode_roofline.svg", select(rows, target=best, threads=threads, cache="cold"),
                      best, threads, cpu)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
