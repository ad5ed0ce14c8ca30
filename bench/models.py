# SPDX-License-Identifier: Apache-2.0
"""What the rows of lathe_bench mean for models that people run: one line for a layer of a model at a context."""

# Model, layer, operation, the fields of its rows, tokens that a key of the row stands for. Heads are those
# of the whole model; tensor parallelism leaves a part of them to a socket or node.
PRESETS = [
    ("DeepSeek-V2-Lite", "attention", "MlaDecode", {"heads": 16}, 1),
    ("DeepSeek-V3", "attention", "MlaDecode", {"heads": 128}, 1),
    ("DeepSeek-V3.2", "indexer, top 2048", "IndexerTopk", {"heads": 64, "k": 2048, "rows": 1}, 1),
    ("DeepSeek-V3.2", "attention", "SparseMla", {"heads": 128, "keys": 2048}, 1),
    ("DeepSeek-V4-Flash", "window", "V4Decode", {"model": "flash", "layer": "window"}, 1),
    ("DeepSeek-V4-Flash", "indexer, top 512", "IndexerTopk", {"heads": 64, "k": 512, "rows": 1}, 4),
    ("DeepSeek-V4-Flash", "ratio 4", "V4Decode", {"model": "flash", "layer": "ratio4"}, 1),
    ("DeepSeek-V4-Flash", "ratio 128", "V4Decode", {"model": "flash", "layer": "ratio128"}, 1),
    ("DeepSeek-V4-Pro", "window", "V4Decode", {"model": "pro", "layer": "window"}, 1),
    ("DeepSeek-V4-Pro", "indexer, top 1024", "IndexerTopk", {"heads": 64, "k": 1024, "rows": 1}, 4),
    ("DeepSeek-V4-Pro", "ratio 4", "V4Decode", {"model": "pro", "layer": "ratio4"}, 1),
    ("DeepSeek-V4-Pro", "ratio 128", "V4Decode", {"model": "pro", "layer": "ratio128"}, 1),
    ("Kimi-K2", "attention", "MlaDecode", {"heads": 64}, 1),
    ("GLM-4.7-Flash", "attention", "MlaDecode", {"heads": 20}, 1),
    ("GLM-5", "indexer, top 2048", "IndexerTopk", {"heads": 32, "k": 2048, "rows": 1}, 1),
    ("GLM-5", "attention", "SparseMla", {"heads": 64, "keys": 2048}, 1),
]
HEADS = {"flash": 64, "pro": 128}
# Fields that a row of a preset does not have, unless the preset says so.
SPECIAL = ("q_len", "dims", "precision", "executor")
WIDE = ("float32", "float16")  # caches that engines do not keep
TITLE = ["model", "layer", "heads", "context", "batch", "cache", "ms", "tokens/s", "% of", "vs"]


def matches(row, operation, wanted):
    name, fields, _ = row
    return (name == operation and fields.get("cache", "cold") == "cold" and fields.get("format") not in WIDE
            and not any(f in fields for f in SPECIAL)
            and all(fields.get(key) == value for key, value in wanted.items()))


def of_ceiling(counters):
    """The ceiling that is nearer."""
    return max(((counters[key], name) for key, name in (("of_flop_ceiling", "flop"), ("of_read_ceiling", "read"))
                if key in counters), default=(None, ""))


def toughest(counters):
    """Of the comparators, the one that comes nearest to us: its time over ours."""
    libraries = [(value, key[3:]) for key, value in counters.items() if key in ("vs_onednn", "vs_openblas")]
    return min(libraries, default=None)


def line_of(model, layer, row, tokens_a_key):
    _, fields, counters = row
    batch = fields.get("batch", fields.get("rows", 1))
    fraction, ceiling = of_ceiling(counters)
    other = toughest(counters)
    ms = counters["median_ms"]
    return [model, layer, fields.get("heads", HEADS.get(fields.get("model"))),
            fields.get("context", fields.get("keys", 0) * tokens_a_key), batch, fields.get("format", ""),
            f"{ms:.3f}", f"{1000 * batch / ms:.0f}",
            "" if fraction is None else f"{100 * fraction:.0f} {ceiling}",
            "" if other is None else f"{other[0]:.2f}x {other[1]}"]


def summary(rows, target):
    """(threads, lines) of the rows with the most threads, or None if no row belongs to a model."""
    chosen = [r for r in rows if r[1].get("target") == target]
    found = [(preset, row) for preset in PRESETS for row in chosen if matches(row, preset[2], preset[3])]
    if not found:
        return None
    threads = max(row[1]["threads"] for _, row in found)
    lines = []
    for (model, layer, _, _, tokens_a_key), row in found:
        if row[1]["threads"] == threads:
            lines.append(line_of(model, layer, row, tokens_a_key))
    order = {(model, layer): i for i, (model, layer, *_) in enumerate(PRESETS)}
    lines.sort(key=lambda line: (order[line[0], line[1]], line[5], line[3], line[4]))
    return threads, lines
