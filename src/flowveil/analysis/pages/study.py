"""A study as one page: what each method publishes and how fine, then the tables of the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowveil.analysis.pages.ratios import Boxes, ratios_part
from flowveil.published.document import Part, fill, page
from flowveil.published.joint import Outcome, joint_part

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
