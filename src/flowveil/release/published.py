"""What crosses the boundary from private to public: cells, statement, and what the operator gives for publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowveil.release.statement import Statement

if TYPE_CHECKING:
    import pyarrow as pa

    from flowveil.zoning.public_map import PublicMap


@dataclass(frozen=True, eq=False)
class Published:
    """A release as its readers have it. Every file of the folder is a function of this.

    Attributes:
        cells: flows.parquet: the zones of each cell by code, its trips, its slice or time; sorted.
        statement: the closed list of all other published facts.
        map: where zones lie, by their codes: a function of the map that was given, never of the trips.
        outlines: text of context.geojson, where the operator gave outlines.
    """

    cells: pa.Table
    statement: Statement
    map: PublicMap
    outlines: str | None = None
