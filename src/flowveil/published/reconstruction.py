"""A published release as a matrix between a reader's areas: H3 cells, tiles of the release's map,
or polygons.

A pure function of published tables, the areas, and public weights that the reader brings. Written
as Parquet, CSV, OMX or GeoPackage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from numpy.typing import NDArray

from flowveil.core.errors import ParameterError
from flowveil.core.hierarchy import OUTSIDE
from flowveil.core.times import TIME
from flowveil.published.disaggregation import (
    LOWER,
    MOST_ROWS,
    UPPER,
    VOLUMES,
    calibrated,
    disaggregate,
    rounded,
    with_columns,
)
from flowveil.published.folds import folds_of, spread_over_values
from flowveil.published.geopackage import as_multi, write_geopackage
from flowveil.published.maps import ENDS, zone_of_flow, zones_of
from flowveil.published.matrices import ESTIMATED, check_omx, lookup_codes, write_omx
from flowveil.published.spreadsheets import write_csv
from flowveil.published.tables import lookup_table, split_slices
from flowveil.published.zone_names import names_of_hexagons
from flowveil.published.zone_overlaps import (
    Measure,
    Overlap,
    h3_overlap,
    hexagon,
    hexagons_around,
    land_measure,
    map_overlap,
    outline_overlap,
    population_measure,
)
from flowveil.release.facets import Facets
from flowveil.system.output import check_file, write_files
from flowveil.zoning.public_map import H3Map, TreeMap

if TYPE_CHECKING:
    from flowveil.core.hierarchy import Hierarchy
    from flowveil.release.statement import Published
    from flowveil.zoning.files import ZoneMap

#: Formats of a file of estimates.
SUFFIXES = (".parquet", ".csv", ".omx", ".gpkg")
#: Rows of a CSV file have at least this part of a trip: people read it.
LEAST_IN_CSV = 0.05
#: Areas of `estimate_tables`: more make an OMX file that few programs can hold.
MOST_AREAS_OF_TABLES = 5_000
#: Rows of `estimate_tables`: between H3 cells, more choose a coarser resolution. Takes 1 GB.
MOST_ROWS_OF_TABLES = 3_000_000


@dataclass(frozen=True, eq=False)
class Wishes:
    """What a reader asks of an estimate."""

    # Points with inhabitants (``lat``, ``lon``, ``population``), or ``zone`` and ``population`` for
    # the tiles of the release's map: trips start and end where people are.
    population: pa.Table | None = None
    land: NDArray[np.object_] | None = (
        None  # polygons in degrees outside of which no trip starts or ends
    )
    decay: bool = True  # whether trips get rarer with distance as the published cells show
    whole: bool = False  # whole trips, totals kept
    bounds: bool = False  # also the trips that cells prove, and the most that they allow
    per: Literal["day"] | None = (
        None  # ``day``: the mean of a day of the period that the release declares
    )
    totals: pa.Table | None = None  # known totals: ``area``, ``origins``, ``destinations``
    sum: tuple[str, ...] = ()  # slice columns and folds to add up: ``time``, or an attribute

    def measure(self) -> Measure | None:
        """What places are worth; None for their size. Refuses two weights, and missing columns."""
        if self.population is not None and self.land is not None:
            raise ParameterError("Inhabitants live on land: give --population or --land, not both.")
        if self.land is not None:
            return land_measure(self.land)
        if self.population is None or "zone" in self.population.column_names:
            return None
        columns = [_numbers(self.population, name) for name in ("lat", "lon", "population")]
        return population_measure(*columns)

    def by_tile(self) -> dict[str, float] | None:
        """Inhabitants of the tiles of the release's map."""
        if self.population is None or "zone" not in self.population.column_names:
            return None
        codes = self.population["zone"].cast(pa.string()).to_pylist()
        return dict(zip(codes, _numbers(self.population, "population").tolist(), strict=True))


def _numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    if name not in table.column_names:
        raise ParameterError(
            f"The population has no column '{name}'; needed are lat, lon and population, or zone"
            " and population."
        )
    values: NDArray[np.float64] = table[name].cast(pa.float64()).to_numpy()
    if not np.all(np.isfinite(values)) or (name == "population" and np.any(values < 0)):
        raise ParameterError(
            f"The population's column '{name}' must hold numbers (of inhabitants at least 0)."
        )
    return values


def reconstruct_tables(
    flows: pa.Table,
    zones: pa.Table,
    report: Mapping[str, Any],
    areas: int | ZoneMap,
    *,
    lookup: pa.Table | None = None,
    wishes: Wishes | None = None,
) -> pa.Table:
    """Returns the estimated flows of a published release between areas, sorted.

    ParameterError if they do not fit.

    ``areas`` are an H3 resolution, the release's own map, or any map with outlines; ``lookup``
    lists the tiles of the release's map in each zone, where it has one. Columns: ``origin``,
    ``destination``, ``time`` and further dimensions (slice columns, and folds in their finest
    values), ``trips`` and, where known, ``weight``.
    """
    asked = wishes or Wishes()
    ends = [_overlap(zones, report, areas, end, lookup, asked) for end in ENDS]
    separate = tuple(report["statement"]["slice_columns"])
    folds = [fold.name for fold in folds_of(flows, report["parameters"])]
    dimensions = sorted((*separate, *folds), key=lambda name: name != TIME)
    for name in asked.sum:
        if name not in dimensions:
            has = f"the dimensions {', '.join(dimensions)}" if dimensions else "no dimensions"
            raise ParameterError(f"--sum: the release has {has}; found '{name}'.")
    columns = [name for name in dimensions if name not in asked.sum]
    if columns and asked.totals is not None:
        raise ParameterError(
            "Known totals are for one matrix, and this release has several. Hint: add them up:"
            + "".join(f" --sum {name}" for name in columns)
        )
    table = _each_slice(
        flows,
        ends,
        separate,
        parameters=report["parameters"],
        complete=_are_districts(areas, report["parameters"]),
        sums=asked.sum,
        decay=asked.decay,
        bounds=asked.bounds,
    )
    if asked.per == "day":
        table = _per_day(table, report)
    if dimensions:
        table = _in_order(table, columns, sums=set(asked.sum) & set(separate))
    if asked.totals is not None:
        table = calibrated(table, asked.totals)
    return (rounded(table, keys=columns) if asked.whole else table).combine_chunks()


def dimensions_of(published: Published) -> list[str]:
    """Returns the dimensions of an estimate of a release, the time first."""
    statement = published.statement
    folds = [fold.name for fold in folds_of(published.cells, statement.parameters)]
    return sorted((*statement.slice_columns, *folds), key=lambda name: name != TIME)


def _in_order(table: pa.Table, columns: Sequence[str], *, sums: set[str]) -> pa.Table:
    """Returns the table with the dimensions behind both ends, sorted; ``sums`` are added up."""
    order = ["origin", "destination", *columns]
    volumes = [name for name in table.column_names if name not in {*order, *sums}]
    if sums:
        grouped = table.group_by(order, use_threads=False)
        added = grouped.aggregate([(name, "sum") for name in volumes])
        table = added.rename_columns([*order, *volumes])
    return table.select([*order, *volumes]).sort_by([(name, "ascending") for name in order])


def _each_slice(
    flows: pa.Table,
    ends: Sequence[Overlap],
    columns: Sequence[str],
    *,
    parameters: Mapping[str, Any],
    complete: bool = False,
    sums: Sequence[str] = (),
    bounds: bool = False,
    decay: bool = True,
    most_rows: int = MOST_ROWS,
) -> pa.Table:
    """The estimate of each slice, for each value of what folds, all between the same areas."""
    how: dict[str, Any] = {"decay": decay, "complete": complete, "most_rows": most_rows}
    origins, destinations = ends
    tables = []
    for key, cells in split_slices(flows, columns):
        folds = folds_of(cells, parameters)
        listed = [fold for fold in folds if fold.name not in sums]
        if listed:
            table = spread_over_values(
                cells, origins, destinations, listed, ranges=bounds, **how
            ).table()
        else:
            table = disaggregate(cells, origins, destinations, folded=bool(folds), **how).table(
                bounds=bounds
            )
        for name, value in key.items():
            table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        tables.append(table)
    return pa.concat_tables(tables)


def _are_districts(areas: int | ZoneMap, parameters: Mapping[str, Any]) -> bool:
    """Whether the areas are the districts whose pairs the release publishes whole."""
    level = (parameters.get("options") or {}).get("districts")
    if level is None or isinstance(areas, int):
        return level is not None and areas == level
    tree = areas.hierarchy
    return parameters.get("resolution") is None and bool(
        np.all(tree.level[tree.leaf_node] <= level)
    )


def _overlap(
    zones: pa.Table,
    report: Mapping[str, Any],
    areas: int | ZoneMap,
    end: str,
    lookup: pa.Table | None,
    asked: Wishes,
) -> Overlap:
    measure = asked.measure()
    resolution = report["parameters"].get("resolution")
    boxed = Facets.from_report(report).has_boxes
    if isinstance(areas, int):
        if boxed and 0 <= areas <= 15:
            return outline_overlap(zones, end, *hexagons_around(zones, areas), measure=measure)
        if resolution is None or not 0 <= areas <= resolution:
            raise ParameterError(
                "A number is an H3 resolution, from 0 to that of the release's tiles"
                + (
                    ", but this release is on the operator's map. Hint: name the map."
                    if resolution is None
                    else "."
                )
            )
        return h3_overlap(zones, end, level=areas, resolution=resolution, measure=measure)
    tree = areas.hierarchy
    codes = areas.tile_codes.astype(np.str_)
    if (
        lookup is not None
        and not boxed
        and set(lookup["tile"].to_pylist()) <= {*codes.tolist(), OUTSIDE}
    ):
        return map_overlap(
            zones, lookup, end, places=_tile_centers(tree, codes), worth=asked.by_tile()
        )
    if areas.outlines is None:
        raise ParameterError(
            "The release has tiles that this map does not have, and the map has no outlines to lay"
            " over its zones. Hint: name the map that the release was made on, with the same"
            " columns, or polygons."
        )
    return outline_overlap(zones, end, codes, areas.outlines, measure=measure)


def outline_of(areas: int | ZoneMap) -> Callable[[str], Any]:
    """A function from the code of an area to its outline; None for an area without one."""
    if isinstance(areas, int):
        return lambda code: None if code == OUTSIDE or "." in code else hexagon(code)
    tree, where = areas.hierarchy, areas.hierarchy.geography
    codes = areas.tile_codes.astype(np.str_).tolist()
    outlines = [None] * len(codes) if where is None else where.polygons(tree.leaf_node)
    return dict(zip(codes, outlines, strict=True)).get


def names_of(areas: int | ZoneMap, codes: Sequence[str]) -> dict[str, str]:
    """Returns the name of each area that has one: that of its map, or the nearest town."""
    if isinstance(areas, int):
        return names_of_hexagons(codes)
    tree = areas.hierarchy
    if tree.names is None:
        return {}
    own = dict(
        zip(
            areas.tile_codes.astype(np.str_).tolist(),
            tree.names[tree.leaf_node].tolist(),
            strict=True,
        )
    )
    return {code: own[code] for code in codes if own.get(code)}


def _tile_centers(tree: Hierarchy, codes: NDArray[np.str_]) -> dict[str, tuple[float, float]]:
    """Latitude and longitude of the tiles of a map, by code; empty if it has no places."""
    centers = None if tree.geography is None else tree.geography.centers(tree.leaf_node)
    return (
        {}
        if centers is None
        else dict(zip(codes.tolist(), zip(*centers, strict=True), strict=True))
    )


def _per_day(table: pa.Table, report: Mapping[str, Any]) -> pa.Table:
    """Returns the table divided by the days of the declared period."""
    try:
        period = report["statement"]["about"].get("period") or ""
        first, last = (date.fromisoformat(day) for day in period.split("/"))
    except ValueError:
        raise ParameterError(
            "The release does not declare its period as first and last day, so there is no mean of"
            " a day."
        ) from None
    days = (last - first).days + 1
    counts = [name for name in (*VOLUMES, LOWER, UPPER) if name in table.column_names]
    return with_columns(table, dict.fromkeys(counts, lambda values: values / days))


def estimate_tables(published: Published, zones: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Returns the estimate for each matrix of a release between areas of one size, in the form of
    published tables.

    Areas are the tiles of the operator's map, or H3 cells of the resolution that half of the trips'
    ends are known at, or of a coarser one where that would be too many. The first table has
    ``origin_zone``, ``destination_zone``, ``estimate``, where known ``estimate_weight``, and slice
    columns; the second the areas, as ``zone`` and where the map has names ``name``. In single
    precision, so that bytes do not depend on the machine.
    """
    table, names = None, None
    separate, parameters = published.statement.slice_columns, published.statement.parameters
    how: dict[str, Any] = {"parameters": parameters, "most_rows": MOST_ROWS_OF_TABLES}
    if isinstance(published.map, TreeMap):
        tree, lookup = published.map.tree, lookup_table(published, zones)
        assert lookup is not None
        codes = tree.code_text(tree.leaf_node)
        names = (
            None
            if tree.names is None
            else dict(zip(codes, tree.names[tree.leaf_node], strict=True))
        )
        places = _tile_centers(tree, codes)
        ends = [map_overlap(zones, lookup, end, places=places, worth=None) for end in ENDS]
        table = _each_slice(published.cells, ends, separate, **how)
    elif isinstance(published.map, H3Map):
        table = _between_hexagons(published.cells, zones, published.map.resolution, separate, how)
    if table is None:
        raise ParameterError(
            "OMX holds an estimate of a release in layers, and this one belongs to no map. "
            "Hint: --method twincut, or another format."
        )
    columns = dimensions_of(published)
    table = _in_order(table, columns, sums=set())
    table = table.rename_columns([ESTIMATED.get(name, name) for name in table.column_names])
    volumes = [name for name in ("estimate", "estimate_weight") if name in table.column_names]
    table = with_columns(table, dict.fromkeys(volumes, lambda values: values.astype(np.float32)))
    areas = sorted({*table["origin_zone"].to_pylist(), *table["destination_zone"].to_pylist()})
    if len(areas) > MOST_AREAS_OF_TABLES:
        raise ParameterError(
            f"An OMX matrix is square; allowed are {MOST_AREAS_OF_TABLES:,} areas. Hint: --method"
            " twincut, another format, or flowveil reconstruct with larger areas."
        )
    names = names_of_hexagons(areas) if isinstance(published.map, H3Map) else names or {}
    named_areas = {"name": [names.get(area) or None for area in areas]} if names else {}
    return table, pa.table({"zone": areas, **named_areas})


def _between_hexagons(
    flows: pa.Table,
    zones: pa.Table,
    resolution: int,
    separate: Sequence[str],
    how: Mapping[str, Any],
) -> pa.Table | None:
    """The estimate between H3 cells of the finest resolution, up to the typical one, that is not
    too fine.
    """
    for level in range(min(_typical_level(flows, zones), resolution), -1, -1):
        ends = [h3_overlap(zones, end, level=level, resolution=resolution) for end in ENDS]
        if max(len(end.codes) for end in ends) > MOST_AREAS_OF_TABLES:
            continue
        with suppress(ParameterError):
            return _each_slice(flows, ends, separate, **how)
    return None


def _typical_level(flows: pa.Table, zones: pa.Table) -> int:
    """The level that half of the ends of trips are known at.

    They are in zones of this level or a finer one.
    """
    levels, volumes = [], []
    for end in ENDS:
        listed = zones_of(zones, end)
        levels.append(listed["level"].to_numpy().astype(np.int64)[zone_of_flow(flows, listed, end)])
        volumes.append(flows["trips"].to_numpy())
    level, volume = np.concatenate(levels), np.concatenate(volumes)
    order = np.argsort(level, kind="stable")
    return max(int(level[order][np.searchsorted(np.cumsum(volume[order]), volume.sum() / 2)]), 0)


def check_out(path: str | PathLike[str]) -> None:
    """Refuses a file of no format (ParameterError), or that cannot be written (OutputError), before
    any work.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ParameterError(
            f"The table must be {', '.join(SUFFIXES)}; found '{Path(path).suffix}'."
        )
    check_file(path)


def write_reconstructed(
    table: pa.Table,
    path: str | PathLike[str],
    *,
    areas: int | ZoneMap,
) -> None:
    """Writes a table of estimated flows; the suffix of the file is the format.

    Every format says that values are estimates: a column ``kind``, or in OMX the names of the
    matrices, ``estimate`` and ``estimate_weight``. CSV and GeoPackage have the names of areas next
    to their codes, OMX in a lookup.
    """
    kind, codes = Path(path).suffix.lower(), _areas(table)
    if kind == ".omx":
        check_omx(len(codes))
    names = {} if kind == ".parquet" else names_of(areas, codes)
    columns = dimensions_in(table)
    renamed = table.rename_columns([ESTIMATED.get(name, name) for name in table.column_names])
    marked = table.append_column("kind", pa.array(["estimate"] * len(table), pa.string()))
    if names:
        for end in ENDS:
            called = pa.array([names.get(code) for code in table[end].to_pylist()], pa.string())
            at = marked.schema.get_field_index(end) + 1
            marked = marked.add_column(at, f"{end}_name", called)
    write = {
        ".parquet": lambda place: pq.write_table(marked, place, compression="zstd", version="2.6"),
        ".csv": lambda place: write_csv(
            marked.filter(pc.greater_equal(marked["trips"], LEAST_IN_CSV)), place
        ),
        ".omx": lambda place: write_omx(
            place, renamed, lookup_codes(codes), names=names, slice_columns=columns
        ),
        ".gpkg": lambda place: _write_geopackage(marked, place, outline_of(areas)),
    }
    write_files({path: write[kind]})


def dimensions_in(table: pa.Table) -> list[str]:
    """Returns the dimensions of a table of `reconstruct_tables`."""
    others = {"origin", "destination", *VOLUMES, LOWER, UPPER}
    return [name for name in table.column_names if name not in others]


def _areas(table: pa.Table) -> list[str]:
    return sorted({*table["origin"].to_pylist(), *table["destination"].to_pylist()})


def _write_geopackage(table: pa.Table, place: Path, outline: Callable[[str], Any]) -> None:
    """The areas with their estimated starts and ends, and the flows as lines between their
    centres.
    """
    shapes = {code: shape for code in _areas(table) if (shape := outline(code)) is not None}
    codes, trips = pa.array(list(shapes), pa.string()), table["trips"].to_numpy()
    start, stop = (
        pc.index_in(table[end], value_set=codes).fill_null(-1).to_numpy() for end in ENDS
    )
    starts, ends = (np.bincount(at[at >= 0], trips[at >= 0], len(codes)) for at in (start, stop))
    areas = pa.table({"area": codes, "starts": starts, "ends": ends})
    drawn = np.flatnonzero((start >= 0) & (stop >= 0))
    centre = shapely.get_coordinates(shapely.centroid(list(shapes.values()))).reshape(-1, 2)
    lines = shapely.linestrings(np.stack((centre[start[drawn]], centre[stop[drawn]]), axis=1))
    layers = {
        "areas": (areas, as_multi(list(shapes.values())), "MULTIPOLYGON"),
        "flows": (table.take(pa.array(drawn)), lines, "LINESTRING"),
    }
    write_geopackage(place, layers, description="Estimate from a published release; not counts.")
