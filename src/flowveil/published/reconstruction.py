"""A published release as a matrix between a reader's areas: H3 cells, tiles of the release's map, or polygons.

A pure function of published tables, the areas, and public weights that the reader brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.hierarchy import OUTSIDE
from flowveil.published.disaggregation import LOWER, UPPER, VOLUMES, calibrated, disaggregate, rounded
from flowveil.published.matrices import ESTIMATED
from flowveil.published.slices import split_slices
from flowveil.published.tables import lookup_table
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
    zones_of_end,
)
from flowveil.zoning.public_map import H3Map, TreeMap

if TYPE_CHECKING:
    from flowveil.release.published import Published
    from flowveil.zoning.files import ZoneMap

ENDS = ("origin", "destination")
#: Areas of `estimate_tables`: more make an OMX file that few programs can hold.
MOST_AREAS_OF_TABLES = 5_000
#: Rows of `estimate_tables`: between H3 cells, more choose a coarser resolution. Takes 1 GB.
MOST_ROWS_OF_TABLES = 3_000_000


@dataclass(frozen=True, eq=False)
class Wishes:
    """What a reader asks of an estimate.

    Attributes:
        population: points with inhabitants (``lat``, ``lon``, ``population``), or ``zone`` and ``population`` for the
            tiles of the release's map: trips start and end where people are.
        land: polygons in degrees outside of which no trip starts or ends.
        decay: whether trips get rarer with distance as the published cells show.
        whole: whole trips, totals kept.
        bounds: also the trips that cells prove, and the most that they allow.
        per: ``day``: the mean of a day of the period that the release declares.
        totals: known totals: ``area``, ``origins``, ``destinations``.
    """

    population: pa.Table | None = None
    land: NDArray[np.object_] | None = None
    decay: bool = True
    whole: bool = False
    bounds: bool = False
    per: Literal["day"] | None = None
    totals: pa.Table | None = None

    def measure(self) -> Measure | None:
        """What places are worth; None for their size.

        Raises:
            ParameterError: both weights are given, or columns are missing.
        """
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
            f"The population has no column '{name}'; needed are lat, lon and population, or zone and population."
        )
    values: NDArray[np.float64] = table[name].cast(pa.float64()).to_numpy()
    if not np.all(np.isfinite(values)) or (name == "population" and np.any(values < 0)):
        raise ParameterError(f"The population's column '{name}' must hold numbers (of inhabitants at least 0).")
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
    """Estimate the flows of a published release between areas.

    Args:
        flows, zones, report: as published.
        areas: an H3 resolution, the release's own map, or any map with outlines.
        lookup: which tiles of the release's map each zone holds, where it has one.
        wishes: how to estimate, and in which form.

    Returns:
        ``origin``, ``destination``, slice columns, the estimated ``trips`` and, where known, ``weight``; sorted.

    Raises:
        ParameterError: the areas do not fit the release, or are too fine for its cells.
    """
    asked = wishes or Wishes()
    ends = [_overlap(zones, report, areas, end, lookup, asked) for end in ENDS]
    columns = tuple(_stated(report, "slice_columns") or ())
    if columns and asked.totals is not None:
        raise ParameterError("Known totals are for one matrix, and this release has slices.")
    tables = []
    for key, part in _matrices(flows, columns):
        table = disaggregate(part, ends[0], ends[1], decay=asked.decay).table(bounds=asked.bounds)
        table = _per_day(table, report) if asked.per == "day" else table
        for at, (name, value) in enumerate(zip(columns, key, strict=True), start=2):
            table = table.add_column(at, name, pa.array([value] * len(table), pa.string()))
        tables.append(table)
    table = pa.concat_tables(tables)
    if columns:
        table = table.sort_by([(name, "ascending") for name in (*ENDS, *columns)])
    if asked.totals is not None:
        table = calibrated(table, asked.totals)
    return (rounded(table, keys=columns) if asked.whole else table).combine_chunks()


def _matrices(flows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The matrices of the slices, with their values; a release of one matrix has one, without values."""
    if not columns:
        yield (), flows
        return
    for key in sorted(set(zip(*(flows[name].to_pylist() for name in columns), strict=True)), key=str):
        mask = np.ones(len(flows), dtype=np.bool_)
        for name, value in zip(columns, key, strict=True):
            same = pc.is_null(flows[name]) if value is None else pc.equal(flows[name], value).fill_null(False)
            mask &= same.to_numpy(zero_copy_only=False)
        yield key, flows.filter(pa.array(mask))


def _overlap(
    zones: pa.Table, report: Mapping[str, Any], areas: int | ZoneMap, end: str, lookup: pa.Table | None, asked: Wishes
) -> Overlap:
    measure = asked.measure()
    resolution = report["parameters"].get("resolution")
    boxed = report["kind"] == "boxed"
    if isinstance(areas, int):
        if boxed and 0 <= areas <= 15:
            return outline_overlap(zones, end, *hexagons_around(zones, areas), measure=measure)
        if resolution is None or not 0 <= areas <= resolution:
            raise ParameterError(
                "A number is an H3 resolution, from 0 to that of the release's tiles"
                + (", but this release is on the operator's map. Hint: name the map." if resolution is None else ".")
            )
        return h3_overlap(zones, end, level=areas, resolution=resolution, measure=measure)
    tree = areas.hierarchy
    codes = areas.tile_codes.astype(np.str_)
    where = tree.geography
    if lookup is not None and not boxed and set(lookup["tile"].to_pylist()) <= {*codes.tolist(), OUTSIDE}:
        centers = None if where is None else where.centers(tree.leaf_node)
        places = {} if centers is None else dict(zip(codes.tolist(), zip(*centers, strict=True), strict=True))
        return map_overlap(zones, lookup, end, places=places, worth=asked.by_tile())
    outlines = None if areas.locator is None or where is None else where.polygons(tree.leaf_node)
    if outlines is None:
        raise ParameterError(
            "The release has tiles that this map does not have, and the map has no outlines to lay over its zones. "
            "Hint: name the map that the release was made on, with the same columns, or polygons."
        )
    return outline_overlap(zones, end, codes, outlines, measure=measure)


def outline_of(areas: int | ZoneMap) -> Callable[[str], Any]:
    """A function from the code of an area to its outline; None for an area without one."""
    if isinstance(areas, int):
        return lambda code: None if code == OUTSIDE else hexagon(code)
    tree, where = areas.hierarchy, areas.hierarchy.geography
    codes = areas.tile_codes.astype(np.str_).tolist()
    outlines = [None] * len(codes) if where is None else where.polygons(tree.leaf_node)
    return dict(zip(codes, outlines, strict=True)).get


def _stated(report: Mapping[str, Any], name: str) -> Any:
    """An entry of the statement, which reports before 0.3 have at their top."""
    statement = report.get("statement")
    return statement[name] if isinstance(statement, Mapping) and name in statement else report.get(name)


def _per_day(table: pa.Table, report: Mapping[str, Any]) -> pa.Table:
    """The table divided by the days of the declared period."""
    about = _stated(report, "about") or {}
    try:
        first, last = (date.fromisoformat(day) for day in (about.get("period") or "").split("/"))
    except ValueError:
        raise ParameterError(
            "The release does not declare its period as first and last day, so there is no mean of a day."
        ) from None
    days = (last - first).days + 1
    for name in (*VOLUMES, LOWER, UPPER):
        if name in table.column_names:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.array(table[name].to_numpy() / days))
    return table


# ---- one matrix between common areas, for the page and for OMX ----------------------------------------------------


def estimate_tables(published: Published, zones: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The estimate for each matrix of a release between areas of one size, in the form of published tables.

    Areas are the tiles of the operator's map, or H3 cells of the resolution that half of the trips' ends are known
    at, or of a coarser one where that would be too many.

    Returns:
        ``origin_zone``, ``destination_zone``, ``estimate``, where known ``estimate_weight``, and slice columns; and the
        areas, as ``zone`` and where the map has names ``name``. In single precision, so that bytes do not depend on
        the machine.

    Raises:
        ParameterError: the release belongs to no map, or the areas would be too many.
    """
    table, names = None, None
    columns = published.statement.slice_columns
    if isinstance(published.map, TreeMap):
        table = _between_tiles(published, zones)
        tree = published.map.tree
        tiles = tree.leaf_node
        names = None if tree.names is None else dict(zip(tree.code_text(tiles), tree.names[tiles], strict=True))
    elif isinstance(published.map, H3Map):
        table = _between_hexagons(published.cells, zones, published.map.resolution, columns)
    if table is None:
        raise ParameterError(
            "OMX holds an estimate of a release in layers, and this one belongs to no map. "
            "Hint: --method twincut, or another format."
        )
    for name in (name for name in ("estimate", "estimate_weight") if name in table.column_names):
        values = pa.array(table[name].to_numpy().astype(np.float32))
        table = table.set_column(table.schema.get_field_index(name), name, values)
    areas = sorted({*table["origin_zone"].to_pylist(), *table["destination_zone"].to_pylist()})
    if len(areas) > MOST_AREAS_OF_TABLES:
        raise ParameterError(
            f"An OMX matrix is square; allowed are {MOST_AREAS_OF_TABLES:,} areas. Hint: --method twincut, another "
            "format, or flowveil reconstruct with larger areas."
        )
    named_areas = {} if names is None else {"name": [names.get(area) or None for area in areas]}
    return table, pa.table({"zone": areas, **named_areas})


def _between_tiles(published: Published, zones: pa.Table) -> pa.Table:
    """The estimate between the tiles of the operator's map."""
    assert isinstance(published.map, TreeMap)
    tree, lookup = published.map.tree, lookup_table(published, zones)
    assert lookup is not None
    centers = None if tree.geography is None else tree.geography.centers(tree.leaf_node)
    codes = tree.code_text(tree.leaf_node).tolist()
    places = {} if centers is None else dict(zip(codes, zip(*centers, strict=True), strict=True))
    ends = [map_overlap(zones, lookup, end, places=places, worth=None) for end in ENDS]
    return _each_slice(published.cells, ends[0], ends[1], published.statement.slice_columns)


def _each_slice(flows: pa.Table, origins: Overlap, destinations: Overlap, columns: Sequence[str]) -> pa.Table:
    """The estimate of each slice, all between the same areas."""
    tables = []
    for key, cells in split_slices(flows, columns):
        table = disaggregate(cells, origins, destinations, most_rows=MOST_ROWS_OF_TABLES).table()
        table = table.rename_columns([ESTIMATED[name] for name in table.column_names])
        for name, value in key.items():
            table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        tables.append(table)
    return pa.concat_tables(tables)


def _between_hexagons(flows: pa.Table, zones: pa.Table, resolution: int, columns: Sequence[str]) -> pa.Table | None:
    """The estimate between H3 cells of the finest resolution, up to the typical one, that is not too fine."""
    for level in range(min(typical_level(flows, zones), resolution), -1, -1):
        ends = [h3_overlap(zones, end, level=level, resolution=resolution) for end in ENDS]
        if max(len(end.codes) for end in ends) > MOST_AREAS_OF_TABLES:
            continue
        with suppress(ParameterError):
            return _each_slice(flows, ends[0], ends[1], columns)
    return None


def typical_level(flows: pa.Table, zones: pa.Table) -> int:
    """The level that half of the ends of trips are known at: they are in zones of this level or a finer one."""
    levels, volumes = [], []
    for end in ENDS:
        listed = zones_of_end(zones, end)
        at = pc.index_in(flows[f"{end}_zone"], value_set=listed["zone"].combine_chunks()).to_numpy()
        levels.append(listed["level"].to_numpy().astype(np.int64)[at])
        volumes.append(flows["trips"].to_numpy())
    level, volume = np.concatenate(levels), np.concatenate(volumes)
    order = np.argsort(level, kind="stable")
    return max(int(level[order][np.searchsorted(np.cumsum(volume[order]), volume.sum() / 2)]), 0)
