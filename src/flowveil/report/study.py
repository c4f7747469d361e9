"""A study as one page: what each method publishes and how fine, then the tables of the papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowveil.report.document import Part, fill, page
from flowveil.report.joint import Outcome, joint_part

#: A table as texts: what it is of, its heads, its rows, and which columns are numbers.
Table = tuple[str, Sequence[str], Sequence[Sequence[str]], Sequence[bool]]


def render_study(
    groups: Mapping[str, Sequence[Outcome]],
    tables: Sequence[Table],
    *,
    notes: Sequence[str],
    lead: str,
    max_suppressed: float,
) -> str:
    """The page.

    Args:
        groups: runs on the whole data set that can be compared, by what they protect; those without both an error and a
            share that may be shown are left out.
        tables: in order.
        notes: on how to read the tables.
        lead: what was run.
        max_suppressed: the share that each run could suppress.
    """
    parts = [joint_part(groups, max_suppressed=max_suppressed)] if any(groups.values()) else []
    listed = [
        (
            number,
            title,
            [(head, right[i]) for i, head in enumerate(heads)],
            [list(zip(row, right, strict=True)) for row in rows],
        )
        for number, (title, heads, rows, right) in enumerate(tables, 3)
    ]
    parts.append(Part("tables", "Tables", fill("study.html", notes=notes, tables=listed)))
    return page(title="Study", heading="Study: methods, protections and segments", lead=lead, parts=parts)
