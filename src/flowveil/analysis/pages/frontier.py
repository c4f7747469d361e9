"""The frontier as a figure: how fine homogeneous zones can be for every share that is suppressed.

It is computed from all flows, the suppressed ones too, and two of its points may differ by a single cell: it stands on
pages for the data holder only, and rounded even there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from flowveil.published.charts import Mark, curve_chart
from flowveil.published.document import Figure, Part, fill, number

if TYPE_CHECKING:
    from flowveil.methods.twincut import FrontierPoint

#: Shares whose error the table lists.
SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)

#: A share and the mean generalisation error there.
Points = Sequence[tuple[float, float]]


def rounded_points(points: Sequence[FrontierPoint]) -> tuple[tuple[float, float], ...]:
    """Share suppressed and error, to what a chart can show: exact, two points may differ by a single cell."""
    rounded: dict[float, float] = {}
    for point in points:
        # Upwards: no point may seem to suppress less than it does.
        share = math.ceil(point.suppressed_share * 1000) / 1000
        rounded[share] = min(float(f"{point.value:.3g}"), rounded.get(share, float("inf")))
    return tuple(sorted(rounded.items()))


def frontier_part(frontiers: Iterable[tuple[str, Points, Sequence[Mark]]], *, max_suppressed: float) -> Part:
    """Charts of frontiers with some releases on them, and tables of what they say.

    Args:
        frontiers: for each, what it is of, its points in rising order of shares, and releases to show beside it.
        max_suppressed: the limit that was asked for.
    """
    drawn = [_drawn(title, points, marks, max_suppressed) for title, points, marks in frontiers]
    return Part("frontier", "What suppressing more or less would give", fill("frontier.html", frontiers=drawn))


def error_at(points: Points, share: float) -> float | None:
    """The smallest error on the frontier that suppresses at most this share."""
    return min((error for gone, error in points if gone <= share), default=None)


def _drawn(
    title: str, points: Points, marks: Sequence[Mark], max_suppressed: float
) -> tuple[Figure, list[tuple[str, str]]]:
    shown = [p for p in points if p[0] <= max(0.25, 1.5 * max_suppressed)]
    if not shown:
        return Figure(title, "No homogeneous map can be published."), []
    chart = curve_chart(
        shown,
        marks=marks,
        limit=max_suppressed,
        limit_text=f"limit {max_suppressed:.1%}",
        title=title,
        x_label="share of the volume suppressed",
    )
    errors = ((share, error_at(points, share)) for share in SHARES)
    rows = [(f"{share:.1%}", "–" if error is None else number(error)) for share, error in errors]
    return Figure(title, "Mean generalisation error, in tiles; less is finer.", [("", chart)]), rows
