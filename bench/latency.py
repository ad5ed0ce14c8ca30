# SPDX-License-Identifier: Apache-2.0
"""One token against the number of threads: the table and the plot of the rows of `lathe_bench --latency`."""

from svg import COLOURS, Series, draw_chart, logarithmic

# Panel, label, operation, the fields of its rows. Heads are those of the whole model, but for "by 8": tensor parallelism.
PRESETS = [
    ("dense", "V3, 4096 keys, 128 heads", "MlaDecode", {"heads": 128, "keys": 4096, "format": "bf16"}),
    ("dense", "V3, 16384 keys, 128 heads", "MlaDecode", {"heads": 128, "keys": 16384, "format": "bf16"}),
    ("dense", "V3 by 8 or V2-Lite, 4096 keys, 16 heads", "MlaDecode", {"heads": 16, "keys": 4096, "format": "bf16"}),
    ("dense", "V3 by 8 or V2-Lite, 16384 keys, 16 heads", "MlaDecode", {"heads": 16, "keys": 16384, "format": "bf16"}),
    ("V3.2", "V3.2, 2048 of 65536, 128 heads, bf16", "SparseMla",
     {"heads": 128, "keys": 2048, "context": 65536, "format": "bf16"}),
    ("V3.2", "V3.2, 2048 of 65536, 128 heads, fp8_ds_mla", "SparseMla",
     {"heads": 128, "keys": 2048, "context": 65536, "format": "fp8_ds_mla"}),
    ("V3.2", "V3.2 by 8, 2048 of 65536, 16 heads, bf16", "SparseMla",
     {"heads": 16, "keys": 2048, "context": 65536, "format": "bf16"}),
    ("V3.2", "V3.2 by 8, 2048 of 65536, 16 heads, fp8_ds_mla", "SparseMla",
     {"heads": 16, "keys": 2048, "context": 65536, "format": "fp8_ds_mla"}),
    ("V3.2", "indexer, top 2048 of 131072, 64 heads", "IndexerTopk",
     {"heads": 64, "k": 2048, "keys": 131072, "rows": 1, "format": "indexer_fp8"}),
    ("V4", "V4-Flash, window 128, 64 heads", "V4Decode",
     {"model": "flash", "layer": "window", "context": 65536, "format": "fp8_ds4"}),
    ("V4", "V4-Flash, ratio 4, 128 + 512 keys, 64 heads", "V4Decode",
     {"model": "flash", "layer": "ratio4", "context": 1048576, "format": "fp8_ds4"}),
    ("V4", "V4-Pro, ratio 4, 128 + 1024 keys, 128 heads", "V4Decode",
     {"model": "pro", "layer": "ratio4", "context": 1048576, "format": "fp8_ds4"}),
]
# What fields of a row are where its name, or the preset, does not say.
ORDINARY = {"batch": 1, "cache": "cold", "executor": None, "q_len": None, "dims": None, "precision": None}
EXECUTORS = {None: "", "openmp": ", OpenMP"}  # what a label ends with
TITLE = ["row", "threads", "ms", "speedup", "of_limit"]


def select(rows, target, preset, executor):
    """{threads: counters} of a preset's rows."""
    _, _, operation, wanted = preset
    wanted = {**ORDINARY, "target": target, "executor": executor, **wanted}
    return {fields["threads"]: counters for name, fields, counters in rows
            if name == operation and all(fields.get(key, ORDINARY.get(key)) == value for key, value in wanted.items())}


def latencies(rows, target):
    """(preset, executor, {threads: counters}) of all that were measured."""
    for preset in PRESETS:
        for executor in EXECUTORS:
            found = select(rows, target, preset, executor)
            if found:
                yield preset, executor, found


def table(rows, target):
    """Lines of cells: every preset at each number of threads."""
    lines = []
    for (_, label, *_), executor, found in latencies(rows, target):
        for threads, counters in sorted(found.items()):
            speedup = 1.0 if threads == 1 else counters.get("speedup")
            limit = counters.get("of_limit")
            lines.append([label + EXECUTORS[executor], str(threads), f"{counters['median_ms']:.3f}",
                          "-" if speedup is None else f"{speedup:.2f}", "-" if limit is None else f"{limit:.3f}"])
    return lines


def plot(path, rows, target, cpu):
    """A panel for each family of models, a line for each row; dashed: by OpenMP."""
    panels = {}
    for preset, executor, found in latencies(rows, target):
        if len(found) < 2:
            continue
        panel, label, *_ = preset
        of_panel = [p for p in PRESETS if p[0] == panel]
        points = [(threads, counters["median_ms"]) for threads, counters in found.items()]
        panels.setdefault(panel, []).append(Series(label + EXECUTORS[executor], points,
                                                   COLOURS[of_panel.index(preset)], executor is not None))
    if panels:
        times = [y for series in panels.values() for s in series for _, y in s.points]
        draw_chart(path, "One token: time against threads", f"target {target}, batch 1, cold, {cpu}",
                   list(panels.items()), "threads", "ms", logarithmic(times), legend_width=380)
