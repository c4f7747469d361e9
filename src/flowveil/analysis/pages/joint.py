"""Error and loss together: no method is good because it drops what is hard.

Each chart shows, for one k and one protection, the share of the volume that every run publishes and how coarse it is. A
run is dominated where another publishes as much and is as fine, and one of the two is better; dominated runs are faded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flowveil.published import charts
from flowveil.published.charts import FLOOR, LEFT, NAMES, TOP, Scale, colour_of, polyline, shape
from flowveil.published.document import Figure, Part, fill

if TYPE_CHECKING:
    from markupsafe import Markup

#: How strongly a dominated run is drawn.
_FADED = 0.4
#: A run may be over the limit by what rounding makes of it.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Outcome:
    """What came of one run.

    Attributes:
        name: of the method.
        place: its number among the methods of the page: its colour.
        published: the share of the volume that it publishes.
        error: mean generalisation error, in tiles.
    """

    name: str
    place: int
    published: float
    error: float


def best(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes that no other dominates, in rising order of what they publish."""
    return sorted(
        (one for one in outcomes if not any(_dominates(other, one) for other in outcomes)),
        key=lambda one: (one.published, one.error, one.name),
    )


def _dominates(one: Outcome, other: Outcome) -> bool:
    as_good = one.published >= other.published and one.error <= other.error
    return as_good and (one.published > other.published or one.error < other.error)


def joint_part(groups: Mapping[str, Sequence[Outcome]], *, max_suppressed: float) -> Part:
    """A chart and a verdict for each group of runs that can be compared."""
    drawn = [
        (Figure(title, "Lower and further right is better.", [("", _chart(runs, title, max_suppressed))]), said)
        for title, runs in groups.items()
        if (said := verdict(runs, max_suppressed))
    ]
    return Part("joint", "What is published, and how fine", fill("joint.html", charts=drawn))


def verdict(outcomes: Sequence[Outcome], max_suppressed: float) -> list[str]:
    """In words: the finest run that keeps to the limit, what is finer only because it drops more, and the rest."""
    if not outcomes:
        return []
    kept = [one for one in outcomes if one.published >= 1 - max_suppressed - _ROUNDING]
    over = [one for one in outcomes if one not in kept]
    said = []
    if kept:
        finest = min(kept, key=lambda one: (one.error, -one.published, one.name))
        # Runs that agree in every digit that is shown are equally good.
        equal = [one for one in kept if _shown(one) == _shown(finest)]
        names = " and ".join(sorted(one.name for one in equal)) + (" is" if len(equal) == 1 else " are")
        said.append(
            f"Of the runs that drop at most {max_suppressed:.0%}, {names} the finest: an error of "
            f"{_digits(finest.error)} tiles, with {finest.published:.1%} published."
        )
        coarsest = max(kept, key=lambda one: one.error)
        if coarsest.error > 1.5 * finest.error:
            times = coarsest.error / finest.error
            said.append(f"{coarsest.name} publishes {coarsest.published:.1%} and is {_digits(times)} times as coarse.")
    else:
        said.append(f"No run drops at most {max_suppressed:.0%}.")
    for one in sorted(over, key=lambda one: (one.published, one.name)):
        dropped = share_in_words(1 - one.published)
        said.append(f"{one.name} drops {dropped} of the volume: its small zones are those that are left.")
    return said


def _shown(one: Outcome) -> tuple[str, str]:
    return _digits(one.error), f"{one.published:.1%}"


def share_in_words(share: float) -> str:
    """A share in whole per cent; what is not all is never rounded to all."""
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
        # A name stays readable: only the mark of a dominated run is faded.
        for drawn in (charts.marker(one.place, x, y, colour), charts.pointer(x, y, at, colour)):
            shapes.append(replace(drawn, attributes={**drawn.attributes, **strength}, hint=hint))
        shapes.append(charts.name_beside(one.name + ("" if one in front else " (beaten)"), at, colour))
    said = "; ".join(
        f"{one.name}: {one.published:.1%} published, error {_digits(one.error)}"
        for one in sorted(outcomes, key=lambda o: o.name)
    )
    return charts.svg(shapes, title=title, description=said)
