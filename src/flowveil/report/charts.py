"""Charts as inline SVG: no library, coloured by the page's own style in light, in dark and on paper.

Every chart comes with a title and a description for those who do not see it, and its numbers stand in a table below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 560, 46, 12, 40, 40
HEIGHT = 260


@dataclass(frozen=True)
class Bars:
    """A histogram.

    Attributes:
        labels: text below each bar.
        values: height of each bar.
        short: which bars are below the threshold.
        mark: bar that the threshold stands in front of, or None.
        mark_text: what the threshold is.
    """

    labels: tuple[str, ...]
    values: tuple[int, ...]
    short: tuple[bool, ...] = ()
    mark: int | None = None
    mark_text: str = ""


def size_histogram(volume: NDArray[np.float64], *, threshold: float | None, name: str) -> Bars:
    """How many cells have which volume, in classes of 1, 2 and 5 times the threshold.

    Args:
        volume: of the cells; only of those that may be shown.
        threshold: what every cell must reach, or None where this volume is not protected.
        name: of the threshold.
    """
    positive = volume[volume > 0]
    base = threshold if threshold else 1.0
    low = float(positive.min()) if len(positive) else base
    high = float(positive.max()) if len(positive) else base
    steps = [base * m * 10.0**e for e in range(-6, 13) for m in (1, 2, 5)]
    first = max((i for i, s in enumerate(steps) if s <= low), default=0)
    last = min((i for i, s in enumerate(steps) if s > high), default=len(steps) - 1)
    edges = steps[first : last + 1] if last > first else steps[first : first + 2]
    counts = np.histogram(positive, bins=np.array(edges))[0]
    whole = bool(np.all(positive == np.rint(positive))) and all(e == round(e) for e in edges)
    labels = tuple(_range_text(a, b, whole=whole) for a, b in pairwise(edges))
    short = tuple(threshold is not None and b <= threshold for b in edges[1:])
    mark = None if threshold is None else sum(short)
    return Bars(labels, tuple(counts.tolist()), short, mark, name if threshold is not None else "")


def count_histogram(values: NDArray[np.int64]) -> Bars:
    """How many zones have how many tiles: 1, 2, 3–4, 5–8, ... (doubling)."""
    low, top = (int(values.min()), int(values.max())) if len(values) else (1, 1)
    edges = [1, 2, 3]
    while edges[-1] <= top:
        edges.append(2 * (edges[-1] - 1) + 1)
    edges = edges[max(i for i, edge in enumerate(edges) if edge <= max(low, 1)) :]
    counts = np.histogram(values, bins=np.array(edges))[0]
    labels = tuple(_range_text(a, b, whole=True) for a, b in pairwise(edges))
    return Bars(labels, tuple(counts.tolist()))


def _range_text(low: float, high: float, *, whole: bool) -> str:
    if whole and high <= 1000:
        return _short(low) if high - low == 1 else f"{_short(low)}–{_short(high - 1)}"
    return f"{_short(low)}–{_short(high)}"


def _short(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit and value >= 1e4:
            return f"{value / unit:.3g}{name}"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3g}"


def bar_chart(bars: Bars, *, title: str, label: str) -> str:
    """The histogram as SVG.

    Args:
        bars: what to draw.
        title: what it shows, for those who do not see it.
        label: what the heights count.
    """
    n, top = len(bars.values), max((*bars.values, 1))
    width = (WIDTH - LEFT - RIGHT) / max(n, 1)
    plot = HEIGHT - TOP - BOTTOM
    floor = HEIGHT - BOTTOM
    parts = [f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDTH - RIGHT}" y2="{floor}"/>']
    # Labels must not lie on each other: a character is some seven units wide.
    longest = max((len(name) for name in bars.labels), default=1)
    every = max(1, math.ceil((7 * longest + 6) / width))
    for i, (name, value) in enumerate(zip(bars.labels, bars.values, strict=True)):
        # A bar of one among thousands must still be seen.
        height = 0 if value == 0 else max(2.0, plot * value / top)
        x, middle = LEFT + i * width, LEFT + (i + 0.5) * width
        short = " short" if bars.short and bars.short[i] else ""
        parts.append(
            f'<rect class="bar{short}" x="{x + 1.5:.1f}" y="{floor - height:.1f}" width="{width - 3:.1f}" '
            f'height="{height:.1f}" rx="2"><title>{escape(name)}: {value:,}</title></rect>'
        )
        if value and width > 26:
            text = _short(value)
            parts.append(
                f'<text class="value" x="{middle:.1f}" y="{floor - height - 5:.1f}" text-anchor="middle">{text}</text>'
            )
        if i % every == 0:
            parts.append(f'<text x="{middle:.1f}" y="{floor + 16}" text-anchor="middle">{escape(name)}</text>')
    if bars.mark is not None and bars.mark_text:
        x = LEFT + bars.mark * width
        parts.append(f'<line class="mark" x1="{x:.1f}" y1="{TOP - 34}" x2="{x:.1f}" y2="{floor}"/>')
        side, anchor = (6, "start") if x < WIDTH - 150 else (-6, "end")
        parts.append(
            f'<text class="mark" x="{x + side:.1f}" y="{TOP - 26}" text-anchor="{anchor}">'
            f"{escape(bars.mark_text)}</text>"
        )
    parts.append(
        f'<text x="{LEFT + (WIDTH - LEFT - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(label)}</text>'
    )
    return svg(parts, title=title, description=in_words(bars), height=HEIGHT)


def in_words(bars: Bars) -> str:
    """The histogram as a sentence."""
    return "; ".join(f"{name}: {value:,}" for name, value in zip(bars.labels, bars.values, strict=True))


def share_bar(kept: float, *, title: str) -> str:
    """One bar: the share that is published and the share that is suppressed."""
    width = WIDTH - 2
    cut = max(2.0, min(width - 2.0, width * kept)) if kept < 1 else width
    parts = [
        f'<rect class="bar" x="1" y="22" width="{cut:.1f}" height="26" rx="3"/>',
        f'<text class="value" x="2" y="15">published {kept:.2%}</text>',
    ]
    if kept < 1:
        parts += [
            f'<rect class="soft" x="{cut + 1:.1f}" y="22" width="{width - cut:.1f}" height="26" rx="3"/>',
            f'<text class="value" x="{WIDTH - 2}" y="15" text-anchor="end">suppressed {1 - kept:.2%}</text>',
        ]
    return svg(parts, title=title, description=f"published {kept:.2%}, suppressed {1 - kept:.2%}", height=52)


def svg(parts: Iterable[str], *, title: str, description: str, height: int, width: int = WIDTH) -> str:
    """Wrap shapes into an SVG with its text alternatives."""
    said = escape(f"{title}. {description}")
    return f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{said}">{"".join(parts)}</svg>'


@dataclass(frozen=True)
class Line:
    """One line of a line chart: a name and its points; None where there is no value."""

    name: str
    points: tuple[tuple[float, float | None], ...]


#: Colours that people who see few colours can tell apart (Okabe and Ito), and a shape for each line.
LINE_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d00", "#777777")


def line_chart(lines: Sequence[Line], *, title: str, x_label: str, ticks: Sequence[float], log: bool = False) -> str:
    """Lines over k, one for each method; each is named at its last point."""
    told = [y for line in lines for _, y in line.points if y is not None]
    known = [y for y in told if y > 0] if log else told
    if not told:
        return svg(
            [f'<text x="{WIDTH / 2}" y="60" text-anchor="middle">no value can be shown</text>'],
            title=title, description="no value", height=90,
        )  # fmt: skip
    low, high = (min(known, default=1.0), max(known, default=2.0)) if log else (0.0, max(known))
    # On a logarithmic scale 0 stands at the bottom, apart from the smallest value.
    zero = log and len(known) < len(told)
    if log and (zero or high / low < 1.5):
        low, high = low / 3, high * 1.5
    if log:
        low, high = _with_two_steps(low, high)
    elif high == low:
        high = low + 1
    right = 120
    plot_width, floor = WIDTH - LEFT - right, HEIGHT - BOTTOM
    place = {k: LEFT + (i + 0.5) * plot_width / len(ticks) for i, k in enumerate(ticks)}

    def height_of(y: float) -> float:
        if log and y <= 0:
            return float(floor)
        share = (np.log(y / low) / np.log(high / low)) if log else (y - low) / (high - low)
        return float(floor - share * (floor - TOP))

    parts = [f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDTH - right}" y2="{floor}"/>']
    for y in _axis_ticks(low, high, log=log):
        at = height_of(y)
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - right}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_short(y)}</text>')
    if zero:
        parts.append(f'<text x="{LEFT - 6}" y="{floor + 4}" text-anchor="end">0</text>')
    for k in ticks:
        parts.append(f'<text x="{place[k]:.1f}" y="{floor + 16}" text-anchor="middle">{_short(k)}</text>')
    parts.append(f'<text x="{LEFT + plot_width / 2}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    ends: list[tuple[float, float, str, str]] = []
    for number, line in enumerate(lines):
        colour = LINE_COLOURS[number % len(LINE_COLOURS)]
        points = [(place[x], height_of(y)) for x, y in line.points if y is not None]
        if not points:
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="6 3"' if number >= len(LINE_COLOURS) else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2"{dash}/>')
        parts += [_marker(number, x, y, colour) for x, y in points]
        ends.append((points[-1][1], points[-1][0], line.name, colour))
    # Names that would lie on each other are moved apart.
    below = -np.inf
    for y, x, name, colour in sorted(ends):
        below = max(y, below + 14)
        parts.append(
            f'<text x="{WIDTH - right + 4}" y="{below + 4:.1f}" style="fill:{colour};font-weight:600">'
            f"{escape(name)}</text>"
        )
        parts.append(
            f'<line x1="{x + 6:.1f}" y1="{y:.1f}" x2="{WIDTH - right}" y2="{below:.1f}" '
            f'stroke="{colour}" stroke-width=".7"/>'
        )
    said = "; ".join(
        f"{line.name}: "
        + ", ".join(f"{_short(x)} gives {'no value' if y is None else _short(y)}" for x, y in line.points)
        for line in lines
    )
    return svg(parts, title=title, description=said, height=HEIGHT)


def _marker(number: int, x: float, y: float, colour: str) -> str:
    shape = number % 3
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
    if shape == 1:
        return f'<rect x="{x - 3.6:.1f}" y="{y - 3.6:.1f}" width="7.2" height="7.2" fill="{colour}"/>'
    return f'<path d="M{x:.1f} {y - 5:.1f}l4.6 8h-9.2z" fill="{colour}"/>'


#: What a logarithmic axis is marked with.
_STEPS = tuple(float(f"{m}e{e}") for e in range(-9, 16) for m in (1, 2, 5))


def _with_two_steps(low: float, high: float) -> tuple[float, float]:
    """Widen a logarithmic range until two marks are in it: one alone does not tell a scale."""
    if sum(low <= s <= high for s in _STEPS) >= 2:
        return low, high
    below = max((s for s in _STEPS if s <= low), default=low)
    above = min((s for s in _STEPS if s >= high and s > below), default=below * 2)
    return below, above


def _axis_ticks(low: float, high: float, *, log: bool) -> list[float]:
    if log:
        inside = [s for s in _STEPS if low <= s <= high]
        return inside if len(inside) <= 6 else inside[:: -(-len(inside) // 5)]
    raw = (high - low) / 4
    power = 10.0 ** np.floor(np.log10(raw))
    step = float(next(m * power for m in (1, 2, 5, 10) if m * power >= raw))
    return [float(f"{step * i:.12g}") for i in range(int(high / step) + 1)]


@dataclass(frozen=True)
class Mark:
    """A named point beside a curve."""

    name: str
    x: float
    y: float


def curve_chart(
    curve: Sequence[tuple[float, float]],
    *,
    marks: Sequence[Mark],
    limit: float,
    limit_text: str,
    title: str,
    x_label: str,
) -> str:
    """A curve over shares on a logarithmic scale, a limit on the shares, and points beside the curve.

    Args:
        curve: share and value, the values above 0.
        marks: points to name beside it.
        limit: a share to mark.
        limit_text: what it is.
        title: what it shows, for those who do not see it.
        x_label: what the shares are of.
    """
    right, floor = 120, HEIGHT - BOTTOM
    values = [y for _, y in curve] + [mark.y for mark in marks]
    low, high = min(values) / 1.1, max(values) * 1.1
    most = max([limit, *(x for x, _ in curve), *(mark.x for mark in marks)]) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / most * (WIDTH - LEFT - right)
        return across, float(floor - np.log(y / low) / np.log(high / low) * (floor - TOP))

    parts = [f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDTH - right}" y2="{floor}"/>']
    for y in _axis_ticks(low, high, log=True):
        at = place(0, y)[1]
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - right}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_short(y)}</text>')
    for x in _axis_ticks(0.0, most, log=False):
        parts.append(f'<text x="{place(x, low)[0]:.1f}" y="{floor + 16}" text-anchor="middle">{x:.4g}</text>')
    middle = LEFT + (WIDTH - LEFT - right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_label)}</text>')
    at = place(limit, low)[0]
    parts.append(f'<line class="mark" x1="{at:.1f}" y1="{TOP - 14}" x2="{at:.1f}" y2="{floor}"/>')
    parts.append(f'<text class="mark" x="{at + 6:.1f}" y="{TOP - 6}">{escape(limit_text)}</text>')
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in curve))
    parts.append(f'<polyline points="{path}" fill="none" stroke="{LINE_COLOURS[0]}" stroke-width="2.2"/>')
    # Names that would lie on each other are moved apart.
    below = -np.inf
    placed = sorted((place(mark.x, mark.y)[::-1], n, mark.name) for n, mark in enumerate(marks))
    for (y, x), n, name in placed:
        colour = LINE_COLOURS[(n + 1) % len(LINE_COLOURS)]
        below = max(y, below + 14)
        parts.append(_marker(n + 1, x, y, colour))
        parts.append(
            f'<line x1="{x + 6:.1f}" y1="{y:.1f}" x2="{WIDTH - right}" y2="{below:.1f}" '
            f'stroke="{colour}" stroke-width=".7"/>'
        )
        parts.append(
            f'<text x="{WIDTH - right + 4}" y="{below + 4:.1f}" style="fill:{colour};font-weight:600">'
            f"{escape(name)}</text>"
        )
    said = [f"{mark.name}: {_short(mark.y)} at {mark.x:.3g}" for mark in marks]
    ends = f"from {_short(curve[0][1])} at {curve[0][0]:.3g} to {_short(curve[-1][1])} at {curve[-1][0]:.3g}"
    return svg(parts, title=title, description="; ".join([ends, *said]), height=HEIGHT)
