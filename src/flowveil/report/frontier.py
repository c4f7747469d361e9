"""The frontier as a figure: how fine homogeneous zones can be for every share that is suppressed.

It is computed from all flows, the suppressed ones too, and two of its points may differ by a single cell: it stands on
pages for the data holder only, and rounded even there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowveil.report.charts import Mark, curve_chart
from flowveil.report.document import chart_figure, number, text

if TYPE_CHECKING:
    from flowveil.methods.twincut import FrontierPoint

#: Shares whose error the table tells.
SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)

#: A share and the mean generalisation error there.
Points = Sequence[tuple[float, float]]

EXPLANATION = (
    "Each point of the line is a map of zones that do not overlap, and the finest that was found for the share that it "
    "suppresses: where it is steep, suppressing a little more makes zones much finer; where it is flat, it does not "
    "pay. A run at one limit searches longer and may lie a little below."
)


def rounded_points(points: Sequence[FrontierPoint]) -> tuple[tuple[float, float], ...]:
    """Share suppressed and error, to what a chart can show: exact, two points may differ by a single cell."""
    rounded: dict[float, float] = {}
    for point in points:
        # Upwards: no point may seem to suppress less than it does.
        share = math.ceil(point.suppressed_share * 1000) / 1000
        rounded[share] = min(float(f"{point.value:.3g}"), rounded.get(share, float("inf")))
    return tuple(sorted(rounded.items()))


def frontier_figure(points: Points, *, max_suppressed: float, marks: Sequence[Mark], title: str) -> str:
    """A chart of the frontier with some releases on it, and a table of what it tells.

    Args:
        points: share suppressed and error, in rising order of shares.
        max_suppressed: the limit that was asked for.
        marks: releases to show beside it.
        title: what it is of.
    """
    shown = [p for p in points if p[0] <= max(0.25, 1.5 * max_suppressed)]
    if not shown:
        return chart_figure(title, "No homogeneous map can be published.", "")
    chart = curve_chart(
        shown,
        marks=marks,
        limit=max_suppressed,
        limit_text=f"limit {max_suppressed:.1%}",
        title=title,
        x_label="share of the volume suppressed",
    )
    return chart_figure(title, "Mean generalisation error, in tiles; less is finer.", chart) + _table(points)


def error_at(points: Points, share: float) -> float | None:
    """The smallest error on the frontier that suppresses at most this share."""
    return min((error for gone, error in points if gone <= share), default=None)


def _table(points: Points) -> str:
    rows = "".join(
        f'<tr><th scope="row">{share:.1%}</th><td class="number">{"–" if error is None else number(error)}</td></tr>'
        for share, error in ((share, error_at(points, share)) for share in SHARES)
    )
    return (
        f'<div class="scroll"><table class="dense"><caption>{text("Finest map found within a limit")}</caption><thead>'
        '<tr><th scope="col">at most suppressed</th><th scope="col" class="number">error (tiles)</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
