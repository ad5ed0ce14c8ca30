# SPDX-License-Identifier: Apache-2.0
"""Line charts as SVG, with nothing but Python's own library."""

import math
from xml.sax.saxutils import escape

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555"]
INK, MUTED, GRID = "#1f2328", "#59636e", "#e3e6ea"
PANEL_WIDTH, PANEL_HEIGHT = 360, 250
LEFT, TOP, GAP, LEGEND_ROW = 64, 96, 64, 20


class Series:
    """Points joined by a line, or either of the two alone."""

    def __init__(self, label, points, colour, dashed=False, line=True, marks=True):
        self.label, self.points, self.colour, self.dashed = label, points, colour, dashed
        self.line, self.marks = line, marks


class Axis:
    """place(value) is a fraction of the axis; ticks are (value, label)."""

    def __init__(self, place, ticks):
        self.place, self.ticks = place, ticks


def nice_step(limit):
    """The smallest step of 1, 2 or 5 times a power of ten that gives at most six steps."""
    power = 10.0 ** -3
    while True:
        for factor in (1, 2, 5):
            if limit / (factor * power) <= 6:
                return factor * power
        power *= 10


def linear(limit):
    """From 0 to limit."""
    step = nice_step(limit)
    return Axis(lambda v: v / limit, [(i * step, f"{i * step:g}") for i in range(int(limit / step + 1e-9) + 1)])


def logarithmic(values):
    """Whole powers of ten around the values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    return Axis(lambda v: (math.log10(v) - low) / (high - low), [(10.0 ** i, f"{10.0 ** i:g}") for i in range(low, high + 1)])


def evenly(values):
    """Each value at a place of its own, at equal distances."""
    places = sorted(set(values))
    return Axis(lambda v: (places.index(v) + 0.5) / len(places), [(v, v) for v in places])


def text(x, y, content, size=12, colour=INK, anchor="start", extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" {extra}>'
            f"{escape(str(content))}</text>")


def segment(x1, y1, x2, y2, colour, width=1.0, extra=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}" {extra}/>')


def draw_panel(x0, title, series, x_axis, x_label, y_axis, y_label, y_unit):
    bottom = TOP + PANEL_HEIGHT

    def px(x):
        return x0 + PANEL_WIDTH * x_axis.place(x)

    def py(y):
        return bottom - PANEL_HEIGHT * y_axis.place(y)

    out = [text(x0, TOP - 14, title, 13, INK, extra='font-weight="600"')]
    for value, label in y_axis.ticks:
        y = py(value)
        out.append(segment(x0, y, x0 + PANEL_WIDTH, y, MUTED if y == bottom else GRID))
        out.append(text(x0 - 8, y + 4, f"{label}{y_unit}", 11, MUTED, "end"))
    for value, label in x_axis.ticks:
        out.append(segment(px(value), bottom, px(value), bottom + 4, MUTED))
        out.append(text(px(value), bottom + 18, label, 11, MUTED, "middle"))
    middle = TOP + PANEL_HEIGHT / 2
    out.append(text(x0 + PANEL_WIDTH / 2, bottom + 38, x_label, 12, INK, "middle"))
    out.append(text(x0 - 48, middle, y_label, 12, INK, "middle",
                    f'transform="rotate(-90 {x0 - 48:.1f} {middle:.1f})"'))
    for s in series:
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in sorted(s.points))
        dash = ' stroke-dasharray="5 4"' if s.dashed else ""
        if s.line:
            out.append(f'<polyline points="{path}" fill="none" stroke="{s.colour}" stroke-width="2"{dash}/>')
        for x, y in s.points if s.marks else ():
            fill = "#ffffff" if s.dashed else s.colour
            out.append(f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3.5" fill="{fill}" stroke="{s.colour}" '
                       f'stroke-width="1.5"><title>{escape(s.label)}, {x:g}: {y:.3g}{y_unit}</title></circle>')
    return out


def draw_chart(path, title, subtitle, panels, x_label, y_label, y_axis, y_unit="", x_axis=None,
               legend_width=190):
    """panels: [(title, [Series])], side by side, with one legend below for all. x_axis: None, places evenly spaced."""
    legend = {s.label: s for _, series in panels for s in series}
    # A single panel is narrower than its title.
    width = max(LEFT + len(panels) * (PANEL_WIDTH + GAP) - GAP + 24, LEFT - 24 + 10 * len(title))
    per_row = max(1, (width - LEFT) // legend_width)
    rows = (len(legend) + per_row - 1) // per_row
    height = TOP + PANEL_HEIGHT + 64 + rows * LEGEND_ROW
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="system-ui, Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(LEFT - 48, 30, title, 17, INK, extra='font-weight="600"'),
           text(LEFT - 48, 50, subtitle, 12, MUTED)]
    for i, (panel_title, series) in enumerate(panels):
        panel_axis = x_axis or evenly(x for s in series for x, _ in s.points)
        out += draw_panel(LEFT + i * (PANEL_WIDTH + GAP), panel_title, series, panel_axis, x_label, y_axis, y_label,
                          y_unit)
    for i, s in enumerate(legend.values()):
        x = LEFT + i % per_row * legend_width
        y = TOP + PANEL_HEIGHT + 62 + i // per_row * LEGEND_ROW
        dash = 'stroke-dasharray="5 4"' if s.dashed else ""
        out.append(segment(x, y - 4, x + 24, y - 4, s.colour, 2, dash))
        out.append(text(x + 32, y, s.label, 12))
    path.write_text("\n".join(out + ["</svg>"]) + "\n", encoding="utf-8")
    print(f"wrote {path}")
