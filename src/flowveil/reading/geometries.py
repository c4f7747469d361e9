"""Trips whose ends are geometries: GeoDataFrames with columns of points or lines, such as trips of trackintel.

Points become two columns of degrees, ``NAME_lat`` and ``NAME_lon``. A geometry with both ends (two points, or a line)
becomes ``start_lat``, ``start_lon``, ``end_lat`` and ``end_lon``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowveil.errors import DataError

_DEGREES = "EPSG:4326"
_TWO_ENDS = ("MultiPoint", "LineString")


def with_coordinates(source: Any) -> Any:
    """Returns the source with the geometries of its ends as columns of degrees; other sources unchanged."""
    names = geometry_columns(source)
    if not names:
        return source
    import pandas as pd

    added: dict[str, Any] = {}
    for name in names:
        added |= _ends(source[name], name)
    frame = pd.DataFrame({name: source[name].array for name in source.columns if name not in names})
    return frame.assign(**{name: values for name, values in added.items() if name not in frame.columns})


def named_points(source: Any, reading: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of reading with names of point columns replaced by those of their coordinates."""
    points = set(geometry_columns(source))
    given = dict(reading)
    for end in ("origin", "destination"):
        if isinstance(given.get(end), str) and given[end] in points:
            given[end] = (f"{given[end]}_lat", f"{given[end]}_lon")
    return given


def geometry_columns(source: Any) -> list[str]:
    """Returns the names of the columns that hold geometries."""
    if not (hasattr(source, "dtypes") and hasattr(source, "columns") and hasattr(source, "iloc")):
        return []
    kinds = zip(source.columns, source.dtypes, strict=True)
    return [name for name, kind in kinds if str(kind) == "geometry" and isinstance(name, str)]


def _ends(column: Any, name: str) -> dict[str, Any]:
    """Returns the coordinates of a column of geometries, by name."""
    import shapely

    held = column.array
    if held.crs is not None and held.crs != _DEGREES:
        held = held.to_crs(_DEGREES)
    geometries = np.asarray(held, dtype=object)
    missing = shapely.is_missing(geometries) | shapely.is_empty(geometries)
    kinds = set(held[~missing].geom_type)
    if kinds <= {"Point"}:
        return {f"{name}_lat": shapely.get_y(geometries), f"{name}_lon": shapely.get_x(geometries)}
    if not kinds <= set(_TWO_ENDS):
        # Outlines are not ends of trips.
        return {}
    counts = shapely.get_num_coordinates(geometries[~missing])
    if (counts < 2).any() or ("MultiPoint" in kinds and (counts != 2).any()):
        raise DataError(
            f"Column '{name}' must hold two points or a line for each trip; some rows have other geometries."
        )
    found = np.full((4, len(geometries)), np.nan)
    where, points = np.flatnonzero(~missing), shapely.get_coordinates(geometries[~missing])
    last = np.cumsum(counts) - 1
    found[:2, where] = points[last - counts + 1].T
    found[2:, where] = points[last].T
    return dict(zip(("start_lon", "start_lat", "end_lon", "end_lat"), found, strict=True))
