"""Draws measured points as SVG files that are readable on light and dark pages, and for colour-blind readers."""

import math
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 400, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 66, 46
# The colours of the other pictures: on light and on dark paper.
COLOURS = {
    "paper": ("#fff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9aa4af"),
    "faint": ("#dde2e8", "#2b323c"),
    "a": ("#0072b2", "#56b4e9"),
    "b": ("#d55e00", "#ff8f4d"),
    "c": ("#00866b", "#3fd0a4"),
    "d": ("#a0418a", "#e59acb"),
}
LINES = ("a", "b", "c", "d")
DASHES = ("", "7 3", "2.5 2.5", "9 3 2 3")


@dataclass(frozen=True)
class Chart:
    """A title, the names of the axes with their units, and the points of each line."""

    title: str
    x: str
    y: str
    lines: dict
    # A logarithmic axis of sizes has a place of its own for zero.
    is_log_x: bool = False
    is_log_y: bool = False
    # Names of some sizes, such as 1 MiB.
    labels: dict = field(default_factory=dict)


class Axis:
    """Maps numbers to pixels, from `start` to `end`."""

    def __init__(self, values, is_log, start, end):
        self.is_log, self.start, self.end = is_log, start, end
        positive = [value for value in values if value > 0] or [1]
        if is_log:
            self.least, self.most = math.floor(math.log10(min(positive))), math.log10(max(positive))
            self.least -= 1 if 0 in values else 0
        else:
            self.step = round_step(max(positive) / 4)
            self.least, self.most = 0, math.ceil(max(positive) / self.step - 1e-9) * self.step

    def place(self, value):
        if self.is_log:
            value = math.log10(value) if value > 0 else self.least
        return self.start + (value - self.least) / (self.most - self.least) * (self.end - self.start)

    def ticks(self, has_zero):
        if not self.is_log:
            return [at * self.step for at in range(round(self.most / self.step) + 1)]
        powers = [10.0**exponent for exponent in range(self.least, math.floor(self.most + 1e-9) + 1)]
        return [0, *powers[1:]] if has_zero else powers


def round_step(size):
    """1, 2 or 5 times a power of ten, and at least `size`."""
    power = 10 ** math.floor(math.log10(size))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= size * (1 - 1e-9))


def short(value):
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def style():
    light, dark = ("".join(f"--{name}:{pair[at]};" for name, pair in COLOURS.items()) for at in (0, 1))
    rules = [
        "text{font:11px system-ui,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:var(--muted)}",
        ".title{font-size:14px;font-weight:600;fill:var(--ink)}",
        ".paper{fill:var(--paper)}.grid{stroke:var(--faint)}.axis{stroke:var(--muted)}",
        *(
            f".{name}{{fill:none;stroke:var(--{name});stroke-width:2;stroke-dasharray:{dash or 'none'}}}"
            f".{name}p{{fill:var(--{name})}}"
            for name, dash in zip(LINES, DASHES)
        ),
    ]
    text = "".join(rules)
    # For renderers that do not support custom properties, and would draw black.
    for name, (on_light, _) in COLOURS.items():
        for key in ("fill", "stroke"):
            text = text.replace(f"{key}:var(--{name})", f"{key}:{on_light};{key}:var(--{name})")
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{text}"


def draw(chart):
    """The SVG file of a chart."""
    points = [point for line in chart.lines.values() for point in line]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    across = Axis(xs, chart.is_log_x, LEFT, WIDTH - RIGHT)
    # A logarithmic axis of values ends at a power of ten, so that its end has a number.
    end = [10.0 ** math.ceil(math.log10(max(ys)))] if chart.is_log_y else []
    up = Axis(ys + end, chart.is_log_y, HEIGHT - BOTTOM, TOP)
    body = [f'<text class="title" x="12" y="22">{escape(chart.title)}</text>', *legend(chart)]
    for tick in up.ticks(0 in ys):
        y = up.place(tick)
        body.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        body.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    for tick in chart.labels or across.ticks(0 in xs):
        x, label = across.place(tick), chart.labels.get(tick) or short(tick)
        body.append(f'<path class="axis" d="M{x:.1f} {HEIGHT - BOTTOM}v4"/>')
        body.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{label}</text>')
    body.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    body.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{escape(chart.x)}</text>')
    body.append(f'<text x="12" y="{TOP - 10}">{escape(chart.y)}</text>')
    for name, (label, line) in zip(LINES, chart.lines.items()):
        places = [(across.place(x), up.place(y), x, y) for x, y in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in places)
        body.append(f'<path class="{name}" d="M{path}"/>')
        for x, y, size, value in places:
            hint = escape(f"{label}: {size:,g} {chart.x}, {value:,.6g} {chart.y}")
            body.append(f'<circle class="{name}p" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{hint}</title></circle>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
    head += f'role="img" aria-label="{escape(chart.title)}">\n<title>{escape(chart.title)}</title>\n'
    paper = f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
    return head + f"<style>{style()}</style>\n" + "\n".join([paper, *body]) + "\n</svg>\n"


def legend(chart):
    """The names of the lines, if there are several, in a row below the title."""
    if len(chart.lines) < 2:
        return
    x = 12
    for name, label in zip(LINES, chart.lines):
        yield f'<path class="{name}" d="M{x:.1f} 34h20"/>'
        yield f'<text x="{x + 24:.1f}" y="38">{escape(label)}</text>'
        x += 34 + 5.7 * len(label)
