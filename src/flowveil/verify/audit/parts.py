"""What a layered release without secret thresholds proves about pairs of tiles inside its cells.

Every pair of tiles with k trips or more is a cell of the first layer. So all other pairs have at
most k - 1 trips, and those of a cell with few such pairs must have some: v trips in m pairs leave
at least v - (m - 1)(k - 1) for each. A cell of a later layer counts pairs that no cell of an
earlier layer covers. docs/audit/README.md describes the attack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flowveil.verify.audit.trips import Figures
from flowveil.verify.audit.zone_forest import ranges_of
from flowveil.zoning.h3 import MAX_RESOLUTION

if TYPE_CHECKING:
    from flowveil.core.arrays import Counts
    from flowveil.verify.audit.published import PublishedMatrix, PublishedRelease

#: Cells of more pairs of tiles are not looked at: no cell has so few trips to a pair.
_MOST_PAIRS = 1 << 14
#: Bounds that differ by less than this.
_CLOSE = 3
#: What a statement says of thresholds that no reader knows.
SECRET = "k plus a secret amount"


@dataclass(frozen=True)
class Parts(Figures):
    """Pairs of tiles that are proven to have trips, fewer than k."""

    cells: int = 0  # cells that prove something of their parts
    parts: int = 0  # pairs of tiles in them
    close: int = 0  # those whose bounds leave at most three values
    certain: int = 0  # those whose bounds leave one value


@dataclass(frozen=True)
class Part:
    """A pair of tiles with its bounds, as numbers of tiles in the order of their codes."""

    origin: int
    destination: int
    low: int
    high: int


def bounded_parts(release: PublishedRelease) -> tuple[Parts, tuple[Part, ...]] | None:
    """Returns the pairs of tiles that are proven to have trips.

    None where the rule above does not hold: without layers, with secret thresholds, people or
    population protected, further rules, districts, slices, folds, revisions, or zones that are not
    of H3 cells.
    """
    parameters, statement = release.report["parameters"], release.report["statement"]
    resolution = parameters.get("resolution")
    if (
        release.report["method"] != "layercut"
        or statement.get("thresholds") == SECRET
        or statement.get("zones_of") is not None
        or list(release.report["guarantee"].get("protect") or ()) != ["trips"]
        or any(parameters.get(name) is not None for name in ("dominance", "stricter", "t", "l"))
        or parameters.get("same_zones")
        or release.report["kind"] != "layered"
        or (parameters.get("options") or {}).get("districts") is not None
        or not release.nodes
        or release.revised
        or len(release.matrices) != 1
        or release.matrices[0].layer is None
        or not isinstance(resolution, int)
    ):
        return None
    found = tuple(_parts(release, release.matrices[0], resolution))
    parts = tuple(part for _, part in found)
    close, certain = (
        sum(part.high - part.low < values for part in parts) for values in (_CLOSE, 1)
    )
    return Parts(len({cell for cell, _ in found}), len(parts), close, certain), parts


def _parts(
    release: PublishedRelease, matrix: PublishedMatrix, resolution: int
) -> list[tuple[int, Part]]:
    assert matrix.layer is not None
    spans = [
        [_tiles_of(release, code, resolution) for code in codes]
        for codes in (release.origin_zones, release.destination_zones)
    ]
    sizes = [np.array([len(tiles) for tiles in own]) for own in spans]
    n_pairs = sizes[0][matrix.origin] * sizes[1][matrix.destination]
    bounds = [_bounds(own) for own in spans]
    most, found = release.k - 1, []
    for cell in np.flatnonzero((n_pairs > 1) & (n_pairs <= _MOST_PAIRS)).tolist():
        tiles = spans[0][matrix.origin[cell]], spans[1][matrix.destination[cell]]
        is_free = np.ones((len(tiles[0]), len(tiles[1])), dtype=np.bool_)
        for earlier in _overlapping(matrix, bounds, cell).tolist():
            inside = [
                np.isin(own, of_end[zone[earlier]], assume_unique=True)
                for own, of_end, zone in zip(
                    tiles, spans, (matrix.origin, matrix.destination), strict=True
                )
            ]
            is_free &= ~np.outer(*inside)
        low = int(matrix.trips[cell]) - (int(is_free.sum()) - 1) * most
        # Above k - 1, the method hid a pair of k trips: its cell would have determined others.
        if not 1 <= low <= most:
            continue
        for origin, destination in zip(*np.nonzero(is_free), strict=True):
            ends = int(tiles[0][origin]), int(tiles[1][destination])
            found.append((cell, Part(*ends, low, min(most, int(matrix.trips[cell])))))
    return found


def _overlapping(matrix: PublishedMatrix, bounds: list[Counts], cell: int) -> Counts:
    """Returns the cells of earlier layers that may have a pair of tiles in common with a cell."""
    assert matrix.layer is not None
    near = matrix.layer < matrix.layer[cell]
    for zone, own in zip((matrix.origin, matrix.destination), bounds, strict=True):
        first, last = own[zone].T
        near &= (first <= last[cell]) & (last >= first[cell])
    return np.flatnonzero(near)


def _bounds(spans: list[Counts]) -> Counts:
    """The first and the last tile of each zone; none for a zone of too many tiles."""
    return np.array(
        [(own[0], own[-1]) if len(own) else (0, np.iinfo(np.int64).max) for own in spans],
        dtype=np.int64,
    ).reshape(-1, 2)


def _tiles_of(release: PublishedRelease, code: str, resolution: int) -> Counts:
    """Returns the tiles of a zone, as numbers; none if they are too many or not known."""
    unit = 7 ** (MAX_RESOLUTION - resolution)
    ranges = ranges_of(release.h3_cells.get(code, ()))
    if not ranges or sum(b - a for a, b in ranges) > _MOST_PAIRS * unit:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([np.arange(a // unit, b // unit, dtype=np.int64) for a, b in ranges])
