"""The published tables as those of other libraries: pandas, polars and geopandas."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import shapely

from flowveil.errors import MissingExtraError, ParameterError
from flowveil.published.exports import lines

if TYPE_CHECKING:
    import pyarrow as pa


TABLES = ("flows", "zones")


def frame(content: Any, table: str, library: str) -> Any:
    """A published table as one of pandas, polars or geopandas.

    Args:
        content: an object with the tables ``flows`` and ``zones``.
        table: ``flows`` or ``zones``.
        library: ``pandas``; ``polars``; or ``geopandas``, with outlines of zones, or lines from centre to centre, in
            longitude and latitude (EPSG:4326).

    Raises:
        ParameterError: there is no such table, or the zones have no place.
        MissingExtraError: the library is not installed.
    """
    if table not in TABLES:
        raise ParameterError(f"A release has the tables {' and '.join(TABLES)}; found {table!r}.")
    published: pa.Table = getattr(content, table)
    loaded = _load(library)
    if library == "polars":
        return loaded.from_arrow(published)
    if library == "pandas":
        return published.to_pandas()
    if content.zones["lat"].null_count == len(content.zones):
        raise ParameterError("The zones of this release have no place on a map. Hint: to_pandas() does without.")
    if table == "zones":
        shapes = shapely.from_wkb(published["geometry"].to_numpy(zero_copy_only=False))
        published = published.drop_columns(["geometry"])
    else:
        shapes = lines(published, content.zones)
    return loaded.GeoDataFrame(published.to_pandas(), geometry=shapes, crs="EPSG:4326")


def _load(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtraError(f"{library} is not installed. Hint: pip install {library}.") from None
