"""Charts of the trade-off between suppression and error: runs, and the frontier.

For the operator only: the frontier is computed from all flows, suppressed ones included, and two of
its points may differ by a single cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flowveil.published.charts import Mark, curve_chart
from flowveil.published.document import Figure, PagePart, fill, number

if TYPE_CHECKING:
    from markupsafe import Markup

    from flowveil.methods.twincut import FrontierPoint

#: Tolerance of the limit, for rounding.
_ROUNDING = 1e-3
#: Suppressed shares in the table of a frontier.
_LISTED_SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)

#: Suppressed shares, each with the mean generalisation error.
Points = Sequence[tuple[float, float]]


def marks_of(name: str, measures: Mapping[str, Any], place: int | None = None) -> list[Mark]:
    """Returns a run at its suppressed share and error; empty if it lacks one.

    The place decides the colour.
    """
    suppressed, error = measures.get("suppressed_share"), measures.get("mean_generalization_error")
    return (
        [Mark(name, float(suppressed), float(error), place)]
        if suppressed is not None and error
        else []
    )


def best(runs: Sequence[Mark]) -> list[Mark]:
    """Returns the runs that no other dominates, in rising order of the suppressed share."""

    def dominates(one: Mark, other: Mark) -> bool:
        return one.x <= other.x and one.y <= other.y and (one.x < other.x or one.y < other.y)

    front = (one for one in runs if not any(dominates(other, one) for other in runs))
    return sorted(front, key=lambda one: (one.x, one.y, one.name))


def joint_part(groups: Mapping[str, Sequence[Mark]], *, max_suppressed: float) -> PagePart:
    """Returns a chart of error against published share, and a verdict, for each group of comparable
    runs.
    """
    note, drawn = "Error in tiles; lower and further right is better.", []
    for title, runs in groups.items():
        if runs:
            front = best(runs)
            marks = [replace(one, x=1 - one.x, faded=one not in front) for one in runs]
            marks = [
                replace(one, name=f"{one.name} (beaten)") if one.faded else one for one in marks
            ]
            points = [(1 - one.x, one.y) for one in reversed(front)]
            chart = _chart(points, marks, title, 1 - max_suppressed, "published")
            drawn.append((Figure(title, note, [("", chart)]), verdict(runs, max_suppressed)))
    return PagePart("joint", "What is published, and how fine", fill("joint.html", charts=drawn))


def _chart(points: Points, marks: Sequence[Mark], title: str, limit: float, what: str) -> Markup:
    text = {
        "limit_text": f"limit {limit:.1%}",
        "title": title,
        "x_label": f"share of the volume {what}",
    }
    return curve_chart(points, marks=marks, limit=limit, **text)


def verdict(runs: Sequence[Mark], max_suppressed: float) -> list[str]:
    """Returns sentences: the finest run within the limit, the coarsest one, and runs above the
    limit.
    """
    kept = [one for one in runs if one.x <= max_suppressed + _ROUNDING]
    over = sorted((one for one in runs if one not in kept), key=lambda one: (-one.x, one.name))
    lines = []
    if kept:
        finest = min(kept, key=lambda one: (one.y, one.x, one.name))
        # Runs that agree in all digits shown are equally good.
        equal = [one for one in kept if _shown(one) == _shown(finest)]
        names = " and ".join(sorted(one.name for one in equal)) + (
            " is" if len(equal) == 1 else " are"
        )
        error, published = _shown(finest)
        lines.append(
            f"Of the runs that suppress at most {max_suppressed:.0%}, {names} the finest: an error"
            f" of {error} tiles, with {published} published."
        )
        coarsest = max(kept, key=lambda one: one.y)
        if coarsest.y > 1.5 * finest.y:
            times = _digits(coarsest.y / finest.y)
            lines.append(
                f"{coarsest.name} publishes {1 - coarsest.x:.1%} and is {times} times as coarse."
            )
    else:
        lines.append(f"No run suppresses at most {max_suppressed:.0%}.")
    for one in over:
        lines.append(
            f"{one.name} suppresses {share_in_words(one.x)} of the volume: only zones of easy trips"
            " are left."
        )
    return lines


def _shown(one: Mark) -> tuple[str, str]:
    return _digits(one.y), f"{1 - one.x:.1%}"


def share_in_words(share: float) -> str:
    """Returns a share in whole per cent; less than all is never rounded to all."""
    return "over 99%" if 0.99 < share < 1 else f"{share:.0%}"


def _digits(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def rounded_points(points: Sequence[FrontierPoint]) -> tuple[tuple[float, float], ...]:
    """Returns share suppressed and error, rounded: exact points may differ by a single cell."""
    rounded: dict[float, float] = {}
    for point in points:
        # Rounded up, so that no point seems to suppress less than it does.
        share = math.ceil(point.suppressed_share * 1000) / 1000
        rounded[share] = min(float(f"{point.value:.3g}"), rounded.get(share, float("inf")))
    return tuple(sorted(rounded.items()))


def frontier_part(
    frontiers: Iterable[tuple[str, Points, Sequence[Mark]]], *, max_suppressed: float
) -> PagePart:
    """Returns charts of frontiers (title, points, releases to mark), and tables of their points."""
    drawn = [_drawn(title, points, marks, max_suppressed) for title, points, marks in frontiers]
    return PagePart(
        "frontier",
        "What suppressing more or less would give",
        fill("frontier.html", frontiers=drawn),
    )


def _drawn(
    title: str, points: Points, marks: Sequence[Mark], max_suppressed: float
) -> tuple[Figure, list[tuple[str, str]]]:
    shown = [p for p in points if p[0] <= max(0.25, 1.5 * max_suppressed)]
    if not shown:
        return Figure(title, "No homogeneous map can be published."), []
    rows = []
    for share in _LISTED_SHARES:
        error = min((error for gone, error in points if gone <= share), default=None)
        rows.append((f"{share:.1%}", "–" if error is None else number(error)))
    chart = _chart(shown, marks, title, max_suppressed, "suppressed")
    return Figure(title, "Mean generalisation error, in tiles; less is finer.", [("", chart)]), rows
