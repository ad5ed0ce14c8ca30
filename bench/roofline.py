# SPDX-License-Identifier: Apache-2.0
"""The roofline of a target with the rows of decode below it."""

import statistics

from svg import COLOURS, MUTED, Series, draw_chart, logarithmic


PLAIN = {"bf16", "float32"}  # formats whose rows are read in place


def median_of(rows, counter):
    values = [r[2][counter] for r in rows if counter in r[2]]
    return statistics.median(values) if values else None


def plot(path, rows, target, threads, cpu):
    """One panel for each format: GFLOP/s against flops a byte, which more query rows a key give. The roof is the
    median of the ceilings that the rows themselves have seen."""
    bandwidth = median_of(rows, "read_ceiling_GB/s")
    panels = []
    for form in sorted({r[1]["format"] for r in rows} & PLAIN):
        peak = median_of([r for r in rows if r[1]["format"] == form], "flop_ceiling_GFLOP/s")
        chosen = [r for r in rows if r[1]["format"] == form and r[2].get("GB/s")]
        if not (bandwidth and peak and chosen):
            continue
        series = []
        for i, heads in enumerate(sorted({r[1]["heads"] for r in chosen})):
            points = [(r[2]["GFLOP/s"] / r[2]["GB/s"], r[2]["GFLOP/s"]) for r in chosen if r[1]["heads"] == heads]
            series.append(Series(f"{heads} heads", points, COLOURS[i % len(COLOURS)], line=False))
        intensities = [x for s in series for x, _ in s.points]
        ridge = peak / bandwidth
        left, right = min(intensities + [ridge]) / 2, max(intensities + [ridge]) * 2
        roof = [(left, left * bandwidth), (ridge, peak), (right, peak)]
        panels.append((f"{form}: {peak:.0f} GFLOP/s, {bandwidth:.0f} GB/s",
                       series + [Series("roof", roof, MUTED, marks=False)]))
    if panels:
        points = [p for _, series in panels for s in series for p in s.points]
        draw_chart(path, "MlaDecode: roofline", f"target {target}, {threads} threads, cold, {cpu}", panels,
                   "flops a byte", "GFLOP/s", logarithmic([y for _, y in points]),
                   x_axis=logarithmic([x for x, _ in points]))
