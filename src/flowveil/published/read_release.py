"""A published release, read back as the public inputs that make the folder again, and as tables."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pyarrow as pa

from flowveil.core.errors import MissingExtraError, ParameterError
from flowveil.core.values import value_columns
from flowveil.published.exports import lines
from flowveil.published.maps import geometries
from flowveil.published.user_outlines import CONTEXT
from flowveil.release.folder import ReleaseFolder
from flowveil.release.statement import Published, Statement
from flowveil.system.paths import open_regular
from flowveil.zoning.files import ZoneMap, read_zones
from flowveil.zoning.grids import stated_grid
from flowveil.zoning.halves import halved_map
from flowveil.zoning.outside import with_outside
from flowveil.zoning.public_map import BoxMap, H3Map, PublicMap, TreeMap

#: Columns of flows.parquet without slice columns, by type.
_CELL_TYPES = {
    "origin_zone": pa.string(),
    "destination_zone": pa.string(),
    "trips": pa.int64(),
    "weight": pa.float64(),
    "revised": pa.bool_(),
    "layer": pa.int8(),
}


def map_of_statement(statement: Statement, zones: ZoneMap | None) -> PublicMap | None:
    """Returns the map that a release was drawn on, from the operator's map where it has one.

    None if it has no map.
    """
    parameters = statement.parameters
    if statement.boxes is not None:
        return BoxMap()
    if isinstance(parameters.get("resolution"), int):
        return H3Map(parameters["resolution"])
    grid = stated_grid(parameters.get("zones"))
    if zones is None and grid is not None:
        zones = read_zones(grid)
    if zones is None:
        if parameters.get("zones"):
            raise ParameterError(
                "The release is on a map of its operator. Hint: give the map with --zones."
            )
        return None
    tree = with_outside(zones.hierarchy) if parameters.get("outside") == "keep" else zones.hierarchy
    return TreeMap(halved_map(tree) if parameters.get("hierarchy") == "halves" else tree)


def read_published(release: ReleaseFolder, given: PublicMap | None) -> Published | None:
    """Returns the public inputs of a folder; None where its map is not known."""
    statement = release.statement
    outlines = None
    if statement.context:
        try:
            with open_regular(release.path / CONTEXT) as file:
                outlines = file.read().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise ParameterError(f"{CONTEXT} is missing or cannot be read.") from None
    return (
        None
        if given is None
        else Published(_plain_cells(release.flows, statement), statement, given, outlines)
    )


def _plain_cells(found: pa.Table, statement: Statement) -> pa.Table:
    """Returns the cells with the types of a release and without metadata, in which something could
    be hidden.
    """
    known = {
        **_CELL_TYPES,
        **dict.fromkeys(value_columns(statement.parameters.get("columns", {})), pa.float64()),
    }
    types = {name: known.get(name, pa.string()) for name in found.column_names}
    if "trips" in types and pa.types.is_floating(found.schema.field("trips").type):
        types["trips"] = pa.float64()
    extra = set(types) - set(known) - {*statement.slice_columns, *statement.fold_columns}
    if extra:
        raise ParameterError(
            f"flows.parquet has {len(extra)} columns that no release of this kind has."
        )
    return found.cast(pa.schema(list(types.items()))).replace_schema_metadata(None)


TABLES = ("flows", "zones")


def to_frame(content: Any, table: str, library: str) -> Any:
    """Returns the table ``flows`` or ``zones`` of a release as one of pandas, polars or geopandas.

    That of geopandas has outlines of zones, or lines from centre to centre, in longitude and
    latitude (EPSG:4326). Raises ParameterError for another table or zones without a place,
    MissingExtraError for a missing library.
    """
    if table not in TABLES:
        raise ParameterError(f"A release has the tables {' and '.join(TABLES)}; found {table!r}.")
    published: pa.Table = getattr(content, table)
    try:
        loaded = import_module(library)
    except ImportError:
        raise MissingExtraError(
            f"{library} is not installed. Hint: pip install {library}."
        ) from None
    if library == "polars":
        return loaded.from_arrow(published)
    if library == "pandas":
        return published.to_pandas()
    if content.zones["lat"].null_count == len(content.zones):
        raise ParameterError(
            "The zones of this release have no place on a map. Hint: to_pandas() does without."
        )
    if table == "zones":
        shapes = geometries(published)
        published = published.drop_columns(["geometry"])
    else:
        shapes = lines(published, content.zones)
    return loaded.GeoDataFrame(published.to_pandas(), geometry=shapes, crs="EPSG:4326")
