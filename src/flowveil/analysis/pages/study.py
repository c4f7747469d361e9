"""A study as one page: what each method publishes and how fine, then the tables of the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flowveil.analysis.pages.joint import Outcome, joint_part
from flowveil.published.charts import FLOOR, LEFT, TOP, WIDTH, Scale, colour_of, shape, svg
from flowveil.published.document import Figure, Part, fill, page

if TYPE_CHECKING:
    from markupsafe import Markup

    from flowveil.published.charts import Shape

#: The height below which a box would not be seen.
_THIN = 1.5


@dataclass(frozen=True)
class Boxes:
    """One plot.

    Attributes:
        title: of what the values are ratios.
        reference: what they are ratios to.
        values: the ratios of each method, all above 0.
    """

    title: str
    reference: str
    values: Sequence[tuple[str, Sequence[float]]]


#: A table as texts: its number, what it is of, its heads, its rows, and which columns are numbers.
Table = tuple[str, str, Sequence[str], Sequence[Sequence[str]], Sequence[bool]]


@dataclass(frozen=True)
class Drawn:
    """What the charts of the page show.

    Attributes:
        groups: runs on the whole data set that can be compared, by what they protect; those without both an error and a
            share that may be shown are left out.
        ratios: where there are many matrices, how methods compare on each.
        max_suppressed: the share that each run could suppress.
    """

    groups: Mapping[str, Sequence[Outcome]]
    ratios: Sequence[Boxes] | None
    max_suppressed: float


def render_study(
    drawn: Drawn, tables: Sequence[Table], *, notes: Sequence[str], lead: str, internal: str | None = None
) -> str:
    """The page.

    Args:
        drawn: the charts.
        tables: in order.
        notes: on how to read the tables.
        lead: what was run.
        internal: why the page is not for publication, if it is not.
    """
    parts = [joint_part(drawn.groups, max_suppressed=drawn.max_suppressed)] if any(drawn.groups.values()) else []
    if drawn.ratios is not None and any(plot.values for plot in drawn.ratios):
        parts.append(ratios_part(drawn.ratios))
    listed = [
        (
            label,
            title,
            [(head, right[i]) for i, head in enumerate(heads)],
            [list(zip(row, right, strict=True)) for row in rows],
        )
        for label, title, heads, rows, right in tables
    ]
    parts.append(Part("tables", "Tables", fill("study.html", notes=notes, tables=listed)))
    heading = "Study: methods, protections and segments" if drawn.ratios is None else "Study: methods and matrices"
    return page(title="Study", heading=heading, lead=lead, parts=parts, internal=internal)


# ---- box plots of ratios (Matet et al., figure 12) -----------------------------------------------------------------


def ratios_part(plots: Sequence[Boxes]) -> Part:
    """A plot for each measure that has any ratio."""
    figures = [
        Figure(plot.title, f"Times that of {plot.reference}; above the line is worse.", [("", box_chart(plot))])
        for plot in plots
        if plot.values
    ]
    return Part("ratios", f"Against {plots[0].reference}, matrix by matrix", fill("charts.html", figures=figures))


def box_chart(plot: Boxes) -> Markup:
    """Boxes from the first to the third quartile, with the median, and whiskers to the smallest and largest ratio."""
    every = [value for _, values in plot.values for value in values]
    low, high = min(*every, 1.0) / 1.2, max(*every, 1.0) * 1.2
    height_of = Scale(low, high, log=True)
    room = (WIDTH - LEFT - 12) / len(plot.values)
    shapes = height_of.marks()
    shapes.append(shape("line", class_="mark", x1=LEFT, y1=height_of(1), x2=WIDTH - 12, y2=height_of(1)))
    said = []
    for place, (name, values) in enumerate(plot.values):
        x = LEFT + (place + 0.5) * room
        ends = [float(q) for q in np.quantile(values, (0, 0.25, 0.5, 0.75, 1))]
        shapes += _box(x, min(room * 0.3, 26.0), [height_of(end) for end in ends], colour_of(place))
        # Names stand in two rows, so that they do not run into each other.
        shapes.append(shape("text", name, x=x, y=FLOOR + (14 if place % 2 == 0 else 26), text_anchor="middle"))
        said.append(f"{name}: median {ends[2]:.3g}, quartiles {ends[1]:.3g} and {ends[3]:.3g}, n = {len(values):,}")
    shapes.append(shape("text", f"1 = {plot.reference}", x=WIDTH - 12, y=TOP - 16, text_anchor="end"))
    return svg(shapes, title=plot.title, description="; ".join(said))


def _box(x: float, half: float, at: Sequence[float], colour: str) -> list[Shape]:
    """One box; heights of the smallest value, the quartiles and the largest."""
    lowest, first, median, third, highest = at
    line: dict[str, Any] = {"stroke": colour, "stroke_width": 1.4}
    return [
        shape("line", x1=x, y1=lowest, x2=x, y2=first, **line),
        shape("line", x1=x, y1=third, x2=x, y2=highest, **line),
        *(shape("line", x1=x - half / 2, y1=y, x2=x + half / 2, y2=y, **line) for y in (lowest, highest)),
        shape(
            "rect",
            x=x - half,
            y=third,
            width=2 * half,
            height=max(first - third, _THIN),
            fill=colour,
            fill_opacity="0.25",
            **line,
        ),
        shape("line", x1=x - half, y1=median, x2=x + half, y2=median, stroke=colour, stroke_width=2.4),
    ]
