# SPDX-License-Identifier: Apache-2.0
"""Under what conditions the rows of lathe_bench were measured: the ceilings that their percents are of, and signs of a
machine that did other work, too."""

import statistics

SPREAD = 5  # percent; a quiet machine stays below 1 or 2
BUSY_SHARE = 0.1  # of the rows
BUSY_LOAD = 0.3  # processes a core that others had running


def spread_of(values):
    low, high = min(values), max(values)
    return f"{statistics.median(values):.1f}" + (f" ({low:.1f} to {high:.1f})" if high > 1.02 * low else "")


def ceilings(rows, context):
    """A line for each ceiling that rows were compared with: the median of theirs, and from where to where."""
    seen = {}
    for _, fields, counters in rows:
        threads, target, form = (fields.get(name) for name in ("threads", "target", "format"))
        if "flop_ceiling_GFLOP/s" in counters:
            key = f"flop_ceiling/format:{form}/target:{target}/threads:{threads}"
            if key in context:
                instruction = context[key].partition(" by ")[2]
                title = f"arithmetic, {target}, {instruction}, {threads} threads, GFLOP/s"
                seen.setdefault(title, []).append(counters["flop_ceiling_GFLOP/s"])
        if "read_ceiling_GB/s" in counters and fields.get("cache", "cold") == "cold":
            seen.setdefault(f"streaming read, {threads} threads, GB/s", []).append(counters["read_ceiling_GB/s"])
    return [f"{title}: {spread_of(values)}" for title, values in sorted(seen.items())]


def slower_with_threads(rows):
    """(slower, pairs): of the rows with all threads and with one, otherwise alike and long enough for threads to pay."""
    times = {}
    for name, fields, counters in rows:
        if counters.get("median_ms", 0) > 0:
            others = (name, *((k, v) for k, v in fields.items() if k != "threads"))
            times.setdefault(others, {})[fields.get("threads")] = counters["median_ms"]
    pairs = [(t[1], t[max(t)]) for t in times.values() if 1 in t and max(t) > 1 and t[1] > 1.0]
    return sum(more > one for one, more in pairs), len(pairs)


def warnings(rows, context):
    load, cores = float(context.get("load_at_start", 0)), int(context.get("cores", 1))
    if load > BUSY_LOAD * cores:
        yield f"others were running: a load of {load:.1f} on {cores} cores at the start"
    wide = sum(counters.get("mad_percent", 0) > SPREAD for *_, counters in rows)
    if wide > BUSY_SHARE * len(rows):
        yield f"samples differ by more than {SPREAD} % in {wide} of {len(rows)} rows: measure again on a quiet machine"
    slower, pairs = slower_with_threads(rows)
    if slower:
        yield f"more threads are slower than one in {slower} of {pairs} pairs of rows: cores are shared or taken"
