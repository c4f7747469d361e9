"""Charts as inline SVG: no library, coloured by the page's own style in light, in dark and on
paper.

Every chart comes with a title and a description for those who do not see it, and a table below with
its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flowveil.published.document import fill

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 560, 46, 12, 40, 40
HEIGHT = 260
FLOOR = HEIGHT - BOTTOM
#: Where lines end and their names begin.
NAMES = WIDTH - 120
#: Colours that people who see few colours can distinguish (Okabe and Ito), and a shape for each
#: line.
LINE_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8a6d00",
    "#777777",
)
#: What a logarithmic axis is marked with.
_STEPS = tuple(float(f"{m}e{e}") for e in range(-9, 16) for m in (1, 2, 5))


@dataclass(frozen=True)
class Shape:
    """An element of an SVG; the template escapes its attributes and words."""

    tag: str
    attributes: Mapping[str, str | int]
    words: str = ""
    hint: str = ""  # what a pointer above it shows


def shape(tag: str, words: str = "", /, **attributes: str | float) -> Shape:
    """An element; ``class_`` is written as class and ``_`` as a hyphen.

    Lengths that are not whole get one decimal.
    """
    named = {
        name.rstrip("_").replace("_", "-"): f"{value:.1f}" if isinstance(value, float) else value
        for name, value in attributes.items()
    }
    return Shape(tag, named, words)


def _svg(shapes: Sequence[Shape], *, title: str, description: str) -> Markup:
    return fill(
        "chart.svg", shapes=shapes, title=title, description=description, width=WIDTH, height=HEIGHT
    )


def polyline(points: Sequence[tuple[float, float]], **look: str | float) -> Shape:
    """A line through points."""
    return shape(
        "polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), fill="none", **look
    )


def colour_of(number: int) -> str:
    """The colour of a method, the same on the whole page."""
    return LINE_COLOURS[number % len(LINE_COLOURS)]


def _marker(number: int, x: float, y: float, *, faded: bool = False) -> Shape:
    """A mark whose form goes with its colour, for those who see few."""
    look: dict[str, str] = {"fill": colour_of(number)} | ({"opacity": "0.4"} if faded else {})
    if number % 3 == 0:
        return shape("circle", cx=x, cy=y, r=4, **look)
    if number % 3 == 1:
        return shape("rect", x=x - 3.6, y=y - 3.6, width=7.2, height=7.2, **look)
    return shape("path", d=f"M{x:.1f} {y - 5:.1f}l4.6 8h-9.2z", **look)


def _axis(y: float, *, stop: int) -> Shape:
    return shape("line", class_="axis", x1=LEFT, y1=y, x2=stop, y2=y)


def _below(places: Mapping[str, float], name: str, *, stop: int) -> list[Shape]:
    """What is written below a chart: texts at their places, and what the axis counts."""
    marks = [
        shape("text", text, x=x, y=FLOOR + 16, text_anchor="middle") for text, x in places.items()
    ]
    return [
        *marks,
        shape("text", name, x=LEFT + (stop - LEFT) / 2, y=HEIGHT - 4, text_anchor="middle"),
    ]


def _short(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit and value >= 1e4:
            return f"{value / unit:.3g}{name}"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3g}"


def apart(
    heights: Sequence[float], *, gap: float = 14.0, lowest: float = FLOOR - 4.0
) -> list[float]:
    """Returns heights at which names do not overlap, in order from above, and above the axis where
    there is room.
    """
    moved: list[float] = []
    for y in heights:
        moved.append(max(y, moved[-1] + gap) if moved else y)
    for i in range(len(moved) - 1, -1, -1):
        moved[i] = min(
            moved[i], moved[i + 1] - gap if i + 1 < len(moved) else max(lowest, heights[-1])
        )
    return moved


def _names(ends: Iterable[tuple[float, float, str, int]]) -> list[Shape]:
    """Names at the right of a chart, with a thin line from the point (height, place) of each."""
    shapes, ends = [], sorted(ends)
    for (y, x, name, number), at in zip(ends, apart([y for y, *_ in ends]), strict=True):
        colour = colour_of(number)
        shapes += [
            shape("text", name, x=NAMES + 4, y=at + 4, style=f"fill:{colour};font-weight:600"),
            shape("line", x1=x + 6, y1=y, x2=NAMES, y2=at, stroke=colour, stroke_width=".7"),
        ]
    return shapes


@dataclass(frozen=True)
class Bars:
    """A histogram."""

    labels: tuple[str, ...]
    values: tuple[int, ...]
    short: int = 0  # how many bars, the first ones, are below the threshold
    threshold: str = ""  # what it is


def size_histogram(volume: NDArray[np.float64], *, threshold: float, name: str) -> Bars:
    """How many cells have which volume, in classes of 1, 2 and 5 times the threshold, which all
    should reach.
    """
    low, high = volume.min(initial=threshold), volume.max(initial=threshold)
    steps = [threshold * m * 10.0**e for e in range(-6, 13) for m in (1, 2, 5)]
    edges = [a for a, b in pairwise(steps) if b > low and a <= high]
    edges.append(next(step for step in steps if step > high))
    labels = []
    for a, b in pairwise(edges):
        # From 10,000 on both ends are rounded: one less would not show.
        end = b - 1 if a == round(a) and b == round(b) <= 10_000 else b
        labels.append(_short(a) if end == a else f"{_short(a)}–{_short(end)}")
    counts = np.histogram(volume, bins=np.array(edges))[0].tolist()
    return Bars(tuple(labels), tuple(counts), sum(b <= threshold for b in edges[1:]), name)


def bar_chart(bars: Bars, *, title: str, label: str) -> Markup:
    """The histogram as SVG; ``label`` is what the heights count."""
    n, top = len(bars.values), max((*bars.values, 1))
    width = (WIDTH - LEFT - RIGHT) / max(n, 1)
    shapes = [_axis(FLOOR, stop=WIDTH - RIGHT)]
    # Labels must not overlap: a character is some seven units wide.
    longest = max((len(name) for name in bars.labels), default=1)
    every = max(1, math.ceil((7 * longest + 6) / width))
    said = [f"{name}: {value:,}" for name, value in zip(bars.labels, bars.values, strict=True)]
    for i, value in enumerate(bars.values):
        # A bar of one among thousands must still be seen.
        height = 0.0 if value == 0 else max(2.0, (FLOOR - TOP) * value / top)
        x, look = LEFT + i * width, "bar short" if i < bars.short else "bar"
        bar = shape(
            "rect", class_=look, x=x + 1.5, y=FLOOR - height, width=width - 3, height=height, rx=2
        )
        shapes.append(replace(bar, hint=said[i]))
        if value and width > 26:
            at = {"x": x + width / 2, "y": FLOOR - height - 5}
            shapes.append(shape("text", _short(value), class_="value", **at, text_anchor="middle"))
    x = LEFT + bars.short * width
    side, anchor = (6, "start") if x < WIDTH - 150 else (-6, "end")
    shapes += [
        shape("line", class_="mark", x1=x, y1=TOP - 34, x2=x, y2=FLOOR),
        shape("text", bars.threshold, class_="mark", x=x + side, y=TOP - 26, text_anchor=anchor),
        *_below(
            {bars.labels[i]: LEFT + (i + 0.5) * width for i in range(0, n, every)},
            label,
            stop=WIDTH - RIGHT,
        ),
    ]
    return _svg(shapes, title=title, description="; ".join(said))


@dataclass(frozen=True)
class _Scale:
    """The upright axis: from low at the floor to high at the top."""

    low: float
    high: float
    log: bool

    @classmethod
    def around(cls, values: Sequence[float], *, log: bool) -> _Scale:
        """From 0, or on a logarithmic axis between the marks around all positive values, and below
        them for zeros.
        """
        if not log:
            return cls(0.0, max(values) or 1.0, log)
        known = [y for y in values if y > 0] or [1.0]
        low = max((s for s in _STEPS if s < min(known)), default=min(known) / 2)
        low = low / 3 if len(known) < len(values) else low
        return cls(low, min((s for s in _STEPS if s > max(known)), default=2 * max(known)), log)

    def __call__(self, y: float) -> float:
        """How far down a value stands."""
        if self.log and y <= 0:
            return float(FLOOR)
        low, high, at = (float(np.log(v)) if self.log else v for v in (self.low, self.high, y))
        return float(FLOOR - (at - low) / (high - low) * (FLOOR - TOP))

    def marks(self) -> list[Shape]:
        """A line across and a number for every mark, above the floor's own line."""
        shapes = [_axis(FLOOR, stop=NAMES)]
        for y in _axis_ticks(self.low, self.high, log=self.log):
            at = self(y)
            shapes += [
                _axis(at, stop=NAMES),
                shape("text", _short(y), x=LEFT - 6, y=at + 4, text_anchor="end"),
            ]
        return shapes


def _axis_ticks(low: float, high: float, *, log: bool) -> list[float]:
    if log:
        inside = [s for s in _STEPS if low <= s <= high]
        return inside if len(inside) <= 6 else inside[:: -(-len(inside) // 5)]
    raw = (high - low) / 4
    power = 10.0 ** np.floor(np.log10(raw))
    step = float(next(m * power for m in (1, 2, 5, 10) if m * power >= raw))
    return [float(f"{step * i:.12g}") for i in range(int(high / step) + 1)]


@dataclass(frozen=True)
class Line:
    """One line of a line chart."""

    name: str  # at its end
    points: tuple[tuple[float, float | None], ...]  # None for a missing value
    place: int = 0  # its number on the page, for its colour
    faded: bool = False


def line_chart(
    lines: Sequence[Line], *, title: str, x_label: str, ticks: Sequence[float], log: bool = False
) -> Markup:
    """Lines over k, one for each method; each is named at its last point."""
    shown = [y for line in lines for _, y in line.points if y is not None]
    if not shown:
        nothing = shape("text", "no value can be shown", x=WIDTH / 2, y=60, text_anchor="middle")
        return _svg([nothing], title=title, description="no value")
    height_of = _Scale.around(shown, log=log)
    place = {k: LEFT + (i + 0.5) * (NAMES - LEFT) / len(ticks) for i, k in enumerate(ticks)}
    shapes = height_of.marks() + _below(
        {_short(k): x for k, x in place.items()}, x_label, stop=NAMES
    )
    if log and min(shown) <= 0:
        shapes.append(shape("text", "0", x=LEFT - 6, y=FLOOR + 4, text_anchor="end"))
    ends = []
    for line in lines:
        points = [(place[x], height_of(y)) for x, y in line.points if y is not None]
        if not points:
            continue
        dash: dict[str, str] = (
            {"stroke_dasharray": "6 3"} if line.place >= len(LINE_COLOURS) else {}
        )
        dash |= {"opacity": "0.4"} if line.faded else {}
        shapes.append(polyline(points, stroke=colour_of(line.place), stroke_width=2.2, **dash))
        shapes += [_marker(line.place, x, y) for x, y in points]
        ends.append((points[-1][1], points[-1][0], line.name, line.place))
    values = [
        (f"{_short(x)} gives {'no value' if y is None else _short(y)}" for x, y in line.points)
        for line in lines
    ]
    described = (
        f"{line.name}: {', '.join(texts)}" for line, texts in zip(lines, values, strict=True)
    )
    return _svg([*shapes, *_names(ends)], title=title, description="; ".join(described))


@dataclass(frozen=True)
class Mark:
    """A named point near a curve; ``place`` is its number on the page, for its colour."""

    name: str
    x: float
    y: float
    place: int | None = None
    faded: bool = False


def curve_chart(
    curve: Sequence[tuple[float, float]],
    *,
    marks: Sequence[Mark],
    limit: float,
    limit_text: str,
    title: str,
    x_label: str,
) -> Markup:
    """A curve of values above 0 over shares on a logarithmic scale, a limit on the shares, and
    points near it.
    """
    height_of = _Scale.around([*(y for _, y in curve), *(mark.y for mark in marks)], log=True)
    most = max([limit, *(x for x, _ in curve), *(mark.x for mark in marks)]) or 1.0

    def across(x: float) -> float:
        return LEFT + x / most * (NAMES - LEFT)

    here = across(limit)
    ticks = {f"{100 * x:.4g}%": across(x) for x in _axis_ticks(0.0, most, log=False)}
    points = [
        (height_of(mark.y), across(mark.x), mark.name, n if mark.place is None else mark.place)
        for n, mark in enumerate(marks, start=1)
    ]
    shapes = [
        *height_of.marks(),
        *_below(ticks, x_label, stop=NAMES),
        shape("line", class_="mark", x1=here, y1=TOP - 14, x2=here, y2=FLOOR),
        shape("text", limit_text, class_="mark", x=here + 6, y=TOP - 6),
        polyline([(across(x), height_of(y)) for x, y in curve], class_="front"),
        *(
            _marker(p[3], p[1], p[0], faded=mark.faded)
            for mark, p in zip(marks, points, strict=True)
        ),
        *_names(points),
    ]
    ends = (
        f"from {_short(curve[0][1])} at {curve[0][0]:.3g} to {_short(curve[-1][1])} at"
        f" {curve[-1][0]:.3g}"
    )
    described = (f"{mark.name}: {_short(mark.y)} at {mark.x:.3g}" for mark in marks)
    return _svg(shapes, title=title, description="; ".join([ends, *described]))


def box_chart(boxes: Mapping[str, Sequence[float]], *, title: str, reference: str) -> Markup:
    """Box plots of ratios to a reference on a logarithmic scale.

    Smallest, quartiles and largest of each name.
    """
    height_of = _Scale.around(
        [1.0, *(value for ends in boxes.values() for value in ends)], log=True
    )
    room, one = (NAMES - LEFT) / len(boxes), height_of(1.0)
    shapes = [
        *height_of.marks(),
        shape("line", class_="mark", x1=LEFT, y1=one, x2=NAMES, y2=one),
        shape("text", f"1 = {reference}", class_="mark", x=NAMES + 4, y=one + 4),
    ]
    for place, (name, ends) in enumerate(boxes.items()):
        low, first, median, third, high = (f"{height_of(value):.1f}" for value in ends)
        x, half = LEFT + (place + 0.5) * room, min(0.3 * room, 26.0)
        box = (
            f"M{x - half:.1f}"
            f" {median}h{2 * half:.1f}V{third}h{-2 * half:.1f}V{first}h{2 * half:.1f}V{median}"
        )
        look = {
            "stroke": colour_of(place),
            "fill": colour_of(place),
            "fill_opacity": "0.25",
            "stroke_width": "1.4",
        }
        shapes.append(
            shape("path", d=f"M{x:.1f} {low}V{first}M{x:.1f} {third}V{high}{box}", **look)
        )
        # Names alternate between two rows, so that they do not overlap.
        shapes.append(
            shape("text", name, x=x, y=FLOOR + (14 if place % 2 == 0 else 26), text_anchor="middle")
        )
    lines = (
        f"{name}: median {e[2]:.3g}, quartiles {e[1]:.3g} and {e[3]:.3g}"
        for name, e in boxes.items()
    )
    return _svg(shapes, title=title, description="; ".join(lines))
