"""A published release as a matrix between a reader's areas: H3 cells, tiles of the release's map, or polygons.

A pure function of published tables, the areas, and public weights that the reader brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from flowveil.errors import ParameterError
from flowveil.hierarchy import OUTSIDE
from flowveil.published.disaggregation import VOLUMES, calibrated, disaggregate, rounded
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

if TYPE_CHECKING:
    from flowveil.zoning.files import ZoneMap

ENDS = ("origin", "destination")


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
                + (", but this release is on a map of its own. Hint: name the map." if resolution is None else ".")
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
    for name in (*VOLUMES, "trips_low", "trips_high"):
        if name in table.column_names:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.array(table[name].to_numpy() / days))
    return table
