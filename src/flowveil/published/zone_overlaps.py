"""How published zones and a reader's areas overlap, at one end of a matrix.

Areas are H3 cells of one resolution, tiles of the release's own map, or polygons of the reader. An
overlap is measured in tiles or square kilometres, or by public weights: inhabitants, or land.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h3.api.basic_int as h3_int
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from numpy.typing import NDArray

from flowveil.core.arrays import Cells64, Floats, Ints, Outlines, Positions
from flowveil.core.errors import ParameterError
from flowveil.core.hierarchy import OUTSIDE
from flowveil.published.maps import geometries, zones_of
from flowveil.zoning.h3 import n_descendants, parent_of, resolution_of
from flowveil.zoning.outlines import dissolved

#: What H3 cells, or outlines, are worth: tiles, square kilometres, inhabitants or land.
Measure = Callable[[Any], Floats]

#: Zones of more areas than this are spread only over areas with smaller zones: nothing is known of
#: the rest.
MOST_AREAS = 343
#: Kilometres of a degree of latitude.
_DEGREE_KM = 111.195


@dataclass(frozen=True, eq=False)
class Overlap:
    """The areas that each zone of one end touches."""

    zones: pa.Array  # codes of the zones
    # the areas of zone z are the slice ``first[z]:first[z + 1]`` of ``area`` and ``measure``
    first: Positions
    area: Ints  # numbers of areas
    measure: Floats  # how much of the area is in the zone
    size: Floats  # how much each whole area is worth, in the same unit
    codes: NDArray[np.str_]  # codes of the areas, sorted
    partial: NDArray[np.bool_]  # zones that also have areas that are not listed
    lat: Floats | None = (
        None  # centres of the areas, NaN for an area without one; None if unknown for all
    )
    lon: Floats | None = None

    @classmethod
    def of(
        cls,
        zones: Sequence[str],
        zone: Any,
        code: NDArray[np.str_],
        measure: Floats,
        size: dict[str, float] | None,
    ) -> Overlap:
        """Overlaps (zone, code and measure of an area) in any order, those of the same zone and
        area added up.

        ``size`` is what whole areas are worth; by default the largest sum of disjoint overlaps that
        is known.
        """
        codes, area = np.unique(code, return_inverse=True)
        key, where = np.unique(
            np.asarray(zone, dtype=np.int64) * len(codes) + area, return_inverse=True
        )
        summed = sum_by(where, measure, len(key))
        first = np.searchsorted(key, np.arange(len(zones) + 1) * len(codes))
        sizes, area = np.zeros(len(codes)), (key % len(codes)).astype(np.int32)
        np.maximum.at(sizes, area, summed)
        if size is not None:
            sizes = np.array(
                [size.get(c, v) for c, v in zip(codes.tolist(), sizes.tolist(), strict=True)]
            )
        partial = np.zeros(len(zones), dtype=np.bool_)
        return cls(pa.array(zones, pa.string()), first, area, summed, sizes, codes, partial)

    def placed(self, centres: Mapping[str, tuple[float, float]], **changes: Any) -> Overlap:
        """Returns the same with the latitude and longitude of its areas, where known."""
        lat, lon = (
            np.array([centres.get(c, (np.nan, np.nan)) for c in self.codes.tolist()])
            .reshape(-1, 2)
            .T
        )
        return replace(self, lat=lat, lon=lon, **changes)

    def numbers(self, codes: pa.ChunkedArray) -> Positions:
        """The zone of each code, or ParameterError if one is not listed."""
        numbers = pc.index_in(codes, value_set=self.zones)
        if numbers.null_count:
            raise ParameterError("The flows name zones that the list of zones does not have.")
        return np.asarray(numbers.to_numpy(), dtype=np.int64)


def sum_by(number: Any, values: Any, n: int) -> Floats:
    """Sums of values by number, from 0 to n."""
    return np.asarray(np.bincount(number, values, n), dtype=np.float64)


def h3_overlap(
    zones: pa.Table, end: str, *, level: int, resolution: int, measure: Measure | None = None
) -> Overlap:
    """Returns the overlap of the zones of an end with the H3 cells of a level, by ``measure`` or
    number of tiles.
    """
    worth = measure or (lambda cells: n_descendants(cells, resolution).astype(np.float64))
    listed = zones_of(zones, end)
    codes = listed["zone"].to_pylist()
    zone, cells = _cells_of(listed)
    finer = resolution_of(cells) >= level
    n_areas = np.bincount(
        zone, np.where(finer, 1.0, 7.0 ** (level - resolution_of(cells))), len(codes)
    )
    large = n_areas > MOST_AREAS
    if large.all():
        large[:] = n_areas > n_areas.min()
    # Zone, area, and the part of the area that is in the zone.
    parts = [(zone[finer], parent_of(cells[finer], level), cells[finer])]
    for at in np.flatnonzero(~finer & ~large[zone]).tolist():
        children = np.array(h3_int.cell_to_children(int(cells[at]), level), dtype=np.uint64)
        parts.append((np.full(len(children), zone[at]), children, children))
    known = np.unique(np.concatenate([area for _, area, _ in parts]))
    for r in np.unique(resolution_of(cells[~finer & large[zone]])).tolist():
        above = np.flatnonzero(~finer & large[zone] & (resolution_of(cells) == r))
        up = parent_of(known, r)
        order = np.argsort(up, kind="stable")
        low, high = (
            np.searchsorted(up[order], cells[above], side=side) for side in ("left", "right")
        )
        within = known[
            np.concatenate([order[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)])
        ]
        parts.append((np.repeat(zone[above], high - low), within, within))
    of_zone, area, pieces = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    piece, where = np.unique(pieces, return_inverse=True)
    # What lies outside has no cells; a large zone without a known area inside stays one area, under
    # its own code.
    outside = np.setdiff1d(np.arange(len(codes)), of_zone)
    unplaced = np.where(np.isin(outside, zone), np.array(codes, dtype=np.str_)[outside], OUTSIDE)
    names = _texts(known).tolist()
    overlap = Overlap.of(
        codes,
        np.concatenate([of_zone, outside]),
        np.concatenate([_texts(area), unplaced]),
        np.concatenate([worth(piece)[where], np.ones(len(outside))]),
        dict(zip(names, worth(known).tolist(), strict=True)),
    )
    centres = (h3_int.cell_to_latlng(int(cell)) for cell in known)
    return overlap.placed(dict(zip(names, centres, strict=True)), partial=large)


def _cells_of(listed: pa.Table) -> tuple[Positions, Cells64]:
    """The zone of each H3 cell, and the cell; zones outside the area have none."""
    codes = listed["zone"].to_pylist()
    parts = (
        listed["h3_cells"].to_pylist()
        if "h3_cells" in listed.column_names
        else [[c] for c in codes]
    )
    zone = np.repeat(np.arange(len(codes)), [len(part) for part in parts])
    try:
        cells = np.array([int(cell, 16) for part in parts for cell in part], dtype=np.uint64)
    except ValueError:
        raise ParameterError(
            "Some zones of this release are not H3 cells; they cannot be spread."
        ) from None
    return zone, cells


def _texts(cells: Cells64) -> NDArray[np.str_]:
    return np.array([format(cell, "x") for cell in cells.tolist()], dtype=np.str_)


def map_overlap(
    zones: pa.Table,
    lookup: pa.Table,
    end: str,
    *,
    places: dict[str, tuple[float, float]],
    worth: dict[str, float] | None,
) -> Overlap:
    """Returns the tiles of each zone, from the release's own table ``zone``, ``role``, ``tile``.

    ``places`` are the centres of the tiles, ``worth`` for example their inhabitants; by default all
    are worth the same.
    """
    codes = zones_of(zones, end)["zone"]
    rows = lookup.filter(
        pc.is_in(lookup["role"], value_set=pa.array([end, "both"]))
    ).combine_chunks()
    at = pc.index_in(rows["zone"], value_set=codes.combine_chunks())
    rows, at = rows.filter(at.is_valid()), at.drop_null().to_numpy()
    if len(np.unique(at)) < len(codes):
        raise ParameterError("Some zones of the release have no tiles in its lookup.csv.")
    tiles = np.array(rows["tile"].to_pylist(), dtype=np.str_)
    measure = np.array([1.0 if worth is None else worth.get(tile, 0.0) for tile in tiles.tolist()])
    return Overlap.of(codes.to_pylist(), at, tiles, measure, None).placed(places)


def outline_overlap(
    zones: pa.Table,
    end: str,
    codes: NDArray[np.str_],
    outlines: Outlines,
    *,
    measure: Measure | None = None,
) -> Overlap:
    """Returns the parts (``measure``, area by default) of each zone in a reader's polygons.

    The rest is ``outside``.
    """
    worth = measure or areas_km2
    listed = zones_of(zones, end)
    shapes = geometries(listed)
    drawn = np.flatnonzero(~shapely.is_missing(shapes))
    if len(drawn) == 0:
        raise ParameterError(
            "The zones of this release have no outlines, so areas of one's own cannot be laid over"
            " them."
        )
    zone, area = shapely.STRtree(outlines).query(shapes[drawn], predicate="intersects")
    zone = drawn[zone]
    inside = worth(shapely.intersection(shapes[zone], outlines[area]))
    kept = inside > 0
    zone, area, inside = zone[kept], area[kept], inside[kept]
    covered = np.bincount(zone, inside, len(listed))
    whole = np.ones(len(listed))
    whole[drawn] = worth(shapes[drawn])
    # Outlines fit together up to rounding.
    left = np.flatnonzero(
        whole - covered > 1e-6 * np.maximum(whole, covered) if whole.any() else covered == 0
    )
    left = np.union1d(left, np.flatnonzero(covered == 0))
    found = Overlap.of(
        listed["zone"].to_pylist(),
        np.concatenate([zone, left]),
        np.concatenate([codes[area], np.full(len(left), OUTSIDE)]),
        np.concatenate([inside, np.maximum(whole - covered, 1e-12)[left]]),
        dict(zip(codes.tolist(), worth(outlines).tolist(), strict=True)),
    )
    # The centroid of an outline on both sides of 180 degrees is on neither.
    middle = np.where(
        _is_split(outlines), shapely.point_on_surface(outlines), shapely.centroid(outlines)
    )
    places = dict(
        zip(
            codes.tolist(),
            zip(shapely.get_y(middle), shapely.get_x(middle), strict=True),
            strict=True,
        )
    )
    return found.placed(places)


def areas_km2(outlines: Outlines) -> Floats:
    """Areas of outlines in degrees, on a plane at their own latitude.

    Good to 1 % for areas of up to 100 km.
    """
    bounds = np.nan_to_num(shapely.bounds(outlines))
    middle = (bounds[:, 1] + bounds[:, 3]) / 2
    return np.asarray(
        shapely.area(outlines) * _DEGREE_KM**2 * np.cos(np.radians(middle)), dtype=np.float64
    )


def hexagons_around(zones: pa.Table, level: int) -> tuple[NDArray[np.str_], Outlines]:
    """Returns the H3 cells of a level that cover zones with outlines, for zones that are not made
    of such cells.
    """
    shapes = shapely.from_wkb(zones["geometry"].drop_null().to_numpy(zero_copy_only=False))
    size = shapely.area(shapes)
    small = shapes[size <= max(np.quantile(size, 0.9), MOST_AREAS * size.min(initial=np.inf))]
    cells: set[int] = set()
    for part in shapely.get_parts(small):
        middle = part.centroid
        inside = h3_int.geo_to_cells(part, level) or [
            h3_int.latlng_to_cell(middle.y, middle.x, level)
        ]
        cells.update(*(h3_int.grid_disk(cell, 1) for cell in inside))
    cells64 = np.array(sorted(cells), dtype=np.uint64)
    return _texts(cells64), _hexagons(cells64)


def land_measure(land: Outlines) -> Measure:
    """Square kilometres of land of H3 cells, or of outlines."""
    ground = shapely.union_all(land)
    shapely.prepare(ground)

    def measure(places: Any) -> Floats:
        shapes = _hexagons(places) if places.dtype == np.uint64 else places
        dry = shapely.contains_properly(ground, shapes)
        parts = shapes.copy()
        parts[~dry] = shapely.intersection(shapes[~dry], ground)
        return areas_km2(parts)

    return measure


def population_measure(lat: Floats, lon: Floats, inhabitants: Floats) -> Measure:
    """Inhabitants of H3 cells, or of outlines, from points with inhabitants."""
    pairs = zip(lat.tolist(), lon.tolist(), strict=True)
    finest = np.array([h3_int.latlng_to_cell(y, x, 13) for y, x in pairs], dtype=np.uint64)
    points = shapely.points(lon, lat)

    def measure(places: Any) -> Floats:
        if places.dtype != np.uint64:
            shape, at = shapely.STRtree(points).query(places, predicate="intersects")
            return sum_by(shape, inhabitants[at], len(places))
        found = np.zeros(len(places))
        for r in np.unique(resolution_of(places)).tolist():
            here = np.flatnonzero(resolution_of(places) == r)
            cells, of_point = np.unique(parent_of(finest, r), return_inverse=True)
            held = np.bincount(of_point, inhabitants, len(cells))
            at = np.minimum(np.searchsorted(cells, places[here]), len(cells) - 1)
            found[here] = np.where(cells[at] == places[here], held[at], 0.0)
        return found

    return measure


def _hexagons(cells: Cells64) -> Outlines:
    return np.array([hexagon(code) for code in _texts(cells).tolist()], dtype=object)


def hexagon(code: str) -> Any:
    """The outline of an H3 cell, split where it crosses the 180th meridian."""
    cell = int(code, 16)
    outline = shapely.Polygon([(x, y) for y, x in h3_int.cell_to_boundary(cell)])
    if not _is_split(np.array([outline]))[0]:
        return outline
    return dissolved([[cell]], h3_int.get_resolution(cell), decimals=12)[0][0]


def _is_split(outlines: Outlines) -> NDArray[np.bool_]:
    west, _, east, _ = shapely.bounds(outlines).T
    return np.asarray(east - west > 180)
