"""Charts of the trade-off between suppression and error: runs, the frontier, and box plots of ratios.

For the operator only: the frontier is computed from all flows, suppressed ones included, and two of its points may
differ by a single cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.published import charts
from flowveil.published.charts import FLOOR, LEFT, NAMES, TOP, WIDTH, Mark, Scale, colour_of, polyline, shape
from flowveil.published.document import Figure, Part, fill, number

if TYPE_CHECKING:
    from markupsafe import Markup

    from flowveil.methods.twincut import FrontierPoint
    from flowveil.published.charts import Shape

#: Opacity of a dominated run.
_FADED = 0.4
#: Tolerance of the limit, for rounding.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Outcome:
    """The result of one run: published share and mean generalisation error. The place decides the colour."""

    name: str
    place: int
    published: float
    error: float


def add_outcome(
    groups: dict[str, list[Outcome]], title: str, name: str, place: int, measures: Mapping[str, Any]
) -> None:
    """Adds a run to its group, if it has a suppressed share and an error."""
    suppressed, error = measures.get("suppressed_share"), measures.get("mean_generalization_error")
    if suppressed is not None and error:
        groups.setdefault(title, []).append(Outcome(name, place, 1 - float(suppressed), float(error)))


def best(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Returns the outcomes that no other dominates, in rising order of the published share."""
    return sorted(
        (one for one in outcomes if not any(_dominates(other, one) for other in outcomes)),
        key=lambda one: (one.published, one.error, one.name),
    )


def _dominates(one: Outcome, other: Outcome) -> bool:
    as_good = one.published >= other.published and one.error <= other.error
    return as_good and (one.published > other.published or one.error < other.error)


def joint_part(groups: Mapping[str, Sequence[Outcome]], *, max_suppressed: float) -> Part:
    """Returns a chart and a verdict for each group of comparable runs."""
    drawn = [
        (Figure(title, "Lower and further right is better.", [("", _chart(runs, title, max_suppressed))]), lines)
        for title, runs in groups.items()
        if (lines := verdict(runs, max_suppressed))
    ]
    return Part("joint", "What is published, and how fine", fill("joint.html", charts=drawn))


def verdict(outcomes: Sequence[Outcome], max_suppressed: float) -> list[str]:
    """Returns sentences: the finest run within the limit, the coarsest one, and runs above the limit."""
    if not outcomes:
        return []
    kept = [one for one in outcomes if one.published >= 1 - max_suppressed - _ROUNDING]
    over = [one for one in outcomes if one not in kept]
    lines = []
    if kept:
        finest = min(kept, key=lambda one: (one.error, -one.published, one.name))
        # Runs that agree in all digits shown are equally good.
        equal = [one for one in kept if _shown(one) == _shown(finest)]
        names = " and ".join(sorted(one.name for one in equal)) + (" is" if len(equal) == 1 else " are")
        lines.append(
            f"Of the runs that suppress at most {max_suppressed:.0%}, {names} the finest: an error of "
            f"{_digits(finest.error)} tiles, with {finest.published:.1%} published."
        )
        coarsest = max(kept, key=lambda one: one.error)
        if coarsest.error > 1.5 * finest.error:
            times = coarsest.error / finest.error
            lines.append(f"{coarsest.name} publishes {coarsest.published:.1%} and is {_digits(times)} times as coarse.")
    else:
        lines.append(f"No run suppresses at most {max_suppressed:.0%}.")
    for one in sorted(over, key=lambda one: (one.published, one.name)):
        suppressed = share_in_words(1 - one.published)
        lines.append(f"{one.name} suppresses {suppressed} of the volume: only zones of the easy trips are left.")
    return lines


def _shown(one: Outcome) -> tuple[str, str]:
    return _digits(one.error), f"{one.published:.1%}"


def share_in_words(share: float) -> str:
    """Returns a share in whole per cent; less than all is never rounded to all."""
    return "over 99%" if 0.99 < share < 1 else f"{share:.0%}"


def _digits(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _chart(outcomes: Sequence[Outcome], title: str, max_suppressed: float) -> Markup:
    errors = [one.error for one in outcomes]
    height_of = Scale(min(errors) / 1.2, max(errors) * 1.2, log=True)

    def across(published: float) -> float:
        return LEFT + 8 + published * (NAMES - LEFT - 16)

    shapes = height_of.marks()
    shapes += [shape("text", f"{x}%", x=across(x / 100), y=FLOOR + 16, text_anchor="middle") for x in range(0, 101, 20)]
    shapes.append(charts.axis_name("share of the volume published; upwards: error in tiles", stop=NAMES))
    limit = across(1 - max_suppressed)
    shapes.append(shape("line", class_="mark", x1=limit, y1=TOP - 14, x2=limit, y2=FLOOR))
    shapes.append(shape("text", "limit", class_="mark", x=limit - 6, y=TOP - 6, text_anchor="end"))
    front = best(outcomes)
    if len(front) > 1:
        line = [(across(one.published), height_of(one.error)) for one in front]
        shapes.append(polyline(line, class_="front", stroke_dasharray="4 3"))
    placed = sorted(
        ((height_of(one.error), across(one.published), one) for one in outcomes), key=lambda found: found[:2]
    )
    for (y, x, one), at in zip(placed, charts.apart([found[0] for found in placed]), strict=True):
        colour, strength = colour_of(one.place), {} if one in front else {"opacity": str(_FADED)}
        hint = f"{one.name}: {one.published:.1%} published, error {_digits(one.error)} tiles"
        # Only the mark of a dominated run is faded, so that names stay readable.
        for drawn in (charts.marker(one.place, x, y, colour), charts.pointer(x, y, at, colour)):
            shapes.append(replace(drawn, attributes={**drawn.attributes, **strength}, hint=hint))
        shapes.append(charts.name_beside(one.name + ("" if one in front else " (beaten)"), at, colour))
    description = "; ".join(
        f"{one.name}: {one.published:.1%} published, error {_digits(one.error)}"
        for one in sorted(outcomes, key=lambda o: o.name)
    )
    return charts.svg(shapes, title=title, description=description)


#: Suppressed shares in the table of a frontier.
_LISTED_SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)

#: Suppressed shares, each with the mean generalisation error.
Points = Sequence[tuple[float, float]]


def rounded_points(points: Sequence[FrontierPoint]) -> tuple[tuple[float, float], ...]:
    """Returns share suppressed and error, rounded: exact points may differ by a single cell."""
    rounded: dict[float, float] = {}
    for point in points:
        # Rounded up, so that no point seems to suppress less than it does.
        share = math.ceil(point.suppressed_share * 1000) / 1000
        rounded[share] = min(float(f"{point.value:.3g}"), rounded.get(share, float("inf")))
    return tuple(sorted(rounded.items()))


def frontier_part(frontiers: Iterable[tuple[str, Points, Sequence[Mark]]], *, max_suppressed: float) -> Part:
    """Returns charts of frontiers (title, points, releases to mark), and tables of their points."""
    drawn = [_drawn(title, points, marks, max_suppressed) for title, points, marks in frontiers]
    return Part("frontier", "What suppressing more or less would give", fill("frontier.html", frontiers=drawn))


def error_at(points: Points, share: float) -> float | None:
    """Returns the smallest error on the frontier within a suppressed share."""
    return min((error for gone, error in points if gone <= share), default=None)


def _drawn(
    title: str, points: Points, marks: Sequence[Mark], max_suppressed: float
) -> tuple[Figure, list[tuple[str, str]]]:
    shown = [p for p in points if p[0] <= max(0.25, 1.5 * max_suppressed)]
    if not shown:
        return Figure(title, "No homogeneous map can be published."), []
    chart = charts.curve_chart(
        shown,
        marks=marks,
        limit=max_suppressed,
        limit_text=f"limit {max_suppressed:.1%}",
        title=title,
        x_label="share of the volume suppressed",
    )
    errors = ((share, error_at(points, share)) for share in _LISTED_SHARES)
    rows = [(f"{share:.1%}", "–" if error is None else number(error)) for share, error in errors]
    return Figure(title, "Mean generalisation error, in tiles; less is finer.", [("", chart)]), rows


#: Smallest height of a box, so that it stays visible.
_THIN = 1.5


@dataclass(frozen=True)
class Boxes:
    """One plot of a measure: the ratios of each method to the reference, all above 0."""

    title: str
    reference: str
    values: Sequence[tuple[str, Sequence[float]]]


def ratios_part(plots: Sequence[Boxes]) -> Part:
    """Returns a plot for each measure that has ratios."""
    figures = [
        Figure(plot.title, f"Times that of {plot.reference}; above the line is worse.", [("", box_chart(plot))])
        for plot in plots
        if plot.values
    ]
    return Part("ratios", f"Against {plots[0].reference}, matrix by matrix", fill("charts.html", figures=figures))


def box_chart(plot: Boxes) -> Markup:
    """Returns boxes between the quartiles, with median, and whiskers to the smallest and largest ratio."""
    every = [value for _, values in plot.values for value in values]
    low, high = min(*every, 1.0) / 1.2, max(*every, 1.0) * 1.2
    height_of = Scale(low, high, log=True)
    room = (WIDTH - LEFT - 12) / len(plot.values)
    shapes = height_of.marks()
    shapes.append(shape("line", class_="mark", x1=LEFT, y1=height_of(1), x2=WIDTH - 12, y2=height_of(1)))
    lines = []
    for place, (name, values) in enumerate(plot.values):
        x = LEFT + (place + 0.5) * room
        ends = [float(q) for q in np.quantile(values, (0, 0.25, 0.5, 0.75, 1))]
        shapes += _box(x, min(room * 0.3, 26.0), [height_of(end) for end in ends], colour_of(place))
        # Names alternate between two rows, so that they do not overlap.
        shapes.append(shape("text", name, x=x, y=FLOOR + (14 if place % 2 == 0 else 26), text_anchor="middle"))
        lines.append(f"{name}: median {ends[2]:.3g}, quartiles {ends[1]:.3g} and {ends[3]:.3g}, n = {len(values):,}")
    shapes.append(shape("text", f"1 = {plot.reference}", x=WIDTH - 12, y=TOP - 16, text_anchor="end"))
    return charts.svg(shapes, title=plot.title, description="; ".join(lines))


def _box(x: float, half: float, at: Sequence[float], colour: str) -> list[Shape]:
    """Returns one box from the heights of smallest value, quartiles and largest value."""
    lowest, first, median, third, highest = at
    look: dict[str, Any] = {"stroke": colour, "stroke_width": 1.4}
    whiskers = [(x, lowest, x, first), (x, third, x, highest)]
    whiskers += [(x - half / 2, y, x + half / 2, y) for y in (lowest, highest)]
    size = {"width": 2 * half, "height": max(first - third, _THIN)}
    return [
        *(shape("line", x1=x1, y1=y1, x2=x2, y2=y2, **look) for x1, y1, x2, y2 in whiskers),
        shape("rect", x=x - half, y=third, **size, fill=colour, fill_opacity="0.25", **look),
        shape("line", x1=x - half, y1=median, x2=x + half, y2=median, stroke=colour, stroke_width=2.4),
    ]
