"""A description of the data for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowveil.published.document import fill

if TYPE_CHECKING:
    from flowveil.analysis.description import Description


def description_view(found: Description) -> str:
    """A description as HTML: what was read, what is safe already on every level, and where to start."""
    units = [share.unit for share in found.levels[0].safe]
    rows = [
        [
            f"resolution {level.resolution}" if level.resolution is not None else f"{level.lifted} up",
            f"{level.origins:,}",
            f"{level.destinations:,}",
            f"{level.flows:,}",
            *(f"{share:.1%}" for safe in level.safe for share in (safe.flows, safe.volume)),
        ]
        for level in found.levels
    ]
    heads = ["level", "origins", "destinations", "flows"]
    heads += [f"{unit}: safe {what}" for unit in units for what in ("flows", "volume")]
    lines = list(found.lines())
    first = lines.index("", 2)
    return str(
        fill(
            "description.html",
            warning=lines[0],
            facts=lines[2:first],
            heads=heads,
            rows=rows,
            k=found.k,
            floor=[line for line in lines if line.startswith("Floor")],
            estimated=list(found.estimated()),
            advice=found.advice,
        )
    )
