"""Names of zones on static maps: those of the largest, as far as there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import shapely
from numpy.typing import NDArray

from flowveil.published.maps import geometries

if TYPE_CHECKING:
    from flowveil.published.pictures import Extent

_MOST = 12
_LONGEST = 30
_SIZE = 6.0
#: Of a letter and of a line, as a share of the size of the type; a little more than needed.
_LETTER, _LINE = 0.56, 1.5


def name_zones(place: Any, zones: pa.Table, volume: NDArray[np.float64], extent: Extent, inches: float) -> list[str]:
    """Write the names of the zones with the largest volume where they do not cover each other; what was written.

    Args:
        place: the map.
        zones: those of one end, with a column ``name`` where the map of the publisher has names.
        volume: of each.
        extent: what the map shows.
        inches: its width.
    """
    if "name" not in zones.column_names:
        return []
    import matplotlib.patheffects as effects

    middle = shapely.get_coordinates(shapely.point_on_surface(geometries(zones)))
    names = zones["name"].to_pylist()
    # Degrees that a point of type covers, across and upwards.
    across = (extent.east - extent.west) / max(inches * 72 * 0.8, 1)
    up = across * extent.narrowing
    taken: list[tuple[float, float, float, float]] = []
    written: list[str] = []
    for row in np.lexsort((np.arange(len(names)), -volume)).tolist():
        if len(written) == _MOST:
            break
        if not names[row] or volume[row] <= 0:
            continue
        text = names[row] if len(names[row]) <= _LONGEST else names[row][: _LONGEST - 1].rstrip() + "…"
        x, y = middle[row].tolist()
        wide, high = len(text) * _SIZE * _LETTER * across / 2, _SIZE * _LINE * up / 2
        box = (x - wide, y - high, x + wide, y + high)
        inside = box[0] >= extent.west and box[2] <= extent.east and box[1] >= extent.south and box[3] <= extent.north
        if not inside or any(_overlap(box, other) for other in taken):
            continue
        taken.append(box)
        written.append(names[row])
        said = place.text(
            x, y, text, ha="center", va="center", fontsize=_SIZE, color="#17202c", zorder=7, parse_math=False
        )
        said.set_path_effects([effects.withStroke(linewidth=1.6, foreground="white")])
    return [f"Named on the map: {'; '.join(written)}."] if written else []


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
