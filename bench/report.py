#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the JSON of lathe_bench into tables and plots.

  bench/report.py FILE.json

Prints a table for each operation and writes SVG plots beside the file. A plot whose rows are missing is
left out."""

import json
import pathlib
import statistics
import sys
from xml.sax.saxutils import escape

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


# ------------------------------------------------------------------------------------------ tables

COUNTERS = [  # counter, title, format, factor
    ("median_ms", "ms", "{:.3f}", 1),
    ("mad_percent", "+-%", "{:.1f}", 1),
    ("GFLOP/s", "GFLOP/s", "{:.1f}", 1),
    ("GB/s", "GB/s", "{:.2f}", 1),
    ("of_flop_ceiling", "% flop", "{:.1f}", 100),
    ("of_read_ceiling", "% read", "{:.1f}", 100),
    ("of_memcpy", "% memcpy", "{:.1f}", 100),
    ("tokens/s", "tokens/s", "{:.0f}", 1),
    ("vs_dense", "vs dense", "{:.2f}x", 1),
    ("vs_onednn", "vs onednn", "{:.2f}x", 1),
    ("vs_openblas", "vs openblas", "{:.2f}x", 1),
    ("vs_scalar", "vs scalar", "{:.1f}x", 1),
    ("vs_nth_element", "vs nth_element", "{:.1f}x", 1),
    ("vs_vqselect", "vs VQSelect", "{:.1f}x", 1),
]
FIELD_ORDER = ["target", "model", "layer", "format", "precision", "from", "to", "parts", "tokens", "batch",
               "context", "keys", "rows", "columns", "k", "threads", "cache", "dims", "q_len", "heads"]


def print_table(operation, rows, target_rank):
    fields = [f for f in FIELD_ORDER if any(f in row[1] for row in rows)]
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
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    print(f"\n{operation}")
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip())
    if is_doubtful:
        print("! above the ceiling: its probes were disturbed, measure again on a quiet machine")


# ------------------------------------------------------------------------------------------- plots

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555"]
INK, MUTED, GRID = "#1f2328", "#59636e", "#e3e6ea"
PANEL_WIDTH, PANEL_HEIGHT = 360, 250
LEFT, TOP, GAP, LEGEND_ROW = 64, 96, 64, 20


class Series:
    def __init__(self, label, points, colour, dashed=False):
        self.label, self.points, self.colour, self.dashed = label, points, colour, dashed


def nice_step(limit):
    """The smallest step of 1, 2 or 5 times a power of ten that gives at most six steps."""
    power = 10.0 ** -3
    while True:
        for factor in (1, 2, 5):
            if limit / (factor * power) <= 6:
                return factor * power
        power *= 10


def text(x, y, content, size=12, colour=INK, anchor="start", extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" {extra}>'
            f"{escape(str(content))}</text>")


def segment(x1, y1, x2, y2, colour, width=1.0, extra=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}" {extra}/>')


def draw_panel(x0, title, series, x_label, y_label, y_max, y_unit):
    """Axes and lines; places on the x axis are evenly spaced, whatever their values."""
    places = sorted({x for s in series for x, _ in s.points})
    step = nice_step(y_max)
    bottom = TOP + PANEL_HEIGHT

    def px(x):
        return x0 + PANEL_WIDTH * (places.index(x) + 0.5) / len(places)

    def py(y):
        return bottom - PANEL_HEIGHT * y / y_max

    out = [text(x0, TOP - 14, title, 13, INK, extra='font-weight="600"')]
    for i in range(int(y_max / step + 1e-9) + 1):
        y = py(i * step)
        out.append(segment(x0, y, x0 + PANEL_WIDTH, y, MUTED if i == 0 else GRID))
        out.append(text(x0 - 8, y + 4, f"{i * step:g}{y_unit}", 11, MUTED, "end"))
    for x in places:
        out.append(segment(px(x), bottom, px(x), bottom + 4, MUTED))
        out.append(text(px(x), bottom + 18, x, 11, MUTED, "middle"))
    middle = TOP + PANEL_HEIGHT / 2
    out.append(text(x0 + PANEL_WIDTH / 2, bottom + 38, x_label, 12, INK, "middle"))
    out.append(text(x0 - 48, middle, y_label, 12, INK, "middle",
                    f'transform="rotate(-90 {x0 - 48:.1f} {middle:.1f})"'))
    for s in series:
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in sorted(s.points))
        dash = ' stroke-dasharray="5 4"' if s.dashed else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{s.colour}" stroke-width="2"{dash}/>')
        for x, y in s.points:
            fill = "#ffffff" if s.dashed else s.colour
            out.append(f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3.5" fill="{fill}" stroke="{s.colour}" '
                       f'stroke-width="1.5"><title>{escape(s.label)}, {x}: {y:.3g}{y_unit}</title></circle>')
    return out


def draw_chart(path, title, subtitle, panels, x_label, y_label, y_max, y_unit=""):
    """panels: [(title, [Series])], side by side, with one legend below for all."""
    legend = {s.label: s for _, series in panels for s in series}
    width = LEFT + len(panels) * (PANEL_WIDTH + GAP) - GAP + 24
    per_row = max(1, (width - LEFT) // 190)
    rows = (len(legend) + per_row - 1) // per_row
    height = TOP + PANEL_HEIGHT + 64 + rows * LEGEND_ROW
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="system-ui, Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(LEFT - 48, 30, title, 17, INK, extra='font-weight="600"'),
           text(LEFT - 48, 50, subtitle, 12, MUTED)]
    for i, (panel_title, series) in enumerate(panels):
        out += draw_panel(LEFT + i * (PANEL_WIDTH + GAP), panel_title, series, x_label, y_label, y_max, y_unit)
    for i, s in enumerate(legend.values()):
        x = LEFT + i % per_row * 190
        y = TOP + PANEL_HEIGHT + 62 + i // per_row * LEGEND_ROW
        dash = 'stroke-dasharray="5 4"' if s.dashed else ""
        out.append(segment(x, y - 4, x + 24, y - 4, s.colour, 2, dash))
        out.append(text(x + 32, y, s.label, 12))
    path.write_text("\n".join(out + ["</svg>"]) + "\n", encoding="utf-8")
    print(f"wrote {path}")


def select(rows, **wanted):
    """Decode rows of DeepSeek's width and one query a sequence, unless `wanted` says otherwise."""
    wanted = {"q_len": None, "dims": None, **wanted}
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
               y_max, "%")


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
                   y_max * 1.05, "x")


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
                   panels, "threads", "times one thread", y_max * 1.05)


def main(argv):
    if len(argv) != 2 or argv[1].startswith("-"):
        print(__doc__)
        return 2
    file = pathlib.Path(argv[1])
    report = json.loads(file.read_text(encoding="utf-8"))
    context = report.get("context", {})
    cpu = f"{context.get('cpu', 'unknown CPU')}, {context.get('cores', '?')} cores"
    print(f"lathe {context.get('lathe_version', '?')} on {cpu}, last-level cache "
          f"{int(context.get('llc_bytes', 0)) >> 20} MiB, {context.get('date', '')}")
    for key, value in context.items():
        if "_ceiling/" in key or key in ("onednn", "openblas"):
            print(f"  {key}: {value}")

    rows = load_rows(report)
    if not rows:
        print("nothing was measured")
        return 1
    targets = context.get("targets", "").split()
    rank = {name: i for i, name in enumerate(targets)}
    for operation in dict.fromkeys(row[0] for row in rows):
        print_table(operation, [r for r in rows if r[0] == operation], rank)

    measured = [r[1].get("target") for r in rows if r[0] == "MlaDecode"]
    best = min(measured, key=lambda name: rank.get(name, len(rank)), default=None)
    print()
    if best is not None:
        plot_against_heads(file.parent / "mla_decode_of_flop_ceiling.svg", rows, best, cpu, "of_flop_ceiling",
                           "MlaDecode: fraction of the arithmetic ceiling")
        plot_against_heads(file.parent / "mla_decode_of_read_ceiling.svg", rows, best, cpu, "of_read_ceiling",
                           "MlaDecode: fraction of the streaming-read ceiling")
        plot_comparators(file.parent / "mla_decode_comparators.svg", rows, best, cpu)
        plot_speedup(file.parent / "mla_decode_threads.svg", rows, best, cpu)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
