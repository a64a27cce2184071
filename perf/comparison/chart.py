"""Draws a comparison as SVG: the time of a call, and each contender's speed relative to the best
peer. Knows nothing of how the figures came about."""
import html
import math

from report import size_name

WIDTH, PANEL, LEFT, TOP, GAP = 860, 330, 70, 60, 70
PLOT_WIDTH = WIDTH - LEFT - 200
COLOURS = {"tutti plain": "#d1495b", "tutti allocated": "#8f0d2b", "openmpi": "#00798c",
           "openmpi ucx": "#30a5bf", "mpich": "#edae49",
           "gloo": "#9a6fb0", "tutti shared heap": "#e8909c", "tutti tcp": "#d1495b",
           "floor direct": "#222222", "floor staged": "#777777", "floor socket": "#222222"}
SPARE_COLOURS = ("#66a182", "#7f5a83", "#555555", "#a0a0a0")


class Panel:
    """A plot with two logarithmic axes."""

    def __init__(self, top, title, sizes, low, high):
        self.top, self.title, self.sizes = top, title, sizes
        self.low, self.high = math.log10(low), math.log10(high)

    def x(self, size):
        first, last = math.log2(self.sizes[0]), math.log2(self.sizes[-1])
        return LEFT + PLOT_WIDTH * (math.log2(size) - first) / ((last - first) or 1)

    def y(self, value):
        part = (math.log10(value) - self.low) / ((self.high - self.low) or 1)
        return self.top + PANEL * (1 - min(max(part, 0), 1))

    def frame(self, ticks, label):
        yield text(LEFT, self.top - 12, self.title, size=14, weight="bold")
        for value in ticks:
            y = self.y(value)
            yield line(LEFT, y, LEFT + PLOT_WIDTH, y, "#888" if value == 1 else "#ddd")
            yield text(LEFT - 8, y + 4, label(value), anchor="end")
        for size in self.sizes:
            x = self.x(size)
            yield line(x, self.top, x, self.top + PANEL, "#eee")
            yield text(x, self.top + PANEL + 18, size_name(size, short=True), anchor="middle",
                       size=10)

    def curve(self, points, colour):
        """points: (size, median, low, high)."""
        path = " ".join(f"{self.x(size):.1f},{self.y(value):.1f}" for size, value, _, _ in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for size, value, low, high in points:
            x = self.x(size)
            yield line(x, self.y(low), x, self.y(high), colour)
            yield f'<circle cx="{x:.1f}" cy="{self.y(value):.1f}" r="3" fill="{colour}"/>'


def text(x, y, words, anchor="start", size=11, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def line(x1, y1, x2, y2, colour):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{colour}" stroke-width="1"/>')


def colour_of(names):
    spare = iter(SPARE_COLOURS * 4)
    return {name: COLOURS.get(name) or next(spare) for name in names}


def microseconds(value):
    return f"{value:g} µs" if value < 1000 else f"{value / 1000:g} ms"


def time_panel(rows, names, colours):
    values = [extreme for row in rows for t in row.times.values() for extreme in (t.low, t.high)]
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    panel = Panel(TOP, "Time of a call (median, least to greatest launch)",
                  [row.size for row in rows], low, high)
    ticks = [10.0 ** power for power in range(round(panel.low), round(panel.high) + 1)]
    yield from panel.frame(ticks, microseconds)
    for name in names:
        points = [(row.size, row.times[name].median, row.times[name].low, row.times[name].high)
                  for row in rows if name in row.times]
        yield from panel.curve(points, colours[name])


def speed_panel(rows, names, colours):
    panel = Panel(TOP + PANEL + GAP, "Speed, best peer = 1 (higher is faster)",
                  [row.size for row in rows], 0.125, 8)
    yield from panel.frame([0.125, 0.25, 0.5, 1, 2, 4, 8], lambda value: f"{value:g}×")
    for name in names:
        points = []
        for row in rows:
            if name in row.times and row.best_peer:
                gain = row.times[row.best_peer].median / row.times[name].median
                points.append((row.size, gain, gain, gain))
        yield from panel.curve(points, colours[name])


def draw_table(table):
    """One operation's two panels with their legend, and how high they are."""
    names = list(dict.fromkeys(name for row in table.rows for name in row.times))
    colours = colour_of(names)
    yield text(LEFT, 24, table.title(), size=16, weight="bold")
    yield from time_panel(table.rows, names, colours)
    yield from speed_panel(table.rows, names, colours)
    for place, name in enumerate(names):
        y = TOP + 20 + 20 * place
        yield line(WIDTH - 180, y - 4, WIDTH - 156, y - 4, colours[name])
        yield f'<circle cx="{WIDTH - 168}" cy="{y - 4}" r="4" fill="{colours[name]}"/>'
        yield text(WIDTH - 148, y, name)


def draw(tables, title):
    """The whole picture as text: tables of which something ran, below each other."""
    drawn = [table for table in tables if any(row.times for row in table.rows)]
    each = TOP + 2 * PANEL + GAP + 60
    height = 40 + each * len(drawn)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             text(LEFT, 24, title, size=16, weight="bold")]
    for place, table in enumerate(drawn):
        parts.append(f'<g transform="translate(0,{40 + each * place})">')
        parts += draw_table(table)
        parts.append("</g>")
    return "\n".join(parts) + "\n</svg>\n"
